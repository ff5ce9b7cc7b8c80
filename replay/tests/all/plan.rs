//! Plans come true if nothing else happens, and tokens hold until a relevant change.

use std::sync::Arc;

use dormouse_admission::plan::{Planned, state_digest};
use dormouse_messages::events::{ClusterConfigured, NodeDrained, Progress, TenantConfigured};
use dormouse_messages::policy::Policy;
use dormouse_messages::{
    Amounts, Envelope, Event, Incarnation, JobId, NodeId, Recorded, Sequence, Writer,
};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::changes::Asked;
use dormouse_replay::history::fork::Fork;
use dormouse_replay::history::plan::{Plan, Subject, plan};
use dormouse_replay::history::whatif::{ForkAt, History, run};
use dormouse_replay::random::Random;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, START, engine, seconds_after_start};
use serde_json::{Value, json};

fn job(id: &str) -> JobId {
    id.parse().expect("a job")
}

fn planned(log: &[Arc<Recorded>], subject: &Subject, draws: u32) -> Plan {
    let mut history = History::default();
    log.iter().for_each(|recorded| history.read(recorded));
    let forked = history.fork(ForkAt::Sequence(Sequence(u64::MAX)));
    plan(&history, &forked, subject, draws).expect("a plan")
}

fn changes(asked: Asked) -> Subject {
    let mut variants = asked.variants().expect("changes");
    Subject::Changes(Box::new(variants.pop().expect("one")))
}

fn submission(tenant: &str, document: &Value) -> Subject {
    Subject::Job(tenant.parse().expect("a tenant"), document.clone())
}

#[test]
fn what_is_planned_is_what_happens() {
    let mut asked = 0;
    for seed in 1..=20 {
        let scenario = read_value(generate(Kind::Table2, seed, Size::default()));
        let scenario = scenario.expect("a scenario");
        let mut random = Random::new(seed);
        let submission_at = 20 + usize::try_from(random.below(20)).expect("small");
        let come = scenario.submissions.get(submission_at).expect("many jobs");
        let mut engine = engine(&scenario, &Options::default());
        let soon = seconds_after_start(come.at_s + 0.5);
        engine.run_until(soon).expect("a healthy run");
        let log = engine.log();
        let place = log.iter().position(|it| {
            matches!(it.event(), Some(Event::SubmissionReceived(event))
                if event.ingress_sequence == submission_at as u64 + 1)
        });
        let (before, after) = log.split_at(place.expect("it was submitted"));
        let now = after[0].stored_at;
        let document: Value = serde_json::from_slice(&come.payload).expect("JSON");
        if before.last().is_some_and(|it| it.stored_at == now) {
            continue;
        }
        let plan = planned(before, &submission(come.job.tenant(), &document), 0);
        let decided = after.iter().find_map(|it| match it.event() {
            Some(Event::AllocationDecided(event)) if it.stored_at == now => {
                let own = event.jobs.iter().find(|it| it.job == come.job);
                own.map(|own| (own.containers, event.clone()))
            }
            _ => None,
        });
        asked += 1;
        let Some((containers, decided)) = decided else {
            assert_eq!(plan.code, "waits", "seed {seed}");
            continue;
        };
        assert_eq!(
            (plan.code.as_str(), plan.containers),
            ("runs", containers),
            "seed {seed}"
        );
        let gave = decided.jobs.iter();
        let gave = gave.filter(|it| it.job != come.job && it.containers < it.previous);
        let gave: Vec<_> = gave
            .map(|it| (it.job.to_string(), it.previous, it.containers))
            .collect();
        let said = plan.shrinks.iter();
        let said: Vec<_> = said.map(|it| (it.job.clone(), it.from, it.to)).collect();
        assert_eq!(said, gave, "seed {seed}");
        let placed = after.iter().find_map(|it| match it.event() {
            Some(Event::PlacementDecided(event)) if event.epoch == decided.epoch => Some(event),
            _ => None,
        });
        let mut nodes = std::collections::BTreeMap::new();
        for it in placed.iter().flat_map(|it| &it.create) {
            if it.job == come.job {
                *nodes.entry(it.node.to_string()).or_insert(0) += 1;
            }
        }
        let said = plan.nodes.iter().map(|it| (it.node.clone(), it.containers));
        assert_eq!(said.collect::<std::collections::BTreeMap<_, _>>(), nodes);
        assert!((plan.loss_after.expect("a loss") - decided.outcome.fairness_loss).abs() < 1e-12);
    }
    assert!(asked >= 15, "{asked}");
}

