//! Applies allocations to jobs.

use dormouse_messages::Timestamp;
use dormouse_messages::events::{AllocationDecided, Waiting};

use dormouse_state::ClusterState;

use super::{JobTable, Phase};

impl JobTable {
    pub(super) fn allocate(
        &mut self,
        event: &AllocationDecided,
        state: &ClusterState,
        at: Timestamp,
    ) {
        for allocation in &event.jobs {
            let known = state.job(&allocation.job);
            let in_place = known.is_some_and(|job| job.in_place);
            self.update(&allocation.job, |job, live| {
                let stops = allocation.containers == 0 || !in_place;
                let less = allocation.containers < allocation.previous;
                live.preempted = stops && less && allocation.made_for.is_some();
                job.preempted += u32::from(live.preempted);
                job.epoch = event.epoch;
                job.allocated(allocation, at);
            });
        }
        self.wait(&event.outcome.waiting, at);
    }

    pub(super) fn wait(&mut self, waiting: &[Waiting], at: Timestamp) {
        for waiting in waiting {
            self.update(&waiting.job, |job, _| {
                if job.note != waiting.reason || job.code != waiting.code {
                    job.note.clone_from(&waiting.reason);
                    job.code.clone_from(&waiting.code);
                }
                job.target = 0;
                if matches!(job.phase, Phase::Queued | Phase::Placed) {
                    job.enter(Phase::Waiting, at);
                }
            });
        }
    }
}
