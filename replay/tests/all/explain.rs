//! Explanations: cases worked out by hand ([`alternatives`], [`refusals`]), and brute force over
//! generated clusters ([`cases`]). [`keys`]: the keys of a tenant.

mod alternatives;
mod cases;
mod keys;
mod refusals;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_messages::events::{ClusterConfigured, ContainerUnready};
use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{Body, Epoch, Event, JobId, Recorded};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::explain::{Correction, Explainer, Explanation, Subject};
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_state::history::History;

fn explain(log: &[Arc<Recorded>], subject: Subject, tenant: Option<&str>) -> Explanation {
    let viewer = tenant.map(|tenant| tenant.parse().expect("a tenant"));
    let mut explainer = Explainer::new(subject, viewer, 600);
    log.iter().for_each(|recorded| explainer.read(recorded));
    explainer.explain().expect("it is there")
}

fn job(id: &str) -> JobId {
    id.parse().expect("a job")
}

fn cluster(nodes: u32, policy: Policy) -> Engine {
    let mut engine = Engine::new(START, true);
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for index in 0..nodes {
        let node = format!("n{index}").parse().expect("a node");
        let capacity = "cpu=8".parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    engine
}

#[test]
fn a_stop_that_takes_no_time_is_not_in_place() {
    let policy = Policy {
        min_run_s: Some(0),
        ..Policy::default()
    };
    let mut engine = cluster(1, policy);
    let at_once = || ModelJob {
        save_s: 0.0,
        start_s: 0.0,
        ..ModelJob::linear(1e6)
    };
    let x = r#""demand":{"cpu":1},"containers":{"min":1,"max":8},"checkpoint":{"mode":"exit"}"#;
    crate::common::submit(&mut engine, 0.0, "a/x", x, at_once());
    let y = r#""demand":{"cpu":1},"containers":{"min":4,"max":4}"#;
    crate::common::submit(&mut engine, 100.0, "b/y", y, at_once());
    engine
        .run_until(seconds_after_start(200.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("a/x")), None);
    assert_eq!(answer.resizes[0].cost_s, Some(0.0));
    assert!(!answer.resizes[0].in_place);
    let words = answer.words.join("\n");
    assert!(words.contains("it stood still for 0.0 s"), "{words}");
}

fn submit(engine: &mut Engine, at_s: f64, id: &str, bounds: (u32, u32), more: &str) {
    let (tenant, name) = id.split_once('/').expect("tenant/name");
    engine.model(
        job(id),
        ModelJob {
            save_s: 10.0,
            ..ModelJob::linear(1e6)
        },
    );
    let (min, max) = bounds;
    let payload = format!(
        r#"{{"name":"{name}","command":{{"start":["run"]}},"demand":{{"cpu":1}},"containers":{{"min":{min},"max":{max}}}{more}}}"#
    );
    let action = Action::Submit {
        tenant: tenant.to_owned(),
        verb: "submit".to_owned(),
        payload: payload.into_bytes(),
    };
    engine.at(seconds_after_start(at_s), action);
}

const EXIT: &str = r#","checkpoint":{"mode":"exit"}"#;

fn policy(theta1: f64, theta2: f64) -> Policy {
    Policy {
        theta1,
        theta2,
        min_run_s: Some(0),
        ..Policy::default()
    }
}

fn found<'a>(answer: &'a Explanation, kind: &str) -> Option<&'a Correction> {
    answer.corrections.iter().find(|it| it.kind == kind)
}

#[test]
fn a_container_that_failed_is_named() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2);
    history.container_exited("ads/lr", 1, 1, "n0", Some(3));
    let log: Vec<_> = history.log.into_iter().map(Arc::new).collect();
    let answer = explain(&log, Subject::Job(job("ads/lr")), Some("ads"));
    let failed = "container 1 on n0: exited with 3".to_owned();
    assert!(answer.words.contains(&failed), "{:?}", answer.words);
}

#[test]
fn a_node_or_a_tenant_that_is_asked_for_as_a_job_is_named() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2);
    let log: Vec<_> = history.log.into_iter().map(Arc::new).collect();
    let refused = |id: &str, tenant: Option<&str>| {
        let viewer = tenant.map(|tenant| tenant.parse().expect("a tenant"));
        let mut explainer = Explainer::new(Subject::Job(job(id)), viewer, 0);
        log.iter().for_each(|recorded| explainer.read(recorded));
        explainer
            .explain()
            .expect_err("there is no such job")
            .to_string()
    };
    let node = refused("default/n0", None);
    assert!(node.ends_with("n0 is a node: `dormouse explain node n0`"));
    let tenant = refused("default/ads", None);
    assert!(tenant.ends_with("ads is a tenant: `dormouse explain tenant ads`"));
    for other in [refused("ads/n0", Some("ads")), refused("ads/x", None)] {
        assert!(other.ends_with("list what there is"), "{other}");
    }
}

