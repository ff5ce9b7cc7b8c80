//! Estimates when waiting jobs start.
//!
//! The fork runs forward several times with random curves, remaining work ([`Course::imagined`]) and,
//! unless the queue is first in, first out, new submissions like the log's. With fewer than
//! [`LEAST_BASIS`] completed jobs there is no estimate, since a bad one is worse than none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_messages::events::StartForecast;
use dormouse_messages::job::Kind;
use dormouse_messages::policy::Queue;
use dormouse_messages::{Event, JobId, Timestamp};
use dormouse_state::{ClusterState, Job};
use serde_json::{Value, json};

use super::answer::Start;
use crate::history::changes::Changes;
use crate::history::whatif::{Course, Forked, History, WhatifError, run};
use crate::random::Random;
use crate::scenario::Submission;

/// The least number of completed jobs for an estimate.
pub const LEAST_BASIS: u64 = 30;
const NEWEST: usize = 100;
/// The least number of submissions for a rate.
const LEAST_SUBMISSIONS: usize = 10;
const MOST_RIVALS: u32 = 40;

/// Events of one simulation of all starts: the jobs that start later are beyond its reach.
const MOST_EVENTS: usize = 50_000;

/// The simulation's own error, by the wait: where all run times are alike, the draws are, too.
const MODEL_ERROR: f64 = 0.02;
const LEAST_APART_S: f64 = 1.0;

/// A month: nobody plans with a later start.
const HORIZON_MS: u64 = 31 * 86_400_000;

/// Runs the fork forward until the job starts, `draws` times.
pub fn start(
    history: &History,
    forked: &Forked<'_>,
    changes: &Changes,
    job: &JobId,
    draws: u32,
) -> Result<Start, WhatifError> {
    let basis = forked.completed();
    if basis < LEAST_BASIS {
        return Ok(Start {
            basis,
            unknown: true,
            ..Start::default()
        });
    }
    let jobs = BTreeSet::from([job.clone()]);
    let starts = starts(history, forked, changes, &jobs, draws, &|| false)?;
    let starts = starts.unwrap_or_default();
    let starts = starts.get(job).map(Vec::as_slice).unwrap_or_default();
    Ok(Start {
        p10_s: quantile(starts, 0.1),
        p50_s: quantile(starts, 0.5),
        p90_s: quantile(starts, 0.9),
        basis,
        unknown: false,
    })
}

/// Forecasts the starts of all waiting jobs; none with fewer than [`LEAST_BASIS`] completed jobs. `None` if
/// `stops` did: the caller's patience is over.
///
/// # Errors
/// If the services break a rule on the fork.
pub fn forecast(
    history: &History,
    forked: &Forked<'_>,
    draws: u32,
    stops: &dyn Fn() -> bool,
) -> Result<Option<Vec<StartForecast>>, WhatifError> {
    let jobs = waiting(forked.cluster());
    if jobs.is_empty() || forked.completed() < LEAST_BASIS {
        return Ok(Some(Vec::new()));
    }
    let starts = starts(history, forked, &Changes::default(), &jobs, draws, stops)?;
    let Some(starts) = starts else {
        return Ok(None);
    };
    let forecast = |(job, starts): (JobId, Vec<f64>)| {
        let at = |part: f64, side: f64| {
            let after = quantile(&starts, part)?;
            let apart = (after * MODEL_ERROR).max(LEAST_APART_S);
            let after = Duration::try_from_secs_f64((after + side * apart).max(0.0)).ok()?;
            Some(forked.now.plus_ms(u64::try_from(after.as_millis()).ok()?))
        };
        StartForecast {
            earliest: at(0.1, -1.0),
            likely: at(0.5, 0.0),
            latest: at(0.9, 1.0),
            job,
        }
    };
    Ok(Some(starts.into_iter().map(forecast).collect()))
}

/// Returns the jobs that start as soon as they have their turn and capacity.
#[must_use]
pub fn waiting(cluster: &ClusterState) -> BTreeSet<JobId> {
    let is_live = |id: &JobId| cluster.job(id).is_some();
    let waits = |(_, job): &(&JobId, &Job)| {
        let wanted = !job.stands_down() && job.cancel_requested.is_none();
        wanted && !job.ever_started() && !job.depends_on.iter().any(is_live)
    };
    let waiting = cluster.live().filter(waits);
    waiting.map(|(id, _)| id.clone()).collect()
}

