//! Completes a decision: from containers by job and node to the [`Solution`].

use std::collections::BTreeMap;

use dormouse_messages::events::{Solver, StoppedBy};
use dormouse_messages::ids::NodeId;
use dormouse_messages::quantity::Amounts;

use crate::model::cluster::{Cluster, FairUser, is_head, limits, roles_of, runs};
use crate::problem::{Problem, ProblemJob};
use crate::solution::{JobShare, Solution, Utilization, WaitCode, Waiting};

#[derive(Debug)]
pub(crate) struct Draft {
    /// By node index; empty for a waiting job.
    pub placed: Vec<BTreeMap<usize, u32>>,
    pub waiting: BTreeMap<usize, (WaitCode, String)>,
    pub loss_bound: f64,
    pub adjustment_bound: u32,
    pub unbounded: bool,
    /// A service, notebook or preempting job.
    pub made_room_for: Option<usize>,
    pub forced: bool,
    pub solver: Solver,
}

impl Draft {
    pub fn empty(problem: &Problem, procedure: &str) -> Self {
        Self {
            placed: vec![BTreeMap::new(); problem.jobs.len()],
            waiting: BTreeMap::new(),
            loss_bound: 0.0,
            adjustment_bound: 0,
            unbounded: false,
            made_room_for: None,
            forced: false,
            solver: Solver {
                name: procedure.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                status: "none".to_owned(),
                objective: 0.0,
                bound: 0.0,
                gap: 0.0,
                work: 0,
                stopped_by: StoppedBy::Procedure,
                stage: procedure.to_owned(),
            },
        }
    }
}

pub(crate) fn write(problem: &Problem, cluster: &Cluster, draft: Draft) -> Solution {
    let runs_now = |index: usize| !draft.placed[index].is_empty();
    let fair = fair_shares(problem, cluster, runs_now);
    let all_run = (0..problem.jobs.len()).all(runs_now);
    let fair_all = if all_run {
        fair.clone()
    } else {
        fair_shares(problem, cluster, |_| true)
    };
    let mut written = Written::new(problem, cluster);
    let (mut loss, mut loss_all) = (0.0, 0.0);
    for (index, job) in problem.jobs.iter().enumerate() {
        let runs = runs_now(index);
        let fair_share = if runs { fair[index] } else { fair_all[index] };
        let roles = roles_of(problem, index);
        let share = written.job(job, &roles, &draft.placed[index], fair_share);
        loss_all += (share - fair_all[index]).abs();
        if runs {
            loss += (share - fair_share).abs();
        }
    }
    let wait = |(index, (code, reason)): (&usize, &(WaitCode, String))| {
        let job = problem.jobs.get(*index)?.job.clone();
        let (code, reason, fair_share) = (*code, reason.clone(), fair_all[*index]);
        Some(Waiting {
            job,
            code,
            reason,
            fair_share,
        })
    };
    Solution {
        jobs: written.jobs,
        waiting: draft.waiting.iter().filter_map(wait).collect(),
        utilization: utilization(problem, cluster, &draft.placed),
        fairness_loss: loss,
        fairness_loss_all: loss_all,
        fairness_loss_bound: draft.loss_bound,
        adjusted_jobs: written.adjusted,
        adjustment_bound: draft.adjustment_bound,
        forced_jobs: written.forced,
        unbounded: draft.unbounded,
        made_room_for: draft
            .made_room_for
            .map(|index| problem.jobs[index].job.clone()),
        forced: draft.forced,
        changed: written.changed,
        solver: draft.solver,
    }
}

fn fair_shares(
    problem: &Problem,
    cluster: &Cluster,
    take_part: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let mut fair = vec![0.0; problem.jobs.len()];
    let demands = problem.jobs.iter().map(|job| cluster.demand(job));
    let demands: Vec<Option<Vec<u64>>> = demands.collect();
    let mut users = Vec::new();
    let mut indices = Vec::new();
    for (index, job) in problem.heads() {
        if let Some(demand) = demands[index].as_ref().filter(|_| take_part(index)) {
            let (floor, cap) = limits(job);
            users.push(FairUser {
                job,
                demand,
                floor,
                cap,
                roles: roles_of(problem, index),
            });
            indices.push(index);
        }
    }
    for (index, share) in indices.into_iter().zip(cluster.fair_shares(&users)) {
        fair[index] = share;
    }
    fair
}

struct Written<'a> {
    cluster: &'a Cluster,
    jobs: Vec<JobShare>,
    adjusted: u32,
    forced: u32,
    changed: bool,
}

impl<'a> Written<'a> {
    fn new(problem: &Problem, cluster: &'a Cluster) -> Self {
        let jobs = Vec::with_capacity(problem.jobs.len());
        Self {
            cluster,
            jobs,
            adjusted: 0,
            forced: 0,
            changed: false,
        }
    }

    /// Returns the share; a role's share counts with its job.
    fn job(
        &mut self,
        job: &ProblemJob,
        roles: &[&ProblemJob],
        placed: &BTreeMap<usize, u32>,
        fair_share: f64,
    ) -> f64 {
        let named = |(node, count): (&usize, &u32)| (self.cluster.names[*node].clone(), *count);
        let nodes: BTreeMap<NodeId, u32> = placed.iter().map(named).collect();
        let containers: u32 = nodes.values().sum();
        let share = if containers > 0 && is_head(job) {
            share(self.cluster, job, roles, containers)
        } else {
            0.0
        };
        // Survivors of a displaced job, possibly none.
        let had = job
            .previous
            .as_ref()
            .filter(|previous| job.displaced || previous.values().any(|c| *c > 0));
        let same = had.map_or(nodes.is_empty(), |had| {
            had.iter().filter(|(_, count)| **count > 0).eq(nodes.iter())
        });
        let in_place = job.in_place.is_some();
        let stood = runs(self.cluster, job);
        let restarted = had.is_some() && (!same || !stood);
        self.changed |= restarted || !same;
        if restarted && !nodes.is_empty() && !in_place && is_head(job) {
            let (min, max) = limits(job);
            let count: u32 = had.map_or(0, |had| had.values().sum());
            if stood && (min..=max).contains(&count) {
                self.adjusted += 1;
            } else {
                self.forced += 1;
            }
        }
        if containers > 0 || had.is_some() {
            self.jobs.push(JobShare {
                job: job.job.clone(),
                containers,
                previous: had.map(|had| had.values().sum()),
                share,
                fair_share,
                nodes,
            });
        }
        share
    }
}

fn share(cluster: &Cluster, job: &ProblemJob, roles: &[&ProblemJob], containers: u32) -> f64 {
    let each = cluster.resources.iter().zip(&cluster.totals);
    let part = each.map(|(resource, total)| job.demand.get(resource) as f64 / *total as f64);
    let workers = part.fold(0.0, f64::max) * f64::from(containers);
    workers + cluster.auxiliary_share(job, roles)
}

fn utilization(
    problem: &Problem,
    cluster: &Cluster,
    placed: &[BTreeMap<usize, u32>],
) -> Utilization {
    let mut used = Amounts::new();
    for (job, placed) in problem.jobs.iter().zip(placed) {
        used.add(
            &job.demand,
            placed.values().map(|count| u64::from(*count)).sum(),
        );
    }
    let each = cluster.resources.iter().zip(&cluster.totals);
    let resources: BTreeMap<_, _> = each
        .map(|(resource, total)| (resource.clone(), used.get(resource) as f64 / *total as f64))
        .collect();
    let total = resources.values().sum();
    Utilization { resources, total }
}
