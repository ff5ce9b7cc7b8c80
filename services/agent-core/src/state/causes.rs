//! Finds a container's start and stop requests.

use dormouse_messages::{ContainerId, Sequence};

use super::{AgentState, Phase};

impl AgentState {
    /// Returns the stop and start requests.
    #[must_use]
    pub fn causes(&self, id: &ContainerId) -> Vec<Sequence> {
        let Some((_, partition)) = self.partition(id) else {
            return Vec::new();
        };
        let here = partition.here.get(&id.rank);
        let leave = here.and_then(|here| here.leave.as_ref());
        let stop = match &partition.phase {
            Phase::Stop(_, stop) => Some(*stop),
            Phase::Placed | Phase::Run(_) => leave.map(|leave| leave.sequence),
        };
        let start = here.and_then(|here| here.request);
        stop.into_iter().chain(start).collect()
    }

    /// Returns the grace period in seconds: the log's, or the job's own.
    #[must_use]
    pub fn stop_grace_s(&self, id: &ContainerId) -> Option<u32> {
        let (job, partition) = self.partition(id)?;
        let named = match partition.phase {
            Phase::Stop(..) => partition.stop_grace_s,
            Phase::Placed | Phase::Run(_) => {
                let here = partition.here.get(&id.rank);
                let leave = here.and_then(|here| here.leave.as_ref());
                leave.map(|leave| leave.grace_s)
            }
        };
        named.or_else(|| job.spec().map(|spec| spec.checkpoint.grace_s))
    }
}
