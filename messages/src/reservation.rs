//! Reservations: nodes or amounts for tenants or jobs, from a time to a time. Maintenance is one for nobody.
//!
//! A reservation taints its nodes. Before it approaches, [`planned_taint`] keeps away jobs that can neither save
//! nor end in time. Then [`taint`] keeps away all jobs for which it was not made.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId, ReservationId, TenantId};
use crate::quantity::Amounts;
use crate::time::Timestamp;

/// The key of the taint of a reserved node.
pub const TAINT: &str = "reservation";

/// The key of the taint of a node with a reservation to come.
pub const PLANNED_TAINT: &str = "reservation.planned";

/// The settings of a reservation. Exactly one of `nodes` and `amounts` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reservation {
    /// Reserved nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<NodeId>,
    /// Amounts for which admission chooses nodes.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub amounts: Amounts,
    /// The beginning; of a repeated reservation, the first.
    pub from: Timestamp,
    /// The length in seconds.
    pub length_s: u64,
    /// Seconds from one beginning to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<u64>,
    /// Seconds before each beginning at which other jobs leave.
    pub lead_s: u64,
    /// Tenants whose jobs may run there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tenants: BTreeSet<TenantId>,
    /// Jobs that may run there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub jobs: BTreeSet<JobId>,
    /// Reason, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The part of a reservation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReservationPhase {
    /// Before the lead.
    Planned,
    /// Other jobs leave.
    Approaching,
    Active,
    /// Nothing follows.
    Over,
}

impl ReservationPhase {
    /// Returns the word of the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Approaching => "approaching",
            Self::Active => "active",
            Self::Over => "over",
        }
    }
}

/// One occurrence of a reservation, and its phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    pub phase: ReservationPhase,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Reservation {
    /// Returns the occurrence at `now`: the present one, else the next, else the last.
    #[must_use]
    pub fn occurrence(&self, now: Timestamp) -> Occurrence {
        let length_ms = self.length_s.saturating_mul(1000);
        let every_ms = self.every_s.unwrap_or(0).saturating_mul(1000);
        let first_end = self.from.plus_ms(length_ms);
        let passed = now.ms_since(first_end);
        let number = match every_ms {
            _ if now < first_end => 0,
            0 => 0,
            every => passed / every + 1,
        };
        let from = self.from.plus_ms(every_ms.saturating_mul(number));
        let until = from.plus_ms(length_ms);
        let leads_at = from.minus_ms(self.lead_s.saturating_mul(1000));
        let phase = match now {
            _ if now >= until => ReservationPhase::Over,
            _ if now >= from => ReservationPhase::Active,
            _ if now >= leads_at => ReservationPhase::Approaching,
            _ => ReservationPhase::Planned,
        };
        Occurrence { phase, from, until }
    }

    /// Returns the time of the next phase, if there is one.
    #[must_use]
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let it = self.occurrence(now);
        match it.phase {
            ReservationPhase::Planned => Some(it.from.minus_ms(self.lead_s.saturating_mul(1000))),
            ReservationPhase::Approaching => Some(it.from),
            ReservationPhase::Active => Some(it.until),
            ReservationPhase::Over => None,
        }
    }

    /// Reports whether a job may run on the reserved nodes.
    #[must_use]
    pub fn is_for(&self, job: &JobId) -> bool {
        self.tenants.contains(job.tenant()) || self.jobs.contains(job)
    }
}

/// Returns the taint of a reserved node.
#[must_use]
pub fn taint(name: &ReservationId) -> String {
    format!("{TAINT}={name}")
}

/// Returns the taint of a node with a reservation to come.
#[must_use]
pub fn planned_taint(name: &ReservationId) -> String {
    format!("{PLANNED_TAINT}={name}")
}

/// Reports whether the taint is one of a reserved node.
#[must_use]
pub fn is_reserved(taint: &str) -> bool {
    key(taint) == TAINT
}

/// Reports whether only reservations set the taint.
#[must_use]
pub fn is_of_reservations(taint: &str) -> bool {
    [TAINT, PLANNED_TAINT].contains(&key(taint))
}

fn key(taint: &str) -> &str {
    taint.split_once('=').map_or(taint, |(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn phases_follow_each_other_and_repeat() {
        let mut reservation = Reservation {
            nodes: BTreeSet::from(["n0".parse().expect("a node")]),
            amounts: Amounts::new(),
            from: at(1_000),
            length_s: 100,
            every_s: Some(1_000),
            lead_s: 50,
            tenants: BTreeSet::new(),
            jobs: BTreeSet::new(),
            reason: None,
        };
        let phase = |it: &Reservation, seconds| {
            let occurrence = it.occurrence(at(seconds));
            (occurrence.phase, occurrence.from)
        };
        let expected = [
            (0, ReservationPhase::Planned, 1_000),
            (949, ReservationPhase::Planned, 1_000),
            (950, ReservationPhase::Approaching, 1_000),
            (1_000, ReservationPhase::Active, 1_000),
            (1_099, ReservationPhase::Active, 1_000),
            (1_100, ReservationPhase::Planned, 2_000),
            (2_000, ReservationPhase::Active, 2_000),
            (7_960, ReservationPhase::Approaching, 8_000),
        ];
        for (seconds, expected, from) in expected {
            assert_eq!(
                phase(&reservation, seconds),
                (expected, at(from)),
                "{seconds}"
            );
        }
        assert_eq!(reservation.next_change(at(0)), Some(at(950)));
        assert_eq!(reservation.next_change(at(960)), Some(at(1_000)));
        assert_eq!(reservation.next_change(at(1_000)), Some(at(1_100)));
        reservation.every_s = None;
        assert_eq!(
            phase(&reservation, 1_100),
            (ReservationPhase::Over, at(1_000))
        );
        assert_eq!(reservation.next_change(at(1_100)), None);
    }
}
