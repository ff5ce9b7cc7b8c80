//! Audits the facts on the log, independently of the services' folds.
//!
//! 1. A container starts at most once.
//! 2. Two incarnations of a job never run at the same time.
//! 3. Running containers never over-commit a node.
//! 4. A job ends once, and no container runs afterwards.
//! 5. Every submission is decided once.
//! 6. A task set completes when each task was reported complete.
//! 7. Containers start only on nodes that were eligible at the decision ([`eligible`]).
//! 8. Only permitted jobs preempt, within the bound ([`preemption`]).
//! 9. Allocations are not decided and refused in turns while nothing else happens.
//! 10. Nothing is placed on a quarantined node, and no quarantine outlasts its time.
//! 11. A decision moves the jobs that it counted, within its bound ([`restarts`]).
//! 12. A job takes the name of no live job, and of an ended one only when the name is free again ([`names`]).
//!
//! Memory is bounded by the live jobs and nodes, and the names that ended jobs keep.

mod eligible;
mod names;
mod preemption;
pub mod restarts;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::ServiceMeasured;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::roles::Demands;
use dormouse_messages::{
    Amounts, Event, Incarnation, JobId, LogClock, NodeId, Rank, Recorded, Sequence, TaskRanges,
};

use eligible::Starts;
use names::Names;
use preemption::Preemptions;
use restarts::Restarts;

/// A refusal leads to one new decision, or two if a node is lost meanwhile. More refusals mean that
/// optimizer and placer see different clusters.
const REFUSALS: u32 = 4;

/// A fact that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub sequence: Sequence,
    pub what: String,
}

#[derive(Debug, Clone, Default)]
struct Open {
    demands: Demands,
    running: BTreeMap<(Incarnation, Rank), NodeId>,
    seen: BTreeSet<(Incarnation, Rank)>,
    exclusive: bool,
    tasks: TaskRanges,
}

#[derive(Debug, Clone, Default)]
struct Node {
    capacity: Amounts,
    incarnation: u64,
    used: Amounts,
    /// Containers on the node, and the exclusive ones among them.
    occupants: (u32, u32),
    /// Until the node joins again, its reports are about containers that it has ended.
    lost: bool,
}

/// Checks the rules over a log.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    clock: LogClock,
    open: BTreeMap<JobId, Open>,
    nodes: BTreeMap<NodeId, Node>,
    names: Names,
    undecided: BTreeSet<u64>,
    /// Refusals in a row, with only decisions in between.
    refusals: u32,
    quarantined: BTreeSet<NodeId>,
    starts: Starts,
    preemptions: Preemptions,
    restarts: Restarts,
    violations: Vec<Violation>,
}

