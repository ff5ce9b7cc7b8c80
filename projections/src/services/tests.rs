//! The state of services after given reports.

mod queries;

use dormouse_messages::events::{
    ContainerReady, ContainerUnready, GatewayLost, Histogram, JobAdmitted, NodeLost,
    PartitionResizeRequested, PartitionResized, ResizeCause, ServiceScaled,
};
use dormouse_messages::service::{Scaling, Service as Promise};
use dormouse_messages::{ContainerId, Epoch, Fold as _, Incarnation, Rank, Sequence};
use dormouse_state::history::{History, at, job, node, spec};

use super::*;
use crate::ReadModel;

/// `ads/line`: 99 % within 128 ms, one to four replicas.
fn line() -> History {
    let mut history = History::default();
    history.join("n0", 1).push(admitted("ads/line"));
    history.seconds = 100;
    history
}

fn admitted(id: &str) -> JobAdmitted {
    let id = job(id);
    let mut spec = spec(&id);
    spec.kind = Kind::Inference;
    spec.containers = Containers::between(1, 4);
    spec.service = Some(Promise {
        objective: Some(LatencyObjective {
            latency_ms: 128,
            percentile: Percentile::default(),
        }),
        ..Promise::default()
    });
    JobAdmitted {
        job: id,
        spec,
        ingress_sequence: 1,
        by: None,
        basis: None,
    }
}

use dormouse_messages::job::{Containers, Kind};
use dormouse_messages::service::{LatencyObjective, Percentile};

