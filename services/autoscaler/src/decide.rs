//! Decides the replicas of each service.
//!
//! Folds [`AutoscalerState`]. Appends `service.scaled`, `notebook.warned`.
//!
//! 1. Each released service that is not ending is decided alone.
//! 2. Its rule wishes for a number ([`crate::rules`]); without an objective, `containers.min`.
//! 3. A service that may scale to zero does so after an idle `idle_s`, and returns with the first waiting
//!    request. Activity decides for notebooks ([`crate::notebooks`]).
//! 4. The number is clamped; the event notes an insufficient `containers.max`.
//!
//! Invariant: the number lies within its bounds. The optimizer finds capacity, the placer picks leaving
//! replicas, the checkpointer and gateways remove them.

use dormouse_messages::events::{Observed, ServiceScaled};
use dormouse_messages::job::Kind;
use dormouse_messages::service::{LatencyObjective, Scaling};
use dormouse_messages::{Decider, Decision, JobId, Proposal, Sequence, Timestamp, Writer};

use crate::estimate::Series;
use crate::notebooks::Unused;
use crate::rules::{View, Wish, hpa, kpa, objective, ray};
use crate::staffing::{Goal, Load};
use crate::state::{AutoscalerState, Service};

const OBSERVED_S: i64 = 10;

/// The autoscaler's decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Autoscaler;

impl Decider for Autoscaler {
    type State = AutoscalerState;

    const WRITER: Writer = Writer::Autoscaler;

    fn decide(&self, state: &AutoscalerState, now: Timestamp) -> Decision {
        let scaled = state.services.iter();
        let scaled = scaled.filter(|(_, service)| service.is_scaled());
        let mut proposals = Vec::new();
        let mut wakes = Vec::new();
        for (job, service) in scaled {
            let (proposal, wake) = match unused(job, service, now) {
                Some((proposal, wake)) => (proposal, wake),
                None => (scale(job, service, now), idle_at(service)),
            };
            proposals.extend(proposal);
            wakes.extend(wake);
        }
        Decision {
            proposals,
            next_wake: wakes.into_iter().min(),
        }
    }
}

/// `None` unless a notebook runs and may scale to zero.
fn unused(
    job: &JobId,
    service: &Service,
    now: Timestamp,
) -> Option<(Option<Proposal>, Option<Timestamp>)> {
    let may_end = service.containers.min == 0 && service.target > 0;
    let used = service.used.as_ref().filter(|_| may_end)?;
    Some(match used.verdict(job, service.promise.idle_s, now) {
        Unused::Keep(wake) => (None, wake),
        Unused::Warn(warning) => (Some(warning), None),
        Unused::End(reason, cause) => {
            let verdict = Verdict {
                wish: Wish::of(0, 0.0, &reason),
                short: false,
            };
            (
                Some(Proposal::new(event(job, service, 0, verdict), cause)),
                None,
            )
        }
    })
}

/// Returns the end of the idle time.
fn idle_at(service: &Service) -> Option<Timestamp> {
    let is_service = service.kind == Kind::Inference;
    if service.containers.min > 0 || service.target == 0 || !is_service {
        return None;
    }
    let last = service.history.last_request()?;
    let idle_s = i64::from(service.promise.idle_s);
    let at = last.saturating_add(idle_s).saturating_mul(1_000_000);
    Some(Timestamp::from_micros(at))
}

/// An unclamped decision.
struct Verdict {
    wish: Wish,
    short: bool,
}

fn scale(job: &JobId, service: &Service, now: Timestamp) -> Option<Proposal> {
    let verdict = verdict(service, now);
    let (min, max) = (service.containers.min, service.containers.max);
    let replicas = verdict.wish.replicas.min(max).max(min);
    let was_short = service.scaled.is_some_and(|scaled| scaled.saturated);
    if replicas == service.target && verdict.short == was_short {
        return None;
    }
    let cause = [
        service.measured,
        service.scaled.map(|scaled| scaled.sequence),
        service.released,
    ];
    let cause = cause.into_iter().flatten().max();
    Some(Proposal::new(
        event(job, service, replicas, verdict),
        cause.unwrap_or(Sequence(0)),
    ))
}

