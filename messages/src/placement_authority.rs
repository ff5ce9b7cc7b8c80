//! Validates agents' reports: one about a container counts only if a placement put the container on the node.
//! Every fold of reports asks here first.
//!
//! 1. `job.admitted` begins a job.
//! 2. `placement.decided` names the node of each rank.
//! 3. `partition.start_requested` forgets old incarnations, except the last started.
//! 4. A job's end forgets the job. Reports about unknown jobs pass, as they change nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::events::{
    AdmissionEvent, ByWriter, CheckpointerEvent, Event, NodeEvent, PlacementDecided, PlacerEvent,
};
use crate::ids::{Incarnation, JobId, NodeId, Rank};

/// The services keep five.
const UNSTARTED_KEPT: usize = 16;

/// A returning node reports on earlier incarnations.
const STARTED_KEPT: usize = 8;

/// The placements of live jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementAuthority {
    jobs: BTreeMap<JobId, Places>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Places {
    /// Newest last.
    started: Vec<Incarnation>,
    by_incarnation: BTreeMap<Incarnation, BTreeMap<Rank, NodeId>>,
}

/// An agent's report about a job.
struct Claim<'a> {
    node: &'a NodeId,
    job: &'a JobId,
    incarnation: Incarnation,
    /// Absent for the whole partition.
    rank: Option<Rank>,
}

