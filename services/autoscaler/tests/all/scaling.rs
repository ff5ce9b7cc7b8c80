//! Tests of scaling decisions from events and measurements.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_autoscaler::{Autoscaler, AutoscalerState};
use dormouse_messages::events::{
    ContainerReady, Histogram, JobAdmitted, JobCancelled, JobReleased, JobRevised, NodeJoined,
    NodeLost, PlacedContainer, PlacementDecided, ServiceMeasured, ServiceScaled,
};
use dormouse_messages::ids::ContainerId;
use dormouse_messages::job::Containers;
use dormouse_messages::{
    Amounts, Decider as _, Envelope, Epoch, Event, Fold as _, Incarnation, JobId, Rank, Recorded,
    Sequence, Timestamp, Writer,
};

mod measured;

const START_US: i64 = 1_800_000_000_000_000;

struct Given {
    state: AutoscalerState,
    sequence: Sequence,
    second: i64,
}

fn job() -> JobId {
    "shop/model".parse().expect("valid")
}

impl Given {
    fn service(containers: &str, service: &str) -> Self {
        let spec = format!(
            r#"{{"name": "model", "tenant": "shop", "kind": "inference",
                "command": {{"start": ["serve"]}}, "demand": {{"cpu_milli": 1000}}, "weight": 1,
                "containers": {containers}, "checkpoint": {{"mode": "none"}},
                "resize": "in_place", "service": {service}}}"#
        );
        let mut given = Self {
            state: AutoscalerState::default(),
            sequence: Sequence(0),
            second: 0,
        };
        given.event(JobAdmitted {
            job: job(),
            spec: serde_json::from_str(&spec).expect("a spec"),
            ingress_sequence: 1,
            by: None,
            basis: None,
        });
        given.event(JobReleased {
            job: job(),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        });
        given
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START_US + self.second * 1_000_000)
    }

    fn event(&mut self, event: impl Into<Event>) {
        let now = self.now();
        self.said(event, now);
    }

    fn said(&mut self, event: impl Into<Event>, time: Timestamp) {
        self.sequence = self.sequence.next();
        let event = event.into();
        let writer = event.writers()[0];
        let recorded = Recorded {
            sequence: self.sequence,
            stored_at: self.now(),
            writer,
            envelope: Envelope::new(self.sequence.to_string(), writer, time, None, event),
        };
        self.state.evolve(&recorded);
        self.state.check_invariants().expect("sound");
    }

    fn ready(&mut self, ranks: std::ops::Range<u32>) {
        let create = ranks.clone().map(|rank| PlacedContainer {
            job: job(),
            incarnation: Incarnation(1),
            rank: Rank(rank),
            node: "n0".parse().expect("valid"),
            gpus: Vec::new(),
            port: 0,
        });
        self.event(PlacementDecided {
            epoch: Epoch(1),
            create: create.collect(),
            remove: Vec::new(),
            basis: None,
        });
        for rank in ranks {
            let container = ContainerId {
                job: job(),
                incarnation: Incarnation(1),
                rank: Rank(rank),
            };
            self.event(ContainerReady {
                container,
                node: "n0".parse().expect("valid"),
                after_ms: 1000,
                token_blake3: None,
            });
        }
    }

    /// Sends requests of 100 ms; returns the last decision.
    fn requests(&mut self, seconds: i64, rate: u32) -> Option<ServiceScaled> {
        let mut last = None;
        for _ in 0..seconds / 2 {
            self.second += 2;
            // Alternates even and Poisson-like seconds.
            let doubt = f64::from(rate).sqrt().round();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small"
            )]
            let doubt = doubt as u32;
            let arrivals = match self.second % 4 {
                0 => vec![rate + doubt, rate - doubt.min(rate)],
                _ => vec![rate, rate],
            };
            self.event(measured(arrivals));
            last = self.decided().or(last);
        }
        last
    }

    fn decided(&mut self) -> Option<ServiceScaled> {
        let proposal = Autoscaler.decide(&self.state, self.now()).proposals.pop()?;
        let Event::ServiceScaled(scaled) = proposal.event.clone() else {
            panic!("only services are scaled");
        };
        self.event(proposal.event);
        Some(*scaled)
    }

    fn target(&self) -> u32 {
        self.state.services[&job()].target
    }
}

