//! All event types with writers and subject keys; one file per writer holds the structs. The registry at the
//! end is the only list, from which the codec, the writer table, the subjects and the schemas derive.

mod admission;
mod archiver;
mod autoscaler;
mod checkpointer;
mod gateway;
mod node;
mod operator;
mod optimizer;
mod placer;
mod slurm;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use admission::*;
pub use archiver::*;
pub use autoscaler::*;
pub use checkpointer::*;
pub use gateway::*;
pub use node::*;
pub use operator::*;
pub use optimizer::*;
pub use placer::*;
pub use slurm::*;

use crate::ids::Sequence;
use crate::time::Timestamp;
use crate::who::By;

/// The inputs of a decision, sufficient to repeat the decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Basis {
    /// The last sequence folded.
    pub asof: Sequence,
    /// The time of the decision.
    pub now: Timestamp,
    /// The events that required the decision.
    #[serde(default)]
    pub causes: Vec<Sequence>,
    /// The deciding build.
    pub build: String,
    /// Hash of the folded state; sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_hash: Option<String>,
    /// The solver's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// The limits of a solver, the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Stop at this proven relative gap.
    pub gap: f64,
    /// Stop after this much work, in steps of the search.
    pub work: u64,
}

/// The author of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Writer {
    Operator,
    Admission,
    Optimizer,
    Placer,
    Checkpointer,
    /// Under its own node.
    Node,
    Autoscaler,
    /// Under its own name.
    Gateway,
    Archiver,
    Slurm,
}

impl Writer {
    /// Every writer.
    pub const ALL: [Self; 10] = [
        Self::Operator,
        Self::Admission,
        Self::Optimizer,
        Self::Placer,
        Self::Checkpointer,
        Self::Node,
        Self::Autoscaler,
        Self::Gateway,
        Self::Archiver,
        Self::Slurm,
    ];

    /// True next to jobs or clients: such events are validated first.
    #[must_use]
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Node | Self::Gateway)
    }

    /// Returns the source of the writer `name`.
    #[must_use]
    pub fn source(self, name: &str) -> String {
        format!("/dormouse/{self}/{name}")
    }

    /// Returns the subject token.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Admission => "admission",
            Self::Optimizer => "optimizer",
            Self::Placer => "placer",
            Self::Checkpointer => "checkpointer",
            Self::Node => "node",
            Self::Autoscaler => "autoscaler",
            Self::Gateway => "gateway",
            Self::Archiver => "archiver",
            Self::Slurm => "slurm",
        }
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Writer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|writer| writer.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a writer"))
    }
}