#[test]
fn a_service_whose_replicas_do_not_get_ready_says_why_and_what_came_of_each() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/s")
        .release("ads/s")
        .allocate(1, &[("ads/s", 0, 1)], &[])
        .place(1, "ads/s", 1, &[("n0", 1)])
        .request_start(1, "ads/s", 1, 1)
        .container_started("ads/s", 1, 0, "n0");
    history.push(ContainerUnready {
        container: "ads/s/1/0".parse().expect("a container"),
        node: "n0".parse().expect("a node"),
        reason: "not ready within 3 s: connection refused".to_owned(),
    });
    history.resized(1, "ads/s", 1, &[]);
    for (epoch, members) in [(2, &[][..]), (3, &[1])] {
        history.allocate(epoch, &[("ads/s", 0, 1)], &[]);
        let decided = &mut history.log.last_mut().expect("just pushed").envelope.body;
        if let Body::Event(Event::AllocationDecided(event)) = decided {
            event.jobs.iter_mut().for_each(|own| own.new = false);
        }
        history.resized(epoch, "ads/s", 1, members);
    }
    history.resized(3, "ads/s", 1, &[]);
    let log: Vec<_> = history.log.into_iter().map(Arc::new).collect();
    let answer = explain(&log, Subject::Job(job("ads/s")), Some("ads"));
    let why = "a replica: not ready within 3 s: connection refused".to_owned();
    assert!(answer.words.contains(&why), "{:?}", answer.words);
    let resizes = answer.resizes.iter();
    let came = resizes.map(|it| (it.epoch, it.given_up.is_some(), it.cost_s.is_some()));
    let came: Vec<_> = came.collect();
    assert_eq!(came, [(2, true, false), (3, false, true)]);
}

/// Two jobs of 8 fill both nodes, and theta2 = 0 allows no restart, so the third waits.
#[test]
fn a_job_that_no_restart_makes_room_for() {
    let mut engine = cluster(2, policy(1.0, 0.0));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    submit(&mut engine, 0.0, "ads/y", (1, 8), EXIT);
    submit(&mut engine, 100.0, "lab/z", (2, 4), EXIT);
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("lab/z")), None);
    assert_eq!(answer.state, "waiting");
    let dominant = answer.dominant.clone().expect("a reason");
    assert_eq!(dominant.code, "adjustment_bound", "{answer:?}");
    let decision = answer.decision.as_ref().expect("a decision");
    assert_eq!(decision.remade, "equal");
    let theta2 = found(&answer, "theta2").expect("theta2");
    assert_eq!((theta2.from.as_str(), theta2.to.as_str()), ("0", "0.01"));
    assert!(theta2.admitted && theta2.becomes >= 2);
    let nodes = found(&answer, "nodes").expect("nodes");
    assert_eq!((nodes.to.as_str(), nodes.becomes), ("1 of cpu=8", 4));
    assert!(found(&answer, "theta1").is_none(), "theta1 does not bind");
    // A smaller job restarts anyway and gives 3: 5, 8 and 3 have the least loss of all full allocations.
    let gives = alternatives(&answer);
    let of = |it: &&Correction| (it.gives[0].from, it.gives[0].to, it.becomes);
    assert_eq!(gives.iter().map(of).collect::<Vec<_>>(), [(8, 5, 3); 2]);
    assert_ne!(gives[0].gives[0].job, gives[1].gives[0].job);
    let seen = explain(engine.log(), Subject::Job(job("lab/z")), Some("lab"));
    let text = serde_json::to_string(&seen).expect("JSON");
    assert!(!text.contains("ads/"), "{text}");
    assert!(
        text.contains("a job of another tenant with 5 instead of 8"),
        "{text}"
    );
}

fn alternatives(answer: &Explanation) -> Vec<&Correction> {
    let all = answer.corrections.iter();
    all.filter(|it| it.kind == "others_give").collect()
}