fn measured(arrivals: Vec<u32>) -> ServiceMeasured {
    let requests: u64 = arrivals.iter().map(|it| u64::from(*it)).sum();
    let histogram = Histogram {
        bounds: vec![50.0, 95.0, 105.0, 200.0],
        counts: vec![0, 0, requests, 0, 0],
    };
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let concurrency = requests as f64 / 2.0 * 0.1;
    ServiceMeasured {
        job: job(),
        gateway: "g0".parse().expect("valid"),
        window_s: 2,
        requests,
        arrivals,
        concurrency,
        queued: 0,
        latency_ms: histogram.clone(),
        service_ms: histogram,
        errors: 0,
        shed: 0,
        ready: 1,
        touched: 0,
        until: None,
        ingress_sequence: None,
        published_at: None,
        basis: None,
    }
}

const OBJECTIVE: &str = r#"{"objective": {"latency_ms": 400, "percentile": 99}}"#;

#[test]
fn a_step_is_answered_at_once_and_taken_back_once() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(300, 5);
    let before = given.target();
    assert!(before <= 3, "{before}");
    let up = given.requests(4, 60).expect("decided within four seconds");
    assert!((8..=12).contains(&up.replicas), "{up:?}");
    assert!(
        up.capacity_per_replica > 4.0 && up.capacity_per_replica < 10.0,
        "{up:?}"
    );
    given.ready(1..up.replicas);
    given.requests(120, 60);
    let high = given.target();
    assert_eq!(given.requests(40, 5), None, "nothing goes within the hold");
    given.requests(360, 5);
    assert!(
        given.target() <= before && high >= 8,
        "{} {high}",
        given.target()
    );
}

#[test]
fn an_hour_of_one_rate_changes_nothing() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(900, 40);
    assert_eq!(given.requests(3600, 40), None);
}

#[test]
fn a_service_that_cannot_keep_its_objective_says_so_once() {
    let mut given = Given::service(r#"{"min": 1, "max": 3}"#, OBJECTIVE);
    given.ready(0..1);
    let scaled = given.requests(60, 60).expect("decided");
    assert_eq!((scaled.replicas, scaled.saturated), (3, true));
    assert!(
        scaled.reason.contains("containers.max 3"),
        "{}",
        scaled.reason
    );
    assert_eq!(given.requests(60, 60), None);
    let relaxed = given.requests(600, 2).expect("decided");
    assert!(!relaxed.saturated, "{relaxed:?}");
}

#[test]
fn without_an_objective_it_stays_at_its_minimum() {
    let mut given = Given::service(r#"{"min": 2, "max": 9}"#, "{}");
    given.ready(0..2);
    assert_eq!(given.requests(300, 60), None);
}

#[test]
fn it_comes_from_nothing_with_the_first_request_and_goes_when_idle() {
    for service in [OBJECTIVE, r#"{"idle_s": 600}"#] {
        let mut given = Given::service(r#"{"min": 0, "max": 9}"#, service);
        assert_eq!(given.target(), 0);
        assert_eq!(given.requests(20, 0), None);
        let mut waiting = measured(vec![1, 0]);
        waiting.queued = 1;
        waiting.concurrency = 0.5;
        waiting.latency_ms = Histogram::default();
        waiting.service_ms = Histogram::default();
        given.second += 2;
        given.event(waiting);
        assert_eq!(given.decided().map(|it| it.replicas), Some(1), "{service}");
        given.ready(0..1);
        given.requests(60, 1);
        assert_eq!(given.requests(590, 0), None, "{service}");
        let wake = Autoscaler.decide(&given.state, given.now()).next_wake;
        assert!(wake.is_some_and(|wake| wake > given.now()));
        // Idle gateways report nothing.
        given.second += 20;
        assert_eq!(given.decided().map(|it| it.replicas), Some(0), "{service}");
    }
}

#[test]
fn measurements_that_cannot_be_true_are_passed_over() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(60, 5);
    let before = given.state.clone();
    let wrong: [fn(&mut ServiceMeasured); 7] = [
        |it| it.concurrency = f64::NAN,
        |it| it.concurrency = -1.0,
        |it| it.window_s = 0,
        |it| it.window_s = 86_400,
        |it| it.requests = u64::MAX,
        |it| it.latency_ms.counts = vec![1],
        |it| it.service_ms.bounds = vec![f64::INFINITY, 1.0, 2.0, 3.0],
    ];
    for change in wrong {
        given.second += 2;
        let mut measured = measured(vec![5000, 5000]);
        change(&mut measured);
        given.event(measured);
        assert_eq!(given.state.services, before.services);
    }
    let tomorrow = Timestamp::from_micros(given.now().as_micros() + 86_400_000_000);
    given.said(measured(vec![5000, 5000]), tomorrow);
    assert_eq!(given.state.services, before.services);
    let twice = measured(vec![5, 5]);
    given.event(twice.clone());
    let once = given.state.clone();
    given.event(twice);
    assert_eq!(given.state, once, "a window counts once");
}

#[test]
fn bounds_nodes_and_ends_are_followed() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..3);
    assert_eq!(given.state.services[&job()].replicas.ready_count(), 3);
    given.event(JobRevised {
        job: job(),
        ingress_sequence: 2,
        weight: None,
        containers: Some(Containers::between(4, 6)),
        priority: None,
        held: None,
        time_limit_s: None,
        queue_limit_s: None,
        gpu_limit_milli: None,
        by: None,
        basis: None,
    });
    assert_eq!(given.decided().map(|it| it.replicas), Some(4));
    // The join of the next incarnation may precede the loss of the last.
    given.event(NodeJoined {
        node: "n0".parse().expect("valid"),
        capacity: Amounts::new(),
        labels: BTreeMap::new(),
        gpus: Vec::new(),
        incarnation: 2,
        running: Vec::new(),
        address: String::new(),
        runtime: String::new(),
        taints: BTreeSet::new(),
    });
    for (incarnation, ready) in [(1, 3), (2, 0)] {
        given.event(NodeLost {
            node: "n0".parse().expect("valid"),
            incarnation,
            last_seen: given.now(),
        });
        let replicas = &given.state.services[&job()].replicas;
        assert_eq!(replicas.ready_count(), ready);
    }
    given.event(JobCancelled {
        job: job(),
        reason: String::new(),
        attempts: 0,
        code: None,
        ingress_sequence: None,
        by: None,
        basis: None,
    });
    assert!(given.state.services.is_empty());
    assert_eq!(given.decided(), None);
}

