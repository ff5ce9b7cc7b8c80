//! Forecasts when waiting jobs start, by simulations of the log: an input of the optimizer's service.
//!
//! 1. The forecaster follows the log: a state, and the events since.
//! 2. When something changed and jobs wait, it simulates a fork several times and tells new and changed
//!    forecasts as `starts.forecast`.
//! 3. The next forecast waits for twenty times the duration of the last one, so that forecasts take at most a
//!    twentieth of one core; after an error, twenty times as long. A forecast that takes too long is given up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use dormouse_messages::events::{StartForecast, StartsForecast};
use dormouse_messages::{Event, Fold as _, JobId, Recorded, Sequence, Timestamp};
use dormouse_replay::history::plan::{forecast, waiting};
use dormouse_replay::history::slice::States;
use dormouse_replay::history::whatif::{ForkAt, History};
use dormouse_runtime::{Inputs, Log, LogItem, Observation, aside};
use dormouse_state::ClusterState;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant as Wake, timeout_at};

use super::web::states;

/// With nine draws, the least and the greatest have a tenth of further draws beyond them.
const DRAWS: u32 = 9;

const LEAST_EVERY: Duration = Duration::from_secs(10);

/// Time between two forecasts, in durations of one.
const PAUSE: u32 = 20;

/// A simulation of thousands of waiting jobs may take minutes of a core, and tells of a state that is gone.
const MOST_TIME: Duration = Duration::from_secs(10);

/// The fewest events from which jobs' run times and costs are known; twice as many at most.
const WINDOW: usize = 20_000;

const BATCH: usize = 1_000;

/// Time until the log is followed again after an error.
const RETRY: Duration = Duration::from_secs(30);

/// A forecast is told again if a bound moves by more than this part of the interval, or by half a minute.
const MOVED: f64 = 0.2;
const MOVED_S: f64 = 30.0;

/// Forecasts starts; the optimizer's input.
pub struct Forecaster {
    active: watch::Sender<bool>,
    made: Arc<Mutex<Option<StartsForecast>>>,
    changed: Arc<Notify>,
    task: AbortHandle,
}

impl Forecaster {
    /// Starts the forecaster, which begins its work with the first observation.
    #[must_use]
    pub fn start(log: Log) -> Self {
        let (active, begin) = watch::channel(false);
        let (made, changed) = (Arc::default(), Arc::default());
        let work = Work {
            log,
            made: Arc::clone(&made),
            changed: Arc::clone(&changed),
        };
        let task = tokio::spawn(work.run(begin)).abort_handle();
        Self {
            active,
            made,
            changed,
            task,
        }
    }
}

impl Drop for Forecaster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inputs<ClusterState> for Forecaster {
    fn observe(&mut self, state: &ClusterState) -> Vec<Observation> {
        self.active
            .send_if_modified(|active| !std::mem::replace(active, true));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.take_if(|event| event.asof <= state.forecast_asof);
        let news = made.iter().map(|event| Observation {
            event: Event::from(event.clone()),
            traceparent: None,
        });
        news.collect()
    }

    fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

struct Work {
    log: Log,
    made: Arc<Mutex<Option<StartsForecast>>>,
    changed: Arc<Notify>,
}

impl Work {
    async fn run(self, mut begin: watch::Receiver<bool>) {
        if begin.wait_for(|active| *active).await.is_err() {
            return;
        }
        loop {
            if let Err(error) = self.follow().await {
                tracing::warn!(
                    "starts are not forecast for {} s: {error:#}",
                    RETRY.as_secs()
                );
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Adds to a forecast that is not on the log yet.
    fn tell(&self, mut event: StartsForecast) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = made.take() {
            let newer = |job: &JobId| event.starts.iter().any(|it| it.job == *job);
            let older = before.starts.into_iter().filter(|it| !newer(&it.job));
            let older: Vec<StartForecast> = older.collect();
            event.starts.extend(older);
        }
        *made = Some(event);
        self.changed.notify_one();
    }

    async fn follow(&self) -> anyhow::Result<()> {
        let mut window = Window::default();
        let mut from = Sequence(1);
        if self.log.first() > from {
            let states = states(&self.log).await?;
            from = states.fork.sequence.next();
            window = Window::starting_from(states);
        }
        let mut events = self.log.follow(from);
        let mut batch = Vec::new();
        let mut is_caught_up = false;
        let mut next = Wake::now();
        loop {
            let wake = if is_caught_up && window.has_news {
                next
            } else {
                Wake::now() + RETRY
            };
            if let Ok(0) = timeout_at(wake, events.recv_many(&mut batch, BATCH)).await {
                return Ok(());
            }
            for item in batch.drain(..) {
                match item {
                    LogItem::Event(recorded) => window.push(recorded),
                    LogItem::CaughtUp(_) => is_caught_up = true,
                    LogItem::Flagged { .. } => {}
                }
            }
            if is_caught_up && window.has_news && Wake::now() >= next {
                let begun = Instant::now();
                let forecast;
                (window, forecast) = aside("forecast", move || {
                    let forecast = window.forecast(crate::clock::now());
                    (window, forecast)
                })
                .await?;
                let pause = (begun.elapsed() * PAUSE).max(LEAST_EVERY);
                next = Wake::now() + pause;
                match forecast {
                    Ok(Some(event)) => self.tell(event),
                    Ok(None) => {}
                    Err(error) => {
                        next = Wake::now() + pause * PAUSE;
                        tracing::warn!("starts are not forecast: {error}");
                    }
                }
            }
        }
    }
}

/// The log's recent events, and the states before them.
#[derive(Default)]
struct Window {
    /// `None` for the beginning of the log.
    base: Option<States>,
    events: VecDeque<Arc<Recorded>>,
    cluster: ClusterState,
    told: BTreeMap<JobId, StartForecast>,
    has_news: bool,
}

impl Window {
    fn starting_from(base: States) -> Self {
        Self {
            cluster: base.fork.cluster.clone(),
            base: Some(base),
            ..Self::default()
        }
    }

    fn push(&mut self, recorded: Arc<Recorded>) {
        self.cluster.evolve(&recorded);
        self.has_news |= recorded.event().is_some_and(changes_starts);
        self.events.push_back(recorded);
        if self.events.len() > 2 * WINDOW {
            let base = self.base.get_or_insert_default();
            self.events.drain(..WINDOW).for_each(|it| base.read(&it));
        }
    }

    /// Forecasts the starts of the waiting jobs; returns the new and the changed ones.
    fn forecast(&mut self, now: Timestamp) -> anyhow::Result<Option<StartsForecast>> {
        let begun = Instant::now();
        let stops = || begun.elapsed() > MOST_TIME;
        self.has_news = false;
        let waits: BTreeSet<JobId> = waiting(&self.cluster);
        self.told.retain(|job, _| waits.contains(job));
        if waits.is_empty() {
            return Ok(None);
        }
        let base = self.base.clone();
        let mut history = base.map_or_else(History::default, History::starting_from);
        self.events.iter().for_each(|it| history.read(it));
        let forked = history.fork(ForkAt::Sequence(Sequence(u64::MAX)));
        let now = history.time_at(now);
        let forked = forked.later(now);
        let starts = forecast(&history, &forked, DRAWS, &stops)?;
        let Some(mut starts) = starts else {
            bail!("{} jobs wait: a forecast takes too long", waits.len());
        };
        starts.retain(|start| has_moved(self.told.get(&start.job), start));
        let told = starts
            .iter()
            .map(|start| (start.job.clone(), start.clone()));
        self.told.extend(told);
        Ok((!starts.is_empty()).then_some(StartsForecast {
            asof: forked.sequence,
            draws: DRAWS,
            starts,
        }))
    }
}

/// Reports whether the event may move a start: reports of running jobs alone do not.
const fn changes_starts(event: &Event) -> bool {
    !matches!(
        event,
        Event::StartsForecast(_)
            | Event::Progress(_)
            | Event::CheckpointSaved(_)
            | Event::ServiceMeasured(_)
            | Event::ContainerGpuUsed(_)
            | Event::NotebookObserved(_)
            | Event::AllocationUnchanged(_)
    )
}

fn has_moved(before: Option<&StartForecast>, now: &StartForecast) -> bool {
    let Some(before) = before else {
        return true;
    };
    let width_s = match (before.earliest, before.latest) {
        (Some(earliest), Some(latest)) => latest.seconds_since(earliest),
        _ => 0.0,
    };
    let pairs = [
        (before.earliest, now.earliest),
        (before.likely, now.likely),
        (before.latest, now.latest),
    ];
    pairs.into_iter().any(|pair| match pair {
        (Some(before), Some(now)) => {
            now.seconds_since(before).abs() > (width_s * MOVED).max(MOVED_S)
        }
        (before, now) => before != now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(from: i64, to: Option<i64>) -> StartForecast {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        StartForecast {
            job: "ads/a".parse().expect("a job"),
            earliest: Some(at(from)),
            likely: Some(at(from)),
            latest: to.map(at),
        }
    }

    #[test]
    fn a_forecast_is_told_again_once_it_has_moved() {
        let before = start(1_000, Some(2_000));
        assert!(has_moved(None, &before));
        assert!(!has_moved(Some(&before), &start(1_150, Some(2_100))));
        assert!(has_moved(Some(&before), &start(1_250, Some(2_000))));
        assert!(has_moved(Some(&before), &start(1_000, None)));
    }
}
