//! Tests of the warning and end of unused notebooks.

use dormouse_autoscaler::{Autoscaler, AutoscalerState};
use dormouse_messages::events::{
    ContainerExited, ContainerReady, Histogram, JobAdmitted, JobReleased, NotebookActivity,
    NotebookObserved, NotebookWarned, PlacementDecided, ServiceMeasured, ServiceScaled,
};
use dormouse_messages::{
    ContainerId, Decider, Envelope, Event, Fold, Incarnation, JobId, Rank, Recorded, Sequence,
    Timestamp,
};
use proptest::prelude::*;

const START_US: i64 = 1_764_000_000_000_000;
const IDLE_S: u32 = 1_800;

struct Given {
    state: AutoscalerState,
    sequence: Sequence,
    second: i64,
    incarnation: Incarnation,
}

fn job() -> JobId {
    "ads/analysis".parse().expect("valid")
}

#[derive(Debug, Clone, PartialEq)]
enum Decided {
    Warned(NotebookWarned),
    Scaled(ServiceScaled),
}

impl Given {
    fn notebook(containers: &str) -> Self {
        let spec = format!(
            r#"{{"name": "analysis", "tenant": "ads", "kind": "notebook",
                "command": {{"start": ["jupyter"]}}, "demand": {{"cpu_milli": 1000}}, "weight": 1,
                "containers": {containers}, "checkpoint": {{"mode": "none"}},
                "resize": "in_place", "service": {{"idle_s": {IDLE_S}}}}}"#
        );
        let mut given = Self {
            state: AutoscalerState::default(),
            sequence: Sequence(0),
            second: 0,
            incarnation: Incarnation(1),
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

    fn running() -> Self {
        let mut given = Self::notebook(r#"{"min": 0, "max": 1}"#);
        given.asked(1, 1);
        assert!(matches!(given.decide(), Some(Decided::Scaled(it)) if it.replicas == 1));
        given.ready();
        given
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START_US + self.second * 1_000_000)
    }

    fn event(&mut self, event: impl Into<Event>) {
        self.sequence = self.sequence.next();
        let (event, now) = (event.into(), self.now());
        let writer = event.writers()[0];
        let id = self.sequence.to_string();
        self.state.evolve(&Recorded {
            sequence: self.sequence,
            stored_at: now,
            writer,
            envelope: Envelope::new(id, writer, now, None, event),
        });
        self.state.check_invariants().expect("sound");
    }

    fn container(&self) -> ContainerId {
        ContainerId {
            job: job(),
            incarnation: self.incarnation,
            rank: Rank(0),
        }
    }

    fn ready(&mut self) {
        let placed = serde_json::json!({
            "epoch": 1, "remove": [], "create": [{"job": job(), "incarnation": self.incarnation,
                "rank": 0, "node": "n0", "gpus": [], "port": 20000}],
        });
        self.event(serde_json::from_value::<PlacementDecided>(placed).expect("a placement"));
        self.event(ContainerReady {
            container: self.container(),
            node: "n0".parse().expect("valid"),
            after_ms: 1000,
            token_blake3: None,
        });
    }

    fn exited(&mut self) {
        self.event(ContainerExited {
            container: self.container(),
            node: "n0".parse().expect("valid"),
            exit_code: Some(0),
            signal: None,
            out_of_memory: false,
            reason: None,
            evicted: false,
        });
    }

    fn says(&mut self, activity: NotebookActivity, idle_s: u64) {
        self.event(NotebookObserved {
            container: self.container(),
            node: "n0".parse().expect("valid"),
            activity,
            idle_ms: idle_s * 1000,
            kernels: 1,
            reason: None,
        });
    }

    /// `touched` requests by a user, `queued` of them waiting.
    fn asked(&mut self, touched: u64, queued: u32) {
        self.event(ServiceMeasured {
            job: job(),
            gateway: "g0".parse().expect("valid"),
            window_s: 2,
            requests: touched + 1,
            arrivals: vec![1, 1],
            concurrency: 1.0,
            queued,
            latency_ms: Histogram::default(),
            service_ms: Histogram::default(),
            errors: 0,
            shed: 0,
            ready: 1,
            touched,
            until: None,
            ingress_sequence: None,
            published_at: None,
            basis: None,
        });
    }

    fn decide(&mut self) -> Option<Decided> {
        let decision = Autoscaler.decide(&self.state, self.now());
        let proposal = decision.proposals.into_iter().next()?;
        self.event(proposal.event.clone());
        match proposal.event {
            Event::NotebookWarned(it) => Some(Decided::Warned(*it)),
            Event::ServiceScaled(it) => Some(Decided::Scaled(*it)),
            other => panic!("{other:?}"),
        }
    }

    fn wake(&self) -> Option<Timestamp> {
        Autoscaler.decide(&self.state, self.now()).next_wake
    }

    /// Reports idleness by the minute until a decision.
    fn idles(&mut self, minutes: u64, already_s: u64) -> Option<Decided> {
        for minute in 1..=minutes {
            self.second += 60;
            self.says(NotebookActivity::Idle, already_s + minute * 60);
            let decided = self.decide();
            if decided.is_some() {
                return decided;
            }
        }
        None
    }
}

