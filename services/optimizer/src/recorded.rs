//! Checks that a recorded decision fits the state on which it was made, whatever its worth.
//!
//! 1. Every job has containers or waits, within its limits, and only adjustable jobs change.
//! 2. The containers of each node fit, devices included; closed or ineligible nodes take nothing new.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{AllocationDecided, JobAllocation, Outcome};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::{Amounts, JobId, NodeId, Timestamp};
use dormouse_state::ClusterState;

use crate::check::limits;
use crate::model::cluster::roles_of;
use crate::model::devices::{has_memory, overfull};
use crate::problem::{Budget, Problem, ProblemJob, ProblemNode};
use crate::problem_builder::problem_of;
use crate::solution::JobShare;

/// # Errors
/// The part that does not fit.
pub fn fits(state: &ClusterState, event: &AllocationDecided, now: Timestamp) -> Result<(), String> {
    let problem = problem_of(state, now, Budget::default());
    let recorded = Recorded::new(&problem, event);
    recorded.jobs()?;
    recorded.nodes()
}

type Counts = BTreeMap<NodeId, u32>;
type Types = BTreeMap<ContainerType, u32>;
type ByNode = BTreeMap<NodeId, Types>;

struct Recorded<'a> {
    problem: &'a Problem,
    outcome: &'a Outcome,
    listed: BTreeMap<&'a JobId, &'a JobAllocation>,
}

impl<'a> Recorded<'a> {
    fn new(problem: &'a Problem, event: &'a AllocationDecided) -> Self {
        Self {
            problem,
            outcome: &event.outcome,
            listed: event.jobs.iter().map(|job| (&job.job, job)).collect(),
        }
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
