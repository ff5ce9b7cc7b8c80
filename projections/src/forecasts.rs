//! Forecasts of starts, and how they turned out.
//!
//! Every forecast of a waiting job is kept until the job starts, and is scored then: inside its interval or
//! not, and the error of its middle by the wait that was left. Of a cancelled job nothing is scored.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{StartForecast, StartsForecast};
use dormouse_messages::{Event, Fact, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::steps::Steps;
use crate::timelines::Metric;
use dormouse_state::ClusterState;

/// The newest scores; the timelines show their means.
const SCORES: usize = 500;

/// Forecasts kept of one job; the newest replaces the last.
const TOLD: usize = 64;

const POINTS: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Told {
    at: Timestamp,
    start: StartForecast,
}

/// A forecast, compared with the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub inside: bool,
    /// |middle − start| in seconds; `None` if the middle was beyond the simulations.
    pub error_s: Option<f64>,
    /// From the forecast to the start.
    pub wait_s: f64,
}

/// The figures of the newest scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub scored: u64,
    /// Part of the starts inside their intervals; 0.8 is right.
    pub inside: f64,
    /// Median of error ÷ wait.
    pub error: f64,
}

/// The waiting jobs' forecasts, and the scores of started ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecasts {
    waiting: BTreeMap<JobId, Vec<Told>>,
    scores: VecDeque<Score>,
    scored: u64,
    inside: Steps,
    error: Steps,
}

impl Forecasts {
    pub(crate) fn evolve(&mut self, fact: &Fact<'_>, cluster: &ClusterState) {
        match fact.event() {
            Some(Event::StartsForecast(event)) => self.told(event, fact.at, cluster),
            Some(Event::PartitionStarted(event)) => {
                if let Some(told) = self.waiting.remove(&event.job) {
                    self.score(&told, fact.at);
                }
            }
            Some(Event::JobCompleted(event)) => drop(self.waiting.remove(&event.job)),
            Some(Event::JobCancelled(event)) => drop(self.waiting.remove(&event.job)),
            Some(Event::JobFailed(event)) => drop(self.waiting.remove(&event.job)),
            _ => {}
        }
    }

    /// A job may have started during its simulation.
    fn told(&mut self, event: &StartsForecast, at: Timestamp, cluster: &ClusterState) {
        let waits = |job: &JobId| cluster.job(job).is_some_and(|it| !it.ever_started());
        for start in event.starts.iter().filter(|it| waits(&it.job)) {
            let told = self.waiting.entry(start.job.clone()).or_default();
            if told.len() == TOLD {
                told.pop();
            }
            let start = start.clone();
            told.push(Told { at, start });
        }
    }

    fn score(&mut self, told: &[Told], started: Timestamp) {
        for Told { at, start } in told {
            // Beyond the simulations, nothing was said.
            let Some(earliest) = start.earliest else {
                continue;
            };
            let after = earliest <= started;
            let before = start.latest.is_none_or(|latest| started <= latest);
            let error_s = start.likely.map(|it| it.seconds_since(started).abs());
            self.scores.push_back(Score {
                inside: after && before,
                error_s,
                wait_s: started.seconds_since(*at).max(1.0),
            });
            self.scored += 1;
        }
        while self.scores.len() > SCORES {
            self.scores.pop_front();
        }
        let now = self.calibration();
        self.inside.push(started, now.inside, POINTS);
        self.error.push(started, now.error, POINTS);
    }

    /// Returns the newest forecast of a waiting job.
    #[must_use]
    pub fn of(&self, job: &JobId) -> Option<&StartForecast> {
        self.waiting.get(job)?.last().map(|told| &told.start)
    }

    /// Returns the figures of the newest scores.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a few hundred scores")]
    pub fn calibration(&self) -> Calibration {
        let all = self.scores.len().max(1) as f64;
        let inside = self.scores.iter().filter(|it| it.inside).count() as f64;
        let part = |it: &Score| Some(it.error_s? / it.wait_s);
        let mut errors: Vec<f64> = self.scores.iter().filter_map(part).collect();
        errors.sort_by(f64::total_cmp);
        Calibration {
            scored: self.scored,
            inside: inside / all,
            error: errors.get(errors.len() / 2).copied().unwrap_or(0.0),
        }
    }

    /// Returns the series of [`Metric::ForecastError`].
    #[must_use]
    pub fn series(&self, metric: Metric) -> Vec<(String, &Steps)> {
        match metric {
            Metric::ForecastError => vec![
                (
                    "inside the interval (0.8 is right)".to_owned(),
                    &self.inside,
                ),
                ("median error by wait".to_owned(), &self.error),
            ],
            _ => Vec::new(),
        }
    }

    /// Returns the present forecasts, with the series' last points.
    #[must_use]
    pub fn tails(&self) -> Self {
        Self {
            inside: self.inside.tail(),
            error: self.error.tail(),
            ..self.clone()
        }
    }
}

/// Describes a forecast: `starts in 12 to 25 min (80 %)`.
#[must_use]
pub fn words(start: &StartForecast, now: Timestamp) -> String {
    let left = |at: Timestamp| {
        let seconds = at.seconds_since(now).max(0.0);
        let minutes = seconds / 60.0;
        match seconds {
            s if s < 90.0 => format!("{s:.0} s"),
            s if s < 5_400.0 => format!("{minutes:.0} min"),
            s if s < 129_600.0 => format!("{:.1} h", s / 3_600.0),
            s => format!("{:.1} d", s / 86_400.0),
        }
    };
    match (start.earliest, start.latest) {
        (Some(_), Some(latest)) if latest <= now => "is expected to start now".to_owned(),
        (Some(earliest), Some(latest)) => {
            format!("starts in {} to {} (80 %)", left(earliest), left(latest))
        }
        (Some(earliest), None) => format!("starts in {} or later", left(earliest)),
        _ => "starts later than the forecast looks ahead".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Sequence;
    use dormouse_state::history::{History, at, job};

    use super::*;
    use crate::ReadModel;

    fn forecast(from: i64, to: i64) -> StartsForecast {
        StartsForecast {
            asof: Sequence(1),
            draws: 9,
            starts: vec![StartForecast {
                job: job("ads/a"),
                earliest: Some(at(from)),
                likely: Some(at(i64::midpoint(from, to))),
                latest: Some(at(to)),
            }],
        }
    }

    /// Events come a second after each other: the job starts at 11.
    #[test]
    fn every_forecast_is_scored_when_the_job_starts() {
        let mut history = History::default();
        history.join("n0", 1).submit("ads/a").release("ads/a");
        history.push(forecast(8, 12)).push(forecast(500, 700));
        let waits: ReadModel = history.fold();
        let start = waits.forecasts.of(&job("ads/a")).expect("a forecast");
        assert_eq!(words(start, at(20)), "starts in 8 min to 11 min (80 %)");
        history
            .allocate(1, &[("ads/a", 0, 1)], &[])
            .place(1, "ads/a", 1, &[("n0", 1)])
            .request_start(1, "ads/a", 1, 1)
            .container_started("ads/a", 1, 0, "n0")
            .started(1, "ads/a", 1, 1);
        // Simulations take time: this one is of a job that has started.
        history.push(forecast(500, 700));
        let started: ReadModel = history.fold();
        assert_eq!(started.forecasts.of(&job("ads/a")), None);
        let found = started.forecasts.calibration();
        assert_eq!((found.scored, found.inside), (2, 0.5));
    }
}
