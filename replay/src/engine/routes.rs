//! Routes events to nodes. A shipped agent receives the whole log; a model node receives only events
//! that can change its actions, so that a run's cost grows with its events.
//! [`super::ModelAgents::heard_enough`] compares the result with the whole log.
//!
//! 1. A node follows a job from the first placement there on. For partitions resized in place it first
//!    receives the job's earlier events.
//! 2. Reports go only to their own node, except exits in a partition resized in place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_messages::events::PlacementDecided;
use dormouse_messages::{Body, Event, JobId, NodeId, Recorded};

use super::faults::Plant;
use super::model_node::Note;

#[derive(Debug, Clone, Default)]
pub(super) struct Routes(BTreeMap<JobId, Route>);

#[derive(Debug, Clone, Default)]
struct Route {
    in_place: bool,
    /// Earlier events for nodes that join the job later.
    history: Vec<Arc<Recorded>>,
    nodes: BTreeSet<NodeId>,
}

enum Concern<'a> {
    Begins(&'a JobId, bool),
    Places(&'a PlacementDecided),
    Job(&'a JobId),
    Ends(&'a JobId),
    /// A container of a job has ended on a node.
    Exits(&'a JobId, &'a NodeId),
    Node(&'a NodeId),
    All,
    Nobody,
}

fn concern(event: &Event) -> Concern<'_> {
    match event {
        Event::JobAdmitted(it) => Concern::Begins(&it.job, it.spec.is_in_place()),
        Event::PlacementDecided(it) => Concern::Places(it),
        Event::PartitionStartRequested(it) => Concern::Job(&it.job),
        Event::PartitionStopRequested(it) => Concern::Job(&it.job),
        Event::PartitionResizeRequested(it) => Concern::Job(&it.job),
        Event::PartitionLeaveRequested(it) => Concern::Job(&it.job),
        Event::PartitionResized(it) => Concern::Job(&it.job),
        Event::CheckpointRequested(it) => Concern::Job(&it.job),
        Event::ResizeAbandoned(it) => Concern::Job(&it.job),
        Event::CheckpointSaved(it) => Concern::Job(&it.job),
        Event::CheckpointFailed(it) => Concern::Job(&it.job),
        Event::CheckpointRejected(it) => Concern::Job(&it.job),
        Event::TasksAssigned(it) => Concern::Job(&it.job),
        Event::JobCompleted(it) => Concern::Ends(&it.job),
        Event::JobFailed(it) => Concern::Ends(&it.job),
        Event::JobCancelled(it) => Concern::Ends(&it.job),
        Event::ContainerExited(it) => Concern::Exits(&it.container.job, &it.node),
        Event::ContainerStarted(it) => Concern::Node(&it.node),
        Event::ContainerReady(it) => Concern::Node(&it.node),
        Event::ContainerUnready(it) => Concern::Node(&it.node),
        Event::MemberAcknowledged(it) => Concern::Node(&it.node),
        Event::TasksEnded(it) => Concern::Node(&it.node),
        Event::NodeJoined(it) => Concern::Node(&it.node),
        Event::NodeLost(_) | Event::NodeFenced(_) => Concern::All,
        _ => Concern::Nobody,
    }
}

/// Returns a placement reduced to one job.
fn only(job: &JobId, placed: &PlacementDecided, recorded: &Arc<Recorded>) -> Arc<Recorded> {
    let others = placed.create.iter().any(|it| it.job != *job);
    if !others && placed.remove.iter().all(|it| it.job == *job) {
        return Arc::clone(recorded);
    }
    let mut part = PlacementDecided {
        create: Vec::new(),
        remove: Vec::new(),
        basis: None,
        ..placed.clone()
    };
    let (create, remove) = (placed.create.iter(), placed.remove.iter());
    part.create = create.filter(|it| it.job == *job).cloned().collect();
    part.remove = remove.filter(|it| it.job == *job).cloned().collect();
    let mut recorded = (**recorded).clone();
    recorded.envelope.body = Body::Event(Event::from(part));
    Arc::new(recorded)
}

impl Routes {
    /// Adds a note of the event for each node that it concerns; `nodes` are all nodes.
    pub(super) fn route<'a>(
        &mut self,
        recorded: &Arc<Recorded>,
        plant: Option<Plant>,
        nodes: impl Iterator<Item = &'a NodeId>,
        notes: &mut VecDeque<(NodeId, Note)>,
    ) {
        let Some(event) = recorded.event() else {
            return;
        };
        let heard = || Note::Heard(Arc::clone(recorded));
        match concern(event) {
            Concern::Begins(job, in_place) => {
                let route = Route {
                    in_place,
                    history: vec![Arc::clone(recorded)],
                    nodes: BTreeSet::new(),
                };
                self.0.insert(job.clone(), route);
            }
            Concern::Places(placed) => self.route_places(placed, recorded, notes),
            Concern::Job(job) => {
                if let Some(route) = self.0.get_mut(job) {
                    if route.in_place {
                        route.history.push(Arc::clone(recorded));
                    }
                    let nodes = route.nodes.iter();
                    notes.extend(nodes.map(|it| (it.clone(), heard())));
                }
            }
            Concern::Ends(job) => {
                let route = self.0.remove(job).unwrap_or_default();
                let nodes = route.nodes.into_iter();
                notes.extend(nodes.map(|it| (it, heard())));
            }
            Concern::Exits(job, node) => match self.0.get_mut(job) {
                Some(route) if route.in_place => {
                    route.history.push(Arc::clone(recorded));
                    let nodes = route.nodes.iter();
                    notes.extend(nodes.map(|it| (it.clone(), heard())));
                }
                _ => notes.push_back((node.clone(), heard())),
            },
            Concern::Node(node) => notes.push_back((node.clone(), heard())),
            Concern::All => {
                let own = match event {
                    Event::NodeLost(it) => Some(&it.node),
                    Event::NodeFenced(it) => Some(&it.node),
                    _ => None,
                };
                let forgotten = |node: &NodeId| {
                    plant == Some(Plant::VoidStarts) && own.is_some_and(|own| own == node)
                };
                let nodes = nodes.filter(|node| !forgotten(node));
                let heard: Vec<_> = nodes.map(|it| (it.clone(), heard())).collect();
                notes.extend(heard);
            }
            Concern::Nobody => {}
        }
    }

    fn route_places(
        &mut self,
        placed: &PlacementDecided,
        recorded: &Arc<Recorded>,
        notes: &mut VecDeque<(NodeId, Note)>,
    ) {
        let created = placed.create.iter().map(|it| &it.job);
        let jobs: BTreeSet<&JobId> = created
            .chain(placed.remove.iter().map(|it| &it.job))
            .collect();
        for job in jobs {
            let Some(route) = self.0.get_mut(job) else {
                continue;
            };
            let part = only(job, placed, recorded);
            let of_job = placed.create.iter().filter(|it| it.job == *job);
            let here: BTreeSet<&NodeId> = of_job.map(|it| &it.node).collect();
            for node in &here {
                if route.nodes.insert((*node).clone()) {
                    let before = route.history.iter();
                    let before = before.map(|it| ((*node).clone(), Note::Heard(Arc::clone(it))));
                    notes.extend(before);
                }
            }
            let nodes = route.nodes.iter();
            let nodes = nodes.filter(|node| route.in_place || here.contains(node));
            let heard = nodes.map(|it| (it.clone(), Note::Heard(Arc::clone(&part))));
            notes.extend(heard);
            if route.in_place {
                route.history.push(part);
            }
        }
    }
}
