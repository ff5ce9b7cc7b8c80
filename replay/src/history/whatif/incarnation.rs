//! One incarnation of a job and its containers, as recorded on a log.

use std::collections::BTreeMap;

use dormouse_messages::speed::SpeedPoint;
use dormouse_messages::{Rank, Timestamp};
use dormouse_state::speed::curve_fit::median;

use crate::engine::MemberCosts;

/// Stands for an event that could have happened and did not; longer than any wait.
const NEVER_S: f64 = 1e9;
/// A window between reports counts if its step time is within this factor of the median.
const NEAR: f64 = 1.5;

/// Due times round up to a microsecond; half of one less reproduces them.
const HALF_A_MICROSECOND: f64 = 5e-7;

fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
    Some((to?.seconds_since(from?) - HALF_A_MICROSECOND).max(0.0))
}

/// The times of a container.
#[derive(Debug, Clone, Copy, Default)]
pub struct Member {
    /// The join request of a later member.
    pub asked: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub ready: Option<Timestamp>,
    pub leave_asked: Option<Timestamp>,
    pub exited: Option<Timestamp>,
}

impl Member {
    fn until(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
        let given_up = from.is_some() && to.is_none() && self.exited.is_some();
        between(from, to).or(given_up.then_some(NEVER_S))
    }

    pub fn ready_s(&self) -> Option<f64> {
        between(self.started, self.ready)
    }

    pub fn costs(&self) -> MemberCosts {
        MemberCosts {
            join_s: self.until(self.asked, self.started),
            ready_s: self.until(self.started, self.ready),
            leave_s: between(self.leave_asked, self.exited),
        }
    }
}

/// The times of an incarnation.
#[derive(Debug, Clone, Default)]
pub struct IncarnationTimes {
    pub requested: Option<Timestamp>,
    /// The time when the last of the first containers ran.
    pub started: Option<Timestamp>,
    pub(super) containers: u32,
    pub(super) ran: u32,
    pub from_step: u64,
    /// Time, step and containers of each report.
    pub reports: Vec<(Timestamp, u64, u32)>,
    pub(super) save_asked: Option<Timestamp>,
    pub(super) saved: Option<Timestamp>,
    pub(super) stop_asked: Option<Timestamp>,
    pub(super) exited: Option<Timestamp>,
    /// The first unrequested end of a container.
    pub(super) ended_itself: Option<Timestamp>,
    pub(super) over: bool,
    pub(super) members: BTreeMap<Rank, Member>,
}

impl IncarnationTimes {
    pub fn start_s(&self) -> Option<f64> {
        between(self.requested, self.started)
    }

    pub fn save_s(&self) -> Option<f64> {
        between(self.save_asked, self.saved)
    }

    /// Returns the seconds from the save request of a task set until its containers ended by themselves.
    pub fn drained_s(&self) -> Option<f64> {
        let asked = self.save_asked.filter(|_| self.stop_asked.is_none());
        between(asked, self.exited)
    }

    const fn has_ended(&self) -> bool {
        self.over || self.exited.is_some()
    }

    pub fn members(&self) -> BTreeMap<Rank, MemberCosts> {
        let each = self.members.iter();
        each.map(|(rank, member)| (*rank, member.costs())).collect()
    }

    /// As [`Self::save_s`], or [`NEVER_S`] if the incarnation stopped first.
    pub fn saved_after_s(&self) -> Option<f64> {
        let given_up = self.save_asked.is_some() && self.saved.is_none() && self.has_ended();
        self.save_s().or(given_up.then_some(NEVER_S))
    }

    /// As [`Self::start_s`], or until the first failed container, or [`NEVER_S`] if the incarnation
    /// ended first.
    pub fn started_after_s(&self) -> Option<f64> {
        let given_up = self.started.is_none() && self.has_ended();
        let failed_s = between(self.requested, self.ended_itself);
        let known_s = self.start_s().or(failed_s);
        known_s.or(given_up.then_some(NEVER_S))
    }

    pub fn stop_s(&self) -> Option<f64> {
        between(self.stop_asked, self.exited)
    }

    /// As [`Self::stop_s`], or [`NEVER_S`] if the nodes were lost first.
    pub fn stopped_after_s(&self) -> Option<f64> {
        let given_up = self.stop_asked.is_some() && self.over;
        self.stop_s().or(given_up.then_some(NEVER_S))
    }