#[test]
fn three_jobs_that_could_give_are_told() {
    let mut engine = cluster(4, policy(1.0, 0.0));
    for id in ["ads/v", "ads/w", "ads/x", "ads/y"] {
        submit(&mut engine, 0.0, id, (1, 8), EXIT);
    }
    submit(&mut engine, 100.0, "lab/z", (2, 4), EXIT);
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("lab/z")), None);
    let gives = alternatives(&answer);
    let names: BTreeSet<&str> = gives.iter().map(|it| it.gives[0].job.as_str()).collect();
    assert_eq!((gives.len(), names.len()), (3, 3), "{gives:?}");
    for it in &gives {
        assert!(it.gives.len() == 1 && it.gives[0].from == 8 && it.gives[0].to < 8);
        assert!(it.admitted && it.becomes >= 2, "{it:?}");
        assert_ne!(it.verified_by.proof, "limit", "{it:?}");
    }
    assert!(answer.solves <= 40, "{} decisions", answer.solves);
}

#[test]
fn the_reason_is_told_first_and_then_change_by_change() {
    let mut engine = cluster(2, policy(1.0, 0.0));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    submit(&mut engine, 0.0, "ads/y", (1, 8), EXIT);
    submit(&mut engine, 100.0, "lab/z", (2, 4), EXIT);
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let mut explainer = Explainer::new(Subject::Job(job("lab/z")), None, 600);
    let log = engine.log();
    log.iter().for_each(|recorded| explainer.read(recorded));
    let mut told: Vec<Explanation> = Vec::new();
    let answer = explainer.explain_step_by_step(|so_far| told.push(so_far.clone()));
    let answer = answer.expect("it is there");
    let first = told.first().expect("the reason");
    assert_eq!(first.dominant, answer.dominant);
    assert_eq!(first.conflict, answer.conflict);
    for (count, so_far) in told.iter().enumerate() {
        assert_eq!(so_far.corrections, answer.corrections[..count]);
        assert!(answer.words.starts_with(&so_far.words), "{so_far:?}");
    }
    assert_eq!(told.len(), answer.corrections.len() + 1);
    assert!(answer.corrections.len() >= 3 && answer.solves >= 3);
    assert_eq!(explain(log, Subject::Job(job("lab/z")), None), answer);
}

#[test]
fn a_job_that_has_all_it_can_use_and_one_that_cannot_save() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    submit(&mut engine, 0.0, "ads/x", (1, 2), EXIT);
    submit(&mut engine, 0.0, "ads/fixed", (1, 1), "");
    engine
        .run_until(seconds_after_start(50.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("ads/x")), None);
    assert_eq!(answer.dominant.expect("a reason").code, "own_max");
    let max = answer
        .corrections
        .iter()
        .find(|it| it.kind == "max")
        .expect("max");
    assert_eq!(
        (max.from.as_str(), max.to.as_str(), max.becomes),
        ("2", "3", 3)
    );
}

#[test]
fn a_job_under_drf_is_told_that_it_keeps_what_it_started_with() {
    let allocation = Allocation::Drf;
    let mut engine = cluster(
        2,
        Policy {
            allocation,
            ..policy(0.1, 0.1)
        },
    );
    submit(&mut engine, 0.0, "ads/y", (8, 8), EXIT);
    submit(&mut engine, 1.0, "ads/x", (1, 16), EXIT);
    let mut reason_at = |until_s| {
        let run = engine.run_until(seconds_after_start(until_s));
        run.expect("a healthy run");
        let answer = explain(engine.log(), Subject::Job(job("ads/x")), None);
        let changes = answer.corrections.iter().map(|it| it.kind.clone());
        let changes: BTreeSet<String> = changes.collect();
        if until_s < 30.0 {
            let (tenant, verb) = ("ads".to_owned(), "cancel".to_owned());
            let payload = br#"{"job":"y"}"#.to_vec();
            engine.at(
                seconds_after_start(30.0),
                Action::Submit {
                    tenant,
                    verb,
                    payload,
                },
            );
        }
        (answer.has, answer.dominant.expect("a reason"), changes)
    };
    let (has, reason, changes) = reason_at(20.0);
    assert_eq!((has, reason.code.as_str()), (Some(8), "resources"));
    assert!(changes.contains("nodes"), "{changes:?}");
    let (has, reason, changes) = reason_at(50.0);
    assert_eq!((has, reason.code.as_str()), (Some(8), "not_resized"));
    assert!(reason.words.contains("drf"), "{}", reason.words);
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn a_job_that_waits_for_room_is_told_who_keeps_it_and_until_when() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    submit(
        &mut engine,
        0.0,
        "ads/long",
        (6, 6),
        r#","time_limit_s":3600"#,
    );
    submit(&mut engine, 10.0, "lab/next", (4, 4), "");
    engine.run_until(seconds_after_start(60.0)).expect("runs");
    let subject = || Subject::Job(job("lab/next"));
    let answer = explain(engine.log(), subject(), None);
    let held: Vec<_> = answer
        .held_by
        .iter()
        .map(|it| (it.job.as_str(), it.keeps))
        .collect();
    assert_eq!(held, [("ads/long", 6_000)], "{answer:#?}");
    let ends_at = answer.held_by[0].ends_at.expect("it has a limit");
    assert!(seconds_after_start(3_600.0) <= ends_at && ends_at < seconds_after_start(3_610.0));
    let said = |answer: &Explanation, part: &str| {
        assert!(
            answer.words.iter().any(|it| it.contains(part)),
            "{part} in {:#?}",
            answer.words
        );
    };
    said(
        &answer,
        "it waits for 4 x cpu=1: of cpu 8 it can have 2; ads/long keeps 6, ads/long ends by its time limit in 59 min",
    );
    said(
        &answer,
        "ads/long keeps 6 of cpu, and ends by its time limit at",
    );
    let answer = explain(engine.log(), subject(), Some("lab"));
    assert_eq!(answer.held_by[0].job, "a job of another tenant");
    assert!(
        !answer.words.iter().any(|it| it.contains("ads")),
        "{:#?}",
        answer.words
    );
}

