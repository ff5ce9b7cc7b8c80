//! A cluster that goes on where a log ends: the services with the states that they have folded, the
//! agents with what runs.

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

/// Where a cluster goes on that a log describes: what has been folded and what runs there.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    /// The last sequence.
    pub sequence: Sequence,
    /// The time there.
    pub now: Timestamp,
    /// What admission has folded.
    pub admission: AdmissionState,
    /// What optimizer, placer and checkpointer have folded.
    pub cluster: ClusterState,
    /// What the autoscaler has folded.
    pub autoscaler: AutoscalerState,
    /// The last sequence of each writer.
    pub own: BTreeMap<Writer, Sequence>,
    /// The agents.
    pub agents: ModelAgents,
    /// The last submission's number.
    pub ingress: u64,
    /// The facts so far; nothing where the log is not known from its beginning.
    pub audit: Option<Audit>,
}

impl Engine {
    /// The calm cluster that a log describes, where it goes on.
    #[must_use]
    pub fn resume(mut ground: Ground) -> Self {
        for clock in [
            &mut ground.admission.queues.clock,
            &mut ground.admission.cluster.clock,
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
            engine.lives.insert(node.clone(), known.incarnation);
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
            // What failed on the log is no fault of the fork's.
            engine.agents.note_blame(id, job.attempts);
        }
        engine.ingress = ground.ingress;
        engine.audits = ground.audit.is_some();
        engine.audit = ground.audit.unwrap_or_default();
        engine
    }
}
