//! Reservations of nodes, folded. Admission reports phases as `reservation.phase_changed`; the taints of the
//! nodes and the tolerations of the jobs follow the phase that the log names.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{ReservationConfigured, ReservationPhaseChanged};
use dormouse_messages::reservation::{
    Occurrence, Reservation, ReservationPhase, planned_taint, taint,
};
use dormouse_messages::{JobId, NodeId, ReservationId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::job::Job;

/// A job that waits for its start after its release still ends in time.
const SLACK_MS: u64 = 60_000;

/// A reservation and its present occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationState {
    pub settings: Reservation,
    /// The event that configured it.
    pub configured: Sequence,
    /// Configured since the newest report.
    pub reconfigured: bool,
    /// As the log names it; `None` before the first report.
    pub occurrence: Option<Occurrence>,
    /// The nodes of the occurrence.
    pub nodes: Vec<NodeId>,
}

impl ReservationState {
    /// Returns the phase that the log names.
    #[must_use]
    pub fn phase(&self) -> Option<ReservationPhase> {
        self.occurrence.map(|it| it.phase)
    }

    /// Returns the taint that its nodes have now.
    #[must_use]
    pub fn taint(&self, name: &ReservationId) -> Option<String> {
        match self.phase()? {
            ReservationPhase::Planned => Some(planned_taint(name)),
            ReservationPhase::Approaching | ReservationPhase::Active => Some(taint(name)),
            ReservationPhase::Over => None,
        }
    }

    /// Reports whether a job may start on the nodes before the reservation approaches: it can save and move,
    /// or ends in time.
    fn takes_before(&self, job: &Job, now: Timestamp) -> bool {
        let ends = job.would_end_at(now).map(|end| end.plus_ms(SLACK_MS));
        let in_time = |from: Timestamp| ends.is_some_and(|end| end <= from);
        job.is_adjustable() || self.occurrence.is_some_and(|it| in_time(it.from))
    }
}

/// The reservations, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations(BTreeMap<ReservationId, ReservationState>);

impl Reservations {
    /// Reports whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a reservation.
    #[must_use]
    pub fn get(&self, name: &ReservationId) -> Option<&ReservationState> {
        self.0.get(name)
    }

    /// Iterates by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ReservationId, &ReservationState)> {
        self.0.iter()
    }

    /// Returns the first reservation for others that begins before a job's end, on nodes that the job has.
    #[must_use]
    pub fn runs_into(
        &self,
        id: &JobId,
        job: &Job,
        ends: Option<Timestamp>,
    ) -> Option<&ReservationId> {
        let on = |node: &NodeId| job.held().any(|(it, _)| it == node);
        let into = |(_, it): &(&ReservationId, &ReservationState)| {
            let from = it.occurrence.map(|it| it.from);
            let later = from.is_some_and(|from| ends.is_none_or(|ends| ends > from));
            let is_over = it.phase() == Some(ReservationPhase::Over);
            later && !is_over && !it.settings.is_for(id) && it.nodes.iter().any(on)
        };
        self.0.iter().find(into).map(|(name, _)| name)
    }

    /// Iterates over the reservations of a node.
    pub fn of_node<'a>(
        &'a self,
        node: &'a NodeId,
    ) -> impl Iterator<Item = (&'a ReservationId, &'a ReservationState)> {
        self.0.iter().filter(|(_, it)| it.nodes.contains(node))
    }

    pub(crate) fn configured(&mut self, event: &ReservationConfigured, at: Sequence) {
        // Its nodes stay reserved until the next report.
        let before = self.0.remove(&event.reservation);
        let (occurrence, nodes) = match before {
            Some(before) => (before.occurrence, before.nodes),
            None => (None, Vec::new()),
        };
        let state = ReservationState {
            settings: event.settings.clone(),
            configured: at,
            reconfigured: true,
            occurrence,
            nodes,
        };
        self.0.insert(event.reservation.clone(), state);
    }

    pub(crate) fn removed(&mut self, name: &ReservationId) {
        self.0.remove(name);
    }

    pub(crate) fn phase_changed(&mut self, event: &ReservationPhaseChanged) {
        if let Some(state) = self.0.get_mut(&event.reservation) {
            state.reconfigured = false;
            state.nodes.clone_from(&event.nodes);
            state.occurrence = Some(Occurrence {
                phase: event.phase,
                from: event.from,
                until: event.until,
            });
        }
    }

    /// Returns the taints of all reserved nodes.
    pub(crate) fn taints(&self) -> BTreeMap<NodeId, BTreeSet<String>> {
        let mut taints: BTreeMap<NodeId, BTreeSet<String>> = BTreeMap::new();
        for (name, state) in &self.0 {
            let Some(taint) = state.taint(name) else {
                continue;
            };
            for node in &state.nodes {
                let of_node = taints.entry(node.clone()).or_default();
                of_node.insert(taint.clone());
            }
        }
        taints
    }

    /// Returns a job's tolerations of reservations; admission refuses a tenant's own.
    pub(crate) fn tolerated(&self, id: &JobId, job: &Job, now: Timestamp) -> BTreeSet<String> {
        let mut tolerated = BTreeSet::new();
        for (name, state) in &self.0 {
            let is_for = state.settings.is_for(id);
            if is_for {
                tolerated.insert(taint(name));
            }
            if is_for || state.takes_before(job, now) {
                tolerated.insert(planned_taint(name));
            }
        }
        tolerated
    }
}
