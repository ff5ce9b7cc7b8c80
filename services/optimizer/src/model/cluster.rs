//! The nodes of a problem by index: capacities, rooms and columns, and the jobs' fair shares on them.

use std::collections::BTreeMap;

use dormouse_messages::ids::NodeId;
use dormouse_messages::quantity::{Amounts, Resource};

use crate::decimal::ceil_times;
use crate::drf::{User, fill_within};
use crate::model::columns::Columns;
use crate::model::room::fits;
use crate::model::topology::Topology;
use crate::problem::{FairnessBound, Problem, ProblemJob, ProblemNode};

#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub resources: Vec<Resource>,
    pub totals: Vec<u64>,
    /// Ascending: the index order everywhere.
    pub names: Vec<NodeId>,
    pub capacities: Vec<Vec<u64>>,
    pub rooms: Vec<Vec<u64>>,
    /// True if capacity given up on the node stays unused.
    pub closed: Vec<bool>,
    pub(super) index: BTreeMap<NodeId, usize>,
    pub columns: Columns,
    pub topology: Topology,
}

impl Cluster {
    pub fn new(problem: &Problem) -> Self {
        let mut total = Amounts::new();
        for node in &problem.nodes {
            total.add(&node.capacity, 1);
        }
        let resources: Vec<Resource> = total.iter().map(|(name, _)| name.clone()).collect();
        let totals = total.iter().map(|(_, amount)| amount).collect();
        let mut nodes: Vec<_> = problem.nodes.iter().collect();
        nodes.sort_by(|left, right| left.name.cmp(&right.name));
        nodes.dedup_by(|left, right| left.name == right.name);
        let columns = Columns::new(problem, &nodes, resources.len());
        let capacity = |node: &&ProblemNode| -> Vec<u64> {
            let amounts = resources.iter();
            amounts
                .map(|resource| node.capacity.get(resource))
                .collect()
        };
        let room = |node: &&ProblemNode| -> Vec<u64> {
            let reserved = resources.iter().map(|resource| node.reserved.get(resource));
            let pairs = capacity(node).into_iter().zip(reserved);
            pairs.map(|(c, r)| c.saturating_sub(r)).collect()
        };
        let complete =
            |(index, node): (usize, &&ProblemNode), mut amounts: Vec<u64>, held: bool| {
                columns.complete_room(&mut amounts, index, held.then(|| !node.reserved.is_empty()));
                amounts
            };
        let each = || nodes.iter().enumerate();
        Self {
            capacities: each()
                .map(|at| complete(at, capacity(at.1), false))
                .collect(),
            rooms: each().map(|at| complete(at, room(at.1), true)).collect(),
            closed: nodes.iter().map(|node| node.closed).collect(),
            names: nodes.iter().map(|node| node.name.clone()).collect(),
            index: nodes
                .iter()
                .enumerate()
                .map(|(i, node)| (node.name.clone(), i))
                .collect(),
            resources,
            totals,
            columns,
            topology: Topology::of(&nodes),
        }
    }

    /// `None` if a demanded resource does not exist.
    pub fn demand(&self, job: &ProblemJob) -> Option<Vec<u64>> {
        let known = |resource: &Resource| self.resources.contains(resource);
        if job.demand.is_empty() || !job.demand.iter().all(|(resource, _)| known(resource)) {
            return None;
        }
        let amounts = self.resources.iter().map(|it| job.demand.get(it));
        let mut demand: Vec<u64> = amounts.collect();
        self.columns.complete_demand(&mut demand, job);
        Some(demand)
    }

    pub fn holds(&self, demand: &[u64]) -> u64 {
        self.capacities
            .iter()
            .map(|capacity| fits(demand, capacity))
            .sum()
    }

