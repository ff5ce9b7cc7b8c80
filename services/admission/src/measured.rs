//! Tenants' own measurements of services.
//!
//! 1. A plausible measurement of the tenant's live service becomes `service.measured`, which holds the whole
//!    message ([`crate::recorded`]).
//! 2. Any other becomes `submission.received`: refused, or accepted if the service was admitted meanwhile.
//!
//! Proxies are named `tenant/name`, which no gateway can be, so a tenant never replaces a gateway's
//! measurements.
//!
//! One event instead of two, because proxies publish every two seconds and the event holds the whole message.

use dormouse_messages::events::{ServiceMeasured, SubmissionReceived};
use dormouse_messages::measured::{DEFAULT_PROXY, MOST_AHEAD_S, MOST_LATE_S};
use dormouse_messages::{GatewayId, JobId, MeasuredDocument, TenantId, Timestamp};

use crate::decode::{decode, full_name};
use crate::refusal::Refusal;
use crate::state::AdmissionState;

/// Validates a measurement.
pub(crate) fn accept(
    state: &AdmissionState,
    submission: &SubmissionReceived,
    tenant: &TenantId,
) -> Result<ServiceMeasured, (Option<JobId>, Refusal)> {
    let document: MeasuredDocument = decode(submission).map_err(|refusal| (None, refusal))?;
    let job = named(tenant, &document.job).map_err(|refusal| (None, refusal))?;
    let of_job = |refusal| (Some(job.clone()), refusal);
    check_service(state, &job).map_err(of_job)?;
    if let Some(by) = &submission.by {
        let reason = format!(
            "{by} is a person, and measurements are for programs; publish them with the tenant's plain key"
        );
        return Err(of_job(Refusal::new("not_permitted", reason)));
    }
    let proxy = document.gateway.as_deref().unwrap_or(DEFAULT_PROXY);
    let gateway = GatewayId::of_tenant(tenant, proxy)
        .map_err(|error| of_job(Refusal::new("bad_name", error.to_string())))?;
    let mut measured = document.of(job.clone(), gateway);
    check_values(&measured).map_err(of_job)?;
    let until = until(&measured, submission.published_at).map_err(of_job)?;
    measured.until = Some(until);
    measured.ingress_sequence = Some(submission.ingress_sequence);
    measured.published_at = Some(submission.published_at);
    Ok(measured)
}

fn named(tenant: &TenantId, text: &str) -> Result<JobId, Refusal> {
    match text.split_once('/') {
        Some((other, _)) if other != tenant.as_str() => Err(Refusal::new(
            "wrong_tenant",
            format!("{text} is not a service of {tenant}; measure services of your own"),
        )),
        _ => full_name(tenant, text).map_err(|error| Refusal::new("bad_name", error.to_string())),
    }
}

fn check_service(state: &AdmissionState, job: &JobId) -> Result<(), Refusal> {
    if state.is_service(job) {
        return Ok(());
    }
    let (code, reason) = if state.queues.jobs.contains_key(job) {
        (
            "not_a_service",
            format!("{job} is no service; only jobs of kind: inference are measured"),
        )
    } else if state.is_taken(job) {
        (
            "already_ending",
            format!("{job} has ended; stop measuring it"),
        )
    } else {
        (
            "no_such_job",
            format!("{job} does not exist; see `dormouse jobs`"),
        )
    };
    Err(Refusal::new(code, reason))
}

fn check_values(measured: &ServiceMeasured) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::new("bad_measurement", what));
    if let Err(what) = measured.check() {
        return bad(format!("{what}; correct it, or leave this window out"));
    }
    let arrivals = &measured.arrivals;
    if arrivals.is_empty() {
        return Ok(());
    }
    if arrivals.len() != measured.window_s as usize {
        return bad(format!(
            "arrivals has {} numbers and window_s is {}; give one number a second, or leave arrivals out",
            arrivals.len(),
            measured.window_s
        ));
    }
    let sum: u64 = arrivals.iter().map(|it| u64::from(*it)).sum();
    if sum == measured.requests {
        Ok(())
    } else {
        bad(format!(
            "arrivals sums up to {sum} and requests is {}; make them agree, or leave arrivals out",
            measured.requests
        ))
    }
}

/// Returns the window's end, by default the broker's time.
fn until(measured: &ServiceMeasured, published: Timestamp) -> Result<Timestamp, Refusal> {
    let Some(until) = measured.until else {
        return Ok(published);
    };
    let age_us = published.as_micros().saturating_sub(until.as_micros());
    let age_s = age_us / 1_000_000;
    let reason = if age_us < -MOST_AHEAD_S * 1_000_000 {
        format!(
            "its window ends at {until}, {} s after it was published; set the proxy's clock, or leave until out",
            age_s.saturating_neg()
        )
    } else if age_us > MOST_LATE_S * 1_000_000 {
        format!(
            "its window ended at {until}, {age_s} s before it was published, which says nothing about now; publish windows within {MOST_LATE_S} s, set the proxy's clock, or leave until out"
        )
    } else {
        return Ok(until.min(published));
    };
    Err(Refusal::new("bad_time", reason))
}

#[cfg(test)]
mod tests;
