//! The jobs that take part in a decision, and the instances of P2 that they make.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::job::Urgency;
use dormouse_messages::{Amounts, NodeId};
use dormouse_state::{FreeNode, FreeNodes};

use crate::drive::ladder::search;
use crate::drive::search::{Found, Verdict};
use crate::drive::waiting::unschedulable;
use crate::drive::work::Work;
use crate::model::cluster::{Cluster, runs};
use crate::model::eligibility::Confined;
use crate::model::instance::Instance;
use crate::problem::{Problem, ProblemNode};
use crate::solution::WaitCode;

pub(crate) struct Queue<'a> {
    pub problem: &'a Problem,
    pub cluster: &'a Cluster,
    pub empty: FreeNodes<'a>,
    pub running: Vec<usize>,
    /// By class; within a class displaced jobs, then new ones.
    pub waiting: Vec<usize>,
    pub unschedulable: BTreeMap<usize, (WaitCode, String)>,
    pub work: &'a Work,
}

fn empty_nodes(problem: &Problem) -> FreeNodes<'_> {
    let nodes: BTreeMap<&NodeId, &ProblemNode> = problem
        .nodes
        .iter()
        .rev()
        .map(|node| (&node.name, node))
        .collect();
    let nodes = nodes.into_values().map(|node| {
        let memory = node.gpus.iter().map(|gpu| gpu.memory_bytes);
        let none = Amounts::new();
        let offered = if node.closed { &none } else { &node.capacity };
        FreeNode::empty(offered, memory, (&node.labels, &node.taints))
    });
    FreeNodes::new(nodes.collect())
}

pub(crate) struct Admitted {
    pub members: Vec<usize>,
    pub instance: Instance,
    pub found: Box<Found>,
    pub unbounded: bool,
}

impl<'a> Queue<'a> {
    pub fn new(problem: &'a Problem, cluster: &'a Cluster, work: &'a Work) -> Self {
        let mut queue = Self {
            problem,
            cluster,
            empty: empty_nodes(problem),
            running: Vec::new(),
            waiting: Vec::new(),
            unschedulable: BTreeMap::new(),
            work,
        };
        let mut fresh = Vec::new();
        for (index, job) in problem.heads() {
            if runs(cluster, job) {
                queue.running.push(index);
            } else if let Some(why) = unschedulable(problem, cluster, work, index) {
                queue.unschedulable.insert(index, why);
            } else if job.urgency > Urgency::Training {
                queue.running.push(index);
            } else if job.displaced || job.previous.as_ref().is_some_and(|p| !p.is_empty()) {
                queue.waiting.push(index);
            } else {
                fresh.push(index);
            }
        }
        queue.waiting.append(&mut fresh);
        // The stable sort keeps the order within a class.
        let class = |index: &usize| Reverse(problem.jobs[*index].precedence.class);
        queue.waiting.sort_by_key(class);
        queue
    }

    pub fn instance(&self, members: &[usize]) -> Instance {
        self.within(members, &Confined::default())
    }

    pub fn within(&self, members: &[usize], confined: &Confined) -> Instance {
        let mut all = self.running.clone();
        all.extend(members);
        all.sort_unstable();
        let roles = members.iter().flat_map(|job| self.problem.roles(*job));
        let confined = confined.of(members.iter().copied().chain(roles));
        Instance::within(self.problem, self.cluster, &all, &confined)
    }

    /// For a problem that differs only in adjustability.
    pub fn of<'b>(&self, problem: &'b Problem) -> Queue<'b>
    where
        'a: 'b,
    {
        Queue {
            problem,
            cluster: self.cluster,
            empty: self.empty.clone(),
            running: self.running.clone(),
            waiting: self.waiting.clone(),
            unschedulable: self.unschedulable.clone(),
            work: self.work,
        }
    }

    pub fn instance_without(&self, members: &[usize], evicted: &BTreeSet<usize>) -> Instance {
        let running = self.running.iter().copied();
        let mut stays: Vec<usize> = running.filter(|job| !evicted.contains(job)).collect();
        stays.extend(members);
        stays.sort_unstable();
        let mut instance = Instance::new(self.problem, self.cluster, &stays);
        for job in evicted {
            for index in std::iter::once(*job).chain(self.problem.roles(*job)) {
                instance.give_up(self.cluster, &self.problem.jobs[index]);
            }
        }
        instance
    }

    pub fn takes_part(&self, job: usize) -> bool {
        self.running.contains(&job)
    }

    pub fn search(&self, instance: &Instance) -> Option<Box<Found>> {
        match search(instance, &self.problem.budget, self.work) {
            Verdict::Found(found) => Some(found),
            Verdict::Infeasible => None,
            Verdict::Unknown => {
                self.work.leave_open();
                None
            }
        }
    }
}
