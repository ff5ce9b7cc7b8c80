//! Training leaves nodes whose containers cost it more than they bring.
//!
//! A job whose containers stand on more than one node loses a part of its speed
//! ([`Objective::crossing`](crate::problem::Objective::crossing)): n containers on several nodes work as
//! n · (1 − crossing), those of one node as they are. P2 counts containers and does not ask where the
//! others of a job are. Here, for each training job that is free to change and stands on several nodes:
//!
//! 1. Its *home* is the node of its chief; of one that starts, the node on which it can have the most.
//! 2. Containers elsewhere come home: into free room; in exchange with a replica, or with a container of
//!    another job that is away from its own home. Where a job would have less than its fewest at home,
//!    the one with the most there gives up a container.
//! 3. What is still elsewhere is given up, where the rest is worth more than all.
//! 4. What is free then goes to training jobs at home on that node, those with the fewest containers
//!    first.
//!
//! Counts change, bounds hold: a candidate that would be more unfair than allowed stays as it was. Restarts
//! are not touched: a job that keeps its containers, or is restarted by a checkpoint, is passed over.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;

use crate::candidate::{Candidate, SHARE_SLACK};
use crate::instance::{Instance, fits, give, take};
use crate::primal::slots_to_jobs::Partitions;
use crate::problem::Problem;

/// Brings the containers of training jobs together.
pub(crate) fn gather(
    problem: &Problem,
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
) {
    if instance.objective.crossing <= 0.0 {
        return;
    }
    let Some(rooms) = candidate.rooms(instance) else {
        return;
    };
    let mut gathering = Gathering {
        problem,
        instance,
        candidate: candidate.clone(),
        partitions: partitions.clone(),
        rooms,
    };
    let before = candidate.loss(instance);
    gathering.all();
    let allowed = instance.loss_bound.max(before) + SHARE_SLACK;
    if gathering.candidate.loss(instance) <= allowed {
        (*candidate, *partitions) = (gathering.candidate, gathering.partitions);
    }
}

struct Gathering<'a> {
    problem: &'a Problem,
    instance: &'a Instance,
    candidate: Candidate,
    partitions: Partitions,
    rooms: Vec<Vec<u64>>,
}

