//! Duration of an absence, by the host's clocks.
//!
//! A service writes log time: the last folded event's plus its clock's advance ([`crate::Append::time`]). A
//! kill or a suspension loses that advance, and the silence would look like a step of the broker's clock.
//!
//! 1. Each event folded live pairs log time and host clocks in a [`ClockAnchor`], written first and when changed by
//!    own appends.
//! 2. A new process counts on from the mark, by the kernel's clock or after a reboot the wall clock, until
//!    its first live event.
//! 3. This affects only written times: `dormouse_messages::LogClock` waits for the broker's stamp, so one
//!    host's wrong clock moves nothing.

#[cfg(test)]
mod tests;

use dormouse_messages::Timestamp;
use serde::{Deserialize, Serialize};

const KEPT_US: u64 = 1_000_000;

/// A host's clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Identifies the kernel's boot; 0 if unknown.
    pub boot: u64,
    /// Microseconds since boot, with suspension.
    pub up_us: i64,
    pub wall: Timestamp,
}

/// A moment by the log and by a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    pub log: String,
    pub time: Timestamp,
    pub host: HostTime,
}

impl ClockAnchor {
    /// Returns the log time at `host`; `None` if clocks went back.
    #[must_use]
    pub fn reaches(&self, host: &HostTime) -> Option<Timestamp> {
        let same_boot = self.host.boot != 0 && self.host.boot == host.boot;
        let passed_us = if same_boot {
            host.up_us.checked_sub(self.host.up_us)?
        } else {
            let (then, now) = (self.host.wall.as_micros(), host.wall.as_micros());
            now.checked_sub(then)?
        };
        let time_us = self.time.as_micros().checked_add(passed_us)?;
        (passed_us >= 0).then(|| Timestamp::from_micros(time_us))
    }

    /// True if both marks lead to equal times, now and after a reboot.
    fn says_the_same(&self, other: &Self) -> bool {
        let off_us = |mark: &Self, by_us: i64| mark.time.as_micros().saturating_sub(by_us);
        let near = |a: i64, b: i64| a.abs_diff(b) <= KEPT_US;
        let by_wall = |mark: &Self| off_us(mark, mark.host.wall.as_micros());
        let by_kernel = |mark: &Self| off_us(mark, mark.host.up_us);
        self.log == other.log
            && self.host.boot == other.host.boot
            && near(by_wall(self), by_wall(other))
            && near(by_kernel(self), by_kernel(other))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    shows: Option<HostTime>,
    mark: Option<ClockAnchor>,
    kept: Option<ClockAnchor>,
    /// Folded to the end in this process: events arrive live.
    follows: bool,
}

impl Host {
    pub const fn shows(&mut self, host: HostTime) {
        self.shows = Some(host);
    }

    pub fn recall(&mut self, mark: ClockAnchor) {
        self.kept = Some(mark.clone());
        self.mark = Some(mark);
    }

    pub fn folded(&mut self, log: &str, time: Timestamp, to_its_end: bool) {
        if let Some(host) = self.shows.filter(|_| self.follows) {
            let log = log.to_owned();
            self.mark = Some(ClockAnchor { log, time, host });
        }
        self.follows |= to_its_end;
    }

    pub fn time(&self) -> Option<Timestamp> {
        self.mark.as_ref()?.reaches(&self.shows?)
    }

    /// The first mark, or a different one after an own append; others' events may come late.
    pub fn keep(&mut self, own: bool) -> Option<ClockAnchor> {
        let mark = self.mark.as_ref().filter(|_| self.follows)?;
        let known = |kept: &ClockAnchor| !own || kept.says_the_same(mark);
        if self.kept.as_ref().is_some_and(known) {
            return None;
        }
        self.kept = Some(mark.clone());
        self.kept.clone()
    }
}
