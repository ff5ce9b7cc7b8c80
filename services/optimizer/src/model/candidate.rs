//! A candidate allocation of a P2 instance, its value and its bounds.

use std::collections::BTreeMap;

use crate::model::instance::{Instance, State};
use crate::model::room::covers;

/// Far below one container's share, far above the rounding error of thousands of floats.
pub(crate) const SHARE_SLACK: f64 = 1e-9;

/// A candidate allocation of P2.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    /// r: true for a restarted running job, false for all others.
    pub restarted: Vec<bool>,
    /// y: the containers of each job.
    pub counts: Vec<u32>,
    /// z: per type, containers of free and restarted jobs by node.
    pub slots: Vec<BTreeMap<usize, u32>>,
}

impl Candidate {
    /// Returns the candidate that changes nothing: no restarts, no containers for free jobs.
    pub fn incumbent(instance: &Instance) -> Self {
        let count = |job: &crate::model::instance::Job| match job.state {
            State::Free => 0,
            State::Pinned | State::Running => job.count,
        };
        Self {
            restarted: vec![false; instance.jobs.len()],
            counts: instance.jobs.iter().map(count).collect(),
            slots: vec![BTreeMap::new(); instance.types.len()],
        }
    }

    /// Returns [`Self::incumbent`] plus in-place jobs at their present counts, within limits; `None` if a node
    /// overflows.
    pub fn in_place(instance: &Instance) -> Option<Self> {
        let mut candidate = Self::incumbent(instance);
        for (index, job) in instance.jobs.iter().enumerate() {
            if !job.in_place || job.count < job.min {
                continue;
            }
            let mut left = job.count.min(job.max);
            candidate.counts[index] = left;
            for (node, had) in &job.previous {
                let stays = left.min(*had);
                left -= stays;
                if stays > 0 {
                    *candidate.slots[job.ty].entry(*node).or_insert(0) += stays;
                }
            }
        }
        candidate.rooms(instance).is_some().then_some(candidate)
    }

    pub fn is_free(&self, instance: &Instance, index: usize) -> bool {
        match instance.jobs[index].state {
            State::Free => true,
            State::Running => self.restarted[index],
            State::Pinned => false,
        }
    }

    /// The objective: utilization · Σ u n − loss · Σ l − Σ r (ε + …).
    pub fn objective(&self, instance: &Instance) -> f64 {
        let mut value = 0.0;
        for (index, count) in self.counts.iter().enumerate() {
            value += instance.worth(index, *count);
            if self.restarted[index] {
                value -= instance.jobs[index].restart;
            }
        }
        value
    }

    pub fn loss(&self, instance: &Instance) -> f64 {
        let losses = self.counts.iter().enumerate();
        losses
            .map(|(index, count)| instance.loss(index, *count))
            .sum()
    }

    pub fn restarts(&self) -> u32 {
        u32::try_from(self.restarted.iter().filter(|r| **r).count()).unwrap_or(u32::MAX)
    }

    pub fn rooms(&self, instance: &Instance) -> Option<Vec<Vec<u64>>> {
        let mut rooms = instance.rooms.clone();
        let mut used = vec![vec![0u64; instance.counted]; rooms.len()];
        let mut add = |node: usize, demand: &[u64], count: u32| {
            for (used, amount) in used[node].iter_mut().zip(demand) {
                *used = used.saturating_add(amount.saturating_mul(u64::from(count)));
            }
        };
        for (index, job) in instance.jobs.iter().enumerate() {
            if !self.is_free(instance, index) {
                for (node, count) in &job.previous {
                    add(*node, &instance.types[job.ty].demand, *count);
                }
            }
        }
        for (ty, slots) in instance.types.iter().zip(&self.slots) {
            for (node, count) in slots {
                add(*node, &ty.demand, *count);
            }
        }
        for (room, used) in rooms.iter_mut().zip(&used) {
            for (room, used) in room.iter_mut().zip(used) {
                *room = room.checked_sub(*used)?;
            }
        }
        Some(rooms)
    }

    fn is_allowed(&self, instance: &Instance) -> bool {
        let mut types = instance.types.iter().zip(&self.slots);
        types.all(|(ty, slots)| {
            let mut nodes = slots.iter().filter(|(_, count)| **count > 0);
            let asked = &ty.demand[instance.counted..];
            nodes.all(|(node, _)| covers(asked, &instance.rooms[*node][instance.counted..]))
        })
    }

    pub fn is_feasible(&self, instance: &Instance) -> bool {
        let mut wanted = vec![0u64; instance.types.len()];
        for (index, job) in instance.jobs.iter().enumerate() {
            if self.is_free(instance, index) {
                if self.counts[index] < job.min || self.counts[index] > job.max {
                    return false;
                }
                wanted[job.ty] += u64::from(self.counts[index]);
            } else if self.counts[index] != job.count {
                return false;
            }
        }
        let total = |slots: &BTreeMap<usize, u32>| slots.values().map(|c| u64::from(*c)).sum();
        let placed: Vec<u64> = self.slots.iter().map(total).collect();
        placed == wanted
            && self.is_allowed(instance)
            && self.restarts() <= instance.restart_bound
            && self.loss(instance) <= instance.loss_bound + SHARE_SLACK
            && self.rooms(instance).is_some()
    }
}
