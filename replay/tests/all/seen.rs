//! No kind of answer shows another tenant's names.

use std::sync::Arc;

use dormouse_messages::events::{ClusterConfigured, TenantConfigured};
use dormouse_messages::policy::{Allocation, Policy};
use dormouse_messages::{Epoch, Event, Recorded, Sequence, TenantId};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::bisect::Bisect;
use dormouse_replay::history::changes::{Asked, Changes};
use dormouse_replay::history::diff::{PolicyDiff, logs};
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::history::plan::{self, plan};
use dormouse_replay::history::trace::TraceWriter;
use dormouse_replay::history::whatif::{ForkAt, History, Options, whatif};
use dormouse_replay::simulate::{START, seconds_after_start};
use serde::Serialize;

type Log = Vec<Arc<Recorded>>;

fn ads() -> TenantId {
    "ads".parse().expect("a tenant")
}

/// `lab` takes containers from `ads/lr`; then one job of each waits, that of `ads` last.
fn log(allocation: Allocation) -> Log {
    let mut engine = Engine::new(START, true);
    let policy = Policy {
        allocation,
        theta1: 1.0,
        theta2: 1.0,
        min_run_s: Some(0),
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    let configured = TenantConfigured {
        tenant: "lab".parse().expect("a tenant"),
        weight: 2,
        quota: "cpu=64".parse().expect("amounts"),
        max_job_weight: None,
        priority: None,
    };
    engine.at(START, Action::Operator(configured.into()));
    for node in ["n0", "n1"] {
        let node = node.parse().expect("a node");
        let capacity = "cpu=8".parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    let exit = r#","checkpoint":{"mode":"exit"}"#;
    for (at_s, tenant, name, bounds, more, work_s) in [
        (0.0, "ads", "lr", (2, 8), exit, 4e3),
        (60.0, "lab", "secret-a", (4, 4), "", 3e3),
        (120.0, "lab", "secret-b", (4, 6), exit, 3e3),
        (180.0, "lab", "secret-c", (1, 12), exit, 3e3),
        (240.0, "ads", "late", (1, 9), "", 3e3),
    ] {
        let model = ModelJob {
            save_s: 5.0,
            ..ModelJob::linear(work_s)
        };
        let job = format!("{tenant}/{name}").parse().expect("a job");
        engine.model(job, model);
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
    let drained = Action::Drain("n1".parse().expect("a node"));
    engine.at(seconds_after_start(300.0), drained);
    let restored = Action::Restore("n1".parse().expect("a node"));
    engine.at(seconds_after_start(500.0), restored);
    engine
        .run_until(seconds_after_start(20_000.0))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn until(log: &Log, seconds: f64) -> Log {
    let until = seconds_after_start(seconds);
    log.iter()
        .filter(|it| it.stored_at <= until)
        .cloned()
        .collect()
}

#[track_caller]
fn assert_hidden(what: &str, answer: &impl Serialize) -> String {
    let text = serde_json::to_string(answer).expect("JSON");
    for name in ["secret", "lab/", "\"lab\""] {
        assert!(!text.contains(name), "{what} says {name}: {text}");
    }
    text
}

fn explained(log: &Log, subject: Subject, viewer: Option<TenantId>) -> String {
    let what = format!("{subject:?}");
    let mut explainer = Explainer::new(subject, viewer.clone(), 40);
    log.iter().for_each(|recorded| explainer.read(recorded));
    let mut told = Vec::new();
    let answer = explainer
        .explain_step_by_step(|so_far| told.push(so_far.clone()))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    if viewer.is_some() {
        assert_hidden(&what, &told);
        return assert_hidden(&what, &answer);
    }
    serde_json::to_string(&answer).expect("JSON")
}

fn changes(settings: &[&str]) -> Changes {
    let settings = settings.iter().map(|it| it.parse().expect("a setting"));
    let asked = Asked {
        settings: settings.collect(),
        ..Asked::default()
    };
    asked.variants().expect("changes").remove(0)
}

#[test]
fn explanations_name_no_job_of_another_tenant() {
    for allocation in [Allocation::Dorm, Allocation::Static] {
        let log = log(allocation);
        let mut named = 0;
        for seconds in [100.0, 150.0, 250.0, 350.0, 20_000.0] {
            let part = until(&log, seconds);
            let epochs = part.iter().filter_map(|it| match it.event() {
                Some(Event::AllocationDecided(event)) => Some(event.epoch),
                _ => None,
            });
            let epochs: Vec<Epoch> = epochs.collect();
            let of_ads = |name: &str| Subject::Job(format!("ads/{name}").parse().expect("a job"));
            let mut subjects = vec![
                of_ads("lr"),
                Subject::Tenant(ads()),
                Subject::Node("n0".parse().expect("a node")),
                Subject::Node("n1".parse().expect("a node")),
            ];
            subjects.extend(epochs.into_iter().map(Subject::Epoch));
            if seconds >= 250.0 {
                subjects.push(of_ads("late"));
            }
            for subject in subjects {
                // Without names in the full answers the test would prove nothing.
                let full = explained(&part, subject.clone(), None);
                named += usize::from(full.contains("secret"));
                explained(&part, subject, Some(ads()));
            }
        }
        assert!(named >= 10, "{allocation:?}: {named}");
    }
}

fn behind(log: &Log) -> Option<Log> {
    let place = log.iter().position(|it| {
        let waiting = match it.event() {
            Some(Event::AllocationDecided(event)) => &event.outcome.waiting,
            Some(Event::AllocationUnchanged(event)) => &event.outcome.waiting,
            _ => return false,
        };
        let mut waiting = waiting.iter().filter(|it| it.job.as_str() == "ads/late");
        waiting.any(|it| it.reason.contains("behind lab/secret"))
    })?;
    Some(log[..=place].to_vec())
}

#[test]
fn a_job_that_waits_behind_another_tenant_s_says_so() {
    let logs = [Allocation::Dorm, Allocation::Static].map(log);
    let log = logs.iter().find_map(behind).expect("it waits behind");
    let late = || Subject::Job("ads/late".parse().expect("a job"));
    let tenant = explained(&log, Subject::Tenant(ads()), Some(ads()));
    assert!(
        tenant.contains("waits behind another tenant's job"),
        "{tenant}"
    );
    assert!(explained(&log, late(), None).contains("waits behind lab/secret"));
    let late = explained(&log, late(), Some(ads()));
    assert!(
        late.contains("it waits behind a job that was released before it"),
        "{late}"
    );
}

#[test]
fn plans_and_forks_name_no_job_of_another_tenant() {
    let log = until(&log(Allocation::Dorm), 250.0);
    let mut history = History::default();
    log.iter().for_each(|recorded| history.read(recorded));
    let forked = history.fork(ForkAt::Sequence(Sequence(u64::MAX)));
    let document = serde_json::json!({"name": "more", "command": {"start": ["run"]},
        "demand": {"cpu": 1}, "containers": {"min": 3, "max": 6}});
    let mut named = String::new();
    for subject in [
        plan::Subject::Job(ads(), document),
        plan::Subject::Changes(Box::new(changes(&["policy.theta2=0"]))),
        plan::Subject::Changes(Box::new(Changes {
            drop_nodes: ["n0".parse().expect("a node")].into(),
            ..Changes::default()
        })),
    ] {
        let plan = plan(&history, &forked, &subject, 2).expect("a plan");
        named.push_str(&serde_json::to_string(&plan).expect("JSON"));
        assert_hidden("a plan", &plan.seen_by(&ads()).expect("seen"));
    }
    assert!(named.contains("secret"), "{named}");
    let forked = history.fork(ForkAt::Sequence(Sequence(0)));
    let options = Options {
        draws: 2,
        threads: 1,
    };
    let other = [changes(&["policy.allocation=drf"])];
    let answer = whatif(&history, &forked, &other, options).expect("an answer");
    let answer = answer.answer;
    assert!(
        serde_json::to_string(&answer)
            .expect("JSON")
            .contains("secret")
    );
    assert_hidden("whatif", &answer.seen_by(&ads()).expect("seen"));
}

#[test]
fn ledger_diff_and_bisect_name_no_job_of_another_tenant() {
    let log = log(Allocation::Dorm);
    let mut ledger = Ledger::new(None, None);
    log.iter().for_each(|recorded| ledger.read(recorded));
    let last = log.last().expect("events").stored_at;
    let table = ledger.finish(last).seen_by(&ads()).expect("seen");
    assert_hidden("the ledger", &table);
    assert!(!table.csv().contains("lab"));

    let other = changes(&["policy.allocation=static"]);
    let mut diff = PolicyDiff::new(&other);
    for recorded in &log {
        diff.read(recorded).expect("a policy");
    }
    let diff = diff.finish();
    assert!(
        serde_json::to_string(&diff)
            .expect("JSON")
            .contains("secret")
    );
    assert_hidden("diff", &diff.seen_by(&ads()).expect("seen"));
    let static_log = self::log(Allocation::Static);
    let diff = logs(&log, &static_log);
    assert!(diff.first.is_some());
    assert_hidden("diff of two logs", &diff.seen_by(&ads()).expect("seen"));

    for predicate in [
        "running>1",
        "fairness-loss>0.01",
        "utilization>0.9",
        "ads/lr=completed",
    ] {
        let mut bisect = Bisect::new(predicate.parse().expect("a predicate"));
        for recorded in &log {
            bisect.read(recorded);
        }
        let found = bisect.finish().0;
        let found = found.unwrap_or_else(|| panic!("{predicate} is so once"));
        assert_hidden(predicate, &found.seen_by(&ads()).expect("seen"));
    }
}

#[test]
fn a_trace_names_no_job_of_another_tenant() {
    let log = log(Allocation::Dorm);
    let traced = |viewer: Option<TenantId>| {
        let mut bytes = Vec::new();
        let writer = TraceWriter::new(&mut bytes).expect("written");
        let mut writer = writer.seen_by(viewer);
        for recorded in &log {
            writer.read(recorded).expect("written");
        }
        let (packets, _) = writer.finish().expect("written");
        (String::from_utf8_lossy(&bytes).into_owned(), packets)
    };
    let (all, _) = traced(None);
    assert!(all.contains("lab/secret-a") && all.contains("ads/lr"));
    let (seen, packets) = traced(Some(ads()));
    assert!(seen.contains("ads/lr") && seen.contains("a container of another tenant"));
    assert!(!seen.contains("secret") && !seen.contains("lab"), "{seen}");
    assert!(packets > 0);
}
