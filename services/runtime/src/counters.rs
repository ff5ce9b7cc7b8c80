//! The service's metrics, by name.

use std::time::Duration;

use dormouse_messages::{Timestamp, Writer};
use dormouse_shell::intake::Taken;
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

pub(crate) struct Counters {
    pub folded: Counter,
    pub flagged: Counter,
    pub decisions: Counter,
    pub discarded: Counter,
    pub appends: Counter,
    pub conflicts: Counter,
    pub doubts: Counter,
    pub active: Gauge,
    pub own_head: Gauge,
    pub folded_sequence: Gauge,
    lag: Gauge,
    append_seconds: Histogram,
    decide_seconds: Histogram,
}

fn describe() {
    for (name, help) in [
        ("dormouse_events_folded_total", "Events folded by a service"),
        (
            "dormouse_events_flagged_total",
            "Events that a service did not use",
        ),
        ("dormouse_decisions_total", "Decisions of a service"),
        (
            "dormouse_decisions_discarded_total",
            "Slow decisions that were overtaken and made again",
        ),
        ("dormouse_appends_total", "Events that a service appended"),
        (
            "dormouse_append_conflicts_total",
            "Appends refused because another copy had written",
        ),
        (
            "dormouse_append_doubts_total",
            "Appends of which it is not known whether they arrived",
        ),
    ] {
        describe_counter!(name, Unit::Count, help);
    }
    for (name, help) in [
        (
            "dormouse_active",
            "Whether this copy of a service is the one that decides",
        ),
        (
            "dormouse_own_head",
            "Last sequence that a service has appended",
        ),
        (
            "dormouse_folded_sequence",
            "Last sequence that a service has folded",
        ),
    ] {
        describe_gauge!(name, Unit::Count, help);
    }
    let lag = "How long ago the last event folded was stored, when it was folded";
    describe_gauge!("dormouse_fold_lag_seconds", Unit::Seconds, lag);
    for (name, help) in [
        (
            "dormouse_append_seconds",
            "How long an append took, to its acknowledgement",
        ),
        ("dormouse_decide_seconds", "How long a decision took"),
    ] {
        describe_histogram!(name, Unit::Seconds, help);
    }
}

impl Counters {
    pub fn new(writer: Writer) -> Self {
        describe();
        let service = writer.as_str();
        Self {
            folded: counter!("dormouse_events_folded_total", "service" => service),
            flagged: counter!("dormouse_events_flagged_total", "service" => service),
            decisions: counter!("dormouse_decisions_total", "service" => service),
            discarded: counter!("dormouse_decisions_discarded_total", "service" => service),
            appends: counter!("dormouse_appends_total", "service" => service),
            conflicts: counter!("dormouse_append_conflicts_total", "service" => service),
            doubts: counter!("dormouse_append_doubts_total", "service" => service),
            active: gauge!("dormouse_active", "service" => service),
            own_head: gauge!("dormouse_own_head", "service" => service),
            folded_sequence: gauge!("dormouse_folded_sequence", "service" => service),
            lag: gauge!("dormouse_fold_lag_seconds", "service" => service),
            append_seconds: histogram!("dormouse_append_seconds", "service" => service),
            decide_seconds: histogram!("dormouse_decide_seconds", "service" => service),
        }
    }

    pub fn lag(&self, lag: Duration) {
        self.lag.set(lag.as_secs_f64());
    }

    pub fn appended(&self, took: Duration) {
        self.append_seconds.record(took.as_secs_f64());
    }

    pub fn decided(&self, took: Duration) {
        self.decide_seconds.record(took.as_secs_f64());
    }
}

pub(crate) struct IntakeCounters {
    waiting: Gauge,
    at_once: Gauge,
    wait_seconds: Histogram,
    rate_limited: Counter,
}

impl IntakeCounters {
    pub fn new() -> Self {
        for (name, help) in [
            (
                "dormouse_intake_waiting",
                "Submissions that are fetched and not known to be on the log yet",
            ),
            (
                "dormouse_intake_at_once",
                "Submissions that are recorded at once, by how long the last ones took",
            ),
        ] {
            describe_gauge!(name, Unit::Count, help);
        }
        describe_histogram!(
            "dormouse_intake_wait_seconds",
            Unit::Seconds,
            "How long a submission waited in the ingress stream, until it was recorded"
        );
        describe_counter!(
            "dormouse_intake_rate_limited_total",
            Unit::Count,
            "Submissions refused because their tenant exceeded its rate"
        );
        Self {
            waiting: gauge!("dormouse_intake_waiting"),
            at_once: gauge!("dormouse_intake_at_once"),
            wait_seconds: histogram!("dormouse_intake_wait_seconds"),
            rate_limited: counter!("dormouse_intake_rate_limited_total"),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53 submissions; a gauge needs no more"
    )]
    pub fn look(&self, waiting: usize, at_once: usize) {
        self.waiting.set(waiting as f64);
        self.at_once.set(at_once as f64);
    }

    pub fn taken(&self, taken: &[Taken], now: Timestamp) {
        for it in taken {
            match it {
                Taken::Received(arrival) => {
                    self.wait_seconds.record(now.seconds_since(arrival.at));
                }
                Taken::RateLimited(_, refused) => self.rate_limited.increment(refused.count),
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53 events; a gauge needs no more"
)]
pub(crate) fn value(sequence: u64) -> f64 {
    sequence as f64
}
