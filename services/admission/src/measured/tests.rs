//! Tests of measurements, from message to event.

use dormouse_messages::intake::Arrival;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{
    By, Decider, Envelope, Event, Fold, Recorded, Role, Sequence, Timestamp, Writer,
};
use serde_json::{Value, json};

use crate::decide::Admission;
use crate::intake::{arrived, recorded};
use crate::state::AdmissionState;

const NOW: &str = "2026-11-21T10:00:00.000000Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

#[derive(Default)]
struct World {
    state: AdmissionState,
    sequence: u64,
    ingress: u64,
}

impl World {
    /// Ads has a service, a live and an ended job; search has a service.
    fn new() -> Self {
        let mut world = Self::default();
        let service = json!({"name": "model", "kind": "inference", "containers": {"min": 1, "max": 4},
            "service": {"objective": {"latency_ms": 100, "percentile": 99}},
            "command": {"start": ["serve"]}, "demand": {"cpu": 1}});
        let job =
            |name: &str| json!({"name": name, "command": {"start": ["x"]}, "demand": {"cpu": 1}});
        world.submit("ads", "submit", &service);
        world.submit("ads", "submit", &job("lr"));
        world.submit("ads", "submit", &job("over"));
        world.submit("ads", "cancel", &json!({"job": "over"}));
        world.submit("search", "submit", &service);
        world
    }

    fn arrival(&mut self, tenant: &str, verb: &str, payload: Vec<u8>) -> Arrival {
        self.ingress += 1;
        Arrival {
            sequence: self.ingress,
            at: now(),
            tenant: tenant.to_owned(),
            verb: verb.to_owned(),
            by: None,
            content_type: None,
            traceparent: None,
            payload,
        }
    }

    fn fold(&mut self, event: Event) {
        self.sequence += 1;
        let writer = Writer::Admission;
        self.state.evolve(&Recorded {
            sequence: Sequence(self.sequence),
            stored_at: now(),
            writer,
            envelope: Envelope::new("id", writer, now(), None, event),
        });
        self.state.check_invariants().expect("sound");
    }

    /// Decides the first message and appends the decision with a basis.
    fn decide(&mut self) -> Event {
        assert!(
            !self.state.undecided.is_empty(),
            "something is to be decided"
        );
        let proposal = Admission.decide(&self.state, now()).proposals.remove(0);
        let mut event = proposal.event.clone();
        event.set_basis(Some(dormouse_messages::Basis::default()));
        self.fold(event);
        proposal.event
    }

    fn submit(&mut self, tenant: &str, verb: &str, document: &Value) -> Event {
        let arrival = self.arrival(tenant, verb, document.to_string().into_bytes());
        self.fold(arrived(&arrival));
        self.decide()
    }

    /// Returns the first event, and the decision if one follows.
    fn measured(&mut self, payload: Vec<u8>) -> (Event, Option<Event>) {
        let arrival = self.arrival("ads", MEASURED, payload);
        self.become_of(&arrival)
    }

    fn become_of(&mut self, arrival: &Arrival) -> (Event, Option<Event>) {
        let event = recorded(&self.state, arrival);
        self.fold(event.clone());
        let decided = matches!(event, Event::SubmissionReceived(_)).then(|| self.decide());
        (event, decided)
    }

    #[track_caller]
    fn refused(&mut self, document: &Value) -> (String, String) {
        let (json, packed) = (
            document.to_string().into_bytes(),
            rmp_serde::to_vec_named(document).expect("encodes"),
        );
        let mut said = [json, packed].map(|payload| match self.measured(payload) {
            (Event::SubmissionReceived(_), Some(Event::JobRefused(refused))) => {
                assert_eq!(refused.ingress_sequence, self.ingress);
                (refused.code, refused.reason)
            }
            other => panic!("{document}: {other:?}"),
        });
        assert_eq!(said[0].0, said[1].0, "in both encodings");
        std::mem::take(&mut said[0])
    }
}

fn document() -> Value {
    json!({"job": "model", "gateway": "envoy", "window_s": 2, "requests": 10, "arrivals": [4, 6],
        "concurrency": 1.5, "latency_ms": {"bounds": [50, 100], "counts": [7, 2, 1]},
        "service_ms": {"bounds": [50.5, 100.0], "counts": [9.0, 1.0, 0]}, "errors": 1, "ready": 2})
}

fn with(field: &str, value: Value) -> Value {
    let mut document = document();
    document[field] = value;
    document
}

