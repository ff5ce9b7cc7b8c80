//! Judges the ground truth of the model world, as the programs report it.
//!
//! 1. Two incarnations of a job never run at the same time.
//! 2. No node runs more than its capacity.
//! 3. No container of an ended job runs.
//! 4. Containers that a rolled-back log no longer requests end once their agent is back.
//! 5. A resumed host ends its overdue containers within two seconds.
//! 6. No start is given up early, by an exact clock instead of the log's.

use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, Event, Incarnation, JobId, NodeId, Rank, Recorded, Timestamp};

/// Grace for a resumed host's overdue containers: the supervisor's clock counts suspended time, so the
/// supervisor acts at once.
const OVERLAP_MS: u64 = 2_000;

/// No start is given up earlier: the checkpointer waits two minutes of log time, which may be slightly
/// off.
const START_MS: u64 = 90_000;

/// A node and its use. The capacity of a node that joined before the model is unknown.
#[derive(Debug, Clone, Default)]
struct Node {
    capacity: Option<Amounts>,
    used: Amounts,
}

/// The running containers.
#[derive(Debug, Clone, Default)]
pub struct World {
    demands: BTreeMap<JobId, Demands>,
    running: BTreeMap<JobId, BTreeMap<(Incarnation, Rank), NodeId>>,
    nodes: BTreeMap<NodeId, Node>,
    /// Containers on suspended hosts, which do not run.
    still: BTreeMap<ContainerId, NodeId>,
    /// Overdue containers of resumed hosts, with their deadlines.
    stale: BTreeMap<ContainerId, (NodeId, Timestamp)>,
    /// Containers that the rolled-back log no longer requests, with nodes and deadlines.
    forgotten: BTreeMap<ContainerId, (NodeId, Timestamp)>,
    starts: BTreeMap<JobId, (Incarnation, Timestamp)>,
    broken: Option<String>,
}

impl World {
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub fn fold(&mut self, recorded: &Recorded, now: Timestamp) {
        self.given_up(recorded, now);
        match recorded.event() {
            Some(Event::JobAdmitted(event)) => {
                let demands = Demands::of(&event.spec);
                self.demands.insert(event.job.clone(), demands);
            }
            Some(Event::NodeJoined(event)) => {
                let node = self.nodes.entry(event.node.clone()).or_default();
                node.capacity = Some(event.capacity.clone());
            }
            Some(Event::ContainerStarted(event)) => self.asks_again(&event.container, &event.node),
            Some(Event::JobCompleted(event)) => self.over(&event.job),
            Some(Event::JobFailed(event)) => self.over(&event.job),
            Some(Event::JobCancelled(event)) => self.over(&event.job),
            _ => {}
        }
    }

    /// Checks rule 6, except for starts that failed or lost their node.
    fn given_up(&mut self, recorded: &Recorded, now: Timestamp) {
        match recorded.event() {
            Some(Event::PartitionStartRequested(event)) => {
                let start = (event.incarnation, now);
                self.starts.insert(event.job.clone(), start);
            }
            Some(Event::ContainerExited(event)) => drop(self.starts.remove(&event.container.job)),
            Some(Event::NodeLost(_) | Event::NodeFenced(_)) => self.starts.clear(),
            Some(Event::PartitionStopRequested(event)) => {
                let start = self.starts.remove(&event.job);
                let gives_up = matches!(event.reason, StopReason::Failed | StopReason::GaveUp);
                let of_it = start.filter(|(of, _)| gives_up && *of == event.incarnation);
                let early = of_it.filter(|(_, since)| now.ms_since(*since) < START_MS);
                let early =
                    early.map(|_| format!("the start of {} was given up too early", event.job));
                self.broken = self.broken.take().or(early);
            }
            Some(Event::PartitionStarted(event)) => drop(self.starts.remove(&event.job)),
            _ => {}
        }
    }