#[test]
fn a_past_resize_has_its_cause_its_gainer_and_its_cost() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    submit(&mut engine, 100.0, "lab/z", (4, 4), EXIT);
    engine
        .run_until(seconds_after_start(150.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("ads/x")), None);
    let resize = answer.resizes.last().expect("a resize");
    assert_eq!((resize.from, resize.to), (8, 4));
    assert_eq!(resize.causes[0].event, "job.released");
    assert_eq!(resize.causes[0].subject, "lab/z");
    assert_eq!(
        (resize.gained[0].job.as_str(), resize.gained[0].to),
        ("lab/z", 4)
    );
    assert_eq!(resize.cost_s, Some(10.0));
    let words = answer.words.join("\n");
    assert!(
        words.contains("resized it 8→4, because of the release of lab/z"),
        "{words}"
    );
    let epoch = explain(engine.log(), Subject::Epoch(Epoch(resize.epoch)), None);
    let sizes: Vec<_> = epoch
        .jobs
        .iter()
        .map(|it| (it.job.as_str(), it.from, it.containers))
        .collect();
    assert_eq!(sizes, [("ads/x", Some(8), 4), ("lab/z", Some(0), 4)]);
    let tenant = explain(
        engine.log(),
        Subject::Tenant("lab".parse().expect("a tenant")),
        None,
    );
    assert_eq!(tenant.jobs.len(), 1);
    let node = explain(
        engine.log(),
        Subject::Node("n0".parse().expect("a node")),
        None,
    );
    assert_eq!((node.state.as_str(), node.jobs.len()), ("up", 2));
}

