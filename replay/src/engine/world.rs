//! What really runs in the model world, whatever the log says, and what may never be there.
//!
//! 1. No container of a job runs while one of another of its incarnations does.
//! 2. No node runs more than it has.
//! 3. When a job has ended, nothing of it runs.
//! 4. What a log that went back does not ask for any more ends when its agent is back.
//! 5. What a host held that stood still, and goes on, ends within two seconds if its time is over.
//! 6. No start is given up before its time: by a clock that is right, not by the log's.
//!
//! The programs tell it at the moment when a container really starts or ends. What agents report, and
//! when that arrives, is another matter.

use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::ids::ContainerId;
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, Event, Incarnation, JobId, NodeId, Rank, Recorded, Timestamp};

/// How long what a host that stood still has held beyond its time may run on: its keeper, whose clock
/// counts what was slept, sees at once that it is late.
const OVERLAP_MS: u64 = 2_000;

/// A start that takes less is not given up: the checkpointer waits for two minutes by the log's time, which
/// may be off by a little.
const START_MS: u64 = 90_000;

/// A node, and what it runs. Of one that joined before the model begins it is not known what it has.
#[derive(Debug, Clone, Default)]
struct Node {
    capacity: Option<Amounts>,
    used: Amounts,
}

/// What really runs.
#[derive(Debug, Clone, Default)]
pub struct World {
    demands: BTreeMap<JobId, Demands>,
    running: BTreeMap<JobId, BTreeMap<(Incarnation, Rank), NodeId>>,
    nodes: BTreeMap<NodeId, Node>,
    /// Containers whose host stands still: they do not run.
    still: BTreeMap<ContainerId, NodeId>,
    /// Those that go on with it though their time is over, and when they must have ended.
    stale: BTreeMap<ContainerId, (NodeId, Timestamp)>,
    /// What the log does not ask for any more, where, and when it must have ended.
    forgotten: BTreeMap<ContainerId, (NodeId, Timestamp)>,
    /// Starts that are under way, and since when.
    starts: BTreeMap<JobId, (Incarnation, Timestamp)>,
    /// The first that may not be.
    broken: Option<String>,
}

impl World {
    /// What is broken, if anything.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// An event of the log, at this time: what jobs demand, what nodes have, and that a job has ended.
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

    /// What has not died, nor lost its node, has two minutes to start.
    fn given_up(&mut self, recorded: &Recorded, now: Timestamp) {
        match recorded.event() {
            Some(Event::PartitionStartRequested(event)) => {
                let start = (event.incarnation, now);
                self.starts.insert(event.job.clone(), start);
            }
            Some(Event::ContainerExited(event)) => drop(self.starts.remove(&event.job)),
            Some(Event::NodeLost(_) | Event::NodeFenced(_)) => self.starts.clear(),
            Some(Event::PartitionStopRequested(event)) => {
                let start = self.starts.remove(&event.job);
                let gives_up = matches!(event.reason, StopReason::Failed | StopReason::GaveUp);
                let of_it = start.filter(|(life, _)| gives_up && *life == event.incarnation);
                let early = of_it.filter(|(_, since)| now.ms_since(*since) < START_MS);
                let early =
                    early.map(|_| format!("the start of {} was given up too early", event.job));
                self.broken = self.broken.take().or(early);
            }
            Some(Event::PartitionStarted(event)) => drop(self.starts.remove(&event.job)),
            _ => {}
        }
    }

    /// A container starts.
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

    /// A host stands still.
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

    /// A host goes on. Where its containers' time is over they have a moment to end: that another life
    /// of their job runs elsewhere is not counted until then.
    pub fn goes_on(&mut self, node: &NodeId, is_over: bool, now: Timestamp) {
        let here = self.still.iter().filter(|(_, at)| *at == node);
        let here: Vec<ContainerId> = here.map(|(id, _)| id.clone()).collect();
        for id in here {
            self.still.remove(&id);
            match is_over {
                true => drop(
                    self.stale
                        .insert(id, (node.clone(), now.plus_ms(OVERLAP_MS))),
                ),
                false => self.starts(&id, node),
            }
        }
    }

    /// The log has gone back and does not ask for a container any more, which ends by then. That another
    /// life of its job runs elsewhere is not counted until it has.
    pub fn forgets(&mut self, id: &ContainerId, node: &NodeId, until: Timestamp) {
        let running = self.running.get(&id.job);
        let runs = running.and_then(|it| it.get(&(id.incarnation, id.rank)));
        if runs == Some(node) {
            self.ends(id);
            let until = until.plus_ms(OVERLAP_MS);
            self.forgotten.insert(id.clone(), (node.clone(), until));
        }
    }

    /// The log asks for it again: it counts.
    fn asks_again(&mut self, id: &ContainerId, node: &NodeId) {
        if self.forgotten.get(id).is_some_and(|(at, _)| at == node) {
            self.forgotten.remove(id);
            self.starts(id, node);
        }
    }

    /// It has ended.
    pub fn ends_forgotten(&mut self, id: &ContainerId) {
        self.forgotten.remove(id);
    }

    /// It is this time now.
    pub fn passed(&mut self, now: Timestamp) {
        let mut beyond = self.stale.iter().chain(&self.forgotten);
        let late = beyond.find(|(_, (_, until))| *until < now);
        let late = late.map(|(id, _)| format!("{id} runs on beyond its time"));
        self.broken = self.broken.take().or(late);
    }

    /// What a host that stood still holds beyond its time.
    pub fn stale_on(&self, node: &NodeId) -> Vec<ContainerId> {
        let here = self.stale.iter().filter(|(_, (at, _))| at == node);
        here.map(|(id, _)| id.clone()).collect()
    }

    /// A container ends.
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