#[test]
fn it_is_warned_ten_minutes_before_and_ended_on_a_word_from_behind() {
    let mut given = Given::running();
    given.says(NotebookActivity::Idle, 0);
    let began = given.now();
    assert_eq!(given.wake(), Some(began.plus_ms(1_200_000)));
    let Some(Decided::Warned(warned)) = given.idles(60, 0) else {
        panic!("no warning");
    };
    assert_eq!(given.now(), began.plus_ms(1_200_000));
    assert_eq!(warned.ends_at, began.plus_ms(1_800_000));
    assert_eq!(warned.idle_since, began);
    given.second += 3_600;
    assert_eq!(given.decide(), None);
    given.says(NotebookActivity::Idle, 4_800);
    let Some(Decided::Scaled(scaled)) = given.decide() else {
        panic!("not ended");
    };
    assert_eq!((scaled.previous, scaled.replicas), (1, 0));
    assert!(
        scaled.reason.contains("nobody has used it"),
        "{}",
        scaled.reason
    );
}

#[test]
fn work_and_clients_take_the_warning_back() {
    for used in [
        |given: &mut Given| given.says(NotebookActivity::Busy, 0),
        |given: &mut Given| given.says(NotebookActivity::Unknown, 0),
        |given: &mut Given| given.asked(1, 0),
    ] {
        let mut given = Given::running();
        assert!(matches!(given.idles(60, 0), Some(Decided::Warned(_))));
        given.second += 300;
        used(&mut given);
        given.second += 400;
        given.says(NotebookActivity::Idle, 400);
        assert_eq!(given.decide(), None, "it was used 400 s ago");
        let Some(Decided::Warned(again)) = given.idles(60, 400) else {
            panic!("no second warning");
        };
        assert!(again.ends_at > given.now().plus_ms(590_000));
    }
}

#[test]
fn a_page_that_is_open_neither_keeps_it_nor_starts_it() {
    let mut given = Given::running();
    let mut scaled = None;
    for minute in 1..60 {
        given.second += 60;
        given.asked(0, 0);
        given.says(NotebookActivity::Idle, minute * 60);
        if let Some(Decided::Scaled(it)) = given.decide() {
            scaled = Some(it);
            break;
        }
    }
    assert_eq!(scaled.expect("ended").replicas, 0);
    given.asked(0, 0);
    assert_eq!(given.decide(), None);
    given.exited();
    given.second += 10;
    given.asked(1, 1);
    assert!(matches!(given.decide(), Some(Decided::Scaled(it)) if it.replicas == 1));
    given.incarnation = Incarnation(2);
    given.ready();
    assert_eq!(given.idles(19, 0), None);
}

#[test]
fn one_that_must_run_is_never_ended() {
    let mut given = Given::notebook(r#"{"min": 1, "max": 1}"#);
    given.ready();
    assert_eq!(given.idles(600, 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// The deciding report shows idleness after the warning's end, without activity since the warning.
    #[test]
    fn what_works_is_never_ended(
        steps in proptest::collection::vec((0_u8..6, 1_i64..900), 1..60)
    ) {
        let mut given = Given::running();
        let (mut active_at, mut last, mut warned_at) = (given.second, None, None);
        for (what, seconds) in steps {
            given.second += seconds;
            match what {
                0 | 1 => {
                    let idle_s = u64::try_from(given.second - active_at).expect("later");
                    given.says(NotebookActivity::Idle, idle_s);
                    last = Some((given.second, true));
                }
                2 => {
                    given.says(NotebookActivity::Busy, 0);
                    (active_at, last) = (given.second, Some((given.second, false)));
                }
                3 => {
                    given.says(NotebookActivity::Unknown, 0);
                    (active_at, last) = (given.second, Some((given.second, false)));
                }
                4 => {
                    given.asked(1, 0);
                    active_at = given.second;
                }
                _ => given.asked(0, 0),
            }
            match given.decide() {
                Some(Decided::Warned(it)) => warned_at = Some((given.second, it)),
                Some(Decided::Scaled(it)) => {
                    prop_assert_eq!(it.replicas, 0);
                    let (said_at, is_idle) = last.expect("it has said something");
                    let (begun, warning) = warned_at.expect("it was warned");
                    prop_assert!(is_idle && said_at == given.second);
                    prop_assert!(given.now() >= warning.ends_at);
                    prop_assert!(active_at <= begun, "used at {active_at}, warned at {begun}");
                    prop_assert!(given.second - active_at >= i64::from(IDLE_S));
                    break;
                }
                None => {}
            }
        }
    }
}