impl Audit {
    /// Checks the next event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        let (at, fact) = (recorded.sequence, self.clock.read(recorded));
        self.refused(recorded);
        for what in self.starts.read(recorded) {
            self.violation(at, what);
        }
        for what in self.preemptions.read(&fact) {
            self.violation(at, what);
        }
        for what in self.restarts.read(recorded) {
            self.violation(at, what);
        }
        self.quarantine(recorded);
        self.names.read(&fact);
        match recorded.event() {
            Some(Event::NodeJoined(event)) => {
                let node = self.nodes.entry(event.node.clone()).or_default();
                node.capacity.clone_from(&event.capacity);
                node.incarnation = event.incarnation;
                node.lost = false;
            }
            Some(Event::NodeLost(event)) => self.lost(&event.node, event.incarnation),
            Some(Event::NodeFenced(event)) => self.lost(&event.node, event.incarnation),
            Some(Event::SubmissionReceived(event)) => {
                self.undecided.insert(event.ingress_sequence);
            }
            Some(Event::JobAdmitted(event)) => {
                self.decided(at, event.ingress_sequence);
                if let Some(what) = self.names.too_early(&event.job) {
                    self.violation(at, what);
                }
                let open = Open {
                    demands: Demands::of(&event.spec),
                    exclusive: event.spec.constraints.exclusive,
                    tasks: TaskRanges::first(event.spec.tasks.map_or(0, |tasks| tasks.count)),
                    ..Open::default()
                };
                if self.open.insert(event.job.clone(), open).is_some() {
                    let what = format!("{} is admitted while a job of the name lives", event.job);
                    self.violation(at, what);
                }
            }
            Some(Event::JobRefused(event)) => self.decided(at, event.ingress_sequence),
            Some(Event::JobRevised(event)) => self.decided(at, event.ingress_sequence),
            Some(Event::JobRequeued(event)) => self.decided(at, event.ingress_sequence),
            Some(Event::ServiceMeasured(event)) => self.measured(at, event),
            Some(Event::JobCancelRequested(event)) => self.decided(at, event.ingress_sequence),
            Some(Event::ContainerStarted(event)) => self.started(at, &event.container, &event.node),
            Some(Event::ContainerExited(event)) => self.exited(&event.container),
            Some(Event::TasksEnded(event)) => {
                if let Some(open) = self.open.get_mut(&event.job) {
                    let _ = open.tasks.take_common(&event.completed);
                }
            }
            Some(Event::JobCompleted(event)) => {
                let open = self.open.get(&event.job);
                if let Some(open) = open.filter(|open| !open.tasks.is_empty()) {
                    let what = format!("{} completed without its tasks {}", event.job, open.tasks);
                    self.violation(at, what);
                }
                self.ended(at, &event.job);
            }
            Some(Event::JobFailed(event)) => self.ended(at, &event.job),
            Some(Event::JobCancelled(event)) => {
                if let Some(ingress_sequence) = event.ingress_sequence {
                    self.decided(at, ingress_sequence);
                }
                self.ended(at, &event.job);
            }
            _ => {}
        }
    }

    /// Rule 9.
    fn refused(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::AllocationDecided(_)) => {}
            Some(Event::PlacementRefused(event)) => {
                self.refusals += 1;
                if self.refusals == REFUSALS {
                    let first = event.unplaceable.first();
                    let first = first.map(ToString::to_string).unwrap_or_default();
                    let what = format!("refused again and again: {first}");
                    self.violation(recorded.sequence, what);
                }
            }
            _ => self.refusals = 0,
        }
    }

    /// A measurement with a basis was first recorded as a submission.
    fn measured(&mut self, at: Sequence, event: &ServiceMeasured) {
        let decided = event.ingress_sequence.filter(|_| event.basis.is_some());
        if let Some(ingress_sequence) = decided {
            self.decided(at, ingress_sequence);
        }
    }

    /// Rule 10.
    fn quarantine(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::NodeQuarantined(event)) => {
                self.quarantined.insert(event.node.clone());
            }
            Some(Event::NodeReadmitted(event)) => drop(self.quarantined.remove(&event.node)),
            Some(Event::NodeRestored(event)) => drop(self.quarantined.remove(&event.node)),
            Some(Event::PlacementDecided(event)) => {
                let mut places = event.create.iter().map(|it| &it.node);
                if let Some(node) = places.find(|node| self.quarantined.contains(*node)) {
                    let what = format!("a container is placed on {node}, which is in quarantine");
                    self.violation(recorded.sequence, what);
                }
            }
            _ => {}
        }
    }

    fn decided(&mut self, at: Sequence, ingress_sequence: u64) {
        if !self.undecided.remove(&ingress_sequence) {
            self.violation(
                at,
                format!("submission {ingress_sequence} is decided twice"),
            );
        }
    }

    fn started(&mut self, at: Sequence, container: &ContainerId, node: &NodeId) {
        if self.nodes.get(node).is_some_and(|node| node.lost) {
            return;
        }
        let Some(open) = self.open.get_mut(&container.job) else {
            let what = format!("{container} started but its job is not admitted, or has ended");
            return self.violation(at, what);
        };
        let place = (container.incarnation, container.rank);
        let twice = !open.seen.insert(place);
        let others = open
            .running
            .keys()
            .find(|(other, _)| *other != container.incarnation);
        let others = others.map(|(other, rank)| format!("{}/{other}/{rank}", container.job));
        open.running.insert(place, node.clone());
        let here = self.nodes.entry(node.clone()).or_default();
        here.used.add(open.demands.at(container.rank), 1);
        here.occupants.0 += 1;
        here.occupants.1 += u32::from(open.exclusive);
        let crowded = here.occupants.0 > 1 && here.occupants.1 > 0;
        let short = here.used.first_short(&here.capacity, 1).cloned();
        if twice {
            self.violation(at, format!("{container} started twice"));
        }
        if let Some(other) = others {
            self.violation(at, format!("{container} runs beside {other}"));
        }
        if crowded {
            self.violation(
                at,
                format!("{container} has company on {node}, one for itself"),
            );
        }
        if let Some(resource) = short {
            let what = format!("{node} runs more {} than it has", resource.name());
            self.violation(at, what);
        }
    }

    fn exited(&mut self, container: &ContainerId) {
        let Some(open) = self.open.get_mut(&container.job) else {
            return;
        };
        let place = (container.incarnation, container.rank);
        open.seen.insert(place);
        if let Some(node) = open.running.remove(&place)
            && let Some(node) = self.nodes.get_mut(&node)
        {
            node.used.subtract(open.demands.at(container.rank), 1);
            node.occupants.0 = node.occupants.0.saturating_sub(1);
            node.occupants.1 = node.occupants.1.saturating_sub(u32::from(open.exclusive));
        }
    }

    fn lost(&mut self, name: &NodeId, incarnation: u64) {
        // A later incarnation of the agent has joined and taken over the containers.
        let present = |node: &&mut Node| node.incarnation <= incarnation;
        let Some(node) = self.nodes.get_mut(name).filter(present) else {
            return;
        };
        node.used = Amounts::new();
        node.occupants = (0, 0);
        node.lost = true;
        for open in self.open.values_mut() {
            open.running.retain(|_, at| at != name);
        }
    }

    fn ended(&mut self, at: Sequence, job: &JobId) {
        let Some(open) = self.open.remove(job) else {
            let what = if self.names.has_ended(job) {
                format!("{job} ended twice")
            } else {
                format!("{job} ended but was never admitted")
            };
            return self.violation(at, what);
        };
        self.names.end(job);
        if let Some((incarnation, rank)) = open.running.keys().next() {
            let what = format!("{job}/{incarnation}/{rank} runs on though its job has ended");
            self.violation(at, what);
        }
    }

    fn violation(&mut self, sequence: Sequence, what: String) {
        self.violations.push(Violation { sequence, what });
    }

    /// Returns the violations so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns the number of preempted jobs: for services and notebooks, for classes, and by force.
    #[must_use]
    pub const fn preemptions(&self) -> [u64; 3] {
        self.preemptions.counts()
    }

    /// Returns the number of restarts that were decided.
    #[must_use]
    pub const fn restarts(&self) -> u64 {
        self.restarts.count()
    }

    /// Returns the admitted jobs that have not ended.
    pub fn open_jobs(&self) -> impl Iterator<Item = &JobId> {
        self.open.keys()
    }

    /// Returns the quarantined nodes.
    pub fn quarantined(&self) -> impl Iterator<Item = &NodeId> {
        self.quarantined.iter()
    }

    /// Returns the ingress sequences of submissions without a decision.
    pub fn undecided(&self) -> impl Iterator<Item = u64> {
        self.undecided.iter().copied()
    }
}
