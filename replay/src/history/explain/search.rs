//! Searches for the least changes that give a job more containers; the real services decide each on a
//! fork.
//!
//! 1. Each kind's largest value ([`super::grids`]) is tried first; an insufficient kind is dropped.
//!    Otherwise the least sufficient value is reported.
//! 2. Values without any P2 solution ([`may_have`]), and useless kinds ([`Search::idle`]), are skipped.
//! 3. [`givers`] finds other jobs to shrink: one allocation that gives the job more and changes the
//!    fewest others, for up to [`MOST_GIVERS`] disjoint sets.
//!
//! Neither the number of threads nor the machine changes the result.
//!
//! θ1 and θ2 are not bisected: larger bounds admit more allocations, but the chosen one may give the job less.

use std::collections::BTreeSet;

use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{Amounts, JobId};
use dormouse_optimizer::problem::{Budget, Problem};
use dormouse_optimizer::{Optimizer, givers, may_have, problem_of};

use super::answer::{Correction, Gives, VerifiedBy};
use super::changes::{Candidate, Change};
use super::grids;
use super::refusal::verified;
use crate::history::fork::Fork;
use crate::parallel_readers::at_once;

/// The most sets of givers; each costs one allocation without services and the decisions that prove it.
const MOST_GIVERS: usize = 3;
const FOR_AN_ALTERNATIVE: usize = 8;

/// The search for the least changes.
pub struct Search<'a> {
    pub base: &'a Fork,
    pub optimizer: Optimizer,
    pub job: &'a JobId,
    pub has: u32,
    pub left: usize,
    pub cut: Vec<String>,
    /// Kinds that cannot help: no allocation gives the job more even without their bounds.
    pub idle: BTreeSet<&'static str>,
    pub threads: usize,
}