fn verdict(service: &Service, now: Timestamp) -> Verdict {
    let (min, max) = (service.containers.min, service.containers.max);
    let stay = |replicas: u32, reason: &str| Verdict {
        wish: Wish::of(replicas, 0.0, reason),
        short: false,
    };
    if service.target < min || service.target > max {
        return stay(service.target.clamp(min, max.max(min)), "other bounds");
    }
    if idle_at(service).is_some_and(|idle_at| now >= idle_at) {
        let reason = format!("no request for {} s", service.promise.idle_s);
        return stay(0, &reason);
    }
    let Some(until) = service.history.until() else {
        return stay(service.target, "nothing was measured yet");
    };
    let asked = is_asked_for(service, until);
    let Some(objective) = service.promise.objective else {
        return if asked {
            stay(min.max(1), "a request waits")
        } else {
            stay(min.max(service.target.min(1)), "it has no objective")
        };
    };
    let view = View {
        service,
        until,
        objective: goal(objective),
    };
    let mut wish = match service.promise.scaling {
        Scaling::Objective => objective::wish(&view),
        Scaling::Hpa => hpa::wish(&view),
        Scaling::Kpa => kpa::wish(&view),
        Scaling::Ray => ray::wish(&view),
    };
    // A waiting request starts one replica at once; only idleness removes the last.
    if asked && wish.replicas == 0 {
        wish.replicas = 1;
        wish.reason = "a request waits".to_owned();
    }
    wish.replicas = wish.replicas.max(service.target.min(1));
    let was_short = service.scaled.is_some_and(|scaled| scaled.saturated);
    let short = wish.needed > max || (was_short && wish.held > max);
    if short {
        wish.reason = format!(
            "{}: more than containers.max {max} can answer within {} ms",
            wish.reason, objective.latency_ms
        );
    }
    Verdict { wish, short }
}

fn goal(objective: LatencyObjective) -> Goal {
    Goal {
        latency_s: f64::from(objective.latency_ms) / 1000.0,
        late: 1.0 - objective.percentile.fraction(),
    }
}

fn is_asked_for(service: &Service, until: i64) -> bool {
    let newest = service.history.newest(until);
    if service.kind == Kind::Notebook {
        // An open page keeps polling, so only waiting requests count.
        return service.target == 0 && newest.queued > 0.0;
    }
    service.target == 0
        && (newest.queued > 0.0 || newest.concurrency > 0.0 || newest.arrivals > 0.0)
}

fn event(job: &JobId, service: &Service, replicas: u32, verdict: Verdict) -> ServiceScaled {
    ServiceScaled {
        job: job.clone(),
        replicas,
        previous: service.target,
        scaling: service.promise.scaling,
        observed: observed(service),
        forecast: rounded(verdict.wish.forecast),
        capacity_per_replica: rounded(capacity(service, replicas)),
        reason: verdict.wish.reason,
        saturated: verdict.short,
        basis: None,
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn observed(service: &Service) -> Observed {
    let history = &service.history;
    let ready = service.replicas.ready_count();
    let Some(until) = history.until() else {
        return Observed {
            attainment: 1.0,
            burstiness: 1.0,
            ready,
            ..Observed::default()
        };
    };
    let mean = |of: fn(&crate::history::Second) -> f64| history.mean(until, OBSERVED_S, of);
    let answered = mean(|second| second.answered);
    let late = mean(|second| second.late);
    let times = service.times.times();
    Observed {
        rate: rounded(mean(|second| second.arrivals)),
        concurrency: rounded(mean(|second| second.concurrency)),
        service_ms: rounded(times.map_or(0.0, |times| times.mean_s * 1000.0)),
        burstiness: rounded(Series::of(history, until, 120).dispersion(until)),
        attainment: if answered > 0.0 {
            rounded((1.0 - late / answered).max(0.0))
        } else {
            1.0
        },
        ready,
    }
}

/// Returns each replica's requests per second within the objective.
fn capacity(service: &Service, replicas: u32) -> f64 {
    let times = service.times.times();
    let until = service.history.until();
    let (Some(times), Some(until), Some(objective)) = (times, until, service.promise.objective)
    else {
        return 0.0;
    };
    if replicas == 0 {
        return 0.0;
    }
    let load = Load {
        rate: 0.0,
        dispersion: Series::of(&service.history, until, 120).dispersion(until),
        times: &times,
    };
    let servers_each = service.promise.concurrency.max(1);
    load.carried(goal(objective), servers_each, replicas) / f64::from(replicas)
}
