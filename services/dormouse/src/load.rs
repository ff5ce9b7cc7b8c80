//! How busy the machine is: which part of its time a thread that wants to run stands in line.
//!
//! Once a second a thread works for some milliseconds and asks the kernel how long it ran and how
//! long it waited for a processor (`/proc/thread-self/schedstat`). On an idle machine it never
//! waits; with two programs a core that never rest it waits half of the time. The demo's own
//! training sleeps nearly always, so that what is measured is what else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two measurements.
const EVERY: Duration = Duration::from_secs(1);
/// One measurement: a hundredth of a core's time.
const WORK: Duration = Duration::from_millis(10);
/// From here on programs take so much longer than they should that their times say little.
const BUSY: f64 = 0.3;

/// What was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    ran_s: f64,
    waited_s: f64,
}

impl Load {
    /// The part of its time that the thread stood in line; nothing where the kernel does not say.
    fn waited(self) -> Option<f64> {
        let whole = self.ran_s + self.waited_s;
        (whole > 0.0).then(|| self.waited_s / whole)
    }

    /// What to say of a machine that is too busy to judge by; nothing of another.
    #[must_use]
    pub fn busy(self) -> Option<String> {
        let waited = self.waited().filter(|waited| *waited > BUSY)?;
        Some(format!(
            "other programs keep this machine busy: {:.0} % of the time a thread that wants to run waits for a processor",
            waited * 100.0
        ))
    }
}

/// Measures until it is asked.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Load>>,
}

impl Watch {
    /// Begins to measure, on a thread of its own.
    #[must_use]
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let measure = move || {
            let mut load = Load::default();
            while !stopped.load(Ordering::Relaxed) {
                load.add();
                std::thread::park_timeout(EVERY);
            }
            load
        };
        let thread = std::thread::Builder::new().name("load".to_owned());
        Self {
            stop,
            thread: thread.spawn(measure).ok(),
        }
    }

    /// What was measured since the start.
    #[must_use]
    pub fn end(mut self) -> Load {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Load::default();
        };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

/// A look of half a second, before anything is started.
#[must_use]
pub fn look() -> Load {
    let mut load = Load::default();
    for _ in 0..5 {
        load.add();
        std::thread::sleep(Duration::from_millis(90));
    }
    load
}

impl Load {
    fn add(&mut self) {
        let before = schedstat();
        let begun = Instant::now();
        while begun.elapsed() < WORK {
            std::hint::spin_loop();
        }
        if let (Some(before), Some(after)) = (before, schedstat()) {
            self.ran_s += (after.0 - before.0).max(0.0);
            self.waited_s += (after.1 - before.1).max(0.0);
        }
    }
}

/// Seconds that this thread ran, and that it stood in line.
fn schedstat() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace();
    let mut seconds = || Some(numbers.next()?.parse::<f64>().ok()? / 1e9);
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_busy_when_threads_stand_in_line() {
        let load = |ran_s, waited_s| Load { ran_s, waited_s };
        assert_eq!(Load::default().busy(), None, "not known");
        assert_eq!(load(1.0, 0.1).busy(), None);
        let said = load(1.0, 1.0).busy().expect("busy");
        assert!(said.contains("50 %"), "{said}");
    }

    #[test]
    fn a_watch_measures_and_ends_at_once() {
        let watch = Watch::start();
        std::thread::sleep(Duration::from_millis(60));
        let begun = Instant::now();
        let load = watch.end();
        assert!(begun.elapsed() < EVERY, "{:?}", begun.elapsed());
        assert_eq!(load.ran_s > 0.0, schedstat().is_some());
    }
}