enum Role<'a> {
    Begins(&'a JobId),
    Places(&'a PlacementDecided),
    Starts(&'a JobId, Incarnation),
    Ends(&'a JobId),
    Claims(Claim<'a>),
    Other,
}

macro_rules! claim {
    ($event:expr, $of:expr, $rank:expr) => {
        Role::Claims(Claim {
            node: &$event.node,
            job: &$of.job,
            incarnation: $of.incarnation,
            rank: $rank,
        })
    };
}

macro_rules! of_container {
    ($event:expr) => {
        claim!($event, $event.container, Some($event.container.rank))
    };
}

macro_rules! of_rank {
    ($event:expr) => {
        claim!($event, $event, Some($event.rank))
    };
}

macro_rules! of_partition {
    ($event:expr) => {
        claim!($event, $event, None)
    };
}

fn role(event: &Event) -> Role<'_> {
    match event.by_writer() {
        ByWriter::Admission(AdmissionEvent::JobAdmitted(event)) => Role::Begins(&event.job),
        ByWriter::Placer(PlacerEvent::PlacementDecided(event)) => Role::Places(event),
        ByWriter::Checkpointer(CheckpointerEvent::PartitionStartRequested(event)) => {
            Role::Starts(&event.job, event.incarnation)
        }
        ByWriter::Checkpointer(CheckpointerEvent::JobCompleted(event)) => Role::Ends(&event.job),
        ByWriter::Checkpointer(CheckpointerEvent::JobFailed(event)) => Role::Ends(&event.job),
        ByWriter::Checkpointer(CheckpointerEvent::JobCancelled(event)) => Role::Ends(&event.job),
        ByWriter::Node(event) => claim(event),
        ByWriter::Operator(_)
        | ByWriter::Admission(_)
        | ByWriter::Optimizer(_)
        | ByWriter::Placer(_)
        | ByWriter::Checkpointer(_)
        | ByWriter::Autoscaler(_)
        | ByWriter::Gateway(_)
        | ByWriter::Archiver(_)
        | ByWriter::Slurm(_) => Role::Other,
    }
}

/// No wildcard: a new report must not be trusted by accident.
fn claim(event: NodeEvent<'_>) -> Role<'_> {
    match event {
        NodeEvent::ContainerStarted(event) => of_container!(event),
        NodeEvent::ContainerExited(event) => of_container!(event),
        NodeEvent::ContainerReady(event) => of_container!(event),
        NodeEvent::ContainerUnready(event) => of_container!(event),
        NodeEvent::ContainerGpuUsed(event) => of_container!(event),
        NodeEvent::MemberAcknowledged(event) => of_container!(event),
        NodeEvent::NotebookObserved(event) => of_container!(event),
        NodeEvent::ContainerExecStarted(event) => of_container!(event),
        NodeEvent::ContainerExecEnded(event) => of_container!(event),
        NodeEvent::TasksEnded(event) => of_rank!(event),
        NodeEvent::NodeFaulted(event) => of_rank!(event),
        NodeEvent::CheckpointSaved(event) => of_partition!(event),
        NodeEvent::CheckpointFailed(event) => of_partition!(event),
        NodeEvent::CheckpointRejected(event) => of_partition!(event),
        NodeEvent::Progress(event) => of_partition!(event),
        NodeEvent::NodeJoined(_) | NodeEvent::NodeFenced(_) | NodeEvent::NodeGpuReconciled(_) => {
            Role::Other
        }
    }
}

impl PlacementAuthority {
    /// Folds one valid event.
    pub fn evolve(&mut self, event: &Event) {
        match role(event) {
            Role::Begins(job) => {
                self.jobs.entry(job.clone()).or_default();
            }
            Role::Places(event) => {
                for place in &event.create {
                    if let Some(places) = self.jobs.get_mut(&place.job) {
                        places.place(place.incarnation, place.rank, &place.node);
                    }
                }
            }
            Role::Starts(job, incarnation) => {
                if let Some(places) = self.jobs.get_mut(job) {
                    places.start(incarnation);
                }
            }
            Role::Ends(job) => drop(self.jobs.remove(job)),
            Role::Claims(_) | Role::Other => {}
        }
    }

    /// Folds an event if it is valid, and reports whether it is.
    pub fn validates(&mut self, event: &Event) -> bool {
        let believed = self.rejects(event).is_none();
        if believed {
            self.evolve(event);
        }
        believed
    }

    /// Returns the reason to reject an event.
    #[must_use]
    pub fn rejects(&self, event: &Event) -> Option<String> {
        let Role::Claims(claim) = role(event) else {
            return None;
        };
        let Claim {
            node,
            job,
            incarnation,
            rank,
        } = claim;
        let name = event.subject_name();
        let places = self.jobs.get(job)?;
        let placed = places.by_incarnation.get(&incarnation);
        let believed = placed.is_some_and(|placed| match rank {
            Some(rank) => placed.get(&rank) == Some(node),
            None => placed.values().any(|there| there == node),
        });
        let rank = rank.map_or(String::new(), |rank| format!("/{rank}"));
        (!believed).then(|| {
            format!("{name} of {job}/{incarnation}{rank} by node {node}, where no placement put it")
        })
    }
}

impl Places {
    fn place(&mut self, incarnation: Incarnation, rank: Rank, node: &NodeId) {
        let ranks = self.by_incarnation.entry(incarnation).or_default();
        ranks.insert(rank, node.clone());
        let newest = self.started.last().copied().unwrap_or_default();
        let newer = |at: &Incarnation| *at > newest;
        let unstarted = self.by_incarnation.keys().filter(|at| newer(at)).count();
        if unstarted > UNSTARTED_KEPT {
            let oldest = self.by_incarnation.keys().find(|at| newer(at)).copied();
            oldest.and_then(|oldest| self.by_incarnation.remove(&oldest));
        }
    }

    fn start(&mut self, incarnation: Incarnation) {
        if self
            .started
            .last()
            .is_some_and(|newest| incarnation <= *newest)
        {
            return;
        }
        self.started.push(incarnation);
        if self.started.len() > STARTED_KEPT {
            self.started.remove(0);
        }
        self.by_incarnation
            .retain(|at, _| *at > incarnation || self.started.contains(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{
        CheckpointSaved, ContainerExited, JobAdmitted, JobCompleted, PartitionStartRequested,
        PlacementDecided,
    };

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).expect("valid")
    }

    fn admitted() -> Event {
        let event: JobAdmitted = read(serde_json::json!({
            "job": "ads/lr", "ingress_sequence": 1, "spec": {
                "name": "lr", "tenant": "ads", "command": {"start": ["train"]}, "demand": {},
                "weight": 1, "containers": {"min": 1, "max": 4}, "checkpoint": {"mode": "exit"}},
        }));
        event.into()
    }

    fn placed(incarnation: u32, rank: u32, node: &str) -> Event {
        let event: PlacementDecided = read(serde_json::json!({
            "epoch": 1, "remove": [], "create": [{"job": "ads/lr", "incarnation": incarnation,
                "rank": rank, "node": node, "gpus": [], "port": 20000}],
        }));
        event.into()
    }

    fn started(incarnation: u32) -> Event {
        let event: PartitionStartRequested = read(serde_json::json!({
            "job": "ads/lr", "epoch": 1, "incarnation": incarnation, "containers": 1,
        }));
        event.into()
    }

    fn exited(container: &str, node: &str) -> Event {
        let event: ContainerExited = read(serde_json::json!({
            "container": container, "node": node, "exit_code": 0, "out_of_memory": false,
        }));
        event.into()
    }

    fn saved(incarnation: u32, node: &str) -> Event {
        let event: CheckpointSaved = read(serde_json::json!({
            "job": "ads/lr", "incarnation": incarnation, "node": node, "uri": "file:///x",
            "step": 1, "bytes": 1, "duration_ms": 1,
        }));
        event.into()
    }

    fn authority(events: &[Event]) -> PlacementAuthority {
        let mut authority = PlacementAuthority::default();
        events.iter().for_each(|event| authority.evolve(event));
        authority
    }

    #[test]
    fn a_container_is_its_own_nodes_to_speak_of() {
        let events = [admitted(), placed(1, 0, "n0"), placed(1, 1, "n1")];
        let authority = authority(&events);
        assert_eq!(authority.rejects(&exited("ads/lr/1/0", "n0")), None);
        let doubt = authority.rejects(&exited("ads/lr/1/0", "n1"));
        let doubt = doubt.expect("another node's");
        assert!(
            doubt.contains("container.exited of ads/lr/1/0 by node n1"),
            "{doubt}"
        );
        assert!(authority.rejects(&exited("ads/lr/2/0", "n0")).is_some());
        assert_eq!(authority.rejects(&saved(1, "n1")), None);
        assert!(authority.rejects(&saved(1, "n2")).is_some());
    }

    #[test]
    fn before_a_placement_nobody_has_saved_anything() {
        assert!(authority(&[admitted()]).rejects(&saved(1, "n0")).is_some());
    }

    #[test]
    fn the_incarnations_before_may_still_speak_and_an_ended_job_is_forgotten() {
        let mut events = vec![admitted()];
        for incarnation in 1..=10 {
            let node = format!("n{incarnation}");
            events.extend([placed(incarnation, 0, &node), started(incarnation)]);
        }
        let now = authority(&events);
        assert!(now.rejects(&exited("ads/lr/2/0", "n2")).is_some());
        assert_eq!(now.rejects(&exited("ads/lr/3/0", "n3")), None);
        assert_eq!(now.rejects(&exited("ads/lr/10/0", "n10")), None);
        events.extend((11..60).map(|incarnation| placed(incarnation, 0, "n0")));
        let now = authority(&events);
        assert_eq!(now.rejects(&exited("ads/lr/10/0", "n10")), None);
        assert_eq!(now.rejects(&exited("ads/lr/59/0", "n0")), None);
        let most = UNSTARTED_KEPT + STARTED_KEPT;
        assert!(
            now.jobs
                .values()
                .all(|job| job.by_incarnation.len() <= most)
        );
        let completed: JobCompleted = read(serde_json::json!({
            "job": "ads/lr", "reason": "done", "attempts": 1,
        }));
        events.push(completed.into());
        let over = authority(&events);
        assert_eq!(over.jobs.len(), 0);
        assert_eq!(over.rejects(&exited("ads/lr/3/0", "n1")), None);
    }
}
