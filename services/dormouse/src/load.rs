//! Measures how busy the machine is: the fraction of its time for which a runnable thread waits for a
//! processor, from `/proc/thread-self/schedstat`. The demo's training mostly sleeps, so the figure shows the
//! load of other programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
const WORK: Duration = Duration::from_millis(10);
/// Beyond this, durations mean little.
const BUSY: f64 = 0.3;

/// Run and wait times of the measuring thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    ran_s: f64,
    waited_s: f64,
}

impl Load {
    fn waited(self) -> Option<f64> {
        let whole = self.ran_s + self.waited_s;
        (whole > 0.0).then(|| self.waited_s / whole)
    }

    /// Returns a warning about a busy machine.
    #[must_use]
    pub fn busy(self) -> Option<String> {
        let waited = self.waited().filter(|waited| *waited > BUSY)?;
        Some(format!(
            "other programs keep this machine busy: {:.0} % of the time a thread that wants to run waits for a processor",
            waited * 100.0
        ))
    }
}

/// Measures in the background until [`Watch::end`].
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Load>>,
}

impl Watch {
    /// Starts to measure, on a thread of its own.
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

    /// Returns the load since the start.
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

/// Measures for half a second.
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