type Tried = (Candidate, Option<(u32, VerifiedBy)>);
type Grid = (&'static str, Vec<Candidate>);

impl Search<'_> {
    fn attempt(&self, change: &Change, gives: &mut [Gives]) -> Option<(u32, VerifiedBy)> {
        let mut fork = self.base.clone();
        change.apply(&mut fork);
        fork.release();
        if !may_have(&self.problem(&fork), self.job, self.has + 1) {
            return None;
        }
        let outcome = fork.settle(&self.optimizer);
        let verified = verified(&outcome, &self.optimizer);
        for gives in gives {
            if let Ok(job) = gives.job.parse() {
                gives.to = outcome.containers(&fork, &job);
            }
        }
        Some((outcome.containers(&fork, self.job), verified))
    }

    fn problem(&self, fork: &Fork) -> Problem {
        let budget = Budget {
            gap: self.optimizer.gap,
            nodes: None,
            work: self.optimizer.work,
        };
        problem_of(&fork.cluster, fork.now, budget)
    }

    fn least(&mut self, kind: &str, grid: Vec<Candidate>) -> Option<Correction> {
        let mut grid = grid.into_iter().peekable();
        let mut not_at = None;
        while grid.peek().is_some() {
            if self.left == 0 {
                self.cut.push(kind.to_owned());
                return None;
            }
            let some: Vec<Candidate> = grid.by_ref().take(self.threads.min(self.left)).collect();
            for (candidate, decided) in self.together(some) {
                if let Some((becomes, verified_by)) = decided {
                    self.left -= 1;
                    if becomes > self.has {
                        return Some(self.correction(
                            kind,
                            candidate,
                            becomes,
                            verified_by,
                            not_at,
                        ));
                    }
                }
                not_at = Some(candidate.to);
            }
        }
        None
    }

    fn promising(&mut self, mut grids: Vec<Grid>) -> Vec<Grid> {
        grids.retain(|(kind, grid)| !grid.is_empty() && !self.idle.contains(kind));
        let mut promising = Vec::new();
        let mut rest = grids.into_iter().peekable();
        while rest.peek().is_some() {
            if self.left == 0 {
                self.cut.extend(rest.map(|(kind, _)| kind.to_owned()));
                break;
            }
            let some: Vec<Grid> = rest.by_ref().take(self.threads.min(self.left)).collect();
            let largest = some.iter().filter_map(|(_, grid)| grid.last().cloned());
            let tried = self.together(largest.collect());
            for (grid, (_, decided)) in some.into_iter().zip(tried) {
                self.left -= usize::from(decided.is_some());
                if decided.is_some_and(|(becomes, _)| becomes > self.has) {
                    promising.push(grid);
                }
            }
        }
        promising
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

    fn together(&self, candidates: Vec<Candidate>) -> Vec<Tried> {
        let attempt = |mut candidate: Candidate| {
            let decided = self.attempt(&candidate.change, &mut candidate.gives);
            (candidate, decided)
        };
        if candidates.len() < 2 || self.threads < 2 {
            return candidates.into_iter().map(attempt).collect();
        }
        at_once(candidates, attempt)
    }

    /// Reports the least change of every kind once proven, then further sets of givers.
    pub fn all(&mut self, policy: &Policy, mut each: impl FnMut(Correction)) {
        let mut asked = BTreeSet::new();
        let mut grids = self.grids(policy);
        grids.extend(self.others_give(policy, &mut asked));
        for (kind, grid) in self.promising(grids) {
            if let Some(found) = self.least(kind, grid) {
                each(found);
            }
        }
        for _ in 1..MOST_GIVERS {
            if asked.is_empty() {
                return;
            }
            let Some(grid) = self.others_give(policy, &mut asked) else {
                return;
            };
            let kept = self.left.saturating_sub(FOR_AN_ALTERNATIVE);
            self.left -= kept;
            for (kind, grid) in self.promising(vec![grid]) {
                if let Some(found) = self.least(kind, grid) {
                    each(found);
                }
            }
            self.left += kept;
        }
    }

    fn grids(&self, policy: &Policy) -> Vec<Grid> {
        let mut grids = Vec::new();
        if policy.allocation == Allocation::Dorm {
            grids.push(("theta1", grids::theta1(self.base, policy)));
            grids.push(("theta2", grids::theta2(self.base, policy)));
        }
        if let Some(job) = self.base.cluster.job(self.job) {
            grids.push(("min", grids::min(self.job, job, self.has)));
            grids.push(("max", grids::max(self.job, job, self.has)));
            for (resource, _) in job.demand.iter() {
                grids.push(("demand", grids::demand(self.job, job, resource)));
            }
            let checkpoint = grids::checkpoint(self.job, job);
            grids.push(("checkpoint", checkpoint.into_iter().collect()));
            grids.push(("quota", grids::quota(self.base, self.job, job)));
        }
        let usable = self.base.cluster.nodes.usable();
        let classes: BTreeSet<String> = usable.map(|(_, node)| node.capacity.to_string()).collect();
        for class in classes {
            if let Ok(capacity) = class.parse::<Amounts>() {
                grids.push(("nodes", grids::nodes(&capacity)));
            }
        }
        grids
    }

    fn others_give(&self, policy: &Policy, asked: &mut BTreeSet<JobId>) -> Option<Grid> {
        let kind = "others_give";
        if policy.allocation != Allocation::Dorm || self.left == 0 || self.idle.contains(kind) {
            return None;
        }
        let mut fork = self.base.clone();
        fork.release();
        let givers = givers(&self.problem(&fork), self.job, self.has + 1, asked)?;
        asked.extend(givers.keys().cloned());
        let known = givers.iter().filter_map(|(id, to)| {
            let job = self.base.cluster.jobs.get(id)?;
            let from = self.base.containers(id);
            Some((id, job, from, *to)).filter(|_| *to < from)
        });
        let known: Vec<_> = known.collect();
        let grid = match known.as_slice() {
            [] => return None,
            [(id, job, from, _)] => (job.containers.min..*from)
                .rev()
                .map(|to| grids::gives(id, job, *from, to))
                .collect(),
            several => {
                let each = several.iter();
                let each = each.map(|(id, job, from, to)| grids::gives(id, job, *from, *to));
                vec![Candidate::all(each.collect())]
            }
        };
        Some((kind, grid))
    }
}
