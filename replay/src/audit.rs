//! Audits the facts on the log, independently of the services' folds: what did run, where, and
//! beside what.
//!
//! 1. A container starts at most once.
//! 2. No container runs beside one of another incarnation of its job.
//! 3. No node is over-committed by what runs on it.
//! 4. A job ends once, and nothing of it runs afterwards.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::ids::ContainerId;
use dormouse_messages::{Amounts, Event, JobId, NodeId, Recorded, Sequence};

/// A fact that may not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub sequence: Sequence,
    /// What.
    pub what: String,
}

/// What is known to run.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    demand: BTreeMap<JobId, Amounts>,
    capacity: BTreeMap<NodeId, Amounts>,
    running: BTreeMap<ContainerId, NodeId>,
    seen: BTreeSet<ContainerId>,
    ended: BTreeSet<JobId>,
    violations: Vec<Violation>,
}

impl Audit {
    /// The next event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        let at = recorded.sequence;
        match recorded.event() {
            Some(Event::NodeJoined(event)) => {
                self.capacity
                    .insert(event.node.clone(), event.capacity.clone());
            }
            Some(Event::NodeLost(event)) => self.running.retain(|_, node| *node != event.node),
            Some(Event::JobAdmitted(event)) => {
                self.demand
                    .insert(event.job.clone(), event.spec.demand.clone());
            }
            Some(Event::ContainerStarted(event)) => self.started(at, &event.container, &event.node),
            Some(Event::ContainerExited(event)) => {
                self.running.remove(&event.container);
                self.seen.insert(event.container.clone());
            }
            Some(Event::JobCompleted(event)) => self.ended(at, &event.job),
            Some(Event::JobFailed(event)) => self.ended(at, &event.job),
            Some(Event::JobCancelled(event)) => self.ended(at, &event.job),
            _ => {}
        }
    }

    fn started(&mut self, at: Sequence, container: &ContainerId, node: &NodeId) {
        if !self.seen.insert(container.clone()) {
            self.violation(at, format!("{container} started twice"));
        }
        if self.ended.contains(&container.job) {
            self.violation(at, format!("{container} started after its job had ended"));
        }
        let beside = self
            .running
            .keys()
            .find(|other| other.job == container.job && other.incarnation != container.incarnation);
        if let Some(other) = beside.cloned() {
            self.violation(at, format!("{container} runs beside {other}"));
        }
        self.running.insert(container.clone(), node.clone());
        let mut used = Amounts::new();
        for (other, _) in self.running.iter().filter(|(_, at)| *at == node) {
            if let Some(demand) = self.demand.get(&other.job) {
                used.add(demand, 1);
            }
        }
        let capacity = self.capacity.get(node).cloned().unwrap_or_default();
        if let Some(resource) = used.first_short(&capacity, 1) {
            let what = format!("{node} runs more {} than it has", resource.name());
            self.violation(at, what);
        }
    }

    fn ended(&mut self, at: Sequence, job: &JobId) {
        if !self.ended.insert(job.clone()) {
            self.violation(at, format!("{job} ended twice"));
        }
        if let Some(container) = self
            .running
            .keys()
            .find(|container| container.job == *job)
            .cloned()
        {
            self.violation(at, format!("{container} runs on though its job has ended"));
        }
    }

    fn violation(&mut self, sequence: Sequence, what: String) {
        self.violations.push(Violation { sequence, what });
    }

    /// What was violated so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Admitted jobs that have not ended.
    pub fn open_jobs(&self) -> impl Iterator<Item = &JobId> {
        self.demand.keys().filter(|job| !self.ended.contains(*job))
    }
}