    pub fn starts(&mut self, id: &ContainerId, node: &NodeId) {
        let running = self.running.entry(id.job.clone()).or_default();
        let other = running.keys().find(|(other, _)| *other != id.incarnation);
        let other = other.map(|(other, rank)| format!("{id} starts while {other}/{rank} runs"));
        let before = running.insert((id.incarnation, id.rank), node.clone());
        if before.is_some() {
            return;
        }
        let here = self.nodes.entry(node.clone()).or_default();
        if let Some(demands) = self.demands.get(&id.job) {
            here.used.add(demands.at(id.rank), 1);
        }
        let capacity = here.capacity.as_ref();
        let short = capacity.and_then(|capacity| here.used.first_short(capacity, 1));
        let short = short.map(|it| format!("{node} really runs more {} than it has", it.name()));
        self.broken = self.broken.take().or(other).or(short);
    }

    pub fn stands(&mut self, node: &NodeId) {
        let mut here = Vec::new();
        for (job, running) in &self.running {
            let of_node = running.iter().filter(|(_, at)| *at == node);
            here.extend(of_node.map(|((incarnation, rank), _)| ContainerId {
                job: job.clone(),
                incarnation: *incarnation,
                rank: *rank,
            }));
        }
        for id in here {
            self.ends(&id);
            self.still.insert(id, node.clone());
        }
    }

    /// Resumes a host. Overdue containers get a grace period, in which another incarnation may run
    /// elsewhere.
    pub fn goes_on(&mut self, node: &NodeId, is_over: bool, now: Timestamp) {
        let here = self.still.iter().filter(|(_, at)| *at == node);
        let here: Vec<ContainerId> = here.map(|(id, _)| id.clone()).collect();
        for id in here {
            self.still.remove(&id);
            if is_over {
                drop(
                    self.stale
                        .insert(id, (node.clone(), now.plus_ms(OVERLAP_MS))),
                )
            } else {
                self.starts(&id, node)
            }
        }
    }

    /// Forgets a container that the rolled-back log no longer requests. Until its end another
    /// incarnation may run elsewhere.
    pub fn forgets(&mut self, id: &ContainerId, node: &NodeId, until: Timestamp) {
        let running = self.running.get(&id.job);
        let runs = running.and_then(|it| it.get(&(id.incarnation, id.rank)));
        if runs == Some(node) {
            self.ends(id);
            let until = until.plus_ms(OVERLAP_MS);
            self.forgotten.insert(id.clone(), (node.clone(), until));
        }
    }

    fn asks_again(&mut self, id: &ContainerId, node: &NodeId) {
        if self.forgotten.get(id).is_some_and(|(at, _)| at == node) {
            self.forgotten.remove(id);
            self.starts(id, node);
        }
    }

    pub fn ends_forgotten(&mut self, id: &ContainerId) {
        self.forgotten.remove(id);
    }

    pub fn passed(&mut self, now: Timestamp) {
        let mut beyond = self.stale.iter().chain(&self.forgotten);
        let late = beyond.find(|(_, (_, until))| *until < now);
        let late = late.map(|(id, _)| format!("{id} runs on beyond its time"));
        self.broken = self.broken.take().or(late);
    }

    pub fn stale_on(&self, node: &NodeId) -> Vec<ContainerId> {
        let here = self.stale.iter().filter(|(_, (at, _))| at == node);
        here.map(|(id, _)| id.clone()).collect()
    }

    pub fn ends(&mut self, id: &ContainerId) {
        self.still.remove(id);
        self.stale.remove(id);
        self.forgotten.remove(id);
        let running = self.running.get_mut(&id.job);
        let Some(node) = running.and_then(|it| it.remove(&(id.incarnation, id.rank))) else {
            return;
        };
        if let (Some(node), Some(demands)) = (self.nodes.get_mut(&node), self.demands.get(&id.job))
        {
            node.used.subtract(demands.at(id.rank), 1);
        }
    }

    fn over(&mut self, job: &JobId) {
        let running = self.running.get(job);
        if let Some((incarnation, rank)) = running.and_then(|it| it.keys().next()) {
            let what = format!("{job}/{incarnation}/{rank} really runs though its job has ended");
            self.broken.get_or_insert(what);
        }
    }
}
