//! Resumes a cluster where a log ends, with the services' folded states and the running containers.

use std::collections::BTreeMap;

use dormouse_admission::{Admission, AdmissionState};
use dormouse_autoscaler::{Autoscaler, AutoscalerState};
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::{Sequence, Timestamp, Writer};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use dormouse_state::ClusterState;

use super::agents::ModelAgents;
use super::service::{Begun, Service};
use super::{Broker, Engine, MemoryLog};
use crate::audit::Audit;

/// The state of a cluster at the end of a log.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    pub sequence: Sequence,
    pub now: Timestamp,
    pub admission: AdmissionState,
    pub cluster: ClusterState,
    pub autoscaler: AutoscalerState,
    pub own: BTreeMap<Writer, Sequence>,
    pub agents: ModelAgents,
    pub ingress: u64,
    /// The audit so far; `None` if the log's beginning is unknown.
    pub audit: Option<Audit>,
}

impl Engine {
    /// Resumes the calm cluster that a log describes.
    #[must_use]
    pub fn resume(mut ground: Ground) -> Self {
        for clock in [
            &mut ground.admission.queues.cluster.clock,
            &mut ground.cluster.clock,
            &mut ground.autoscaler.clock,
        ] {
            *clock = clock.forked();
        }
        let mut engine = Self::new(ground.now, false);
        let begun = |writer: Writer| Begun {
            sequence: ground.sequence,
            now: ground.now,
            own_last: ground.own.get(&writer).copied().unwrap_or_default(),
        };
        let cluster = || ground.cluster.clone();
        let optimizer = Optimizer::default();
        engine.services = [
            Box::new(Service::resume(
                Admission,
                ground.admission,
                begun(Writer::Admission),
            )),
            Box::new(Service::resume(
                optimizer,
                cluster(),
                begun(Writer::Optimizer),
            )),
            Box::new(Service::resume(Placer, cluster(), begun(Writer::Placer))),
            Box::new(Service::resume(
                Checkpointer::default(),
                cluster(),
                begun(Writer::Checkpointer),
            )),
            Box::new(Service::resume(
                Autoscaler,
                ground.autoscaler,
                begun(Writer::Autoscaler),
            )),
        ];
        for (node, known) in ground.cluster.nodes.iter() {
            engine.agent_incarnations.joined(node, known.incarnation);
        }
        engine.broker = Broker {
            clock: ground.cluster.clock.clone(),
            passed: ground.now,
            ..Broker::default()
        };
        engine.log = MemoryLog::after(ground.sequence);
        engine.agents = ground.agents;
        engine.agents.led = false;
        for (id, job) in ground.cluster.jobs.iter() {
            // Failures on the log are no fault of the fork.
            engine.agents.note_blame(id, job.attempts);
        }
        engine.ingress = ground.ingress;
        engine.audits = ground.audit.is_some();
        engine.audit = ground.audit.unwrap_or_default();
        engine
    }
}
