//! How long a service was away, by its host's clocks.
//!
//! A service writes the log's own time: that of the last event folded, and what its clock has moved
//! since ([`crate::Append::time`]). A process that was killed, or a machine that slept, has no clock
//! that moved, and the log would take the silence for a step of the broker's clock. So:
//!
//! 1. Whenever an event is folded as it comes, the log's time and the host's clocks are a [`Mark`]. The
//!    driver keeps the first one on the disk, and later ones when the service itself has appended, if
//!    they say another thing.
//! 2. A service that starts again counts on from the mark that was kept: within one life of the host's
//!    kernel by the kernel's own clock, which nobody sets, over a start of the host by the wall clock.
//! 3. That only says what the service writes, not when it decides: the log's time moves where the
//!    broker's stamp confirms what was written (`dormouse_messages::LogClock`), so that a clock that
//!    was set on one host alone moves nothing.
//! 4. From the first event that is folded as it comes, the log's time is known, and the mark is new.

#[cfg(test)]
mod tests;

use dormouse_messages::Timestamp;
use serde::{Deserialize, Serialize};

/// A mark that says the same as the one that is kept, but for so much, is not kept again.
const KEPT_US: u64 = 1_000_000;

/// What a host's clocks show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Which life of its kernel; 0: not known.
    pub boot: u64,
    /// How long that has lasted, in microseconds, with what the machine slept.
    pub up_us: i64,
    /// The wall clock, which may be set.
    pub wall: Timestamp,
}

/// One moment, by the log and by a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Which log.
    pub log: String,
    /// The log's time.
    pub time: Timestamp,
    /// The host's clocks.
    pub host: HostTime,
}

impl Mark {
    /// The time of the log when the host's clocks show this; `None` where they went back.
    #[must_use]
    pub fn reaches(&self, host: &HostTime) -> Option<Timestamp> {
        let same_life = self.host.boot != 0 && self.host.boot == host.boot;
        let passed_us = match same_life {
            true => host.up_us.checked_sub(self.host.up_us)?,
            false => {
                let (then, now) = (self.host.wall.as_micros(), host.wall.as_micros());
                now.checked_sub(then)?
            }
        };
        let time_us = self.time.as_micros().checked_add(passed_us)?;
        (passed_us >= 0).then(|| Timestamp::from_micros(time_us))
    }

    /// Whether a service that starts on this host would count on from both alike, now and after the
    /// host's next start.
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

/// What is known of the host's time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// What its clocks show.
    shows: Option<HostTime>,
    mark: Option<Mark>,
    /// The mark on the disk.
    kept: Option<Mark>,
    /// The log was folded to its end in this life: what is folded now has just come.
    follows: bool,
}

impl Host {
    /// The host's clocks show this.
    pub const fn shows(&mut self, host: HostTime) {
        self.shows = Some(host);
    }

    /// What an earlier life has kept.
    pub fn recall(&mut self, mark: Mark) {
        self.kept = Some(mark.clone());
        self.mark = Some(mark);
    }

    /// Something was folded; the log's time is this. `to_its_end`: up to the end of the log.
    pub fn folded(&mut self, log: &str, time: Timestamp, to_its_end: bool) {
        if let Some(host) = self.shows.filter(|_| self.follows) {
            let log = log.to_owned();
            self.mark = Some(Mark { log, time, host });
        }
        self.follows |= to_its_end;
    }

    /// The time of the log by the host's clocks, as far as they know it.
    pub fn time(&self) -> Option<Timestamp> {
        self.mark.as_ref()?.reaches(&self.shows?)
    }

    /// The mark, if it is to be kept: where there is none on the disk, or the service itself has appended
    /// and it says another thing. What others have appended may have come late.
    pub fn keep(&mut self, own: bool) -> Option<Mark> {
        let mark = self.mark.as_ref().filter(|_| self.follows)?;
        let known = |kept: &Mark| !own || kept.says_the_same(mark);
        if self.kept.as_ref().is_some_and(known) {
            return None;
        }
        self.kept = Some(mark.clone());
        self.kept.clone()
    }
}