    /// Weighted DRF shares ŝ. Pools bound the jobs that share a set of eligible nodes.
    pub fn fair_shares(&self, users: &[FairUser<'_>]) -> Vec<f64> {
        let resources = self.totals.len();
        let user = |user: &FairUser<'_>| {
            let mut demand = user.demand[..resources].to_vec();
            demand.extend(self.columns.pooled(user.demand, user.job));
            let mut cap = user.cap;
            if self.columns.is_bound(user.job) {
                let holds = u32::try_from(self.holds(user.demand)).unwrap_or(u32::MAX);
                cap = cap.min(holds).max(user.floor);
            }
            User {
                demand,
                weight: user.job.weight,
                floor: user.floor,
                cap: Some(cap),
                auxiliary: self.auxiliary_amounts(&user.roles),
            }
        };
        let users: Vec<User> = users.iter().map(user).collect();
        let mut totals = self.totals.clone();
        totals.extend(self.columns.pools(&self.capacities));
        let filled = fill_within(&totals, resources, &users);
        (0..users.len()).map(|index| filled.share(index)).collect()
    }

    pub fn auxiliary_share(&self, job: &ProblemJob, roles: &[&ProblemJob]) -> f64 {
        let part =
            |resource: &Resource, total: &u64| job.demand.get(resource) as f64 / *total as f64;
        let pairs = self.resources.iter().zip(&self.totals);
        let dominant = pairs.fold(
            None,
            |best: Option<(&Resource, u64, f64)>, (resource, total)| {
                let part = part(resource, total);
                match best {
                    Some((_, _, most)) if most >= part => best,
                    _ => Some((resource, *total, part)),
                }
            },
        );
        let Some((resource, total, _)) = dominant else {
            return 0.0;
        };
        let amounts = roles.iter();
        let amounts = amounts.map(|role| role.demand.get(resource) * u64::from(role.min));
        amounts.sum::<u64>() as f64 / total as f64
    }

    fn auxiliary_amounts(&self, roles: &[&ProblemJob]) -> Vec<u64> {
        let resources = self.totals.len();
        let mut auxiliary = Vec::new();
        for role in roles {
            let demand = self.demand(role).unwrap_or_default();
            let mut each = demand.iter().take(resources).copied().collect::<Vec<_>>();
            each.extend(self.columns.pooled(&demand, role));
            auxiliary.resize(each.len(), 0);
            for (auxiliary, amount) in auxiliary.iter_mut().zip(each) {
                *auxiliary += amount * u64::from(role.min);
            }
        }
        auxiliary
    }

    /// Returns node indices; `None` if a node is gone.
    pub fn locate(&self, previous: &BTreeMap<NodeId, u32>) -> Option<Vec<(usize, u32)>> {
        let counts = previous.iter().filter(|(_, count)| **count > 0);
        counts
            .map(|(node, count)| Some((*self.index.get(node)?, *count)))
            .collect()
    }
}

#[derive(Debug)]
pub(crate) struct FairUser<'a> {
    pub job: &'a ProblemJob,
    pub demand: &'a [u64],
    pub floor: u32,
    pub cap: u32,
    pub roles: Vec<&'a ProblemJob>,
}

pub(crate) fn roles_of(problem: &Problem, job: usize) -> Vec<&ProblemJob> {
    problem.roles(job).map(|role| &problem.jobs[role]).collect()
}

pub(crate) fn runs(cluster: &Cluster, job: &ProblemJob) -> bool {
    let previous = job.previous.as_ref().filter(|_| !job.displaced);
    previous.is_some_and(|previous| {
        let mut counts = previous.iter().filter(|(_, count)| **count > 0).peekable();
        counts.peek().is_some() && counts.all(|(node, _)| cluster.index.contains_key(node))
    })
}

pub(crate) fn is_head(job: &ProblemJob) -> bool {
    job.role.is_none()
}

pub(crate) fn limits(job: &ProblemJob) -> (u32, u32) {
    let min = job.min.max(1);
    (min, job.max.max(min))
}

/// ⌈θ1 · 2m⌉ (Dorm, equation 15), or without the ceiling.
pub(crate) fn loss_bound(problem: &Problem, cluster: &Cluster) -> f64 {
    let twice = 2 * u64::try_from(cluster.totals.len()).unwrap_or(0);
    match problem.policy.fairness_bound {
        FairnessBound::Paper => ceil_times(problem.policy.theta1, twice) as f64,
        FairnessBound::Exact => problem.policy.theta1 * twice as f64,
    }
}
