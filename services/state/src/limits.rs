//! Time limits: run time over all incarnations, and the wait for the first start. Only time with all
//! containers running counts.

use dormouse_messages::events::JobRevised;
use dormouse_messages::job::{JobSpec, Warning};
use dormouse_messages::{Incarnation, Timestamp};
use serde::{Deserialize, Serialize};

/// A job's limits and usage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub admitted_at: Timestamp,
    pub time_limit_s: Option<u32>,
    pub warning: Option<Warning>,
    pub warned: Option<Incarnation>,
    pub queue_limit_s: Option<u32>,
    pub ran_ms: u64,
}

/// Explains a cancellation after too long a wait.
#[must_use]
pub fn queue_limit_over(limit_s: u32) -> String {
    format!("it had not started {limit_s} s after its admission: its queue_limit_s")
}

fn after(since: Timestamp, seconds: u32) -> Timestamp {
    since.plus_ms(u64::from(seconds) * 1000)
}

impl Limits {
    /// Returns the limits at admission.
    #[must_use]
    pub fn of(spec: &JobSpec, admitted_at: Timestamp) -> Self {
        Self {
            admitted_at,
            time_limit_s: spec.time_limit_s,
            warning: spec.warning.clone(),
            warned: None,
            queue_limit_s: spec.queue_limit_s,
            ran_ms: 0,
        }
    }

    /// Revises the limits; 0 lifts one.
    pub fn revise(&mut self, event: &JobRevised) {
        let bounded = |limit_s: u32| Some(limit_s).filter(|limit_s| *limit_s > 0);
        if let Some(limit_s) = event.time_limit_s {
            self.time_limit_s = bounded(limit_s);
            // A longer limit has its own warning.
            self.warned = None;
        }
        if let Some(limit_s) = event.queue_limit_s {
            self.queue_limit_s = bounded(limit_s);
        }
    }

    /// Returns the time at which a run exceeds the limit.
    #[must_use]
    pub fn stops_at(&self, running_since: Timestamp) -> Option<Timestamp> {
        Some(running_since.plus_ms(self.left_ms()?))
    }

    /// Returns the remaining run time at the start of an incarnation.
    #[must_use]
    pub fn left_ms(&self) -> Option<u64> {
        let limit_ms = u64::from(self.time_limit_s?) * 1000;
        Some(limit_ms.saturating_sub(self.ran_ms))
    }

    /// Returns a pending warning and its time.
    #[must_use]
    pub fn warns_at(
        &self,
        incarnation: Incarnation,
        running_since: Timestamp,
    ) -> Option<(Timestamp, &Warning)> {
        let stops_at = self.stops_at(running_since)?;
        let warning = self.warning.as_ref()?;
        let before_us = i64::from(warning.before_s) * 1_000_000;
        let at = Timestamp::from_micros(stops_at.as_micros() - before_us);
        (self.warned != Some(incarnation)).then_some((at.max(running_since), warning))
    }

    /// Returns the deadline of the first start.
    #[must_use]
    pub fn waits_until(&self) -> Option<Timestamp> {
        Some(after(self.admitted_at, self.queue_limit_s?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_second_incarnation_has_what_the_first_one_left() {
        let warning = Warning {
            signal: "SIGUSR1".to_owned(),
            before_s: 20,
        };
        let mut limits = Limits {
            time_limit_s: Some(100),
            warning: Some(warning),
            ..Limits::default()
        };
        let warned_at = |limits: &Limits, incarnation: u32, since: i64| {
            let warns = limits.warns_at(Incarnation(incarnation), at(since));
            warns.map(|(at, _)| at)
        };
        assert_eq!(limits.stops_at(at(10)), Some(at(110)));
        assert_eq!(warned_at(&limits, 1, 10), Some(at(90)));
        (limits.ran_ms, limits.warned) = (90_000, Some(Incarnation(1)));
        assert_eq!(limits.stops_at(at(200)), Some(at(210)));
        // Less time is left than the warning needs.
        assert_eq!(warned_at(&limits, 2, 200), Some(at(200)));
        limits.warned = Some(Incarnation(2));
        assert_eq!(warned_at(&limits, 2, 200), None);
        let longer = JobRevised {
            time_limit_s: Some(300),
            ..JobRevised::nothing("ads/lr".parse().expect("valid"), 1)
        };
        limits.revise(&longer);
        assert_eq!(warned_at(&limits, 2, 200), Some(at(390)));
    }
}
