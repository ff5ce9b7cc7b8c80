//! The wall clock, injected for tests, and two clocks that do not step.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dormouse_messages::Timestamp;
use dormouse_shell::HostTime;
use nix::time::ClockId;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
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

/// Start time plus monotonic time, which stops during suspension: for waits.
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

/// Start time plus boot time, which includes suspension: for reported times.
#[derive(Debug, Clone, Copy, Default)]
pub struct WakefulClock;

impl Clock for WakefulClock {
    fn now(&self) -> Timestamp {
        static BEGAN: OnceLock<(Timestamp, i64)> = OnceLock::new();
        let up_us = up_us();
        let (began, then_us) = BEGAN.get_or_init(|| (SystemClock.now(), up_us));
        let passed_us = up_us.saturating_sub(*then_us);
        Timestamp::from_micros(began.as_micros().saturating_add(passed_us))
    }
}

fn up_us() -> i64 {
    let up = ClockId::CLOCK_BOOTTIME.now();
    up.map_or(0, |up| {
        let micros = Duration::from(up).as_micros();
        i64::try_from(micros).unwrap_or(i64::MAX)
    })
}

/// Reads the host's clocks.
pub fn host_time() -> HostTime {
    static BOOT: OnceLock<u64> = OnceLock::new();
    HostTime {
        boot: *BOOT.get_or_init(boot),
        up_us: up_us(),
        wall: SystemClock.now(),
    }
}

fn boot() -> u64 {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = name
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_clocks_go_on_in_one_boot() {
        let (first, second) = (host_time(), host_time());
        assert_ne!(first.boot, 0);
        assert_eq!(first.boot, second.boot);
        assert!(0 < first.up_us && first.up_us <= second.up_us);
        let apart_us = WakefulClock.now().as_micros() - SystemClock.now().as_micros();
        assert!(apart_us.abs() < 1_000_000, "{apart_us}");
    }
}
