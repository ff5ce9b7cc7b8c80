//! The work of a gang: its speed, its end, and its progress reports.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::Progress;
use dormouse_messages::ids::Rank;
use dormouse_messages::{NodeId, Timestamp};

use super::agents::ModelAgents;
use super::faults::Faults;
use super::incarnation::{Due, IncarnationId, after};

impl ModelAgents {
    /// Starts a gang's work after `pause_s`.
    pub(super) fn work(
        &mut self,
        incarnation: IncarnationId,
        pause_s: f64,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let (Some(job), Some(gang)) = (
            self.jobs.get_mut(&incarnation.0),
            self.gangs.get(&incarnation),
        ) else {
            return;
        };
        job.incarnation = Some(incarnation.1);
        if job.task_s.is_some() {
            job.plan += 1;
            let plan = job.plan;
            if let Some(dies_s) = faults.dies_after_s() {
                self.schedule(
                    after(now, dies_s),
                    incarnation,
                    Due::Ended { code: 1, plan },
                );
            }
            return;
        }
        if job.served {
            job.plan += 1;
            let plan = job.plan;
            if let Some(dies_s) = faults.dies_after_s() {
                self.schedule(
                    after(now, dies_s),
                    incarnation,
                    Due::Ended { code: 1, plan },
                );
            }
            return;
        }
        let containers = gang.containers.iter();
        let workers = containers.filter(|(rank, _)| gang.is_worker(**rank));
        let nodes: BTreeSet<&NodeId> = workers.map(|(_, (node, _))| node).collect();
        let speed = job
            .model
            .speed(incarnation.1, gang.workers().max(1), nodes.len());
        let since = after(now, pause_s);
        job.working = Some((since, speed));
        let by_chance = faults.dies_after_s();
        self.plan(incarnation, by_chance);
    }

    pub(super) fn plan(&mut self, incarnation: IncarnationId, by_chance: Option<f64>) {
        let Some(job) = self.jobs.get_mut(&incarnation.0) else {
            return;
        };
        let Some((since, speed)) = job.working else {
            return;
        };
        job.plan += 1;
        let plan = job.plan;
        if speed <= 0.0 {
            // The program waits for the rest of its world.
            return;
        }
        let left_s = (job.model.work_container_s - job.done).max(0.0) / speed;
        let failure = job.model.failures.get(job.failed);
        let failure = failure.map(|at| (at - job.done).max(0.0) / speed);
        let dies = [job.model.fails_after_s, failure, by_chance];
        let dies_s = dies.into_iter().flatten().reduce(f64::min);
        let (ends_s, code) = match dies_s.filter(|dies_s| *dies_s < left_s) {
            Some(dies_s) => (dies_s, 1),
            None => (left_s, 0),
        };
        let first_s = job.model.first_report_s(incarnation.1);
        if let Some(first_s) = first_s.filter(|first_s| *first_s < ends_s) {
            self.schedule(
                after(since, first_s),
                incarnation.clone(),
                Due::Progress(plan),
            );
        }
        if ends_s.is_finite() {
            self.schedule(after(since, ends_s), incarnation, Due::Ended { code, plan });
        }
    }

    pub(super) fn progress(&mut self, incarnation: IncarnationId, plan: u64, now: Timestamp) {
        let job = self.jobs.get(&incarnation.0).filter(|job| job.plan == plan);
        let (Some(job), Some(gang)) = (job, self.gangs.get(&incarnation)) else {
            return;
        };
        let Some((node, _)) = gang.containers.get(&Rank(0)) else {
            return;
        };
        let event = Progress {
            job: incarnation.0.clone(),
            incarnation: incarnation.1,
            node: node.clone(),
            step: whole(job.done_at(now)),
            steps_total: whole(job.model.work_container_s),
            containers: gang.workers(),
            metrics: BTreeMap::new(),
        };
        let every_s = job.model.progress_s;
        self.says(event.node.clone(), event);
        if let Some(every_s) = every_s {
            self.schedule(after(now, every_s), incarnation, Due::Progress(plan));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and work is not negative"
)]
pub(super) fn whole(work: f64) -> u64 {
    (work + 1e-6).floor() as u64
}
