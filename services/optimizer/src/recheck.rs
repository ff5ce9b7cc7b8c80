//! Checks a recorded decision that time stopped, since deciding again may differ: the problem is posed again
//! and the event is checked against it.
//!
//! 1. Every job has containers or waits, within its limits, and only adjustable jobs change.
//! 2. The containers of each node fit, devices included; closed or ineligible nodes take nothing new.
//! 3. Shares, losses, utilization and restarts follow from the containers and keep their bounds.
//! 4. The objective is the allocation's, the bound is not below it, and the gap is theirs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{AllocationDecided, Basis, JobAllocation, Outcome, StoppedBy};
use dormouse_messages::job::Urgency;
use dormouse_messages::needs::ContainerType;
use dormouse_messages::{Amounts, Event, JobId, NodeId, Timestamp};
use dormouse_state::ClusterState;

use crate::check::limits;
use crate::drive::dorm_driver::KEPT;
use crate::drive::search::gap;
use crate::model::cluster::{Cluster, loss_bound, roles_of};
use crate::model::devices::{has_memory, overfull};
use crate::problem::{Allocation, Budget, DEFAULT_STALL_S, Problem, ProblemJob, ProblemNode};
use crate::problem_builder::problem_of;
use crate::report::{Draft, write};
use crate::solution::{JobShare, Solution};
use crate::useful;

const SLACK: f64 = 1e-6;

fn stopped_by_time(event: &Event) -> Option<(&Outcome, Option<&AllocationDecided>, &Basis)> {
    let (outcome, decided, basis) = match event {
        Event::AllocationDecided(event) => (&event.outcome, Some(&**event), event.basis.as_ref()?),
        Event::AllocationUnchanged(event) => (&event.outcome, None, event.basis.as_ref()?),
        _ => return None,
    };
    (outcome.solver.stopped_by == StoppedBy::Time).then_some((outcome, decided, basis))
}

/// `None` if time did not stop the event.
pub fn recheck(state: &ClusterState, event: &Event) -> Option<Result<(), String>> {
    let (outcome, decided, basis) = stopped_by_time(event)?;
    let budget = Budget {
        gap: basis.budget.map_or(0.0, |budget| budget.gap),
        nodes: None,
        time: None,
    };
    let problem = problem_of(state, basis.now, budget);
    Some(holds(&problem, outcome, decided))
}

/// Steps 1 and 2 for any decision.
pub fn fits(state: &ClusterState, event: &AllocationDecided, now: Timestamp) -> Result<(), String> {
    let problem = problem_of(state, now, Budget::default());
    let recorded = Recorded::new(&problem, &event.outcome, Some(event));
    recorded.jobs()?;
    recorded.nodes()
}

pub fn holds(
    problem: &Problem,
    outcome: &Outcome,
    decided: Option<&AllocationDecided>,
) -> Result<(), String> {
    let recorded = Recorded::new(problem, outcome, decided);
    recorded.jobs()?;
    recorded.nodes()?;
    recorded.figures()
}

type Counts = BTreeMap<NodeId, u32>;
type Types = BTreeMap<ContainerType, u32>;
type ByNode = BTreeMap<NodeId, Types>;

struct Recorded<'a> {
    problem: &'a Problem,
    outcome: &'a Outcome,
    decided: Option<&'a AllocationDecided>,
    listed: BTreeMap<&'a JobId, &'a JobAllocation>,
}

impl<'a> Recorded<'a> {
    fn new(
        problem: &'a Problem,
        outcome: &'a Outcome,
        decided: Option<&'a AllocationDecided>,
    ) -> Self {
        let jobs = decided.iter().flat_map(|event| &event.jobs);
        Self {
            problem,
            outcome,
            decided,
            listed: jobs.map(|job| (&job.job, job)).collect(),
        }
    }

    fn is_listed(&self, job: &ProblemJob) -> bool {
        self.listed.contains_key(head_of(job))
    }

    fn containers(&self, job: &ProblemJob) -> u32 {
        self.nodes_of(job).values().sum()
    }

