//! Places allocations: the rank, port and devices of each container, and each job's incarnation.
//!
//! Folds: the shared [`ClusterState`]. Appends: `placement.decided`, `placement.refused`, `node.recovered`,
//! `node.quarantined`, `node.readmitted`, `clock.stepped`, `cluster.upgraded`. (The shell appends `node.lost`,
//! `gateway.lost`, `build.joined` and `build.left`.)
//!
//! 1. Readmit a lost node whose agent joined again; quarantine a node that cannot start containers
//!    ([`crate::quarantine`]).
//! 2. Place a new allocation: unlisted jobs stay, listed jobs are created on their nodes under their next
//!    incarnation ([`crate::assign`]). A job resized in place changes in part ([`crate::elastic`]). Long
//!    placements are appended in parts ([`crate::parts`]).
//! 3. Create a stopped gang again, with members off the nodes that could not start them; if one of its nodes
//!    is unusable, the optimizer decides first.
//! 4. Name a step of the brokers' clock, once, for the record.
//! 5. Upgrade the log's format when every living process reads the next one ([`crate::upgrade`]).
//!
//! Invariant: the containers assigned to a node always fit, and a job's incarnations only grow.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    ClockStepped, JobAllocation, NodeRecovered, PlacedContainer, PlacementDecided,
    PlacementRefused, RemovedContainer,
};
use dormouse_messages::{Decider, Decision, Epoch, JobId, Proposal, Sequence, Timestamp, Writer};
use dormouse_state::{Assignment, ClusterState, Job, NodePhase, Place};

use crate::assign::{self, Placed};
use crate::free_capacity::FreeCapacity;
use crate::parts;
use crate::ports::Ports;
use crate::quarantine;
use crate::upgrade;
use crate::wanted::Wanted;

/// The placer's decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Placer;

impl Decider for Placer {
    type State = ClusterState;

    const WRITER: Writer = Writer::Placer;

    fn decide(&self, state: &ClusterState, now: Timestamp) -> Decision {
        let (quarantines, next_wake) = quarantine::due(state, now);
        let mut proposals = returning_nodes(state);
        proposals.extend(quarantines);
        if proposals.is_empty() {
            proposals.extend(place_allocation(state).into_iter().flatten());
        }
        if proposals.is_empty() {
            proposals.extend(place_retries(state).into_iter().flatten());
        }
        proposals.extend(name_step(state));
        let (upgrade, settled) = upgrade::due(state, now);
        proposals.extend(upgrade);
        Decision {
            proposals,
            next_wake: [next_wake, settled].into_iter().flatten().min(),
        }
    }
}

fn name_step(state: &ClusterState) -> Option<Proposal> {
    let step = state.clock.step()?;
    (step.sequence > state.step_named).then(|| {
        let stepped = ClockStepped {
            sequence: step.sequence,
            by_ms: step.by_us / 1_000,
            basis: None,
        };
        Proposal::new(stepped, step.sequence)
    })
}

fn returning_nodes(state: &ClusterState) -> Vec<Proposal> {
    let recovered = state
        .nodes
        .iter()
        .filter_map(|(name, node)| match node.phase {
            NodePhase::Returning { last_seen, joined } => {
                let event = NodeRecovered {
                    node: name.clone(),
                    last_seen,
                    basis: None,
                };
                Some(Proposal::new(event, joined))
            }
            NodePhase::Up | NodePhase::Lost { .. } => None,
        });
    recovered.collect()
}

fn place_allocation(state: &ClusterState) -> Option<Vec<Proposal>> {
    let allocation = &state.allocation;
    if allocation.epoch <= state.placed_epoch {
        return None;
    }
    let listed = allocation.jobs.values();
    let wanted: Vec<(&Job, &JobAllocation)> = listed
        .filter(|allocated| allocated.containers > 0)
        .filter_map(|allocated| {
            let job = state.jobs.get(&allocated.job)?;
            job.cancel_requested.is_none().then_some((job, allocated))
        })
        .collect();
    let parts = wanted.iter().flat_map(|(job, it)| Wanted::all(job, it));
    let cause = allocation.sequence;
    match assign::assign(state, parts.collect()) {
        Ok(places) => {
            let placed = describe(state, allocation.epoch, &wanted, places);
            let causes = causes(cause, &wanted);
            let gives_up = |id: &JobId| {
                let allocated = allocation.jobs.get(id);
                allocated.is_some_and(|it| it.containers == 0)
            };
            let parts = parts::of(placed, state.placed_epoch, gives_up).into_iter();
            let parts = parts.map(|part| Proposal::caused_by(part, causes.clone()));
            Some(parts.collect())
        }
        Err(unplaceable) => {
            let refused = PlacementRefused {
                epoch: allocation.epoch,
                unplaceable,
                basis: None,
            };
            Some(vec![Proposal::new(refused, cause)])
        }
    }
}