#[test]
fn what_a_proxy_saw_stands_on_the_log_once_under_a_name_of_its_tenants() {
    let mut world = World::new();
    for job in ["model", "ads/model"] {
        let document = with("job", json!(job));
        for payload in [
            document.to_string().into_bytes(),
            rmp_serde::to_vec_named(&document).expect("encodes"),
        ] {
            let (Event::ServiceMeasured(measured), None) = world.measured(payload) else {
                panic!("it is recorded as what it says");
            };
            assert_eq!(
                (measured.job.as_str(), measured.gateway.as_str()),
                ("ads/model", "ads/envoy")
            );
            assert_eq!((measured.requests, measured.service_ms.total()), (10, 10));
            assert_eq!(measured.until, Some(now()));
            assert_eq!(measured.ingress_sequence, Some(world.ingress));
            let (stand, rates) = world.state.stand("ads");
            assert!(stand.knows(world.ingress, now()));
            assert_eq!((stand.undecided, rates.measured), (0, 4));
            assert!(world.state.undecided.is_empty());
        }
    }
    assert_eq!(world.state.stand("ads").0.measured, 4);
    // Nameless; the broker's clock prevails.
    let mut bare = with("until", json!("2026-11-21T10:00:03Z"));
    bare["gateway"] = Value::Null;
    let (Event::ServiceMeasured(measured), None) = world.measured(bare.to_string().into_bytes())
    else {
        panic!("measured");
    };
    assert_eq!(measured.gateway.as_str(), "ads/proxy");
    assert_eq!(measured.until, Some(now()));
}

#[track_caller]
fn all_refused(rows: &[(&str, Value, &str, &str)]) {
    let mut world = World::new();
    for (field, value, code, to_do) in rows {
        let (said, reason) = world.refused(&with(field, value.clone()));
        assert_eq!(said, *code, "{field} {value}: {reason}");
        assert!(reason.contains(to_do), "{field} {value}: {reason}");
    }
    assert_eq!(world.state.stand("ads").0.undecided, 0);
}

#[test]
fn what_is_no_live_service_of_the_tenants_is_refused() {
    let names = "a-z, 0-9";
    let own = "measure services of your own";
    all_refused(&[
        ("job", json!("search/model"), "wrong_tenant", own),
        ("job", json!("No Name"), "bad_name", names),
        ("job", json!("nothing"), "no_such_job", "`dormouse jobs`"),
        ("job", json!("lr"), "not_a_service", "kind: inference"),
        ("job", json!("over"), "already_ending", "stop measuring"),
        ("gateway", json!("a/b"), "bad_name", names),
    ]);
}

#[test]
fn numbers_that_cannot_be_true_are_refused_with_what_to_do() {
    let bad = "bad_measurement";
    let window = "must lie between 1 and 60";
    let whole = "expected a whole number, 0 or more";
    let most = "must be at most 20000000";
    let bounds = "between 0 and 1000000000";
    all_refused(&[
        ("window_s", json!(0), bad, window),
        ("window_s", json!(61), bad, window),
        ("window_s", json!(1.5), "malformed", whole),
        ("requests", json!(-1), "malformed", whole),
        ("requests", json!(u64::MAX), bad, most),
        ("errors", json!(20_000_001), bad, most),
        ("shed", json!(20_000_001), bad, most),
        ("concurrency", json!(-0.5), bad, bounds),
        ("concurrency", json!(1e10), bad, bounds),
        ("queued", json!(4_000_000_000_u32), bad, "queued 4000000000"),
        (
            "arrivals",
            json!([4, 7]),
            bad,
            "sums up to 11 and requests is 10",
        ),
        ("arrivals", json!([10]), bad, "give one number a second"),
        ("arrivals", json!([4, 5, 1]), bad, "more than window_s 2"),
        ("touched", json!(1), "unknown_field", "touched"),
        ("requests", Value::Null, "malformed", "requests"),
    ]);
}

