//! Gathers training jobs onto fewer nodes where crossing nodes costs more than the containers bring.
//!
//! On several nodes a job is slower by its [`ProblemJob::crossing`](crate::problem::ProblemJob::crossing),
//! which P2 ignores. For each such training job that is free to change and crosses nodes:
//!
//! 1. The *home* is the coordinator's node; a starting job's home is the node that can hold most of it.
//! 2. Containers elsewhere come home: into free capacity, or in exchange with a replica or with a container
//!    away from its own home. If a job has less than its minimum at home, the job with the most containers
//!    gives one up there.
//! 3. Containers still elsewhere are given up if the rest is worth more than all.
//! 4. Training jobs at home fill the free capacity, those with the fewest containers first.
//!
//! A candidate that would exceed the loss bound is dropped.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;

use crate::model::candidate::{Candidate, SHARE_SLACK};
use crate::model::instance::Instance;
use crate::model::room::{fits, give, take};
use crate::primal::slots_to_jobs::Partitions;
use crate::problem::Problem;
use crate::useful;

pub(crate) fn gather(
    problem: &Problem,
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
) {
    if problem.jobs.iter().all(|job| job.crossing <= 0.0) {
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
        for job in &training {
            self.bring_home(*job);
            self.give_up(*job);
        }
        self.fill(&training);
    }

    /// Jobs that keep their containers or restart from a checkpoint are skipped.
    fn is_training(&self, job: usize) -> bool {
        let it = &self.instance.jobs[job];
        let posed = &self.problem.jobs[it.index];
        let is_new = it.count == 0 && it.fixed.is_empty();
        posed.urgency == Urgency::Training
            && posed.crossing > 0.0
            && !it.is_role
            && self.candidate.is_free(self.instance, job)
            && (it.in_place || is_new)
    }

    fn demand(&self, job: usize) -> &[u64] {
        &self.instance.types[self.instance.jobs[job].ty].demand
    }

    fn placed(&self, job: usize) -> BTreeMap<usize, u32> {
        let mut placed = self.partitions[job].clone();
        for (node, count) in &self.instance.jobs[job].fixed {
            *placed.entry(*node).or_insert(0) += count;
        }
        placed.retain(|_, count| *count > 0);
        placed
    }

    /// `None` for a job without containers.
    fn home(&self, job: usize) -> Option<usize> {
        if let Some((coordinator, _)) = self.instance.jobs[job].fixed.first() {
            return Some(*coordinator);
        }
        let placed = self.placed(job);
        let all: u64 = placed.values().map(|count| u64::from(*count)).sum();
        let could = |node: &usize| {
            let has = u64::from(placed.get(node).copied().unwrap_or(0));
            let free = fits(self.demand(job), &self.rooms[*node]);
            let others = (0..self.partitions.len()).filter(|other| *other != job);
            let given: u32 = others.map(|other| self.could_give(other, job, *node)).sum();
            (has + free + u64::from(given)).min(all)
        };
        let best = placed.keys().max_by_key(|node| {
            let reversed = std::cmp::Reverse(**node);
            (could(node), placed[node], reversed)
        });
        best.copied()
    }

    fn away(&self, job: usize, home: usize) -> Option<usize> {
        let mut nodes = self.partitions[job].iter();
        let away = nodes.find(|(node, count)| **node != home && **count > 0);
        away.map(|(node, _)| *node)
    }

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

    /// The caller adjusts the rooms.
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

    /// The other container loses nothing: it has yet to start, or is away from its home.
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

    fn for_another(&mut self, job: usize, away: usize, home: usize) -> bool {
        let it = &self.instance.jobs[job];
        let here = self.placed(job).get(&home).copied().unwrap_or(0);
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

    fn give_up(&mut self, job: usize) {
        let Some(home) = self.home(job) else {
            return;
        };
        let placed = self.placed(job);
        let all: u32 = placed.values().sum();
        let here = placed.get(&home).copied().unwrap_or(0);
        let it = &self.instance.jobs[job];
        let together = useful::value(it.useful.as_ref(), here);
        let crossing = self.problem.jobs[it.index].crossing;
        let apart = useful::value(it.useful.as_ref(), all) * (1.0 - crossing);
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

    fn fill(&mut self, training: &[usize]) {
        loop {
            let grows = |job: &usize| {
                let it = &self.instance.jobs[*job];
                let placed = self.placed(*job);
                let home = self.home(*job).filter(|_| placed.len() == 1)?;
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
