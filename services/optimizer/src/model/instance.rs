//! One P2 instance by index: rooms of nodes, distinct demands (types), and the participating jobs with their
//! fair shares and bounds.

use std::collections::BTreeMap;

use dormouse_messages::ids::NodeId;
use dormouse_messages::quantity::Resource;

use crate::decimal::ceil_times;
use crate::model::cluster::{Cluster, FairUser, is_head, limits, loss_bound, roles_of, runs};
use crate::model::eligibility::Confined;
use crate::model::room::covers;
use crate::problem::{DEFAULT_STALL_S, Objective, Problem, ProblemJob};
use crate::useful::{self, Useful};

/// The cost of any restart, as a part of the smallest container's utilization (ε of the objective). A
/// relative cost breaks ties alike at any cluster size, and a tenth stays below the least gain of a restart.
const RESTART_TIE: f64 = 0.1;

/// A distinct demand vector.
#[derive(Debug, Clone)]
pub(crate) struct Type {
    pub demand: Vec<u64>,
    /// v: the utilization of one container, Σ_k d_k / C_k.
    pub value: f64,
    /// δ: the dominant share of one container, max_k d_k / C_k.
    pub share: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pinned,
    Running,
    /// Gets new containers anyway: new, displaced, resized in place, or with a count outside its limits.
    Free,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub index: usize,
    pub ty: usize,
    pub state: State,
    pub min: u32,
    pub max: u32,
    pub previous: Vec<(usize, u32)>,
    /// p: present number of containers.
    pub count: u32,
    pub fair: f64,
    pub restart: f64,
    /// All containers but the coordinator may come and go.
    pub in_place: bool,
    /// Fixed containers outside the other counts: the coordinator of a job resized in place, and containers
    /// on ineligible nodes.
    pub fixed: Vec<(usize, u32)>,
    /// A role follows its job, has a fixed count and loss 0, and never moves while running.
    pub is_role: bool,
    /// Value of all containers, the fixed ones included; `None`: their number.
    pub useful: Option<Useful>,
}

impl Job {
    /// v(n), in containers of full value; `count` excludes the fixed ones.
    pub fn value(&self, count: u32) -> f64 {
        useful::value(self.useful.as_ref(), count + self.base())
    }

    fn cap(&self) -> u32 {
        let peak = self.useful.as_ref().and_then(|useful| useful.peak);
        let max = self.max + self.base();
        peak.map_or(max, |peak| max.min(peak))
            .max(self.min + self.base())
    }

    pub fn base(&self) -> u32 {
        self.fixed.iter().map(|(_, count)| count).sum()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub totals: Vec<u64>,
    /// All columns before those of eligibility.
    pub counted: usize,
    /// Per class, the allowed types; a room's last column is its class. Empty if all nodes allow all types.
    pub classes: Vec<Vec<bool>>,
    pub rooms: Vec<Vec<u64>>,
    pub types: Vec<Type>,
    pub jobs: Vec<Job>,
    pub objective: Objective,
    /// F: the bound on Σ l_i (infinite: none).
    pub loss_bound: f64,
    /// R: the bound on Σ r_i.
    pub restart_bound: u32,
}

impl Instance {
    pub fn new(problem: &Problem, cluster: &Cluster, members: &[usize]) -> Self {
        Self::within(problem, cluster, members, &Confined::default())
    }

    pub fn within(
        problem: &Problem,
        cluster: &Cluster,
        members: &[usize],
        confined: &Confined,
    ) -> Self {
        let mut instance = Self {
            totals: cluster.totals.clone(),
            counted: cluster.columns.counted(),
            classes: Vec::new(),
            rooms: cluster.rooms.clone(),
            types: Vec::new(),
            jobs: Vec::new(),
            objective: problem.policy.objective,
            loss_bound: loss_bound(problem, cluster),
            restart_bound: 0,
        };
        let counted = instance.counted;
        confined.complete_rooms(&mut instance.rooms, counted);
        let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        let heads = members.iter().copied();
        let heads = heads.filter(|index| problem.jobs.get(*index).is_some_and(is_head));
        for index in heads.flat_map(|head| std::iter::once(head).chain(problem.roles(head))) {
            let job = &problem.jobs[index];
            let Some(mut demand) = cluster.demand(job) else {
                continue;
            };
            confined.complete_demand(&mut demand, index, counted);
            let ty = *known.entry(demand).or_insert_with_key(|demand| {
                instance.types.push(Type::new(demand, &cluster.totals));
                instance.types.len() - 1
            });
            instance.push(problem, cluster, index, ty);
        }
        instance.classify();
        instance.fair_shares(problem, cluster);
        instance.price_restarts(problem);
        let running = instance.jobs.iter().filter(|job| {
            problem
                .jobs
                .get(job.index)
                .is_some_and(|it| runs(cluster, it) && it.in_place.is_none() && is_head(it))
        });
        let running = u64::try_from(running.count()).unwrap_or(u64::MAX);
        let bound = ceil_times(problem.policy.theta2, running);
        instance.restart_bound = u32::try_from(bound).unwrap_or(u32::MAX);
        instance
    }

