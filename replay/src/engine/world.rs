//! What really runs in the model world, whatever the log says, and what may never be there.
//!
//! 1. No container of a job runs while one of another of its incarnations does.
//! 2. No node runs more than it has.
//! 3. When a job has ended, nothing of it runs.
//!
//! The programs tell it at the moment when a container really starts or ends. What agents report, and
//! when that arrives, is another matter.

use std::collections::BTreeMap;

use dormouse_messages::ids::ContainerId;
use dormouse_messages::roles::Demands;
use dormouse_messages::{Amounts, Event, Incarnation, JobId, NodeId, Rank, Recorded};

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
    /// The first that may not be.
    broken: Option<String>,
}

impl World {
    /// What is broken, if anything.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// An event of the log: what jobs demand, what nodes have, and that a job has ended.
    pub fn fold(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::JobAdmitted(event)) => {
                let demands = Demands::of(&event.spec);
                self.demands.insert(event.job.clone(), demands);
            }
            Some(Event::NodeJoined(event)) => {
                let node = self.nodes.entry(event.node.clone()).or_default();
                node.capacity = Some(event.capacity.clone());
            }
            Some(Event::JobCompleted(event)) => self.over(&event.job),
            Some(Event::JobFailed(event)) => self.over(&event.job),
            Some(Event::JobCancelled(event)) => self.over(&event.job),
            _ => {}
        }
    }

    /// A container starts.
    pub fn starts(&mut self, id: &ContainerId, node: &NodeId) {
        let running = self.running.entry(id.job.clone()).or_default();
        let other = running.keys().find(|(other, _)| *other != id.incarnation);
        let other = other.map(|(other, rank)| format!("{id} starts while {other}/{rank} runs"));
        running.insert((id.incarnation, id.rank), node.clone());
        let here = self.nodes.entry(node.clone()).or_default();
        if let Some(demands) = self.demands.get(&id.job) {
            here.used.add(demands.at(id.rank), 1);
        }
        let capacity = here.capacity.as_ref();
        let short = capacity.and_then(|capacity| here.used.first_short(capacity, 1));
        let short = short.map(|it| format!("{node} really runs more {} than it has", it.name()));
        self.broken = self.broken.take().or(other).or(short);
    }

    /// A container ends.
    pub fn ends(&mut self, id: &ContainerId) {
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