/// Traces of the started jobs' releases join here.
fn causes(allocation: Sequence, wanted: &[(&Job, &JobAllocation)]) -> Vec<Sequence> {
    let first_start = wanted.iter().filter(|(job, _)| job.assignment.is_none());
    let released = first_start.filter_map(|(job, _)| job.released);
    std::iter::once(allocation)
        .chain(released.take(16))
        .collect()
}

fn describe(
    state: &ClusterState,
    epoch: Epoch,
    wanted: &[(&Job, &JobAllocation)],
    mut places: BTreeMap<JobId, Placed>,
) -> PlacementDecided {
    let mut ports = Ports::in_use(state);
    let mut create = Vec::new();
    let mut remove = Vec::new();
    for (job, JobAllocation { job: id, .. }) in wanted {
        match places.remove(id) {
            None => {}
            Some(Placed::Whole(places)) => {
                create.extend(created(id, job, places, &mut ports));
                remove.extend(job.assignment.iter().flat_map(|old| removed(id, old)));
            }
            Some(Placed::Changed {
                remove: gone,
                create: come,
            }) => {
                let old = job.assignment.as_ref();
                let incarnation = old.map_or(job.last_incarnation, |old| old.incarnation);
                let come = come.into_iter().map(|(rank, place)| PlacedContainer {
                    job: id.clone(),
                    incarnation,
                    rank,
                    port: ports.take(&place.node),
                    node: place.node,
                    gpus: place.gpus,
                });
                create.extend(come);
                let goes = |container: &RemovedContainer| gone.contains(&container.rank);
                let old = old.into_iter().flat_map(|old| removed(id, old));
                remove.extend(old.filter(goes));
            }
        }
    }
    let listed = state.allocation.jobs.values();
    for JobAllocation { job: id, .. } in listed.filter(|it| it.containers == 0) {
        let old = state.jobs.get(id).and_then(|job| job.assignment.as_ref());
        remove.extend(old.into_iter().flat_map(|old| removed(id, old)));
    }
    PlacementDecided {
        epoch,
        create,
        remove,
        basis: None,
    }
}

fn created(
    id: &JobId,
    job: &Job,
    places: Vec<Place>,
    ports: &mut Ports<'_>,
) -> Vec<PlacedContainer> {
    let incarnation = job.last_incarnation.next();
    let ranks = (0..).map(dormouse_messages::Rank);
    let created = ranks.zip(places).map(|(rank, place)| PlacedContainer {
        job: id.clone(),
        incarnation,
        rank,
        port: ports.take(&place.node),
        node: place.node,
        gpus: place.gpus,
    });
    created.collect()
}

fn removed<'a>(id: &'a JobId, old: &'a Assignment) -> impl Iterator<Item = RemovedContainer> + 'a {
    old.places.iter().map(|(rank, place)| RemovedContainer {
        job: id.clone(),
        incarnation: old.incarnation,
        rank: *rank,
        node: place.node.clone(),
    })
}

fn place_retries(state: &ClusterState) -> Option<Vec<Proposal>> {
    let retries: Vec<_> = state
        .jobs
        .iter()
        .filter_map(|(id, job)| retry(id, job))
        .collect();
    if retries.is_empty() {
        return None;
    }
    let mut ports = Ports::in_use(state);
    let mut free = FreeCapacity::of(state, &BTreeSet::new());
    let mut create = Vec::new();
    let mut remove = Vec::new();
    let mut causes = Vec::new();
    for (id, job, assignment, stopped) in retries {
        let places = assign::elsewhere(state, &mut free, job, assignment);
        create.extend(created(id, job, places, &mut ports));
        remove.extend(removed(id, assignment));
        causes.push(stopped);
    }
    let placed = PlacementDecided {
        epoch: state.placed_epoch,
        create,
        remove,
        basis: None,
    };
    let parts = parts::of(placed, state.placed_epoch, |_| false).into_iter();
    let parts = parts.map(|part| Proposal::caused_by(part, causes.clone()));
    Some(parts.collect())
}

fn retry<'a>(
    id: &'a JobId,
    job: &'a Job,
) -> Option<(&'a JobId, &'a Job, &'a Assignment, Sequence)> {
    let (Some(assignment), Some(stop)) = (&job.assignment, &job.last_stop) else {
        return None;
    };
    let stopped = job.partition.is_none() && stop.incarnation >= assignment.incarnation;
    let again = stopped && !assignment.displaced && retried(job);
    again.then_some((id, job, assignment, stop.sequence))
}

fn retried(job: &Job) -> bool {
    use dormouse_messages::events::StopReason::{Adjusted, Failed, NodeLost};
    let again = |reason| matches!(reason, Adjusted | Failed | NodeLost);
    job.cancel_requested.is_none()
        && job
            .last_stop
            .as_ref()
            .is_some_and(|stop| again(stop.reason))
}
