//! Request rate, trend and burstiness.
//!
//! 1. Level: the mean of the longest window that no shorter window contradicts (Lepski's method).
//! 2. Dispersion: the mean squared difference of successive seconds ÷ 2 ÷ their mean, which ignores ramps. 1
//!    if explainable by chance.
//! 3. Trend: a line through one or three minutes, if better than a single step. A step is over, a ramp goes
//!    on.

use crate::history::History;

const WINDOWS_S: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Standard deviations. Six windows every two seconds: at 3.5 chance contradicts once in ten hours.
const DISAGREE: f64 = 3.5;

/// Standard deviations subtracted from the shortest mean.
const RECENT_DOUBT: f64 = 0.5;

const DISPERSION_S: usize = 600;

/// Three minutes show steps by the minute as a ramp.
const TRENDS_S: [usize; 2] = [60, 180];

/// Standard deviations subtracted from a slope.
const SLOPE_DOUBT: f64 = 2.0;

/// A line's residual, relative to a step's.
const LINE_BEATS_STEP: f64 = 0.9;

/// Counts of successive seconds, with prefix sums.
#[derive(Debug, Clone)]
pub struct Series {
    begin: i64,
    /// The sum before each second.
    sums: Vec<f64>,
    squares: Vec<f64>,
    weighted: Vec<f64>,
    counts: Vec<f64>,
}

/// A request rate and its certainty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Level {
    pub rate: f64,
    pub doubt: f64,
    pub window_s: f64,
    /// By shorter windows.
    pub recent: f64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a history has a few hundred seconds"
)]
const fn real(count: usize) -> f64 {
    count as f64
}