#[test]
fn a_state_reads_back_and_decides_the_same() {
    let mut given = Given::service(r#"{"min": 1, "max": 24}"#, OBJECTIVE);
    given.ready(0..1);
    given.requests(300, 30);
    let written = serde_json::to_string(&given.state).expect("written");
    let read: AutoscalerState = serde_json::from_str(&written).expect("read");
    assert_eq!(read, given.state);
    let now = given.now();
    assert_eq!(
        Autoscaler.decide(&read, now),
        Autoscaler.decide(&given.state, now)
    );
    assert_eq!(Autoscaler::WRITER, Writer::Autoscaler);
}

#[test]
fn the_others_rules_are_theirs() {
    let of = |scaling: &str| {
        let service = format!(
            r#"{{"scaling": "{scaling}", "objective": {{"latency_ms": 400, "percentile": 99}}}}"#
        );
        let mut given = Given::service(r#"{"min": 1, "max": 24}"#, &service);
        given.ready(0..1);
        given
    };
    // 21 requests a second of 100 ms keep 2.1 replicas busy: ⌈2.1 ÷ 0.7⌉ = 3.
    let mut hpa = of("hpa");
    hpa.requests(60, 21);
    assert!((3..=4).contains(&hpa.target()), "{}", hpa.target());
    // Down to the highest wish of five minutes.
    let high = hpa.target();
    assert_eq!(hpa.requests(200, 1), None);
    hpa.requests(200, 1);
    assert!(hpa.target() < high);
    // Six seconds demand twice the ready replicas: panic mode holds for a minute.
    let mut kpa = of("kpa");
    kpa.requests(60, 1);
    kpa.requests(8, 21);
    assert_eq!(kpa.target(), 3);
    assert_eq!(kpa.requests(40, 1), None);
    // 12 requests a second are 1.2 in the system: ⌈1.2 ÷ 0.4⌉ = 3, after 30 s.
    let mut ray = of("ray");
    ray.requests(60, 1);
    assert_eq!(ray.requests(20, 12), None);
    ray.requests(60, 12);
    assert!((3..=4).contains(&ray.target()), "{}", ray.target());
    let kept = ray.target();
    ray.requests(500, 1);
    assert_eq!(ray.target(), kept, "ten minutes");
}