/// The subject key, between writer and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// The only shard.
    Shard,
    /// Tenant and name.
    Job(&'a crate::ids::JobId),
    Node(&'a crate::ids::NodeId),
    Gateway(&'a crate::ids::GatewayId),
}

macro_rules! registry {
    ($( $writer:ident $group:ident {
        $( $name:ident $type:literal $key:tt $basis:ident $(also $also:ident)*; )*
    } )*) => {
        /// An event of the log.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Event {
            $($(
                #[doc = concat!("`dormouse.", $type, "`")]
                $name(Box<$name>),
            )*)*
        }

        /// The event types, in the order of [`Event::TYPES`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventType {
            $($(
                #[doc = concat!("`dormouse.", $type, "`")]
                $name,
            )*)*
        }

        impl EventType {
            /// Returns the known type of this name.
            #[must_use]
            pub fn of(type_name: &str) -> Option<Self> {
                match type_name {
                    $($( concat!("dormouse.", $type) => Some(Self::$name), )*)*
                    _ => None,
                }
            }

            /// Returns the name on the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($( Self::$name => concat!("dormouse.", $type), )*)* }
            }

            /// Decodes the data of an event of this type.
            ///
            /// # Errors
            /// The deserializer's.
            pub fn deserialize<'de, D: serde::Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Event, D::Error> {
                match self {
                    $($( Self::$name => {
                        <$name>::deserialize(deserializer).map(|event| Event::$name(Box::new(event)))
                    } )*)*
                }
            }
        }

        impl Event {
            /// Names and versions, without `dormouse.`.
            pub const TYPES: &'static [&'static str] = &[ $($( $type, )*)* ];

            /// Returns the type.
            #[must_use]
            pub const fn event_type(&self) -> EventType {
                match self { $($( Self::$name(_) => EventType::$name, )*)* }
            }

            /// Returns the name on the log.
            #[must_use]
            pub const fn type_name(&self) -> &'static str {
                self.event_type().as_str()
            }

            /// Returns the permitted writers.
            #[must_use]
            pub const fn writers(&self) -> &'static [Writer] {
                match self {
                    $($( Self::$name(_) => &[Writer::$writer $(, Writer::$also)*], )*)*
                }
            }

            /// Returns the subject key.
            #[must_use]
            pub fn key(&self) -> Key<'_> {
                match self { $($( Self::$name(event) => registry!(@key event $key), )*)* }
            }

            /// Returns a decision's basis.
            #[must_use]
            pub fn basis(&self) -> Option<&Basis> {
                match self { $($( Self::$name(event) => registry!(@basis event $basis), )*)* }
            }

            /// Sets a decision's basis.
            pub fn set_basis(&mut self, basis: Option<Basis>) {
                match self { $($( Self::$name(event) => registry!(@set event basis $basis), )*)* }
            }

            /// Returns the data's JSON Schemas by type.
            #[must_use]
            pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
                vec![ $($( (concat!("dormouse.", $type), schemars::schema_for!($name)), )*)* ]
            }

            /// Returns the permitted writers by type.
            #[must_use]
            pub fn writer_table() -> Vec<(&'static str, &'static [Writer])> {
                vec![ $($(
                    (concat!("dormouse.", $type), &[Writer::$writer $(, Writer::$also)*]),
                )*)* ]
            }
        }

        $(
            #[doc = concat!("The events of [`Writer::", stringify!($writer), "`].")]
            #[derive(Debug, Clone, Copy)]
            pub enum $group<'a> {
                $(
                    #[doc = concat!("`dormouse.", $type, "`")]
                    $name(&'a $name),
                )*
            }
        )*

        /// An event by its first writer. A fold matches one writer's events without a wildcard, so that a
        /// new event does not compile before somebody decides about it.
        #[derive(Debug, Clone, Copy)]
        pub enum ByWriter<'a> {
            $(
                #[doc = concat!("Of [`Writer::", stringify!($writer), "`].")]
                $writer($group<'a>),
            )*
        }

        impl Event {
            /// Returns the event by its first writer.
            #[must_use]
            pub fn by_writer(&self) -> ByWriter<'_> {
                match self {
                    $($( Self::$name(event) => ByWriter::$writer($group::$name(event)), )*)*
                }
            }
        }

        $($(
            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(Box::new(event))
                }
            }
        )*)*
    };
    (@key $event:ident shard) => {{ let _ = $event; Key::Shard }};
    (@key $event:ident job) => { Key::Job(&$event.job) };
    (@key $event:ident node) => { Key::Node(&$event.node) };
    (@key $event:ident gateway) => { Key::Gateway(&$event.gateway) };
    (@basis $event:ident decision) => { $event.basis.as_ref() };
    (@basis $event:ident observation) => {{ let _ = $event; None }};
    (@set $event:ident $basis:ident decision) => { $event.basis = $basis };
    (@set $event:ident $basis:ident observation) => {{ let _ = ($event, $basis); }};
}

