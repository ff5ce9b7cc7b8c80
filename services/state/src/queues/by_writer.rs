//! Each writer's events. A new event does not compile before somebody decides about it.

use dormouse_messages::events::{
    AdmissionEvent, CheckpointerEvent, NodeEvent, OperatorEvent, OptimizerEvent, PlacerEvent,
};

use super::{Queues, TenantQueue};
use crate::job::Assignment;

impl Queues {
    pub(super) fn evolve_operator(&mut self, event: OperatorEvent<'_>) {
        match event {
            OperatorEvent::NodeDrained(_)
            | OperatorEvent::NodeRestored(_)
            | OperatorEvent::NodeRemoved(_) => self.nodes_changed(),
            OperatorEvent::BudgetConfigured(event) => self.within_budget(&event.tenant),
            OperatorEvent::TenantRemoved(event) => {
                self.within_budget(&event.tenant);
                let queue = self.tenants.get(&event.tenant);
                if !queue.is_some_and(TenantQueue::has_jobs) {
                    self.tenants.remove(&event.tenant);
                }
            }
            OperatorEvent::ClusterConfigured(_)
            | OperatorEvent::TenantConfigured(_)
            | OperatorEvent::TenantGranted(_)
            | OperatorEvent::NodeLabelled(_)
            | OperatorEvent::WebhookConfigured(_)
            | OperatorEvent::KeyCreated(_)
            | OperatorEvent::KeyRotated(_)
            | OperatorEvent::KeyRevoked(_)
            | OperatorEvent::UpgradeApproved(_)
            | OperatorEvent::SlurmQueueConfigured(_)
            | OperatorEvent::SlurmQueueRemoved(_)
            | OperatorEvent::ReservationConfigured(_)
            | OperatorEvent::ReservationRemoved(_) => {}
        }
    }

    pub(super) fn evolve_admission(&mut self, event: AdmissionEvent<'_>) {
        match event {
            AdmissionEvent::JobAdmitted(event) => self.admit(event),
            AdmissionEvent::JobReleased(event) => self.release(event),
            AdmissionEvent::JobRevised(event) => self.revise(event),
            AdmissionEvent::BudgetLevelChanged(event) => self.within_budget(&event.tenant),
            AdmissionEvent::SubmissionReceived(_)
            | AdmissionEvent::JobRefused(_)
            | AdmissionEvent::JobRequeued(_)
            | AdmissionEvent::JobCancelRequested(_)
            | AdmissionEvent::SubmissionsRateLimited(_)
            | AdmissionEvent::PlanAccepted(_)
            | AdmissionEvent::PlanMissed(_)
            | AdmissionEvent::ReservationPhaseChanged(_) => {}
        }
    }

    pub(super) fn evolve_optimizer(&mut self, event: OptimizerEvent<'_>) {
        match event {
            OptimizerEvent::AllocationDecided(event) => {
                self.allocate(event);
                self.wait(&event.outcome.waiting);
            }
            OptimizerEvent::AllocationUnchanged(event) => self.wait(&event.outcome.waiting),
            OptimizerEvent::JobSpeedFitted(_) | OptimizerEvent::StartsForecast(_) => {}
        }
    }

    pub(super) fn evolve_placer(&mut self, event: PlacerEvent<'_>) {
        match event {
            PlacerEvent::NodeLost(_)
            | PlacerEvent::NodeRecovered(_)
            | PlacerEvent::NodeQuarantined(_)
            | PlacerEvent::NodeReadmitted(_) => self.nodes_changed(),
            PlacerEvent::PlacementDecided(_)
            | PlacerEvent::PlacementRefused(_)
            | PlacerEvent::ClockStepped(_)
            | PlacerEvent::GatewayLost(_)
            | PlacerEvent::BuildJoined(_)
            | PlacerEvent::BuildLeft(_)
            | PlacerEvent::ClusterUpgraded(_) => {}
        }
    }

    pub(super) fn evolve_checkpointer(&mut self, event: CheckpointerEvent<'_>) {
        match event {
            CheckpointerEvent::ResizeAbandoned(event) => {
                let known = self.cluster.jobs.get(&event.job);
                let kept = known.and_then(|job| job.assignment.as_ref());
                if let Some(kept) = kept.map(Assignment::containers) {
                    self.give(&event.job, kept);
                }
            }
            CheckpointerEvent::JobCompleted(event) => self.end(&event.job, true),
            CheckpointerEvent::JobFailed(event) => self.end(&event.job, false),
            CheckpointerEvent::JobCancelled(event) => self.end(&event.job, false),
            CheckpointerEvent::CheckpointRequested(_)
            | CheckpointerEvent::PartitionStartRequested(_)
            | CheckpointerEvent::PartitionStopRequested(_)
            | CheckpointerEvent::PartitionStarted(_)
            | CheckpointerEvent::PartitionStopped(_)
            | CheckpointerEvent::TasksAssigned(_)
            | CheckpointerEvent::PartitionResizeRequested(_)
            | CheckpointerEvent::PartitionLeaveRequested(_)
            | CheckpointerEvent::PartitionResized(_)
            | CheckpointerEvent::PartitionWarned(_) => {}
        }
    }

    pub(super) fn evolve_node(&mut self, event: NodeEvent<'_>) {
        match event {
            NodeEvent::NodeJoined(_) | NodeEvent::NodeFenced(_) => self.nodes_changed(),
            NodeEvent::ContainerStarted(_)
            | NodeEvent::ContainerExited(_)
            | NodeEvent::CheckpointSaved(_)
            | NodeEvent::CheckpointFailed(_)
            | NodeEvent::Progress(_)
            | NodeEvent::TasksEnded(_)
            | NodeEvent::CheckpointRejected(_)
            | NodeEvent::NodeFaulted(_)
            | NodeEvent::ContainerReady(_)
            | NodeEvent::ContainerUnready(_)
            | NodeEvent::MemberAcknowledged(_)
            | NodeEvent::NotebookObserved(_)
            | NodeEvent::ContainerExecStarted(_)
            | NodeEvent::ContainerExecEnded(_)
            | NodeEvent::ContainerGpuUsed(_)
            | NodeEvent::NodeGpuReconciled(_) => {}
        }
    }
}