#[test]
fn what_is_decided_anyway_is_told_apart() {
    let mut engine = cluster();
    let entitled = |quota: &str| {
        Event::from(TenantConfigured {
            tenant: "ads".parse().expect("a tenant"),
            weight: 1,
            quota: quota.parse().expect("a quota"),
            max_job_weight: None,
            priority: None,
        })
    };
    engine.at(START, Action::Operator(entitled("cpu=4")));
    submit(&mut engine, 1.0, "ads", &document("a", 1, 6));
    engine
        .run_until(seconds_after_start(10.0))
        .expect("a healthy run");
    let mut log = engine.log().to_vec();
    let last = log.last().expect("events");
    let (sequence, stored_at) = (last.sequence.next(), last.stored_at);
    let writer = Writer::Operator;
    let lifted = entitled("cpu=100");
    log.push(Arc::new(Recorded {
        sequence,
        stored_at,
        writer,
        envelope: Envelope::new("lifted".to_owned(), writer, stored_at, None, lifted),
    }));
    let moves = |asked: Asked| {
        let changes = asked.variants().expect("changes").remove(0);
        let plan = planned(&log, &Subject::Changes(Box::new(changes)), 0);
        let gains = plan.gains.iter();
        let gains = gains.map(|it| (it.job.clone(), it.from, it.to, it.anyway));
        gains.collect::<Vec<_>>()
    };
    let set = |text: &str| Asked {
        settings: vec![text.parse().expect("a setting")],
        ..Asked::default()
    };
    let grows = |to, anyway| vec![("ads/a".to_owned(), 4, to, anyway)];
    assert_eq!(moves(set("policy.theta1=0.2")), grows(6, true));
    assert_eq!(moves(set("job.ads/a.containers.max=8")), grows(8, false));
}