/// Two seconds of a gateway: `fast` answers within 100 ms, `slow` within 200.
fn window(gateway: &str, fast: u64, slow: u64) -> ServiceMeasured {
    ServiceMeasured {
        job: job("ads/line"),
        gateway: gateway.parse().expect("a name"),
        window_s: 2,
        requests: fast + slow,
        arrivals: Vec::new(),
        concurrency: 1.0,
        queued: 0,
        latency_ms: Histogram {
            bounds: vec![100.0, 128.0, 200.0],
            counts: vec![fast, 0, slow, 0],
        },
        service_ms: Histogram::default(),
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

fn tell(history: &mut History, second: i64, window: ServiceMeasured) {
    history.seconds = second - 1;
    history.push(window);
}

fn folded(history: &History) -> Services {
    history.fold::<ReadModel>().services
}

fn health(history: &History) -> health::Health {
    let services = folded(history);
    let service = services.get(&job("ads/line")).expect("a service");
    service.health(history.now())
}

#[test]
fn what_two_gateways_told_adds_up() {
    let mut history = line();
    for second in (102..=230).step_by(2) {
        tell(&mut history, second, window("g0", 10, 0));
        tell(&mut history, second, window("g1", 9, 1));
    }
    let health = health(&history);
    let minute = health.last_minute.expect("it is measured");
    assert!(
        (minute.requests_per_s.expect("a rate") - 10.0).abs() < 0.2,
        "{minute:?}"
    );
    assert_eq!(minute.attainment, Some(0.95));
    // The bucket of 200 ms on the ladder.
    assert_eq!(minute.latency_ms, Some(211.758));
    assert_eq!((health.total.requests, health.total.answered), (1300, 1300));
    assert_eq!(health.total.attainment, Some(0.95));
    let five = health.last_five_minutes.expect("as long as it is measured");
    assert_eq!(five.requests, 1300);
    let gateways: Vec<&str> = health.gateways.iter().map(|it| it.as_str()).collect();
    assert_eq!(gateways, ["g0", "g1"]);
    assert_eq!(health.trouble.as_deref(), Some("p99 212 ms of 128"));
    let words = "10.0 requests/s, p99 at most 212 ms, 95.00 % within 128 ms (99 % promised); 0 of 1 replicas ready";
    assert_eq!(health.words, words);
}

#[test]
fn a_gateway_that_was_restarted_goes_on() {
    let mut history = line();
    tell(&mut history, 102, window("g0", 5, 0));
    history.push(GatewayLost {
        gateway: "g0".parse().expect("a name"),
        last_seen: at(102),
    });
    assert!(health(&history).gateways.is_empty());
    tell(&mut history, 110, window("g0", 7, 0));
    let health = health(&history);
    assert_eq!((health.total.requests, health.gateways.len()), (12, 1));
    assert_eq!(health.last_minute.expect("measured").requests, 12);
}

#[test]
fn windows_twice_or_out_of_order_count_once() {
    let mut history = line();
    for (second, said) in [(102, 102), (104, 104), (105, 104), (106, 102), (107, 106)] {
        tell(&mut history, second, window("g0", 10, 0));
        let last = history.log.last_mut().expect("just told");
        last.envelope.time = at(said);
    }
    assert_eq!(health(&history).total.requests, 30);
    // Each gateway has its own clock.
    tell(&mut history, 108, window("g1", 10, 0));
    history.log.last_mut().expect("just told").envelope.time = at(50);
    assert_eq!(health(&history).total.requests, 40);
}

#[test]
fn a_gateway_whose_clock_was_set_back_is_heard() {
    let mut history = line();
    for (second, said) in [(1000, 1000), (1002, 102), (1004, 104)] {
        tell(&mut history, second, window("g0", 10, 0));
        history.log.last_mut().expect("just told").envelope.time = at(said);
    }
    assert_eq!(health(&history).total.requests, 30);
}

#[test]
fn what_cannot_be_true_is_passed_over() {
    let wrong: [fn(&mut ServiceMeasured); 11] = [
        |it| it.window_s = 0,
        |it| it.window_s = 61,
        |it| it.concurrency = f64::NAN,
        |it| it.concurrency = 1e300,
        |it| it.requests = u64::MAX,
        |it| it.errors = u64::MAX,
        |it| it.shed = u64::MAX,
        |it| it.arrivals = vec![1; 3],
        |it| it.latency_ms.counts[0] = u64::MAX,
        |it| it.latency_ms.bounds[0] = f64::NAN,
        |it| it.latency_ms.bounds = (0..100).map(f64::from).collect(),
    ];
    for (index, spoil) in wrong.into_iter().enumerate() {
        let mut history = line();
        let mut spoiled = window("g0", 10, 0);
        spoil(&mut spoiled);
        tell(&mut history, 102, spoiled);
        let health = health(&history);
        assert_eq!(health.measured_at, None, "{index}");
        assert_eq!(health.total.requests, 0, "{index}");
    }
    let mut history = line();
    tell(&mut history, 102, window("g0", 10, 0));
    history.log.last_mut().expect("just told").envelope.time = at(108);
    assert_eq!(health(&history).total.requests, 0, "from the future");
    tell(&mut history, 104, window("g0", 10, 0));
    assert_eq!(health(&history).total.requests, 10, "what follows counts");
}

#[test]
fn the_largest_counts_add_up_to_the_largest_number() {
    let mut sums = sums::Sums::default();
    let mut window = window("g0", 0, 0);
    window.requests = u64::MAX;
    window.latency_ms.counts = vec![u64::MAX; 4];
    for _ in 0..3 {
        sums.add(&window, None);
    }
    assert_eq!((sums.requests, sums.answered()), (u64::MAX, u64::MAX));
    let ladder = sums::ladder(None);
    let latency = sums.latency(Percentile::default(), &ladder);
    assert!(latency.is_some());
}

#[test]
fn a_flood_of_gateways_is_bounded() {
    let mut history = line();
    for number in 0..200 {
        tell(&mut history, 102, window(&format!("g{number}"), 1, 0));
    }
    assert_eq!(health(&history).total.requests, 64);
}

#[test]
fn buckets_of_others_count_where_they_end() {
    let mut sums = sums::Sums::default();
    let objective = admitted("ads/line")
        .spec
        .service
        .and_then(|it| it.objective);
    let mut foreign = window("proxy", 0, 0);
    foreign.latency_ms = Histogram {
        bounds: vec![90.0, 110.0],
        counts: vec![98, 1, 1],
    };
    sums.add(&foreign, objective);
    let ladder = sums::ladder(objective);
    assert!(ladder.contains(&128.0));
    let p = |percentile: f64| sums.latency(percentile.into(), &ladder).expect("answers");
    // The 98th of a hundred is in the first bucket, the 99th in the second.
    assert!((90.0..90.0 * 1.25).contains(&p(98.0).ms), "{:?}", p(98.0));
    assert!((110.0..=128.0).contains(&p(99.0).ms), "{:?}", p(99.0));
    let last = p(99.9);
    assert!(
        last.is_more && (50_000.0..60_000.0).contains(&last.ms),
        "{last:?}"
    );
    assert_eq!(sums.attainment(), Some(0.99));
}

#[test]
fn who_was_turned_away_was_not_answered_in_time() {
    let mut history = line();
    let mut told = window("g0", 95, 0);
    (told.shed, told.errors, told.requests) = (5, 1, 100);
    tell(&mut history, 102, told);
    let health = health(&history);
    assert_eq!(health.total.attainment, Some(0.95));
    let trouble = "95.00 % within 128 ms instead of 99 %";
    assert_eq!(health.trouble.as_deref(), Some(trouble));
    assert!(
        health.words.contains(", 1 error, 5 shed;"),
        "{}",
        health.words
    );
}

#[test]
fn nobody_says_how_a_service_is_that_is_not_measured() {
    let mut history = line();
    assert_eq!(
        health(&history).words,
        "nothing was measured yet; 0 of 1 replicas ready"
    );
    tell(&mut history, 102, window("g0", 1, 1));
    assert!(health(&history).trouble.is_some());
    history.seconds = 140;
    let health = health(&history);
    assert_eq!((health.last_minute, health.trouble), (None, None));
    assert!(
        health
            .words
            .starts_with("no gateway has told anything since "),
        "{}",
        health.words
    );
    assert_eq!(health.total.requests, 2);
}

fn container(rank: u32) -> ContainerId {
    ContainerId {
        job: job("ads/line"),
        incarnation: Incarnation(1),
        rank: Rank(rank),
    }
}

fn ready(rank: u32, on: &str) -> ContainerReady {
    ContainerReady {
        container: container(rank),
        node: node(on),
        after_ms: 10,
        token_blake3: None,
    }
}

fn scaled(replicas: u32, saturated: bool) -> ServiceScaled {
    ServiceScaled {
        job: job("ads/line"),
        replicas,
        previous: 1,
        scaling: Scaling::Objective,
        observed: dormouse_messages::events::Observed::default(),
        forecast: 0.0,
        capacity_per_replica: 0.0,
        reason: "more requests".to_owned(),
        saturated,
        basis: None,
    }
}

fn resize(leave: &[u32]) -> PartitionResizeRequested {
    PartitionResizeRequested {
        job: job("ads/line"),
        epoch: Epoch(1),
        incarnation: Incarnation(1),
        generation: 1,
        join: Vec::new(),
        leave: leave.iter().copied().map(Rank).collect(),
        stay: Vec::new(),
        grace_s: 1,
        cause: ResizeCause::Adjusted,
        made_for: None,
        basis: None,
    }
}

#[test]
fn replicas_are_ready_until_they_are_to_go() {
    let mut history = line();
    let counts = |history: &History| {
        let health = health(history);
        (health.ready, health.target)
    };
    let places = [(0, "n0"), (1, "n1"), (2, "n1")];
    history.place_more(1, "ads/line", 1, &places, &[]);
    history.push(scaled(3, true));
    history.push(ready(0, "n0")).push(ready(1, "n1"));
    assert_eq!(counts(&history), (2, 3));
    let most = "4 replicas, its most, cannot keep its objective";
    assert_eq!(health(&history).trouble.as_deref(), Some(most));
    history.push(ContainerUnready {
        container: container(1),
        node: node("n1"),
        reason: "500".to_owned(),
    });
    assert_eq!(counts(&history).0, 1);
    history.push(ready(1, "n1")).push(ready(2, "n1"));
    history.push(resize(&[1])).push(ready(1, "n1"));
    assert_eq!(counts(&history).0, 2, "who is to go is not ready again");
    history.container_exited("ads/line", 1, 1, "n1", Some(0));
    history.push(PartitionResized {
        job: job("ads/line"),
        epoch: Epoch(1),
        incarnation: Incarnation(1),
        generation: 1,
        containers: 2,
        members: vec![Rank(0), Rank(2)],
        cause: ResizeCause::Adjusted,
        basis: None,
    });
    history.place_more(2, "ads/line", 1, &[(1, "n0")], &[]);
    history.push(ready(1, "n0"));
    assert_eq!(counts(&history).0, 3, "its number is another replica's");
    history.join("n1", 7);
    let lost = |incarnation: u64| NodeLost {
        node: node("n1"),
        incarnation,
        last_seen: at(0),
    };
    history.push(lost(6));
    assert_eq!(counts(&history).0, 3);
    history.push(lost(7));
    assert_eq!(counts(&history).0, 2);
    history.complete("ads/line");
    assert_eq!(counts(&history), (0, 0));
}

fn points(services: &Services, metric: Metric) -> Vec<(String, Vec<(Timestamp, f64)>)> {
    let series = services.series(metric, Some(&job("ads/line")), 5);
    let points = series.into_iter();
    points
        .map(|(name, it)| (name, it.points().to_vec()))
        .collect()
}

#[test]
fn ten_seconds_that_are_over_are_drawn() {
    let mut history = line();
    tell(&mut history, 102, window("g0", 20, 0));
    tell(&mut history, 110, window("g1", 10, 10));
    assert!(
        points(&folded(&history), Metric::Latency).is_empty(),
        "not over"
    );
    tell(&mut history, 112, window("g0", 10, 0));
    let drawn = points(&folded(&history), Metric::RequestRate);
    assert_eq!(drawn[0], ("requests".to_owned(), vec![(at(100), 4.0)]));
    tell(&mut history, 145, window("g0", 10, 0));
    history.complete("ads/line");
    let services = folded(&history);
    let rates = vec![
        (at(100), 4.0),
        (at(110), 1.0),
        (at(120), 0.0),
        (at(140), 1.0),
        (at(146), 0.0),
    ];
    assert_eq!(points(&services, Metric::RequestRate)[0].1, rates);
    let latency = points(&services, Metric::Latency);
    assert_eq!(
        (latency[0].0.as_str(), latency[1].0.as_str()),
        ("p99", "objective")
    );
    assert_eq!(latency[0].1[0], (at(100), 211.758));
    assert_eq!(latency[1].1, [(at(100), 128.0)]);
    let in_time = &points(&services, Metric::Attainment)[0].1;
    assert_eq!(in_time[..2], [(at(100), 0.75), (at(110), 1.0)]);
    let replicas = points(&services, Metric::Replicas);
    assert_eq!(replicas[1].1, [(at(2), 1.0), (at(146), 0.0)]);
}

#[test]
fn a_lost_gateway_ends_the_line_and_its_next_word_goes_on_with_it() {
    let mut history = line();
    tell(&mut history, 102, window("g0", 20, 0));
    history.push(GatewayLost {
        gateway: "g0".parse().expect("a name"),
        last_seen: at(102),
    });
    tell(&mut history, 121, window("g0", 10, 0));
    tell(&mut history, 131, window("g0", 10, 0));
    let rates = vec![(at(100), 2.0), (at(103), 0.0), (at(120), 1.0)];
    assert_eq!(points(&folded(&history), Metric::RequestRate)[0].1, rates);
}

#[test]
fn a_broker_s_clock_that_steps_changes_nothing() {
    let mut history = line();
    let mut even = history.clone();
    for (second, off_s) in [
        (102, 0),
        (112, 0),
        (112, 86_400),
        (122, 86_400),
        (122, 0),
        (132, 0),
    ] {
        tell(&mut even, second, window("g0", 10, 0));
        history.broker_off_s = off_s;
        tell(&mut history, second, window("g0", 10, 0));
    }
    assert_eq!(folded(&history), folded(&even));
    assert_eq!(health(&history).last_minute.expect("measured").requests, 40);
}

#[test]
fn a_moment_goes_on_like_the_whole() {
    let mut history = line();
    for second in (102..160).step_by(2) {
        tell(&mut history, second, window("g0", 9, 1));
    }
    let (before, after) = history.log.split_at(20);
    let (mut whole, mut moment) = (ReadModel::default(), ReadModel::default());
    before.iter().for_each(|it| whole.evolve(it));
    moment.clone_from(&whole.moment());
    let written = serde_json::to_string(&moment.services).expect("written");
    moment.services = serde_json::from_str(&written).expect("read");
    for recorded in after {
        whole.evolve(recorded);
        moment.evolve(recorded);
    }
    let id = job("ads/line");
    assert_eq!(whole.services.get(&id), moment.services.get(&id));
    let last = |services: &Services| points(services, Metric::Latency)[0].1.last().copied();
    assert_eq!(last(&whole.services), last(&moment.services));
}

#[test]
fn services_that_are_over_are_forgotten_in_their_order() {
    let mut history = History::default();
    for number in 0..=ENDED_SERVICES {
        let id = format!("ads/s{number}");
        history.push(admitted(&id)).complete(&id);
    }
    // A reused id is a live service.
    history.push(admitted("ads/s1"));
    let services = folded(&history);
    assert!(services.get(&job("ads/s0")).is_none());
    assert!(services.get(&job("ads/s1")).is_some_and(|it| !it.ended));
    assert_eq!((services.services.len(), services.ended.len()), (500, 499));
    assert_eq!(services.lines.len(), services.services.len());
    assert_eq!(history.log[0].sequence, Sequence(1));
}