    /// Nobody else may use a withdrawn job's capacity on closed nodes.
    pub fn give_up(&mut self, cluster: &Cluster, job: &ProblemJob) {
        let (Some(demand), Some(previous)) = (cluster.demand(job), &job.previous) else {
            return;
        };
        for (node, count) in cluster.locate(previous).into_iter().flatten() {
            if cluster.closed[node] {
                for (room, amount) in self.rooms[node].iter_mut().zip(&demand) {
                    *room = room.saturating_sub(amount * u64::from(count));
                }
            }
        }
    }

    fn push(&mut self, problem: &Problem, cluster: &Cluster, index: usize, ty: usize) {
        let job = &problem.jobs[index];
        let (min, max) = limits(job);
        let previous = job.previous.as_ref().map(|previous| {
            let located = |(node, count): (&NodeId, &u32)| {
                Some((*cluster.index.get(node)?, *count)).filter(|(_, count)| *count > 0)
            };
            previous.iter().filter_map(located).collect::<Vec<_>>()
        });
        let mut previous = previous.unwrap_or_default();
        let fixed = self.fixed(cluster, job, max, &mut previous);
        for (node, count) in &fixed {
            for (room, amount) in self.rooms[*node].iter_mut().zip(&self.types[ty].demand) {
                *room = room.saturating_sub(amount * u64::from(*count));
            }
        }
        let base: u32 = fixed.iter().map(|(_, count)| count).sum();
        let (min, max) = (min.saturating_sub(base), max.saturating_sub(base));
        let count: u32 = previous.iter().map(|(_, count)| count).sum();
        let state = match (runs(cluster, job), job.adjustable) {
            (false, _) => State::Free,
            (true, false) => State::Pinned,
            (true, true) if job.in_place.is_some() => State::Free,
            (true, true) if count < min || count > max => State::Free,
            (true, true) => State::Running,
        };
        self.jobs.push(Job {
            index,
            ty,
            state,
            min,
            max,
            previous,
            count,
            fair: 0.0,
            restart: 0.0,
            in_place: job.in_place.is_some() && state == State::Free,
            fixed,
            is_role: !is_head(job),
            useful: job.useful.clone(),
        });
    }

    /// Moves the coordinator and the containers on ineligible nodes out of `previous`, at most `most`.
    fn fixed(
        &self,
        cluster: &Cluster,
        job: &ProblemJob,
        most: u32,
        previous: &mut Vec<(usize, u32)>,
    ) -> Vec<(usize, u32)> {
        let Some(in_place) = job.in_place.as_ref().filter(|_| job.adjustable) else {
            return Vec::new();
        };
        if !runs(cluster, job) {
            return Vec::new();
        }
        let coordinator = in_place.coordinator.as_ref();
        let coordinator = coordinator.and_then(|coordinator| cluster.index.get(coordinator));
        let mut left = most;
        let mut fixed = BTreeMap::new();
        if let Some((node, count)) = previous.iter_mut().find(|(at, _)| Some(at) == coordinator) {
            (left, *count) = (left - 1, *count - 1);
            fixed.insert(*node, 1);
        }
        for (node, count) in previous.iter_mut() {
            if !cluster.columns.allows(job, *node) {
                let stay = (*count).min(left);
                (left, *count) = (left - stay, *count - stay);
                *fixed.entry(*node).or_insert(0) += stay;
            }
        }
        previous.retain(|(_, count)| *count > 0);
        fixed.retain(|_, count| *count > 0);
        fixed.into_iter().collect()
    }

    pub fn classify(&mut self) {
        let width = self.rooms.first().map_or(0, Vec::len);
        self.classes.clear();
        if width <= self.counted {
            return;
        }
        let (counted, last) = (self.counted, width - 1);
        let mut known: BTreeMap<Vec<bool>, usize> = BTreeMap::new();
        for room in &mut self.rooms {
            let types = self.types.iter();
            let allowed: Vec<bool> = types
                .map(|ty| covers(&ty.demand[counted..last], &room[counted..last]))
                .collect();
            let classes = &mut self.classes;
            let class = *known.entry(allowed).or_insert_with_key(|allowed| {
                classes.push(allowed.clone());
                classes.len() - 1
            });
            room[last] = class as u64;
        }
    }