    fn nodes_of(&self, job: &'a ProblemJob) -> Cow<'a, BTreeMap<NodeId, u32>> {
        let listed = self.listed.get(head_of(job)).copied();
        match (listed, &job.previous) {
            (Some(listed), _) => {
                let role = job.role.as_ref().map(|role| role.name.as_str());
                Cow::Owned(listed.by_node(role))
            }
            (None, Some(previous)) => Cow::Borrowed(previous),
            (None, None) => Cow::Owned(BTreeMap::new()),
        }
    }

    fn jobs(&self) -> Result<(), String> {
        let waits = self.outcome.waiting.iter();
        let waits: BTreeSet<&JobId> = waits.map(|waiting| &waiting.job).collect();
        for (index, job) in self.problem.heads() {
            let runs = self.containers(job) > 0;
            if runs == waits.contains(&job.job) {
                let what = if runs {
                    "both runs and waits"
                } else {
                    "neither runs nor waits"
                };
                return Err(format!("{} {what}", job.job));
            }
            if let Some(listed) = self.listed.get(&job.job) {
                self.roles(index, listed)?;
                limits(self.problem, job, &self.share(job)).map_err(|why| why.to_string())?;
            } else if job.displaced && job.previous.is_some() && runs {
                return Err(format!("{} lost a node and is not placed again", job.job));
            }
        }
        Ok(())
    }

    /// The roles have all of their containers exactly if the job has some.
    fn roles(&self, index: usize, listed: &JobAllocation) -> Result<(), String> {
        let job = &self.problem.jobs[index];
        let mut all = self.containers(job);
        let runs = all > 0;
        for role in roles_of(self.problem, index) {
            let has = self.containers(role);
            if has != if runs { role.min } else { 0 } {
                return Err(format!("{} has {has} containers", role.job));
            }
            all += has;
        }
        if all == listed.containers {
            Ok(())
        } else {
            let said = listed.containers;
            Err(format!(
                "{} has {said} containers, and {all} on nodes",
                job.job
            ))
        }
    }

    fn share(&self, job: &ProblemJob) -> JobShare {
        JobShare {
            job: job.job.clone(),
            containers: self.containers(job),
            previous: None,
            share: 0.0,
            fair_share: 0.0,
            nodes: self.nodes_of(job).into_owned(),
        }
    }

    fn types(&self, nodes_of: impl Fn(&'a ProblemJob) -> Cow<'a, Counts>) -> ByNode {
        let mut types = ByNode::new();
        for job in &self.problem.jobs {
            for (node, count) in nodes_of(job).iter().filter(|(_, count)| **count > 0) {
                let here = types.entry(node.clone()).or_default();
                *here.entry(job.container_type()).or_default() += count;
            }
        }
        types
    }

    fn nodes(&self) -> Result<(), String> {
        let none = Counts::new();
        let before = self.types(|job| Cow::Borrowed(job.previous.as_ref().unwrap_or(&none)));
        let after = self.types(|job| self.nodes_of(job));
        for (name, here) in &after {
            let before = before.get(name).cloned().unwrap_or_default();
            if *here == before {
                continue;
            }
            let node = self.problem.nodes.iter().find(|node| node.name == *name);
            let Some(node) = node else {
                return Err(format!("{name} takes no containers"));
            };
            let mut room = node.capacity.clone();
            room.subtract(&node.reserved, 1);
            let (sum, had) = (sum(here), sum(&before));
            let kept = |resource| sum.get(resource) <= had.get(resource);
            if let Some(resource) = sum.first_short(&room, 1).filter(|it| !kept(it)) {
                let name = format!("{name} holds more {}", resource.name());
                return Err(format!("{name} than it has room for"));
            }
            self.starts(node, here, &before)?;
        }
        Ok(())
    }

    fn starts(&self, node: &ProblemNode, here: &Types, before: &Types) -> Result<(), String> {
        let name = &node.name;
        let more = |(of_type, count): &(&ContainerType, &u32)| {
            **count > before.get(*of_type).copied().unwrap_or(0)
        };
        let mut starts = here.iter().filter(more).peekable();
        if starts.peek().is_none() {
            return Ok(());
        }
        if node.closed {
            return Err(format!("{name} is closed and takes containers"));
        }
        let one = |of_type: &ContainerType| {
            let jobs = &self.problem.jobs;
            jobs.iter().find(|job| job.container_type() == *of_type)
        };
        let barred = |(of_type, _): (&ContainerType, &u32)| {
            let memory = one(of_type).is_some_and(|job| has_memory(node, job));
            !(memory && of_type.needs.allow(&node.labels, &node.taints))
        };
        if starts.any(barred) {
            return Err(format!("{name} is ruled out for what starts there"));
        }
        let alone = |it: &ContainerType| it.needs.constraints.exclusive;
        if here.keys().any(alone) && here.values().sum::<u32>() > 1 {
            return Err(format!("{name} is to be held by one container alone"));
        }
        let stand = here.iter();
        if overfull(node, stand.filter_map(|it| Some((one(it.0)?, *it.1)))) {
            Err(format!("the GPUs of {name} cannot be shared so"))
        } else {
            Ok(())
        }
    }

    fn figures(&self) -> Result<(), String> {
        let cluster = Cluster::new(self.problem);
        let written = self.written(&cluster);
        let outcome = self.outcome;
        for (what, recorded, again) in [
            (
                "utilization",
                outcome.utilization.total,
                written.utilization.total,
            ),
            (
                "fairness loss",
                outcome.fairness_loss,
                written.fairness_loss,
            ),
            (
                "fairness loss of all",
                outcome.fairness_loss_all,
                written.fairness_loss_all,
            ),
        ] {
            close(what, recorded, again)?;
        }
        for allocated in self.decided.iter().flat_map(|event| &event.jobs) {
            let share = written.jobs.iter().find(|it| it.job == allocated.job);
            if let Some(share) = share {
                let what = format!("the share of {}", allocated.job);
                close(&what, allocated.share, share.share)?;
                let what = format!("the fair share of {}", allocated.job);
                close(&what, allocated.fair_share, share.fair_share)?;
            }
        }
        self.bounds(&cluster)?;
        self.objective(&written, &cluster)
    }

    /// Places do not affect the figures.
    fn written(&self, cluster: &Cluster) -> Solution {
        let mut draft = Draft::empty(self.problem, "recheck");
        for (placed, job) in draft.placed.iter_mut().zip(&self.problem.jobs) {
            let had = job.previous.as_ref().and_then(|it| cluster.locate(it));
            *placed = match (self.is_listed(job), self.containers(job)) {
                (_, 0) => BTreeMap::new(),
                (true, count) => BTreeMap::from([(0, count)]),
                (false, _) => had.unwrap_or_default().into_iter().collect(),
            };
        }
        write(self.problem, cluster, draft)
    }

    fn restarted(&self) -> impl Iterator<Item = &ProblemJob> {
        let listed = self.problem.heads().map(|(_, job)| job);
        let listed = listed.filter(|job| self.is_listed(job));
        listed.filter(|job| {
            let counts = limits(self.problem, job, &self.share(job));
            self.containers(job) > 0 && counts == Ok(true)
        })
    }

    fn bounds(&self, cluster: &Cluster) -> Result<(), String> {
        let outcome = self.outcome;
        let adjusted = u32::try_from(self.restarted().count()).unwrap_or(u32::MAX);
        let free = outcome.forced || self.problem.policy.allocation != Allocation::Dorm;
        let too_many = adjusted > outcome.adjustment_bound && !free;
        if adjusted != outcome.adjusted_jobs || too_many {
            return Err(format!(
                "{adjusted} jobs are restarted, {} are reported, the bound is {}",
                outcome.adjusted_jobs, outcome.adjustment_bound
            ));
        }
        // Not for an unchanged allocation or an admission into an idle cluster.
        if free || outcome.unbounded || self.decided.is_none() {
            return Ok(());
        }
        close(
            "the bound on the loss",
            outcome.fairness_loss_bound,
            loss_bound(self.problem, cluster),
        )?;
        let (loss, bound) = (outcome.fairness_loss, outcome.fairness_loss_bound);
        if loss <= bound + SLACK || outcome.solver.stage == KEPT {
            Ok(())
        } else {
            Err(format!(
                "its fairness loss {loss} is above its bound {bound}"
            ))
        }
    }

    fn objective(&self, written: &Solution, cluster: &Cluster) -> Result<(), String> {
        let solver = &self.outcome.solver;
        if solver.objective > solver.bound + SLACK {
            return Err(format!(
                "its objective {} is above its bound {}",
                solver.objective, solver.bound
            ));
        }
        close("its gap", solver.gap, gap(solver.objective, solver.bound))?;
        let urgent = |job: &ProblemJob| job.urgency > Urgency::Training;
        if self.problem.jobs.iter().any(urgent) {
            // Services have an objective of their own.
            return Ok(());
        }
        let policy = &self.problem.policy.objective;
        let runs = || {
            self.problem
                .jobs
                .iter()
                .filter(|job| self.containers(job) > 0)
        };
        let value = |job: &ProblemJob| {
            let demand = cluster.demand(job).unwrap_or_default();
            let parts = demand.iter().zip(&cluster.totals);
            parts
                .map(|(part, total)| *part as f64 / *total as f64)
                .sum::<f64>()
        };
        let worth = |job: &ProblemJob, count: u32| useful::value(job.useful.as_ref(), count);
        let tie = 0.1 * runs().map(value).reduce(f64::min).unwrap_or(0.0);
        let restarts = self.restarted().map(|job| {
            let stall_s = if job.stall_s > 0.0 {
                job.stall_s
            } else {
                DEFAULT_STALL_S
            };
            let had: u32 = job.previous.iter().flat_map(BTreeMap::values).sum();
            let lost = stall_s * value(job) * worth(job, had);
            let amortised = |amortise_s| lost / job.amortised_over_s(amortise_s);
            tie + policy.amortise_s.map_or(0.0, amortised)
        });
        let all = runs().map(|job| value(job) * worth(job, self.containers(job)));
        let again = policy.utilization * all.sum::<f64>()
            - policy.loss * written.fairness_loss
            - restarts.sum::<f64>();
        close("its objective", solver.objective, again)
    }
}

/// The log lists roles under their job.
fn head_of(job: &ProblemJob) -> &JobId {
    job.role.as_ref().map_or(&job.job, |role| &role.of)
}

fn sum(types: &Types) -> Amounts {
    let mut sum = Amounts::new();
    for (of_type, count) in types {
        sum.add(&of_type.demand, u64::from(*count));
    }
    sum
}

fn close(what: &str, recorded: f64, again: f64) -> Result<(), String> {
    if (recorded - again).abs() <= SLACK * again.abs().max(1.0) {
        Ok(())
    } else {
        Err(format!("{what} is {again}, not {recorded}"))
    }
}
