//! The search for the least changes that would have given a job containers: each is let happen on a
//! fork, and the real services decide.
//!
//! Of each kind the grid ([`super::grids`]) is tried from its least value on, and the first with
//! which the job gets what it did not get is named; so every smaller value of the grid was tried and
//! is not enough. What is proven to help nobody ([`Search::idle`]) is not tried. Several values are
//! tried at the same time; what is named does not depend on how many.

use std::collections::BTreeSet;

use dormouse_messages::events::StoppedBy;
use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{Amounts, JobId};
use dormouse_optimizer::Optimizer;

use super::answer::{Correction, Gives, VerifiedBy};
use super::changes::{Candidate, Change};
use super::grids;
use crate::history::fork::Fork;

/// The search for the least changes.
pub struct Search<'a> {
    /// Where the services decide.
    pub base: &'a Fork,
    /// As it decided.
    pub optimizer: Optimizer,
    /// Whose containers are wanted.
    pub job: &'a JobId,
    /// What it has without any change.
    pub has: u32,
    /// Decisions that may still be made.
    pub left: usize,
    /// Kinds that were cut short.
    pub cut: Vec<String>,
    /// Kinds that cannot help: without any bound of theirs there is no allocation in which it has
    /// more.
    pub idle: BTreeSet<&'static str>,
    /// Values that are tried at the same time.
    pub threads: usize,
}

impl Search<'_> {
    /// What the job has if this happens, how well that is proven, and what those who give would keep.
    pub fn attempt(&self, change: &Change, gives: &mut [Gives]) -> (u32, VerifiedBy) {
        let mut fork = self.base.clone();
        change.apply(&mut fork);
        let outcome = fork.settle(&self.optimizer);
        let solver = outcome.figures().map(|figures| figures.solver.clone());
        let solver = solver.unwrap_or_default();
        let proof = match (solver.status.as_str(), solver.stopped_by) {
            ("optimal" | "none", _) => "proven",
            (_, StoppedBy::Gap) => "within_gap",
            _ if solver.gap <= self.optimizer.gap => "within_gap",
            _ => "limit",
        };
        let verified = VerifiedBy {
            objective: solver.objective,
            gap: solver.gap,
            proof: proof.to_owned(),
        };
        for gives in gives {
            if let Ok(job) = gives.job.parse() {
                gives.to = outcome.containers(&fork, &job);
            }
        }
        (outcome.containers(&fork, self.job), verified)
    }

    /// The first candidate of a grid, in its order, with which the job gets more.
    pub fn least(
        &mut self,
        kind: &str,
        grid: impl IntoIterator<Item = Candidate>,
    ) -> Option<Correction> {
        let mut grid = grid.into_iter().peekable();
        let mut not_at = None;
        while grid.peek().is_some() {
            if self.left == 0 {
                self.cut.push(kind.to_owned());
                return None;
            }
            let some: Vec<Candidate> = grid.by_ref().take(self.threads.min(self.left)).collect();
            for (candidate, becomes, verified_by) in self.together(some) {
                self.left -= 1;
                if becomes > self.has {
                    return Some(self.correction(kind, candidate, becomes, verified_by, not_at));
                }
                not_at = Some(candidate.to);
            }
        }
        None
    }

    fn correction(
        &self,
        kind: &str,
        candidate: Candidate,
        becomes: u32,
        verified_by: VerifiedBy,
        not_at: Option<String>,
    ) -> Correction {
        Correction {
            kind: kind.to_owned(),
            change: candidate.says,
            from: candidate.from,
            to: candidate.to,
            admitted: self.has == 0,
            becomes,
            verified_by,
            not_at,
            gives: candidate.gives,
        }
    }

    /// What the job has with each of these, tried at the same time.
    fn together(&self, candidates: Vec<Candidate>) -> Vec<(Candidate, u32, VerifiedBy)> {
        let attempt = |mut candidate: Candidate| {
            let (becomes, verified_by) = self.attempt(&candidate.change, &mut candidate.gives);
            (candidate, becomes, verified_by)
        };
        if candidates.len() < 2 || self.threads < 2 {
            return candidates.into_iter().map(attempt).collect();
        }
        std::thread::scope(|scope| {
            let attempt = &attempt;
            let running: Vec<_> = candidates
                .into_iter()
                .map(|candidate| scope.spawn(move || attempt(candidate)))
                .collect();
            let done = running.into_iter().filter_map(|it| it.join().ok());
            done.collect()
        })
    }

    /// The least change of every kind that has one.
    pub fn all(&mut self, policy: &Policy) -> Vec<Correction> {
        let mut found = Vec::new();
        if policy.allocation == Allocation::Dorm {
            for (kind, grid) in [
                ("theta1", grids::theta1(self.base, policy)),
                ("theta2", grids::theta2(self.base, policy)),
            ] {
                if !self.idle.contains(kind) {
                    found.extend(self.least(kind, grid));
                }
            }
        }
        if let Some(job) = self.base.cluster.job(self.job).cloned() {
            found.extend(self.least("min", grids::min(self.job, &job, self.has)));
            found.extend(self.least("max", grids::max(self.job, &job, self.has)));
            for (resource, _) in job.demand.iter() {
                found.extend(self.least("demand", grids::demand(self.job, &job, resource)));
            }
            found.extend(self.least("checkpoint", grids::checkpoint(self.job, &job)));
            found.extend(self.least("quota", grids::quota(self.base, self.job, &job)));
        }
        let classes: BTreeSet<String> = self
            .base
            .cluster
            .nodes
            .usable()
            .map(|(_, node)| node.capacity.to_string())
            .collect();
        for class in classes {
            if let Ok(capacity) = class.parse::<Amounts>() {
                found.extend(self.least("nodes", grids::nodes(&capacity)));
            }
        }
        found.extend(self.others_give());
        found
    }

    /// The other jobs that would have to keep less, one at a time; all that do at the least count.
    fn others_give(&mut self) -> Vec<Correction> {
        if self.idle.contains("others_give") {
            return Vec::new();
        }
        let others: Vec<(JobId, u32)> = self
            .base
            .cluster
            .jobs
            .iter()
            .filter(|(id, job)| *id != self.job && job.assignment.is_some())
            .map(|(id, _)| (id.clone(), self.base.containers(id)))
            .collect();
        let most = others.iter().map(|(_, has)| *has).max().unwrap_or(0);
        for count in 1..most {
            let candidates = others.iter().filter(|(_, has)| *has > count);
            let candidates = candidates.filter_map(|(id, has)| {
                let job = self.base.cluster.jobs.get(id)?;
                grids::gives(id, job, *has, count)
            });
            let mut candidates: Vec<Candidate> = candidates.collect();
            if candidates.len() > self.left {
                self.cut.push("others_give".to_owned());
                candidates.truncate(self.left);
            }
            self.left -= candidates.len();
            let mut found = Vec::new();
            while !candidates.is_empty() {
                let rest = candidates.split_off(self.threads.min(candidates.len()));
                for (candidate, becomes, verified_by) in self.together(candidates) {
                    if becomes > self.has {
                        let kind = "others_give";
                        found.push(self.correction(kind, candidate, becomes, verified_by, None));
                    }
                }
                candidates = rest;
            }
            if !found.is_empty() {
                return found;
            }
            if self.left == 0 {
                break;
            }
        }
        Vec::new()
    }
}