    /// ε + stall · u v(n̄) / amortise, over at most the time until the job ends.
    fn price_restarts(&mut self, problem: &Problem) {
        let values = self.types.iter().map(|ty| ty.value);
        let tie = RESTART_TIE * values.reduce(f64::min).unwrap_or(0.0);
        for job in &mut self.jobs {
            let measured_s = problem.jobs[job.index].stall_s;
            let stall_s = if measured_s > 0.0 {
                measured_s
            } else {
                DEFAULT_STALL_S
            };
            let posed = &problem.jobs[job.index];
            let amortised = self.objective.amortise_s.map_or(0.0, |amortise_s| {
                let amortise_s = posed.amortised_over_s(amortise_s);
                stall_s * self.types[job.ty].value * job.value(job.count) / amortise_s
            });
            job.restart = tie + amortised;
        }
    }

    /// ŝ, over the participating jobs.
    fn fair_shares(&mut self, problem: &Problem, cluster: &Cluster) {
        let width = cluster.columns.width();
        let user = |job: &Job| FairUser {
            job: &problem.jobs[job.index],
            demand: &self.types[job.ty].demand[..width],
            floor: job.min + job.base(),
            cap: job.cap(),
            roles: roles_of(problem, job.index),
        };
        let heads = self.jobs.iter().filter(|job| !job.is_role);
        let users: Vec<FairUser<'_>> = heads.map(user).collect();
        let mut shares = cluster.fair_shares(&users).into_iter();
        for job in &mut self.jobs {
            let own = self.types[job.ty].share;
            job.fair = if job.is_role {
                own * f64::from(job.min)
            } else {
                let roles = roles_of(problem, job.index);
                let auxiliary = cluster.auxiliary_share(&problem.jobs[job.index], &roles);
                shares.next().unwrap_or(0.0) - auxiliary
            };
        }
    }

    pub fn without_demand(
        &self,
        (problem, cluster): (&Problem, &Cluster),
        index: usize,
        resource: usize,
    ) -> Option<Self> {
        let mut other = self.clone();
        let roles: Vec<usize> = problem.roles(index).collect();
        let whose = |job: &&mut Job| job.index == index || roles.contains(&job.index);
        for job in other.jobs.iter_mut().filter(whose) {
            let mut demand = self.types[job.ty].demand.clone();
            *demand.get_mut(resource)? = 0;
            if cluster.resources.get(resource) == Some(&Resource::Gpu) {
                demand[cluster.columns.devices()].fill(0);
            }
            job.ty = other.types.len();
            other.types.push(Type::new(&demand, &self.totals));
        }
        other.classify();
        other.fair_shares(problem, cluster);
        Some(other)
    }

    pub fn without_constraints(&self, index: usize) -> Option<Self> {
        let mut other = self.clone();
        let (counted, totals) = (self.counted, &self.totals);
        let job = other.jobs.iter_mut().find(|job| job.index == index)?;
        let mut demand = self.types[job.ty].demand.clone();
        demand[counted..].fill(0);
        job.ty = other.types.len();
        other.types.push(Type::new(&demand, totals));
        other.classify();
        Some(other)
    }

    /// l (Dorm, equations 11 and 12).
    pub fn loss(&self, job: usize, count: u32) -> f64 {
        let job = &self.jobs[job];
        (self.types[job.ty].share * f64::from(count + job.base()) - job.fair).abs()
    }

    /// 0 without a bound.
    pub fn allowed_loss(&self, price: f64) -> f64 {
        if self.loss_bound.is_finite() {
            price * self.loss_bound
        } else {
            0.0
        }
    }

    /// Subgradient of the loss price; 0 without a bound keeps the price at 0.
    pub fn spared_loss(&self, loss: f64) -> f64 {
        if self.loss_bound.is_finite() {
            self.loss_bound - loss
        } else {
            0.0
        }
    }

    /// Excludes the restart.
    pub fn worth(&self, job: usize, count: u32) -> f64 {
        let value = self.types[self.jobs[job].ty].value * self.jobs[job].value(count);
        self.objective.utilization * value - self.objective.loss * self.loss(job, count)
    }

    /// Subtracts pinned jobs and running jobs that are not `restarted`.
    pub fn free_rooms(&self, restarted: &[bool]) -> Vec<Vec<u64>> {
        let mut rooms = self.rooms.clone();
        for (job, restarted) in self.jobs.iter().zip(restarted) {
            let stays = match job.state {
                State::Pinned => true,
                State::Running => !*restarted,
                State::Free => false,
            };
            if stays {
                for (node, count) in &job.previous {
                    for (room, amount) in rooms[*node].iter_mut().zip(&self.types[job.ty].demand) {
                        *room = room.saturating_sub(amount * u64::from(*count));
                    }
                }
            }
        }
        rooms
    }
}

impl Type {
    fn new(demand: &[u64], totals: &[u64]) -> Self {
        let fractions = demand
            .iter()
            .zip(totals)
            .map(|(d, c)| *d as f64 / *c as f64);
        Self {
            demand: demand.to_vec(),
            value: fractions.clone().sum(),
            share: fractions.fold(0.0, f64::max),
        }
    }
}