impl Gathering<'_> {
    fn all(&mut self) {
        let jobs: Vec<usize> = (0..self.instance.jobs.len()).collect();
        let training = jobs.into_iter().filter(|job| self.is_training(*job));
        let training: Vec<usize> = training.collect();
        for job in &training {
            self.bring_home(*job);
        }
        // What was given up may be what another one lacked at home.
        for job in &training {
            self.bring_home(*job);
            self.give_up(*job);
        }
        self.fill(&training);
    }

    /// Whether a job counts by its speed, and is free to change.
    fn is_training(&self, job: usize) -> bool {
        let it = &self.instance.jobs[job];
        let posed = &self.problem.jobs[it.index];
        let is_new = it.count == 0 && it.fixed.is_empty();
        posed.urgency == Urgency::Training
            && !it.is_role
            && self.candidate.is_free(self.instance, job)
            && (it.in_place || is_new)
    }

    fn demand(&self, job: usize) -> &[u64] {
        &self.instance.types[self.instance.jobs[job].ty].demand
    }

    /// What a job has on each node, with what stays there in any case.
    fn stands(&self, job: usize) -> BTreeMap<usize, u32> {
        let mut stands = self.partitions[job].clone();
        for (node, count) in &self.instance.jobs[job].fixed {
            *stands.entry(*node).or_insert(0) += count;
        }
        stands.retain(|_, count| *count > 0);
        stands
    }

    /// Step 1; `None` for a job without containers.
    fn home(&self, job: usize) -> Option<usize> {
        if let Some((chief, _)) = self.instance.jobs[job].fixed.first() {
            return Some(*chief);
        }
        let stands = self.stands(job);
        let all: u64 = stands.values().map(|count| u64::from(*count)).sum();
        let could = |node: &usize| {
            let has = u64::from(stands.get(node).copied().unwrap_or(0));
            let free = fits(self.demand(job), &self.rooms[*node]);
            let others = (0..self.partitions.len()).filter(|other| *other != job);
            let given: u32 = others.map(|other| self.could_give(other, job, *node)).sum();
            (has + free + u64::from(given)).min(all)
        };
        let best = stands.keys().max_by_key(|node| {
            let reversed = std::cmp::Reverse(**node);
            (could(node), stands[node], reversed)
        });
        best.copied()
    }

    /// A node where a job has a container that is not at home and may go.
    fn away(&self, job: usize, home: usize) -> Option<usize> {
        let mut nodes = self.partitions[job].iter();
        let away = nodes.find(|(node, count)| **node != home && **count > 0);
        away.map(|(node, _)| *node)
    }

    /// Step 2.
    fn bring_home(&mut self, job: usize) {
        let Some(home) = self.home(job) else {
            return;
        };
        while let Some(away) = self.away(job, home) {
            let came = self.enters(job, away, home)
                || self.exchanged(job, away, home)
                || self.for_another(job, away, home);
            if !came {
                return;
            }
        }
    }

    fn enters(&mut self, job: usize, away: usize, home: usize) -> bool {
        let demand = self.demand(job).to_vec();
        if !take(&demand, 1, &mut self.rooms[home]) {
            return false;
        }
        give(&demand, 1, &mut self.rooms[away]);
        self.moved(job, away, home);
        true
    }

    fn moved(&mut self, job: usize, from: usize, to: usize) {
        self.counted(job, from, false);
        self.counted(job, to, true);
    }

    /// One container of a job more, or less, on a node: rooms are the caller's.
    fn counted(&mut self, job: usize, node: usize, more: bool) {
        let slots = &mut self.candidate.slots[self.instance.jobs[job].ty];
        for counts in [slots, &mut self.partitions[job]] {
            let count = counts.entry(node).or_insert(0);
            *count = if more {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            counts.retain(|_, count| *count > 0);
        }
    }

    /// Exchanges with a container of the same type that is as well elsewhere: a replica that has yet to
    /// start, or one of a job that is away from home.
    fn exchanged(&mut self, job: usize, away: usize, home: usize) -> bool {
        let ty = self.instance.jobs[job].ty;
        let other = (0..self.partitions.len()).find(|other| {
            let has = self.partitions[*other].get(&home).copied().unwrap_or(0);
            let same = *other != job && self.instance.jobs[*other].ty == ty && has > 0;
            same && self.is_as_well_elsewhere(*other, home)
        });
        let Some(other) = other else {
            return false;
        };
        self.moved(other, home, away);
        self.moved(job, away, home);
        true
    }

    fn is_as_well_elsewhere(&self, job: usize, node: usize) -> bool {
        let it = &self.instance.jobs[job];
        if self.is_training(job) {
            return self.home(job) != Some(node);
        }
        let is_replica = self.problem.jobs[it.index].urgency > Urgency::Training;
        let had = it.previous.iter().find(|(at, _)| *at == node);
        let has = self.partitions[job].get(&node).copied().unwrap_or(0);
        is_replica
            && self.candidate.is_free(self.instance, job)
            && has > had.map_or(0, |(_, count)| *count)
    }

    /// For a job that has not its fewest at home another one, at home there, gives up a container: the
    /// one with the most.
    fn for_another(&mut self, job: usize, away: usize, home: usize) -> bool {
        let it = &self.instance.jobs[job];
        let here = self.stands(job).get(&home).copied().unwrap_or(0);
        if here >= it.min + it.base() {
            return false;
        }
        let others = (0..self.partitions.len()).filter(|other| *other != job);
        let others = others.filter(|other| self.could_give(*other, job, home) > 0);
        let most = others.max_by_key(|other| {
            (
                self.candidate.counts[*other] + self.instance.jobs[*other].base(),
                *other,
            )
        });
        let Some(other) = most else {
            return false;
        };
        self.counted(other, home, false);
        self.candidate.counts[other] -= 1;
        let demand = self.demand(other).to_vec();
        give(&demand, 1, &mut self.rooms[home]);
        self.enters(job, away, home)
    }

    /// What another job with no fewer containers could give up on a node for a job.
    fn could_give(&self, other: usize, job: usize, node: usize) -> u32 {
        let own = self.candidate.counts[job] + self.instance.jobs[job].base();
        let it = &self.instance.jobs[other];
        let count = self.candidate.counts[other];
        let gives = it.ty == self.instance.jobs[job].ty
            && it.in_place
            && count + it.base() >= own.max(2)
            && self.is_training(other);
        let has = self.partitions[other].get(&node).copied().unwrap_or(0);
        if gives {
            has.min(count.saturating_sub(it.min))
        } else {
            0
        }
    }

    /// Step 3.
    fn give_up(&mut self, job: usize) {
        let Some(home) = self.home(job) else {
            return;
        };
        let stands = self.stands(job);
        let all: u32 = stands.values().sum();
        let here = stands.get(&home).copied().unwrap_or(0);
        let it = &self.instance.jobs[job];
        let together = f64::from(here);
        let apart = f64::from(all) * (1.0 - self.instance.objective.crossing);
        if here == all || here < it.min + it.base() || together < apart {
            return;
        }
        let demand = self.demand(job).to_vec();
        while let Some(away) = self.away(job, home) {
            self.counted(job, away, false);
            self.candidate.counts[job] -= 1;
            give(&demand, 1, &mut self.rooms[away]);
        }
    }

    /// Step 4.
    fn fill(&mut self, training: &[usize]) {
        loop {
            let grows = |job: &usize| {
                let it = &self.instance.jobs[*job];
                let stands = self.stands(*job);
                let home = self.home(*job).filter(|_| stands.len() == 1)?;
                let fits = fits(self.demand(*job), &self.rooms[home]) > 0;
                let more = self.candidate.counts[*job] < it.max && fits;
                more.then(|| (self.candidate.counts[*job] + it.base(), *job, home))
            };
            let Some((_, job, home)) = training.iter().filter_map(grows).min() else {
                return;
            };
            let demand = self.demand(job).to_vec();
            take(&demand, 1, &mut self.rooms[home]);
            self.counted(job, home, true);
            self.candidate.counts[job] += 1;
        }
    }
}