#[test]
fn a_job_on_hold_and_what_it_waited() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    submit(&mut engine, 0.0, "ads/x", (1, 8), EXIT);
    for (at_s, verb, payload) in [
        (100.0, "revise", r#"{"job":"ads/x","held":true}"#),
        (200.0, "revise", r#"{"job":"ads/x","held":false}"#),
    ] {
        let action = Action::Submit {
            tenant: "ads".to_owned(),
            verb: verb.to_owned(),
            payload: payload.as_bytes().to_vec(),
        };
        engine.at(seconds_after_start(at_s), action);
    }
    let ask = |engine: &Engine| explain(engine.log(), Subject::Job(job("ads/x")), None);
    let run = engine.run_until(seconds_after_start(150.0));
    run.expect("a healthy run");
    let held = ask(&engine);
    let dominant = held.dominant.expect("a reason");
    assert_eq!(dominant.code, "on_hold", "{}", dominant.words);
    let run = engine.run_until(seconds_after_start(250.0));
    run.expect("a healthy run");
    let runs = ask(&engine);
    let resizes = runs.resizes.iter();
    let resizes: Vec<_> = resizes.map(|it| (it.from, it.to, it.cost_s)).collect();
    assert_eq!(resizes, [(8, 0, Some(10.0))]);
    let words = runs.words.join("\n");
    assert!(words.contains("it had stopped 10.0 s later"), "{words}");
    let causes = runs.resizes.iter().flat_map(|it| &it.causes);
    for cause in causes {
        assert_ne!(cause.event, "", "{words}");
    }
}

#[test]
fn a_refusal_and_what_is_not_there() {
    let mut engine = cluster(1, policy(0.1, 0.1));
    submit(&mut engine, 0.0, "ads/x", (4, 2), EXIT);
    engine
        .run_until(seconds_after_start(1.0))
        .expect("a healthy run");
    let answer = explain(engine.log(), Subject::Job(job("ads/x")), None);
    assert_eq!(
        (
            answer.state.as_str(),
            answer.dominant.expect("a reason").code.as_str()
        ),
        ("refused", "refused")
    );
    let mut explainer = Explainer::new(Subject::Job(job("ads/other")), None, 0);
    engine
        .log()
        .iter()
        .for_each(|recorded| explainer.read(recorded));
    assert!(explainer.explain().is_err());
}

#[test]
fn a_job_among_fifty_takes_few_decisions() {
    let mut engine = Engine::new(START, false);
    let policy = policy(0.1, 0.1);
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for index in 0..20 {
        let node = format!("n{index:02}").parse().expect("a node");
        let capacity = "cpu=12,memory=128Gi".parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    for index in 0..50_u32 {
        let id = format!("ads/j{index:02}");
        submit(&mut engine, 0.0, &id, (1, 8 + index % 5), EXIT);
    }
    engine
        .run_until(seconds_after_start(500.0))
        .expect("a healthy run");
    for id in ["ads/j03", "ads/j27", "ads/j49"] {
        let began = std::time::Instant::now();
        let mut explainer = Explainer::new(Subject::Job(job(id)), None, 120);
        let log = engine.log().iter();
        log.for_each(|recorded| explainer.read(recorded));
        let answer = explainer.explain().expect("it is there");
        let took_s = began.elapsed().as_secs_f64();
        println!(
            "{id} in {took_s:.2} s, {} decisions: {:?}, {} changes",
            answer.solves,
            answer.dominant.map(|it| it.code),
            answer.corrections.len()
        );
        assert!(
            answer.not_searched.is_empty() && answer.solves <= 40,
            "{id}"
        );
    }
}

/// Three GPUs with 0.4 free each: enough by sums for a whole GPU, but not on any device.
#[test]
fn parts_of_gpus_that_keep_a_job_waiting_are_named_with_their_holders() {
    let mut engine = Engine::new(START, true);
    let policy = Policy::default();
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    let node = "n0".parse().expect("a node");
    let capacity = "cpu=6,gpu=3".parse().expect("amounts");
    engine.at(START, Action::Join { node, capacity });
    let mut submit = |at_s: f64, id: &str, demand: &str| {
        let payload = format!(
            r#""demand":{demand},"containers":{{"min":1,"max":1}},"checkpoint":{{"mode":"none"}}"#
        );
        crate::common::submit(&mut engine, at_s, id, &payload, ModelJob::linear(1e6));
    };
    for holder in ["t/a", "t/b", "u/c"] {
        submit(1.0, holder, r#"{"cpu":1,"gpu":0.6}"#);
    }
    submit(10.0, "t/whole", r#"{"cpu":1,"gpu":1}"#);
    submit(11.0, "t/half", r#"{"cpu":1,"gpu":0.5}"#);
    submit(12.0, "t/one", r#"{"cpu":1}"#);
    engine
        .run_until(seconds_after_start(60.0))
        .expect("healthy");
    for waits in ["t/whole", "t/half"] {
        let answer = explain(engine.log(), Subject::Job(job(waits)), None);
        let words = answer.words.join("\n");
        for part in [
            "it lacks gpu on n0",
            "GPU 0 has 0 of 64 parts free (",
            "GPU 2 has",
            "t/a",
            "u/c",
        ] {
            assert!(words.contains(part), "{part:?} of {waits} in {words}");
        }
        assert_eq!(answer.held_by.len(), 3, "{words}");
        let dominant = answer.dominant.expect("a reason");
        assert_eq!(dominant.code, "fragmentation", "{}", dominant.words);
        let answer = explain(engine.log(), Subject::Job(job(waits)), Some("t"));
        assert!(!answer.words.join("\n").contains("u/c"));
    }
    let answer = explain(engine.log(), Subject::Job(job("t/one")), None);
    assert_eq!(answer.has, Some(1), "{:?}", answer.words);
}