fn cluster() -> Engine {
    let mut engine = Engine::new(START, true);
    let policy = Policy {
        min_run_s: Some(0),
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for node in ["n0", "n1"] {
        let node: NodeId = node.parse().expect("a node");
        let capacity: Amounts = "cpu=8".parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    engine
}

fn document(name: &str, min: u32, max: u32) -> Value {
    json!({
        "name": name, "command": {"start": ["run"]}, "demand": {"cpu": 1},
        "containers": {"min": min, "max": max}, "checkpoint": {"mode": "exit"},
    })
}

fn submit(engine: &mut Engine, at_s: f64, tenant: &str, document: &Value) {
    let name = document["name"].as_str().expect("a name");
    engine.model(
        job(&format!("{tenant}/{name}")),
        ModelJob {
            save_s: 5.0,
            ..ModelJob::linear(1e5)
        },
    );
    let action = Action::Submit {
        tenant: tenant.to_owned(),
        verb: "submit".to_owned(),
        payload: document.to_string().into_bytes(),
    };
    engine.at(seconds_after_start(at_s), action);
}

fn digest(log: &[Arc<Recorded>]) -> String {
    let mut fork = Fork::default();
    log.iter().for_each(|recorded| fork.read(recorded));
    state_digest(&fork.admission.queues)
}

fn answered(happens: impl FnOnce(&mut Engine), wanted: (u32, u32)) -> (Planned, Vec<Event>) {
    let mut engine = cluster();
    submit(&mut engine, 0.0, "ads", &document("x", 1, 8));
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let mut wished = document("new", wanted.0, wanted.1);
    let plan = planned(engine.log(), &submission("lab", &wished), 0);
    let token = plan.token.expect("a token");
    happens(&mut engine);
    engine
        .run_until(seconds_after_start(99.0))
        .expect("a healthy run");
    wished["if_plan"] = json!(token);
    submit(&mut engine, 100.0, "lab", &wished);
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let events = engine.log().iter().filter_map(|it| it.event().cloned());
    (token.parse().expect("a token"), events.collect())
}

fn stale(events: &[Event]) -> bool {
    events
        .iter()
        .any(|it| matches!(it, Event::JobRefused(event) if event.code == "plan_stale"))
}

fn accepted(events: &[Event], containers: u32) -> bool {
    events
        .iter()
        .any(|it| matches!(it, Event::PlanAccepted(event) if event.containers == containers))
}

fn missed(events: &[Event]) -> Option<(u32, u32)> {
    events.iter().find_map(|it| match it {
        Event::PlanMissed(event) => Some((event.planned, event.containers)),
        _ => None,
    })
}

#[test]
fn a_token_survives_progress_and_no_change_that_matters() {
    let progress = |engine: &mut Engine| {
        for step in 0..1000_u32 {
            let event = Progress {
                job: job("ads/x"),
                incarnation: Incarnation(1),
                node: "n0".parse().expect("a node"),
                step: u64::from(step),
                steps_total: 2000,
                containers: 8,
                metrics: std::collections::BTreeMap::new(),
            };
            let at = seconds_after_start(51.0 + f64::from(step) * 0.01);
            engine.at(at, Action::Recorded(Writer::Node, event.into()));
        }
    };
    for (planned, events) in [answered(|_| {}, (2, 8)), answered(progress, (2, 8))] {
        assert!(!stale(&events) && accepted(&events, planned.containers));
        assert!(planned.containers >= 2, "{planned}");
        assert_eq!(missed(&events), None);
    }
    let drain = |engine: &mut Engine| {
        let node = "n1".parse().expect("a node");
        engine.at(
            seconds_after_start(60.0),
            Action::Operator(
                NodeDrained {
                    node,
                    reason: None,
                    deadline_s: None,
                }
                .into(),
            ),
        );
    };
    let policy = |engine: &mut Engine| {
        let policy = Policy {
            theta1: 1.0,
            theta2: 0.0,
            ..Policy::default()
        };
        engine.at(
            seconds_after_start(60.0),
            Action::Operator(ClusterConfigured { policy }.into()),
        );
    };
    let rival = |engine: &mut Engine| submit(engine, 60.0, "web", &document("rival", 6, 6));
    for (name, (_, events)) in [
        ("drain", answered(drain, (2, 8))),
        ("policy", answered(policy, (2, 8))),
        ("rival", answered(rival, (2, 8))),
    ] {
        assert!(stale(&events), "{name}");
    }
}

#[test]
fn a_rival_at_the_same_instant_makes_it_miss() {
    let rival = |engine: &mut Engine| submit(engine, 100.0, "abc", &document("rival", 7, 7));
    let (planned, events) = answered(rival, (2, 8));
    assert!(accepted(&events, planned.containers), "{events:?}");
    let (said, got) = missed(&events).expect("it was missed");
    assert_eq!(said, planned.containers);
    assert!(got < said, "{got} of {said}");
}

#[test]
fn a_drain_and_a_node_say_who_moves() {
    let mut engine = cluster();
    submit(&mut engine, 0.0, "ads", &document("x", 1, 16));
    submit(&mut engine, 0.0, "lab", &document("y", 1, 4));
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let digest = digest(engine.log());
    let drain = changes(Asked {
        drain_nodes: vec!["n1".parse().expect("a node")],
        ..Asked::default()
    });
    let plan = planned(engine.log(), &drain, 0);
    assert_eq!(plan.code, "changes");
    assert!(!plan.shrinks.is_empty(), "{plan:?}");
    let more = changes(Asked {
        add_nodes: vec!["n2:cpu=8".parse().expect("a node")],
        ..Asked::default()
    });
    let plan = planned(engine.log(), &more, 0);
    assert!(plan.shrinks.is_empty(), "{plan:?}");
    let refused = planned(engine.log(), &submission("lab", &document("z", 4, 2)), 0);
    assert_eq!(refused.code, "refused");
    assert_eq!(digest, self::digest(engine.log()));
}

#[test]
fn a_job_that_a_drain_moves_is_said_with_its_cost() {
    let mut engine = cluster();
    submit(&mut engine, 0.0, "ads", &document("x", 4, 4));
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let node = engine.log().iter().find_map(|it| match it.event() {
        Some(Event::PlacementDecided(event)) => event.create.first().map(|it| it.node.clone()),
        _ => None,
    });
    let node = node.expect("it runs");
    let drained = changes(Asked {
        drain_nodes: vec![node.clone()],
        ..Asked::default()
    });
    let lost = changes(Asked {
        drop_nodes: vec![node],
        ..Asked::default()
    });
    for subject in [drained, lost] {
        let plan = planned(engine.log(), &subject, 0);
        assert_eq!(plan.code, "changes", "{plan:?}");
        assert!(plan.shrinks.is_empty() && plan.gains.is_empty(), "{plan:?}");
        let [moved] = plan.moves.as_slice() else {
            panic!("{plan:?}");
        };
        let said = (moved.job.as_str(), moved.from, moved.to, moved.anyway);
        assert_eq!(said, ("ads/x", 4, 4, false));
    }
    let other = changes(Asked {
        add_nodes: vec!["n2:cpu=8".parse().expect("a node")],
        ..Asked::default()
    });
    let plan = planned(engine.log(), &other, 0);
    assert_eq!(
        (plan.code.as_str(), plan.moves.len()),
        ("nothing", 0),
        "{plan:?}"
    );
}

#[test]
fn a_job_that_is_left_out_gives_its_room_to_who_waits() {
    let mut engine = cluster();
    submit(&mut engine, 0.0, "ads", &document("x", 16, 16));
    submit(&mut engine, 1.0, "lab", &document("y", 8, 8));
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let asked = Asked {
        drop_jobs: vec![job("ads/x")],
        ..Asked::default()
    };
    let plan = planned(engine.log(), &changes(asked), 0);
    let gains = plan.gains.iter();
    let gains: Vec<_> = gains.map(|it| (it.job.as_str(), it.from, it.to)).collect();
    assert_eq!(gains, [("lab/y", 0, 8)], "{plan:?}");
    assert_eq!(plan.code, "changes");
}

#[test]
fn what_kept_to_its_plan_is_submitted_on_a_fork_too() {
    let mut engine = cluster();
    submit(&mut engine, 0.0, "ads", &document("x", 1, 8));
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let at = Sequence(engine.log().len() as u64);
    let mut wished = document("new", 2, 8);
    let plan = planned(engine.log(), &submission("lab", &wished), 0);
    let token = plan.token.expect("a token");
    // A token of another state: refused, and submitted again under the same name.
    let other = Planned {
        state: "0000000000000000".to_owned(),
        ..token.parse().expect("a token")
    };
    for (at_s, token) in [(99.0, other.to_string()), (100.0, token)] {
        wished["if_plan"] = json!(token);
        submit(&mut engine, at_s, "lab", &wished);
    }
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let mut history = History::default();
    engine.log().iter().for_each(|it| history.read(it));
    let forked = history.fork(ForkAt::Sequence(at));
    let asked = Asked {
        drop_jobs: vec![job("ads/x")],
        ..Asked::default()
    };
    let variants = asked.variants().expect("changes");
    let mut became = Vec::new();
    let ran = run(&forked, &forked.likely(), &variants[0], |it| {
        match it.event() {
            Some(Event::JobAdmitted(event)) => became.push((event.job.to_string(), "admitted")),
            Some(Event::JobRefused(event)) if event.code == "plan_stale" => {
                became.push(("lab/new".to_owned(), "refused"));
            }
            _ => {}
        }
        false
    });
    ran.expect("it runs");
    let new = |what| ("lab/new".to_owned(), what);
    assert_eq!(became, [new("refused"), new("admitted")]);
}