    pub fn first_report_s(&self) -> Option<f64> {
        let (at, ..) = self.reports.first()?;
        between(self.started, Some(*at))
    }

    /// Returns the seconds from the start until the first work, by the steps before the first report.
    pub fn pause_s(&self, step_s: impl Fn(u32) -> f64) -> Option<f64> {
        let (at, step, containers) = self.reports.first()?;
        let started = self.started?;
        let steps = step.saturating_sub(self.from_step);
        let worked_s = number(steps) * step_s(*containers);
        Some((at.seconds_since(started) - worked_s).max(0.0))
    }

    pub fn member(&mut self, rank: Rank) -> &mut Member {
        self.members.entry(rank).or_default()
    }

    /// Returns the step times: the mean near the median, since steps are reported whole and
    /// interruptions do not count.
    pub fn points(&self) -> Vec<SpeedPoint> {
        let mut by_count: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for pair in self.reports.windows(2) {
            let [(from, first, containers), (to, last, same)] = pair else {
                continue;
            };
            let (steps, seconds) = (last.saturating_sub(*first), to.seconds_since(*from));
            if steps > 0 && seconds > 0.0 && containers == same && *containers > 0 {
                let windows = by_count.entry(*containers).or_default();
                windows.push((number(steps), seconds));
            }
        }
        let point = |(containers, mut windows): (u32, Vec<(f64, f64)>)| {
            let seconds = windows.iter().map(|(_, seconds)| seconds).sum();
            let usual = median(windows.iter().map(|(steps, s)| s / steps).collect())?;
            windows.retain(|(steps, s)| (usual / NEAR..=usual * NEAR).contains(&(s / steps)));
            let steps: f64 = windows.iter().map(|(steps, _)| steps).sum();
            let used_s: f64 = windows.iter().map(|(_, seconds)| seconds).sum();
            Some(SpeedPoint {
                containers,
                step_s: used_s / steps,
                seconds,
            })
        };
        by_count.into_iter().filter_map(point).collect()
    }

    pub fn ends(&self, steps_total: u64, completed: Timestamp, into: &mut Vec<(f64, f64)>) {
        let Some((since, first, size)) = self.reports.first() else {
            return;
        };
        if self
            .reports
            .iter()
            .any(|(.., containers)| containers != size)
        {
            return;
        }
        for (at, step, _) in &self.reports[1..] {
            let (steps, left) = (
                step.saturating_sub(*first),
                steps_total.saturating_sub(*step),
            );
            if steps > 0 && left > 0 {
                let step_s = at.seconds_since(*since) / number(steps);
                into.push((number(left) * step_s, completed.seconds_since(*at)));
            }
        }
    }
}

/// Counts below 2^53 are exact.
#[expect(clippy::cast_precision_loss, reason = "steps and milliseconds")]
pub fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(reports: u64) -> IncarnationTimes {
        let mut times = IncarnationTimes::default();
        for number in 1..=reports {
            let at = Timestamp::default().plus_ms(number * 10_000);
            let step = number * 10_000 / 1_070;
            times.reports.push((at, step, 4));
        }
        times
    }

    /// The plain median of windows with 9 or 10 steps would be 1.11 s.
    #[test]
    fn steps_that_are_reported_whole_do_not_bend_their_time() {
        let mut times = reported(20);
        let step_s = times.points()[0].step_s;
        assert!((step_s / 1.07 - 1.0).abs() < 0.01, "{step_s}");
        for (at, ..) in times.reports.iter_mut().skip(10) {
            *at = at.plus_ms(60_000);
        }
        let step_s = times.points()[0].step_s;
        assert!((step_s / 1.07 - 1.0).abs() < 0.01, "{step_s}");
    }

    #[test]
    fn what_was_said_to_be_left_stands_beside_what_was() {
        let times = reported(5);
        let completed = Timestamp::default().plus_ms(107_000);
        let mut ends = Vec::new();
        times.ends(100, completed, &mut ends);
        assert_eq!(ends.len(), 4);
        for (said_s, was_s) in ends {
            assert!((said_s / was_s - 1.0).abs() < 0.2, "{said_s} and {was_s}");
        }
    }
}
