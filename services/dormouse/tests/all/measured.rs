//! A tenant's own measurements scale its service. False or foreign ones are refused; a flood makes few
//! events.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_messages::events::{ServiceMeasured, ServiceScaled};
use dormouse_messages::intake::window_of;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Event, Writer};
use dormouse_runtime::Settings;
use dormouse_runtime::tenant::{Encoding, Tenant, TenantError};
use serde_json::{Value, json};

use crate::common::{Cluster, PATIENCE};

const FLOOD: u64 = 200;

const MOST_A_SECOND: usize = 4;

async fn client(url: &str, tenant: &str) -> Tenant {
    let settings = Settings::new(url, "test");
    let tenant = tenant.parse().expect("a tenant");
    let connecting = Tenant::connect(&settings, tenant, Encoding::Json, PATIENCE);
    connecting.await.expect("connects")
}

fn load(rate: u32) -> Value {
    let counts = [0, 0, 2 * rate, 0, 0];
    let histogram = json!({"bounds": [50, 95, 105, 250], "counts": counts});
    json!({"job": "line", "gateway": "envoy", "window_s": 2, "requests": 2 * rate,
        "arrivals": [rate, rate], "concurrency": 0.1 * f64::from(rate), "latency_ms": histogram,
        "service_ms": histogram, "ready": 1})
}

fn with(field: &str, value: Value) -> Value {
    let mut document = load(1);
    document[field] = value;
    document
}

#[track_caller]
fn refused(answer: Result<Event, TenantError>, expected: &str) {
    match answer {
        Err(TenantError::Refused { code, reason }) => {
            assert_eq!(code, expected, "{reason}");
            assert!(!reason.is_empty());
        }
        other => panic!("{expected}: {other:?}"),
    }
}

fn nan() -> Vec<u8> {
    let mut packed = rmp_map(&load(1));
    let place = packed.windows(12).position(|it| it == b"\xabconcurrency");
    let value = place.expect("a field") + 12;
    packed.splice(
        value..value + 9,
        [&[0xcb][..], &f64::NAN.to_be_bytes()].concat(),
    );
    packed
}

fn rmp_map(document: &Value) -> Vec<u8> {
    Encoding::MessagePack.encode(document)
}

fn of_proxy(event: &Event) -> Option<&ServiceMeasured> {
    match event {
        Event::ServiceMeasured(it) if it.gateway.as_str() == "ads/envoy" => Some(it),
        _ => None,
    }
}

#[test]
fn what_a_tenants_proxy_measures_scales_its_service() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    let start = ["python3", "deploy/examples/serve.py", "--work-ms", "1"];
    let service = json!({
        "name": "line", "tenant": "ads", "kind": "inference", "command": {"start": start},
        "demand": {"cpu": 0.5, "memory": "256Mi"}, "containers": {"min": 1, "max": 4},
        "service": {"ready": {"path": "/healthz"}, "objective": {"latency_ms": 250, "percentile": 99}},
    });
    cluster.submit(&service).ok();
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let (scaled, cause) = runtime.block_on(async {
        let ads = client(&cluster.url(), "ads").await;
        let search = client(&cluster.url(), "search").await;
        refused(search.measure(&load(1)).await, "no_such_job");
        let other = with("job", json!("ads/line"));
        refused(search.measure(&other).await, "wrong_tenant");
        let future = with("until", json!("2099-01-01T00:00:00Z"));
        refused(ads.measure(&future).await, "bad_time");
        // A proxy reports two seconds every two seconds.
        loop {
            let measured = ads.measure(&load(40)).await.expect("taken in");
            let Event::ServiceMeasured(measured) = measured else {
                panic!("{measured:?}");
            };
            assert_eq!(measured.gateway.as_str(), "ads/envoy");
            let message = measured.ingress_sequence.expect("of a message");
            tokio::time::sleep(Duration::from_secs(2)).await;
            let log = cluster.log();
            let scaled = log.iter().find_map(|it| match it.event()? {
                Event::ServiceScaled(it) if it.replicas > 1 => Some((**it).clone()),
                _ => None,
            });
            if let Some(scaled) = scaled {
                break (scaled, message);
            }
        }
    });
    assert!(scaled.observed.rate > 1.0, "{scaled:?}");
    holds_back_to_a_measurement(&cluster, &scaled, cause);
    cluster.wait_event("a second replica", |event| match event {
        Event::ContainerStarted(it) if it.container.rank.0 == 1 => Some(()),
        _ => None,
    });
    runtime.block_on(flood(&cluster));
    cluster.run(&["job", "cancel", "ads/line"]).ok();
    cluster.check();
}

