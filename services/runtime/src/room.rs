//! The log's free capacity.

use std::path::Path;

use dormouse_messages::Timestamp;
use dormouse_messages::events::LogBound;
use metrics::{Unit, describe_gauge, gauge};
use nix::sys::statvfs::statvfs;

use crate::answer::within;
use crate::counters::value;
use crate::decode;
use crate::error::LogError;
use crate::log::Log;

const BYTES: &str = "dormouse_log_bytes";
const MOST: &str = "dormouse_log_most_bytes";

/// The log's size and its tightest bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogRoom {
    pub messages: u64,
    /// Bytes that count against the bound.
    pub bytes: u64,
    /// 0 without a bound.
    pub most_bytes: u64,
    pub bound: LogBound,
    /// The first event's and the last one's time.
    pub held: (Timestamp, Timestamp),
}

/// Bounds of a log other than its broker's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds<'a> {
    pub policy_bytes: Option<u64>,
    /// A folder on the disk of the only broker.
    pub disk: Option<&'a Path>,
}

impl Log {
    /// Returns the log's size and its tightest bound.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn room(&self, bounds: Bounds<'_>) -> Result<LogRoom, LogError> {
        let name = self.prefix().log_stream();
        let failed = |why: String| LogError::request("read the size of", &name, why);
        let jetstream = &self.inner.jetstream;
        let asked = within(jetstream.get_stream(&name)).await;
        let asked = asked.map_err(failed)?;
        let info = asked.cached_info();
        let bytes = info.state.bytes;
        // Not every user may ask.
        let account = within(jetstream.query_account()).await.ok();
        let account = account.and_then(|it| Some((it.storage, positive(it.limits.max_storage?)?)));
        let policy = bounds.policy_bytes.map(|most| (bytes, most));
        let stream = positive(info.config.max_bytes).map(|most| (bytes, most));
        let disk = bounds.disk.and_then(|disk| on_disk(bytes, disk));
        let all = [
            (policy, LogBound::Policy),
            (stream, LogBound::Stream),
            (account, LogBound::Account),
            (disk, LogBound::Disk),
        ];
        let known = all
            .into_iter()
            .filter_map(|(it, bound)| it.map(|it| (it, bound)));
        // The fullest: a / b > c / d.
        let fuller = |a: (u64, u64), b: (u64, u64)| {
            (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
        };
        let tightest = known.max_by(|(a, _), (b, _)| fuller(*a, *b));
        let ((bytes, most_bytes), bound) = tightest.unwrap_or(((bytes, 0), LogBound::Nothing));
        let state = &info.state;
        let held = [state.first_timestamp, state.last_timestamp];
        let [first, last] = held.map(|at| decode::timestamp(at.unix_timestamp_nanos()));
        Ok(LogRoom {
            messages: info.state.messages,
            bytes,
            most_bytes,
            bound,
            held: (first, last),
        })
    }
}

impl LogRoom {
    /// Sets the metrics.
    pub fn show(&self) {
        let bytes = "What counts against the log's tightest bound";
        describe_gauge!(BYTES, Unit::Bytes, bytes);
        describe_gauge!(MOST, Unit::Bytes, "The log's tightest bound; 0 without one");
        gauge!(BYTES).set(value(self.bytes));
        gauge!(MOST).set(value(self.most_bytes));
    }

    /// Returns how long the log can grow as it did since its first event, in seconds.
    #[must_use]
    pub fn lasts_s(&self) -> Option<f64> {
        let took_s = self.held.1.seconds_since(self.held.0);
        if self.most_bytes == 0 || self.bytes == 0 || took_s <= 0.0 {
            return None;
        }
        let left = self.most_bytes.saturating_sub(self.bytes);
        Some(value(left) / value(self.bytes) * took_s)
    }
}

fn positive(most: i64) -> Option<u64> {
    u64::try_from(most).ok().filter(|most| *most > 0)
}

/// A nats-server without a bound takes three quarters of its disk.
fn on_disk(bytes: u64, disk: &Path) -> Option<(u64, u64)> {
    let found = statvfs(disk).ok()?;
    let free = found.blocks_available() * found.fragment_size();
    Some((bytes, bytes.saturating_add(free) / 4 * 3))
}