/// Returns the jobs' starts in seconds after the fork, in order; a job that does not start counts as later
/// than all others. `None` if `stops` did.
fn starts(
    history: &History,
    forked: &Forked<'_>,
    changes: &Changes,
    jobs: &BTreeSet<JobId>,
    draws: u32,
    stops: &dyn Fn() -> bool,
) -> Result<Option<BTreeMap<JobId, Vec<f64>>>, WhatifError> {
    let rivals = Rivals::of(forked);
    let horizon = forked.now.plus_ms(HORIZON_MS);
    let mut random = Random::new(1);
    let mut starts: BTreeMap<JobId, Vec<f64>> = BTreeMap::new();
    for _ in 0..draws.max(1) {
        let course = forked.with(history, forked.models.draw(&mut random));
        let course = course.imagined(forked.unknown.keys(), forked.now, &mut random);
        let mut with_rivals = changes.clone();
        let come = rivals.iter().flat_map(|it| it.draw(&course, &mut random));
        with_rivals.added.extend(come.collect::<Vec<_>>());
        let mut left = jobs.clone();
        let mut events = 0;
        run(forked, &course, &with_rivals, |kept| {
            events += 1;
            if let Some(Event::PartitionStarted(event)) = kept.event()
                && left.remove(&event.job)
            {
                let after = kept.at().seconds_since(forked.now);
                starts.entry(event.job.clone()).or_default().push(after);
            }
            left.is_empty() || events > MOST_EVENTS || kept.at() > horizon || stops()
        })?;
        if stops() {
            return Ok(None);
        }
        for job in left {
            starts.entry(job).or_default().push(f64::INFINITY);
        }
    }
    for starts in starts.values_mut() {
        starts.sort_by(f64::total_cmp);
    }
    Ok(Some(starts))
}

/// The k-th of n draws exceeds one more draw with probability k / (n + 1). `None` beyond the last start.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places in a short list"
)]
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = (part * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, last as f64);
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let between = sorted[low] + (sorted[high] - sorted[low]) * place.fract();
    if place.fract() > 0.0 {
        Some(between)
    } else {
        Some(sorted[low])
    }
    .filter(|it| it.is_finite())
}

struct Rivals {
    seen: Vec<(JobId, Value)>,
    gap_s: f64,
}

impl Rivals {
    /// Returns `None` if later jobs cannot go first.
    fn of(forked: &Forked<'_>) -> Option<Self> {
        if forked.cluster().policy.queue == Queue::Fifo {
            return None;
        }
        let mut received = BTreeMap::new();
        let mut seen: Vec<(Timestamp, JobId, Value)> = Vec::new();
        for kept in forked.before {
            match kept.event() {
                Some(Event::SubmissionReceived(event)) if event.verb == "submit" => {
                    received.insert(event.ingress_sequence, event);
                }
                Some(Event::JobAdmitted(event)) => {
                    let document = received.remove(&event.ingress_sequence);
                    let document = document.and_then(|it| dormouse_admission::document(it));
                    let at = kept.at();
                    seen.extend(document.map(|document| (at, event.job.clone(), document)));
                }
                _ => {}
            }
        }
        let newest = seen.split_off(seen.len().saturating_sub(NEWEST));
        let (first, ..) = newest
            .first()
            .filter(|_| newest.len() >= LEAST_SUBMISSIONS)?;
        let count = u32::try_from(newest.len()).ok()?;
        Some(Self {
            gap_s: forked.now.seconds_since(*first) / f64::from(count),
            seen: newest.into_iter().map(|(_, job, it)| (job, it)).collect(),
        })
    }

    fn draw(&self, course: &Course<'_>, random: &mut Random) -> Vec<Submission> {
        let mut at_s = 0.0;
        let rival = |number: u32| {
            at_s += random.exponential(self.gap_s);
            let (like, document) = random.choose(&self.seen);
            let name = format!("{}-rival-{number}", like.name());
            let mut document = document.clone();
            let fields = document.as_object_mut()?;
            fields.insert("name".to_owned(), json!(name));
            fields.retain(|field, _| !["depends_on", "if_plan"].contains(&field.as_str()));
            let mut model = course.model(like);
            model.incarnations.clear();
            model.failures.clear();
            Some(Submission {
                at_s,
                job: format!("{}/{name}", like.tenant()).parse().ok()?,
                payload: document.to_string().into_bytes(),
                model,
                kind: Kind::default(),
                clients: None,
            })
        };
        (1..=MOST_RIVALS).filter_map(rival).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_leave_a_tenth_of_new_draws_outside_on_each_side() {
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(quantile(&nine, 0.1), Some(1.0));
        assert_eq!(quantile(&nine, 0.5), Some(5.0));
        assert_eq!(quantile(&nine, 0.9), Some(9.0));
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        let off = quantile(&twenty, 0.9).expect("a number") - 18.9;
        assert!(off.abs() < 1e-9, "{off}");
        assert_eq!(quantile(&[1.0, f64::INFINITY], 0.9), None);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
