//! Prometheus metrics of tenants' services.
//!
//! Counters are as old as the service. A latency histogram would add fifty series per service. Series of an
//! ended service stay until this process ends.

use dormouse_messages::{Event, JobId, Recorded, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_projections::services::Service;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

/// Each service has a dozen series.
const MOST_SHOWN: usize = 1_000;

const REQUESTS: &str = "dormouse_service_requests_total";
const ERRORS: &str = "dormouse_service_errors_total";
const SHED: &str = "dormouse_service_shed_total";
const OUTCOMES: &str = "dormouse_service_objective_total";
const OBJECTIVE: &str = "dormouse_service_objective_seconds";
const PROMISED: &str = "dormouse_service_objective_ratio";
const LATENCY: &str = "dormouse_service_latency_seconds";
const REPLICAS: &str = "dormouse_service_replicas";
const SATURATED: &str = "dormouse_service_saturated";
const GATEWAYS: &str = "dormouse_service_gateways";

const COUNTERS: [(&str, &str); 4] = [
    (REQUESTS, "Requests to a service, since its admission"),
    (
        ERRORS,
        "Answers of a service with 5xx, and connections that broke",
    ),
    (
        SHED,
        "Requests to a service that were turned away with 503: no replica was free in time",
    ),
    (
        OUTCOMES,
        "Requests that met a service's objective, and those that missed it: answered too late, or shed",
    ),
];
const GAUGES: [(&str, Unit, &str); 6] = [
    (
        OBJECTIVE,
        Unit::Seconds,
        "The latency that a service promises",
    ),
    (
        PROMISED,
        Unit::Count,
        "The part of the requests that a service promises it for",
    ),
    (
        LATENCY,
        Unit::Seconds,
        "Latency of the last minute at the objective's percentile (else 99): the bound of a histogram's bucket; NaN without an answer",
    ),
    (
        REPLICAS,
        Unit::Count,
        "Replicas of a service: ready, and those that it is to have (target)",
    ),
    (
        SATURATED,
        Unit::Count,
        "1 where a service cannot keep its objective with the most replicas that it may have",
    ),
    (
        GATEWAYS,
        Unit::Count,
        "Gateways that tell what clients of a service see",
    ),
];

/// Registers the metrics' units and help texts.
pub fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, Unit::Count, help);
    }
    for (name, unit, help) in GAUGES {
        describe_gauge!(name, unit, help);
    }
}

/// Prometheus itself sets a label `job`.
fn labels(id: &JobId) -> [(&'static str, String); 2] {
    [
        ("tenant", id.tenant().to_owned()),
        ("name", id.name().to_owned()),
    ]
}

fn with(id: &JobId, name: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [tenant, own] = labels(id);
    [tenant, own, (name, value.to_owned())]
}

/// Sets the metrics from the read model.
pub fn show(model: &ReadModel, now: Timestamp) {
    for (id, service) in model.services.live().take(MOST_SHOWN) {
        show_one(id, service, now);
    }
}

fn show_one(id: &JobId, service: &Service, now: Timestamp) {
    let total = &service.total;
    counter!(REQUESTS, &labels(id)).absolute(total.requests);
    counter!(ERRORS, &labels(id)).absolute(total.errors);
    counter!(SHED, &labels(id)).absolute(total.shed);
    if let Some(objective) = service.objective {
        let (met, missed) = total.met_and_missed();
        counter!(OUTCOMES, &with(id, "outcome", "met")).absolute(super::whole(met));
        counter!(OUTCOMES, &with(id, "outcome", "missed")).absolute(super::whole(missed));
        let promised_s = f64::from(objective.latency_ms) / 1000.0;
        gauge!(OBJECTIVE, &labels(id)).set(promised_s);
        gauge!(PROMISED, &labels(id)).set(objective.percentile.fraction());
    }
    let recent = service.last_minute(now);
    let latency = recent.and_then(|it| service.latency(&it.sums));
    gauge!(LATENCY, &labels(id)).set(latency.map_or(f64::NAN, |it| it.ms / 1000.0));
    let replicas = [
        ("ready", service.replicas.count()),
        ("target", service.target),
    ];
    for (state, count) in replicas {
        gauge!(REPLICAS, &with(id, "state", state)).set(f64::from(count));
    }
    gauge!(SATURATED, &labels(id)).set(f64::from(u8::from(service.saturated)));
    let telling = u32::try_from(service.telling(now).count());
    gauge!(GATEWAYS, &labels(id)).set(f64::from(telling.unwrap_or(u32::MAX)));
}

/// Sets a service's metrics once more after its end.
pub fn observe(model: &ReadModel, recorded: &Recorded) {
    let ended = match recorded.event() {
        Some(Event::JobCompleted(it)) => &it.job,
        Some(Event::JobFailed(it)) => &it.job,
        Some(Event::JobCancelled(it)) => &it.job,
        _ => return,
    };
    if let Some(service) = model.services.get(ended).filter(|it| it.ended) {
        show_one(ended, service, model.cluster.now);
    }
}