impl Series {
    /// Takes the last `length_s` seconds' arrivals.
    #[must_use]
    pub fn of(history: &History, until: i64, length_s: i64) -> Self {
        let begin = history.begin().max(until - length_s);
        let counts: Vec<f64> = history
            .between(begin, until)
            .map(|second| second.arrivals)
            .collect();
        let prefix = |of: &dyn Fn(usize, f64) -> f64| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            for (index, count) in counts.iter().enumerate() {
                sum += of(index, *count);
                sums.push(sum);
            }
            sums
        };
        Self {
            begin,
            sums: prefix(&|_, count| count),
            squares: prefix(&|_, count| count * count),
            weighted: prefix(&|index, count| real(index) * count),
            counts,
        }
    }

    fn length(&self, until: i64) -> usize {
        let length = usize::try_from(until - self.begin).unwrap_or(0);
        length.min(self.counts.len())
    }

    fn mean(&self, end: usize, window: usize) -> f64 {
        (self.sums[end] - self.sums[end - window]) / real(window)
    }

    /// Returns the dispersion.
    #[must_use]
    pub fn dispersion(&self, until: i64) -> f64 {
        let end = self.length(until);
        let window = end.min(DISPERSION_S);
        if window < 4 || self.mean(end, window) <= 0.0 {
            return 1.0;
        }
        let seconds = &self.counts[end - window..end];
        let differences = seconds.windows(2).map(|pair| pair[1] - pair[0]);
        let squares = differences.map(|it| it * it);
        let (mut sum, mut largest) = (0.0, 0.0_f64);
        for square in squares {
            sum += square;
            largest = largest.max(square);
        }
        // A single step is no burst.
        let pairs = real(window - 2);
        let dispersion = (sum - largest) / pairs / 2.0 / self.mean(end, window);
        // For Poisson counts the standard deviation is about √(3/n).
        let chance = 1.0 + 3.0 * (3.0 / pairs).sqrt();
        if dispersion > chance { dispersion } else { 1.0 }
    }

    /// Returns the level.
    #[must_use]
    pub fn level(&self, until: i64, dispersion: f64) -> Level {
        let end = self.length(until);
        let mut accepted: Option<usize> = None;
        for window in WINDOWS_S {
            let window = window.min(end);
            if window == 0 || accepted == Some(window) {
                break;
            }
            let rate = self.mean(end, window);
            let shorter = WINDOWS_S.into_iter().take_while(|it| *it < window);
            let mut agrees = shorter.map(|short| {
                let short_rate = self.mean(end, short);
                let variance = dispersion * rate.max(short_rate) / real(short);
                (rate - short_rate).abs() <= DISAGREE * variance.sqrt()
            });
            if !agrees.all(|it| it) {
                break;
            }
            accepted = Some(window);
        }
        let Some(window) = accepted else {
            return Level::default();
        };
        let rate = self.mean(end, window);
        Level {
            rate,
            doubt: (dispersion * rate / real(window)).sqrt(),
            window_s: real(window),
            recent: self.recent(end, window, dispersion),
        }
    }

    /// Returns the largest mean of shorter windows, less part of its uncertainty.
    fn recent(&self, end: usize, longest: usize, dispersion: f64) -> f64 {
        let shorter = WINDOWS_S.into_iter().take_while(|it| *it <= longest);
        let means = shorter.map(|window| {
            let rate = self.mean(end, window);
            let part = if window < 4 { RECENT_DOUBT } else { 0.0 };
            rate - part * (dispersion * rate / real(window)).sqrt()
        });
        means.fold(0.0, f64::max)
    }

    /// Returns the certain rise per second; 0 without one, and after a single step.
    #[must_use]
    pub fn rise(&self, until: i64, dispersion: f64) -> f64 {
        let end = self.length(until);
        let rises = TRENDS_S.into_iter().filter(|window| *window <= end);
        let rises = rises.map(|window| self.rise_over(end, window, dispersion));
        rises.fold(0.0, f64::max)
    }

    fn rise_over(&self, end: usize, window: usize, dispersion: f64) -> f64 {
        let start = end - window;
        let n = real(window);
        let sum = self.sums[end] - self.sums[start];
        let weighted = self.weighted[end] - self.weighted[start] - real(start) * sum;
        // Σ(t − t̄)² of 0 … n − 1.
        let spread = n * (n * n - 1.0) / 12.0;
        let covariance = weighted - sum * (n - 1.0) / 2.0;
        let slope = covariance / spread;
        let variance = dispersion * sum / n / spread;
        let sure = slope - SLOPE_DOUBT * variance.sqrt();
        if sure <= 0.0 {
            return 0.0;
        }
        let total = self.squares[end] - self.squares[start] - sum * sum / n;
        let line = total - slope * covariance;
        // Both fits leave the noise.
        let noise = dispersion * sum;
        let step = total - self.best_step(start, end);
        let over = |left: f64| (left - noise).max(0.0);
        let beats = over(line) <= LINE_BEATS_STEP * over(step) && line < step;
        if beats { sure } else { 0.0 }
    }

    /// Returns the largest sum of squares that one step explains.
    fn best_step(&self, start: usize, end: usize) -> f64 {
        let n = real(end - start);
        let sum = self.sums[end] - self.sums[start];
        let explained = (start + 1..end).map(|split| {
            let before = self.sums[split] - self.sums[start];
            let (left, right) = (real(split - start), real(end - split));
            let after = sum - before;
            before * before / left + after * after / right - sum * sum / n
        });
        explained.fold(0.0, f64::max)
    }
}

/// Returns the largest rise beyond chance: in requests per second, and relative.
#[must_use]
pub fn largest_rise(means: &[f64], minutes: usize, dispersion: f64) -> (f64, f64) {
    let pairs = means.iter().zip(means.iter().skip(minutes));
    let rises = pairs.map(|(before, after)| {
        let chance = 3.0 * (dispersion * (before + after) / 60.0).sqrt();
        let rise = (after - before - chance).max(0.0);
        (rise, rise / before.max(1.0 / 60.0))
    });
    rises.fold((0.0, 0.0), |most, rise| {
        (f64::max(most.0, rise.0), f64::max(most.1, rise.1))
    })
}