#[test]
fn histograms_and_times_that_cannot_be_true_are_refused_with_what_to_do() {
    let counts = |bounds: Value, counts: Value| json!({"bounds": bounds, "counts": counts});
    let bad = "bad_measurement";
    let one_more = "one count more than bounds";
    let ascending = "ascending numbers of 0 or more";
    let many: Vec<u32> = (0..65).collect();
    let many = counts(json!(many), json!(vec![0; 66]));
    let late = "120 s before it was published";
    all_refused(&[
        ("latency_ms", counts(json!([50]), json!([1])), bad, one_more),
        (
            "latency_ms",
            counts(json!([5, 5]), json!([1, 1, 1])),
            bad,
            ascending,
        ),
        (
            "service_ms",
            counts(json!([-1]), json!([1, 1])),
            bad,
            "service_ms must",
        ),
        ("latency_ms", many, bad, "at most 64 bounds"),
        (
            "latency_ms",
            json!({"bounds": [1], "counts": [1, 1], "sum": 3}),
            "unknown_field",
            "sum",
        ),
        (
            "until",
            json!("2026-11-21T10:00:06Z"),
            "bad_time",
            "or leave until out",
        ),
        (
            "until",
            json!("2026-11-22T10:00:00Z"),
            "bad_time",
            "set the proxy's clock",
        ),
        ("until", json!("2026-11-21T09:58:00Z"), "bad_time", late),
    ]);
}

#[test]
fn what_json_cannot_say_is_refused_too() {
    #[derive(serde::Serialize)]
    struct Nan<'a> {
        job: &'a str,
        window_s: u32,
        requests: u32,
        concurrency: f64,
        latency_ms: Value,
    }
    let mut world = World::new();
    for (concurrency, bound) in [(f64::NAN, 50.0), (f64::INFINITY, 50.0), (1.0, f64::NAN)] {
        let bounds = rmp_serde::to_vec(&[bound]).expect("encodes");
        let nan = Nan {
            job: "model",
            window_s: 2,
            requests: 1,
            concurrency,
            latency_ms: Value::Null,
        };
        let mut packed = rmp_serde::to_vec_named(&nan).expect("encodes");
        // Replaces the trailing null histogram by a map of two.
        assert_eq!(packed.pop(), Some(0xc0));
        packed.push(0x82);
        packed.extend(rmp_serde::to_vec("bounds").expect("encodes"));
        packed.extend(bounds);
        packed.extend(rmp_serde::to_vec("counts").expect("encodes"));
        packed.extend(rmp_serde::to_vec(&[1, 0]).expect("encodes"));
        let (_, Some(Event::JobRefused(refused))) = world.measured(packed) else {
            panic!("{concurrency} {bound}");
        };
        assert_eq!(refused.code, "bad_measurement", "{}", refused.reason);
    }
    let (received, Some(Event::JobRefused(refused))) = world.measured(vec![b'{'; 17_000]) else {
        panic!("too large");
    };
    assert_eq!(refused.code, "too_large", "{}", refused.reason);
    let Event::SubmissionReceived(received) = received else {
        panic!("{received:?}");
    };
    assert!(received.raw.len() <= 1024, "what is refused is cut off");
}

#[test]
fn a_person_measures_nothing() {
    let mut world = World::new();
    let arrival = world.arrival("ads", MEASURED, document().to_string().into_bytes());
    let arrival = Arrival {
        by: Some(By {
            tenant: Some("ads".parse().expect("valid")),
            user: "alice".to_owned(),
            role: Role::Submitter,
        }),
        ..arrival
    };
    let (_, Some(Event::JobRefused(refused))) = world.become_of(&arrival) else {
        panic!("refused");
    };
    assert_eq!(refused.code, "not_permitted");
    assert!(refused.reason.contains("the tenant's plain key"));
}

#[test]
fn a_measurement_that_comes_with_its_service_is_taken_in() {
    let mut world = World::default();
    let service = json!({"name": "model", "kind": "inference", "containers": {"min": 1, "max": 4},
        "command": {"start": ["serve"]}, "demand": {"cpu": 1}});
    let submit = world.arrival("ads", "submit", service.to_string().into_bytes());
    let measured = world.arrival("ads", MEASURED, document().to_string().into_bytes());
    // Both are recorded from one state, in one append.
    let both = [submit, measured].map(|it| recorded(&world.state, &it));
    assert!(matches!(both[1], Event::SubmissionReceived(_)));
    both.into_iter().for_each(|event| world.fold(event));
    assert!(matches!(world.decide(), Event::JobAdmitted(_)));
    let Event::ServiceMeasured(measured) = world.decide() else {
        panic!("it is decided once its service is admitted");
    };
    assert_eq!(measured.gateway.as_str(), "ads/envoy");
    assert_eq!(world.state.stand("ads").0.undecided, 0);
}