registry! {
    Operator OperatorEvent {
        ClusterConfigured "cluster.configured.v1" shard observation;
        NodeDrained "node.drained.v1" node observation also Node;
        NodeRestored "node.restored.v1" shard observation;
        TenantConfigured "tenant.configured.v1" shard observation;
        WebhookConfigured "webhook.configured.v1" shard observation;
        TenantGranted "tenant.granted.v1" shard observation;
        TenantRemoved "tenant.removed.v1" shard observation;
        NodeLabelled "node.labelled.v1" shard observation;
        NodeRemoved "node.removed.v1" node observation also Slurm;
        KeyCreated "key.created.v1" shard observation;
        KeyRotated "key.rotated.v1" shard observation;
        KeyRevoked "key.revoked.v1" shard observation;
        UpgradeApproved "upgrade.approved.v1" shard observation;
        SlurmQueueConfigured "slurm.queue_configured.v1" shard observation;
        SlurmQueueRemoved "slurm.queue_removed.v1" shard observation;
        BudgetConfigured "budget.configured.v1" shard observation;
        ReservationConfigured "reservation.configured.v1" shard observation;
        ReservationRemoved "reservation.removed.v1" shard observation;
    }
    Admission AdmissionEvent {
        SubmissionReceived "submission.received.v1" shard observation;
        JobAdmitted "job.admitted.v1" shard decision;
        JobRefused "job.refused.v1" shard decision;
        JobReleased "job.released.v1" shard decision;
        JobRevised "job.revised.v1" shard decision;
        JobCancelRequested "job.cancel_requested.v1" shard decision;
        SubmissionsRateLimited "submissions.rate_limited.v1" shard observation;
        PlanAccepted "plan.accepted.v1" shard decision;
        PlanMissed "plan.missed.v1" shard decision;
        JobRequeued "job.requeued.v1" shard decision;
        BudgetLevelChanged "budget.level_changed.v1" shard decision;
        ReservationPhaseChanged "reservation.phase_changed.v1" shard decision;
    }
    Optimizer OptimizerEvent {
        AllocationDecided "allocation.decided.v1" shard decision;
        AllocationUnchanged "allocation.unchanged.v1" shard decision;
        JobSpeedFitted "job.speed_fitted.v1" shard decision;
        StartsForecast "starts.forecast.v1" shard observation;
    }
    Placer PlacerEvent {
        PlacementDecided "placement.decided.v1" shard decision;
        PlacementRefused "placement.refused.v1" shard decision;
        NodeLost "node.lost.v1" shard observation;
        NodeRecovered "node.recovered.v1" shard decision;
        NodeQuarantined "node.quarantined.v1" shard decision;
        NodeReadmitted "node.readmitted.v1" shard decision;
        ClockStepped "clock.stepped.v1" shard decision;
        GatewayLost "gateway.lost.v1" gateway observation;
        BuildJoined "build.joined.v1" shard observation;
        BuildLeft "build.left.v1" shard observation;
        ClusterUpgraded "cluster.upgraded.v1" shard decision;
    }
    Checkpointer CheckpointerEvent {
        CheckpointRequested "checkpoint.requested.v1" job decision;
        PartitionStartRequested "partition.start_requested.v1" job decision;
        PartitionStopRequested "partition.stop_requested.v1" job decision;
        PartitionStarted "partition.started.v1" job decision;
        PartitionStopped "partition.stopped.v1" job decision;
        ResizeAbandoned "resize.abandoned.v1" job decision;
        JobCompleted "job.completed.v1" job decision;
        JobFailed "job.failed.v1" job decision;
        JobCancelled "job.cancelled.v1" job decision also Admission;
        TasksAssigned "tasks.assigned.v1" job decision;
        PartitionResizeRequested "partition.resize_requested.v1" job decision;
        PartitionLeaveRequested "partition.leave_requested.v1" job decision;
        PartitionResized "partition.resized.v1" job decision;
        PartitionWarned "partition.warned.v1" job decision;
    }
    Node NodeEvent {
        NodeJoined "node.joined.v1" node observation;
        ContainerStarted "container.started.v1" node observation;
        ContainerExited "container.exited.v1" node observation;
        CheckpointSaved "checkpoint.saved.v1" node observation;
        CheckpointFailed "checkpoint.failed.v1" node observation;
        Progress "progress.v1" node observation;
        TasksEnded "tasks.ended.v1" node observation;
        CheckpointRejected "checkpoint.rejected.v1" node observation;
        NodeFaulted "node.faulted.v1" node observation;
        ContainerReady "container.ready.v1" node observation;
        ContainerUnready "container.unready.v1" node observation;
        MemberAcknowledged "member.acknowledged.v1" node observation;
        NodeFenced "node.fenced.v1" node observation also Operator;
        NotebookObserved "notebook.observed.v1" node observation;
        ContainerExecStarted "container.exec_started.v1" node observation;
        ContainerExecEnded "container.exec_ended.v1" node observation;
        ContainerGpuUsed "container.gpu_used.v1" node observation;
        NodeGpuReconciled "node.gpu_reconciled.v1" node observation;
    }
    Autoscaler AutoscalerEvent {
        ServiceScaled "service.scaled.v1" job decision;
        NotebookWarned "notebook.warned.v1" job decision;
    }
    Gateway GatewayEvent {
        GatewayJoined "gateway.joined.v1" gateway observation;
        GatewayLeft "gateway.left.v1" gateway observation;
        GatewayUnrouted "gateway.unrouted.v1" gateway observation;
        ServiceMeasured "service.measured.v1" gateway decision also Admission;
    }
    Archiver ArchiverEvent {
        LogArchived "log.archived.v1" shard observation;
        LogTrimmed "log.trimmed.v1" shard decision;
        LogFilled "log.filled.v1" shard observation;
    }
    Slurm SlurmEvent {
        SlurmRequested "slurm.requested.v1" shard decision;
        SlurmSubmitted "slurm.submitted.v1" shard observation;
        SlurmRefused "slurm.refused.v1" shard observation;
        SlurmEstimated "slurm.estimated.v1" shard observation;
        SlurmGranted "slurm.granted.v1" shard observation;
        SlurmReleased "slurm.released.v1" shard decision;
        SlurmEnded "slurm.ended.v1" shard observation;
    }
}

impl Event {
    /// Returns the name in the subject, without `dormouse.` and version.
    #[must_use]
    pub fn subject_name(&self) -> &'static str {
        let name = self.type_name();
        let name = name.strip_prefix("dormouse.").unwrap_or(name);
        name.rsplit_once(".v").map_or(name, |(name, _)| name)
    }

    /// Returns the requesting user, if recorded.
    #[must_use]
    pub const fn by(&self) -> Option<&By> {
        match self {
            Self::SubmissionReceived(event) => event.by.as_ref(),
            Self::JobAdmitted(event) => event.by.as_ref(),
            Self::JobRefused(event) => event.by.as_ref(),
            Self::JobRevised(event) => event.by.as_ref(),
            Self::JobRequeued(event) => event.by.as_ref(),
            Self::JobCancelRequested(event) => event.by.as_ref(),
            Self::JobCancelled(event) => event.by.as_ref(),
            _ => None,
        }
    }
}
