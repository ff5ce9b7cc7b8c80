//! What stands in rooms and demands behind the resources, so that one comparison of a demand with a
//! room says all: whether there is room, and whether the container may be there.
//!
//! ```text
//! resources │ company │ one a size of fractions of GPUs │ one permit a set of eligible nodes │ class
//! ```
//!
//! - *Company*: of a node there is [`ALONE`], of which a container takes one, and one that has its
//!   node for itself all. Only where some job asks for that.
//! - *Fractions of GPUs*: see [`crate::instance::devices`].
//! - A *permit*: of it there is [`PLENTY`] on each node that the constraints and tolerations of some
//!   jobs allow, nothing on the others, and each container of those jobs takes one. Needs that allow
//!   the same nodes share a permit; those that allow all need none.
//! - The *class* of a node says which types it allows. No demand has it; the tables of rooms' worth
//!   are told apart by it.
//!
//! Without constraints, taints, fractions and exclusive jobs nothing stands behind the resources. All
//! up to the permits add up (they are *counted*); a permit is never used up. A container that stays on a node
//! whose labels have changed has no permit there: what is subtracted stops at 0.

use std::collections::BTreeMap;

use dormouse_messages::{JobId, Needs};

use crate::instance::devices::{Devices, has_memory};
use crate::problem::{Problem, ProblemJob, ProblemNode};

/// More containers than a node can hold: they have 1,500 blocks of ports.
pub(crate) const ALONE: u64 = 4_096;
/// More of a permit than is ever taken.
pub(crate) const PLENTY: u64 = 1 << 40;

/// The columns of one problem.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    resources: usize,
    company: bool,
    devices: Devices,
    /// Per permit and node: whether it is there.
    permits: Vec<Vec<bool>>,
    /// What is asked, to the permit that stands for it.
    permit_of: BTreeMap<Needs, Option<usize>>,
    /// The jobs' indices, where that is asked.
    index_of: BTreeMap<JobId, usize>,
}

impl Columns {
    /// The columns for `nodes`, in the order of their index.
    pub fn new(problem: &Problem, nodes: &[&ProblemNode], resources: usize) -> Self {
        let exclusive = |job: &ProblemJob| job.needs.constraints.exclusive;
        let mut columns = Self {
            resources,
            company: problem.jobs.iter().any(exclusive),
            devices: Devices::new(problem, nodes),
            ..Self::default()
        };
        if columns.devices.width() > 0 {
            let jobs = problem.jobs.iter().enumerate();
            columns.index_of = jobs.map(|(index, job)| (job.job.clone(), index)).collect();
        }
        for job in &problem.jobs {
            let needs = asked(&job.needs);
            if columns.permit_of.contains_key(&needs) {
                continue;
            }
            let allowed: Vec<bool> = nodes
                .iter()
                .map(|node| needs.allow(&node.labels, &node.taints) && has_memory(node, job))
                .collect();
            let permit = (!allowed.iter().all(|allowed| *allowed)).then(|| {
                let known = columns.permits.iter().position(|known| *known == allowed);
                known.unwrap_or_else(|| {
                    columns.permits.push(allowed);
                    columns.permits.len() - 1
                })
            });
            columns.permit_of.insert(needs, permit);
        }
        columns
    }

    /// How many columns add up on a node.
    pub fn counted(&self) -> usize {
        self.resources + usize::from(self.company) + self.devices.width()
    }

    /// The columns of parts of GPUs.
    pub fn devices(&self) -> std::ops::Range<usize> {
        self.counted() - self.devices.width()..self.counted()
    }

    /// How many columns say what jobs ask and nodes have: all but the class.
    pub fn width(&self) -> usize {
        self.counted() + self.permits.len()
    }

    /// Completes the capacity of a node (`reserved` is `None`) or its room; something that is not of the
    /// problem stands on it where `reserved`.
    pub fn complete_room(&self, room: &mut Vec<u64>, node: usize, reserved: Option<bool>) {
        if self.company {
            room.push(ALONE - u64::from(reserved == Some(true)));
        }
        self.devices.complete_room(room, node, reserved.is_none());
        let permits = self.permits.iter();
        room.extend(permits.map(|allowed| if allowed[node] { PLENTY } else { 0 }));
        if !self.permits.is_empty() {
            room.push(0);
        }
    }

    /// Completes the demand of a job's container.
    pub fn complete_demand(&self, demand: &mut Vec<u64>, job: &ProblemJob) {
        if self.company {
            let exclusive = job.needs.constraints.exclusive;
            demand.push(if exclusive { ALONE } else { 1 });
        }
        let index = self.index_of.get(&job.job).copied();
        self.devices.complete_demand(demand, index);
        let own = self.permit(job);
        demand.extend((0..self.permits.len()).map(|permit| u64::from(own == Some(permit))));
        if !self.permits.is_empty() {
            demand.push(0);
        }
    }

    fn permit(&self, job: &ProblemJob) -> Option<usize> {
        let permit = self.permit_of.get(&asked(&job.needs));
        permit.copied().flatten()
    }

    /// Whether a job asks more of its nodes than room.
    pub fn is_bound(&self, job: &ProblemJob) -> bool {
        job.needs.constraints.exclusive || self.permit(job).is_some()
    }

    /// Whether a job may have containers on a node.
    pub fn allows(&self, job: &ProblemJob, node: usize) -> bool {
        let permit = self.permit(job);
        permit.is_none_or(|permit| self.permits[permit][node])
    }

    /// Per permit: the sums of `capacities` over the nodes that have it, in the resources. These
    /// bound what the jobs of the permit can have together.
    pub fn pools(&self, capacities: &[Vec<u64>]) -> Vec<u64> {
        let mut pools = Vec::with_capacity(self.permits.len() * self.resources);
        for allowed in &self.permits {
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

    /// What a container with `demand` takes of each pool: of those that hold all of its nodes.
    pub fn pooled(&self, demand: &[u64], job: &ProblemJob) -> Vec<u64> {
        let own = self.permit(job);
        let mut pooled = Vec::with_capacity(self.permits.len() * self.resources);
        for pool in &self.permits {
            let within = own.is_some_and(|own| {
                let mut pairs = self.permits[own].iter().zip(pool);
                pairs.all(|(own, pool)| *pool || !*own)
            });
            let amounts = demand[..self.resources].iter();
            pooled.extend(amounts.map(|amount| if within { *amount } else { 0 }));
        }
        pooled
    }
}

/// The part of it that says which nodes are eligible.
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