fn holds_back_to_a_measurement(cluster: &Cluster, scaled: &ServiceScaled, last: u64) {
    let log = cluster.log();
    let causes = &scaled.basis.as_ref().expect("a basis").causes;
    let cause = log.iter().find(|it| causes.contains(&it.sequence));
    let cause = cause.expect("on the log");
    let measured = of_proxy(cause.event().expect("an event")).expect("a measurement");
    assert_eq!(cause.writer, Writer::Admission);
    assert!(measured.ingress_sequence.is_some_and(|it| it <= last));
    assert!(measured.published_at.is_some() && measured.until == measured.published_at);
    let received = log.iter().filter(|it| match it.event() {
        Some(Event::SubmissionReceived(it)) => {
            it.verb == MEASURED && Some(it.ingress_sequence) == measured.ingress_sequence
        }
        _ => false,
    });
    assert_eq!(received.count(), 0, "it stands on the log once");
    let bytes = cause.envelope.to_msgpack().expect("encodes").len();
    println!("a measurement of four bounds takes {bytes} bytes of the log");
}

async fn flood(cluster: &Cluster) {
    let client = async_nats::connect(cluster.url()).await.expect("connects");
    let jetstream = async_nats::jetstream::new(client);
    let publish = |payload: Vec<u8>| {
        let sent = jetstream.publish("dormouse.in.ads.measured", payload.into());
        async move { sent.await.expect("sent").await.expect("stored").sequence }
    };
    let first = publish(nan()).await;
    let sent: Vec<_> = (0..FLOOD).map(|_| publish(rmp_map(&load(1)))).collect();
    let stored = futures::future::join_all(sent).await;
    let last = stored.into_iter().max().expect("some");
    let of_flood = |sequence: u64| first < sequence && sequence <= last;
    let (mut by_window, mut rate_limited) = (BTreeMap::new(), 0);
    crate::common::poll("what became of the flood", PATIENCE, || {
        (by_window, rate_limited) = (BTreeMap::new(), 0);
        for recorded in cluster.try_log()? {
            match recorded.event() {
                Some(Event::ServiceMeasured(it)) if it.ingress_sequence.is_some_and(of_flood) => {
                    let window = window_of(it.published_at?);
                    *by_window.entry(window).or_insert(0_usize) += 1;
                }
                Some(Event::SubmissionsRateLimited(it)) if of_flood(it.last) => {
                    assert_eq!(it.verb.as_deref(), Some(MEASURED));
                    rate_limited += it.count;
                }
                _ => {}
            }
        }
        let taken = by_window.values().sum::<usize>() as u64;
        (taken + rate_limited == FLOOD).then_some(())
    });
    let most = by_window.values().max().copied().unwrap_or_default();
    assert!((1..=MOST_A_SECOND).contains(&most), "{by_window:?}");
    let refused = cluster.log().iter().find_map(|it| match it.event()? {
        Event::JobRefused(it) if it.ingress_sequence == first => Some((**it).clone()),
        _ => None,
    });
    let refused = refused.expect("refused");
    assert_eq!(refused.code, "bad_measurement");
    assert!(
        refused.reason.contains("concurrency NaN"),
        "{}",
        refused.reason
    );
}
