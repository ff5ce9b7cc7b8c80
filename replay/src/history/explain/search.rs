//! The search for the least changes that would have given a job containers: each is let happen on a
//! fork, and the real services decide.
//!
//! 1. Of each kind the largest value of its grid ([`super::grids`]) is tried first. Where that is not
//!    enough, the kind is left. Else the grid is tried from its least value on, and the first with
//!    which the job gets what it did not get is named.
//! 2. A value with which no allocation gives it to the job ([`may_have`]) is not decided: it is enough
//!    that P2 has no such solution. So is what is proven to help nobody ([`Search::idle`]).
//! 3. Whose containers would do is not searched for: one allocation in which the job has more, and as
//!    few others as possible are changed, says it ([`givers`]); then the services decide with it.
//!    The same is asked again with those left out that were named, so that up to [`MOST_GIVERS`] sets
//!    of jobs are told, none of which shares a job with another.
//!
//! Several values are tried at the same time; what is named does not depend on how many. The
//! solver's limits are those of work alone, so that it does not depend on the machine either.

use std::collections::BTreeSet;

use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{Amounts, JobId};
use dormouse_optimizer::problem::{Budget, Problem};
use dormouse_optimizer::{Optimizer, givers, may_have, problem_of};

use super::answer::{Correction, Gives, VerifiedBy};
use super::changes::{Candidate, Change};
use super::grids;
use super::refusal::verified;
use crate::beside::at_once;
use crate::history::fork::Fork;

/// Sets of givers that are asked for: each is one allocation without services, and the decisions that
/// prove it.
const MOST_GIVERS: usize = 3;
/// Decisions that may be made for each set after the first.
const FOR_AN_ALTERNATIVE: usize = 8;

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

/// A candidate, and what the job has with it; nothing where no allocation gives it more.
type Tried = (Candidate, Option<(u32, VerifiedBy)>);
/// A kind, and the values of it, the least first.
type Grid = (&'static str, Vec<Candidate>);

impl Search<'_> {
    /// What the job has if this happens, how well that is proven, and what those who give would keep.
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
            time: self.optimizer.time,
        };
        problem_of(&fork.cluster, fork.now, budget)
    }

    /// The first candidate of a grid, in its order, with which the job gets more.
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

    /// The grids whose largest value is enough. Of the others, the values in between are not tried.
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

    /// What the job has with each of these, tried at the same time.
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

    /// The least change of every kind that has one, each as soon as it is proven; then other jobs
    /// that could give instead.
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

    /// The other jobs that would have to keep less, none of those that were `asked` before: of one
    /// job, less and less.
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
