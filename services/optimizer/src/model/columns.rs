//! Columns behind the resources in rooms and demands: one comparison decides capacity and eligibility.
//!
//! ```text
//! resources │ exclusivity │ one a size of fractions of GPUs │ one eligible_set a set of eligible nodes │ class
//! ```
//!
//! - *Exclusivity* (exclusivity): a node has [`EXCLUSIVE`]; an ordinary container takes one, an exclusive container
//!   all.
//! - *Fractions of GPUs*: see [`crate::model::devices`].
//! - A *eligible_set* (eligibility column): [`PLENTY`] on each eligible node, 0 on the others. Equal node sets
//!   share a eligible_set; needs that allow all nodes have none.
//! - The *class* of a node numbers its set of allowed types.
//!
//! All columns before the eligible_sets add up (they are *counted*). A container that stays on a node whose labels
//! changed has no eligible_set there, so subtractions saturate at 0.

use std::collections::BTreeMap;

use dormouse_messages::{JobId, Needs};

use crate::model::devices::{Devices, has_memory};
use crate::problem::{Problem, ProblemJob, ProblemNode};

/// A node has 1,500 blocks of ports.
pub(crate) const EXCLUSIVE: u64 = 4_096;
pub(crate) const PLENTY: u64 = 1 << 40;

#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    resources: usize,
    exclusivity: bool,
    devices: Devices,
    eligible_sets: Vec<Vec<bool>>,
    eligible_set_of: BTreeMap<Needs, Option<usize>>,
    index_of: BTreeMap<JobId, usize>,
}

impl Columns {
    pub fn new(problem: &Problem, nodes: &[&ProblemNode], resources: usize) -> Self {
        let exclusive = |job: &ProblemJob| job.needs.constraints.exclusive;
        let mut columns = Self {
            resources,
            exclusivity: problem.jobs.iter().any(exclusive),
            devices: Devices::new(problem, nodes),
            ..Self::default()
        };
        if columns.devices.width() > 0 {
            let jobs = problem.jobs.iter().enumerate();
            columns.index_of = jobs.map(|(index, job)| (job.job.clone(), index)).collect();
        }
        for job in &problem.jobs {
            let needs = asked(&job.needs);
            if columns.eligible_set_of.contains_key(&needs) {
                continue;
            }
            let allowed: Vec<bool> = nodes
                .iter()
                .map(|node| needs.allow(&node.labels, &node.taints) && has_memory(node, job))
                .collect();
            let eligible_set = (!allowed.iter().all(|allowed| *allowed)).then(|| {
                let known = columns
                    .eligible_sets
                    .iter()
                    .position(|known| *known == allowed);
                known.unwrap_or_else(|| {
                    columns.eligible_sets.push(allowed);
                    columns.eligible_sets.len() - 1
                })
            });
            columns.eligible_set_of.insert(needs, eligible_set);
        }
        columns
    }

    pub fn counted(&self) -> usize {
        self.resources + usize::from(self.exclusivity) + self.devices.width()
    }

    pub fn devices(&self) -> std::ops::Range<usize> {
        self.counted() - self.devices.width()..self.counted()
    }

    pub fn width(&self) -> usize {
        self.counted() + self.eligible_sets.len()
    }

    /// Completes a room, or with `reserved` `None` a capacity. `reserved` is true if containers outside the
    /// problem stand there.
    pub fn complete_room(&self, room: &mut Vec<u64>, node: usize, reserved: Option<bool>) {
        if self.exclusivity {
            room.push(EXCLUSIVE - u64::from(reserved == Some(true)));
        }
        self.devices.complete_room(room, node, reserved.is_none());
        let eligible_sets = self.eligible_sets.iter();
        room.extend(eligible_sets.map(|allowed| if allowed[node] { PLENTY } else { 0 }));
        if !self.eligible_sets.is_empty() {
            room.push(0);
        }
    }

    pub fn complete_demand(&self, demand: &mut Vec<u64>, job: &ProblemJob) {
        if self.exclusivity {
            let exclusive = job.needs.constraints.exclusive;
            demand.push(if exclusive { EXCLUSIVE } else { 1 });
        }
        let index = self.index_of.get(&job.job).copied();
        self.devices.complete_demand(demand, index);
        let own = self.eligible_set(job);
        demand.extend(
            (0..self.eligible_sets.len()).map(|eligible_set| u64::from(own == Some(eligible_set))),
        );
        if !self.eligible_sets.is_empty() {
            demand.push(0);
        }
    }

    fn eligible_set(&self, job: &ProblemJob) -> Option<usize> {
        let eligible_set = self.eligible_set_of.get(&asked(&job.needs));
        eligible_set.copied().flatten()
    }

    pub fn is_bound(&self, job: &ProblemJob) -> bool {
        job.needs.constraints.exclusive || self.eligible_set(job).is_some()
    }

    pub fn allows(&self, job: &ProblemJob, node: usize) -> bool {
        let eligible_set = self.eligible_set(job);
        eligible_set.is_none_or(|eligible_set| self.eligible_sets[eligible_set][node])
    }

    /// Per eligible_set, the capacity of its nodes by resource: bounds the eligible_set's jobs together.
    pub fn pools(&self, capacities: &[Vec<u64>]) -> Vec<u64> {
        let mut pools = Vec::with_capacity(self.eligible_sets.len() * self.resources);
        for allowed in &self.eligible_sets {
            for resource in 0..self.resources {
                let nodes = capacities
                    .iter()
                    .zip(allowed)
                    .filter(|(_, allowed)| **allowed);
                pools.push(nodes.map(|(capacity, _)| capacity[resource]).sum());
            }
        }
        pools
    }

    /// A container counts in each pool that holds all of its eligible nodes.
    pub fn pooled(&self, demand: &[u64], job: &ProblemJob) -> Vec<u64> {
        let own = self.eligible_set(job);
        let mut pooled = Vec::with_capacity(self.eligible_sets.len() * self.resources);
        for pool in &self.eligible_sets {
            let within = own.is_some_and(|own| {
                let mut pairs = self.eligible_sets[own].iter().zip(pool);
                pairs.all(|(own, pool)| *pool || !*own)
            });
            let amounts = demand[..self.resources].iter();
            pooled.extend(amounts.map(|amount| if within { *amount } else { 0 }));
        }
        pooled
    }
}

fn asked(needs: &Needs) -> Needs {
    let mut asked = Needs::default();
    asked
        .constraints
        .require
        .clone_from(&needs.constraints.require);
    asked.tolerations.clone_from(&needs.tolerations);
    asked.gpu_memory_bytes = needs.gpu_memory_bytes;
    asked
}
