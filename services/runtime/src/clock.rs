//! The wall clock, injected so that tests and the shell's callers can replace it, and one that does not
//! step, for everything that waits.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dormouse_messages::Timestamp;

/// A source of the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell is where the clock enters the system"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.map_or(0, |since| since.as_micros());
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// The machine's time when it is first asked, and what has passed since: whoever sets the machine's
/// clock meanwhile does not change it, and a machine that is suspended has not waited.
#[derive(Debug, Clone, Copy, Default)]
pub struct SteadyClock;

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        static BEGAN: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        let (began, since) = BEGAN.get_or_init(|| (SystemClock.now(), Instant::now()));
        let passed = since
            .elapsed()
            .min(Duration::from_secs(u64::from(u32::MAX)));
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(began.as_micros().saturating_add_unsigned(passed_us))
    }
}
