//! The experiment of DynamoML in four configurations, compared with an independent model. The whole
//! table is `dormouse lab simulate dynamoml:all dynamoml:sharing dynamoml:scaling dynamoml:none`.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_messages::events::ResizeCause;
use dormouse_messages::{Event, Recorded};
use dormouse_replay::report::{Run, page};
use dormouse_replay::scenario::dynamoml::{Configuration, dynamoml};
use dormouse_replay::scenario::{Scenario, read_value};
use dormouse_replay::serving::traces::DYNAMOML_CLIENTS;
use dormouse_replay::simulate::mixed::{MixedFigures, TrainingFigures};
use dormouse_replay::simulate::{Options, Outcome, simulate};
use dormouse_replay::torture::trial;
use serde_json::json;

const CHECKED: Options = Options {
    check: true,
    faults: dormouse_replay::engine::Faults::none(),
};

fn scenario(configuration: Configuration) -> Scenario {
    read_value(dynamoml(configuration)).expect("a scenario")
}

fn run(configuration: Configuration) -> (Outcome, Vec<Arc<Recorded>>) {
    let mut log = Vec::new();
    let keep = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    let outcome = simulate(&scenario(configuration), &CHECKED, keep, |_| ()).expect("simulates");
    (outcome, log)
}

fn mixed(outcome: &Outcome) -> &MixedFigures {
    outcome
        .figures
        .mixed
        .as_ref()
        .expect("services and training")
}

fn gain(of: fn(&TrainingFigures) -> f64, all: &TrainingFigures, plain: &TrainingFigures) -> f64 {
    100.0 * (1.0 - of(all) / of(plain))
}

#[test]
fn the_experiment_comes_out_as_in_an_independent_model() {
    let runs: BTreeMap<Configuration, (Outcome, Vec<Arc<Recorded>>)> = Configuration::ALL
        .into_iter()
        .map(|it| (it, run(it)))
        .collect();
    let figures = |configuration: Configuration| mixed(&runs[&configuration].0);
    let training = |configuration: Configuration| &figures(configuration).training;
    for (configuration, minutes) in [
        (Configuration::All, 26.3),
        (Configuration::Sharing, 50.2),
        (Configuration::Scaling, 67.0),
        (Configuration::None, 53.7),
    ] {
        let makespan = training(configuration).makespan_s / 60.0;
        assert_eq!(training(configuration).jobs, 12);
        assert!(
            (makespan / minutes - 1.0_f64).abs() <= 0.1,
            "{configuration:?}: {makespan:.1} of {minutes} min"
        );
    }
    let (all, plain) = (training(Configuration::All), training(Configuration::None));
    for (what, of, model) in [
        (
            "training",
            (|it| it.working_s) as fn(&TrainingFigures) -> f64,
            74.0,
        ),
        ("waiting", |it| it.waiting_s, 94.0),
        ("execution", |it| it.total_s, 80.0),
    ] {
        let gain = gain(of, all, plain);
        assert!(
            (gain - model).abs() <= 10.0,
            "{what}: {gain:.0} of {model} %"
        );
    }
    let service = |configuration| &figures(configuration).services[0];
    let response = service(Configuration::All);
    assert_eq!(
        (response.in_time, response.unanswered_s),
        (1.0, 0),
        "{response:?}"
    );
    // Replicas that start are not counted here: 0.2 at most on average.
    assert!(
        response.replicas + 0.2 < published_replicas(),
        "{response:?}"
    );
    // 40 % of the time in 128 to 512 ms, and 14 % above 1,024 ms.
    let [late, later, _] = service(Configuration::Scaling).above;
    assert!(((late - later) - 0.4).abs() <= 0.1, "{late} {later}");
    let [.., latest] = service(Configuration::Sharing).above;
    assert!((latest - 0.14).abs() <= 0.02, "{latest}");
    nobody_is_stopped(&runs[&Configuration::All].1);
    on_one_page(&runs);
}

/// The mean of the published rule, ⌈(clients + 60) ÷ 32⌉, which is never late: the clients rise by at most 60 a
/// minute.
fn published_replicas() -> f64 {
    let replicas = DYNAMOML_CLIENTS.map(|clients| f64::from((clients + 60).div_ceil(32)));
    replicas.iter().sum::<f64>() / 28.0
}

fn nobody_is_stopped(log: &[Arc<Recorded>]) {
    let mut shrunk = 0;
    for recorded in log {
        match recorded.event() {
            Some(Event::PartitionStopRequested(event)) if event.job.tenant() == "training" => {
                panic!("{event:?}");
            }
            Some(Event::PartitionResizeRequested(event)) if event.job.tenant() == "training" => {
                assert!(event.leave.iter().all(|rank| rank.0 > 0), "{event:?}");
                assert_eq!(event.cause, ResizeCause::Adjusted);
                shrunk += event.leave.len();
            }
            _ => {}
        }
    }
    assert!(shrunk > 0, "training made room");
}

fn on_one_page(runs: &BTreeMap<Configuration, (Outcome, Vec<Arc<Recorded>>)>) {
    let named: Vec<Run<'_>> = runs
        .iter()
        .map(|(configuration, (outcome, _))| Run {
            name: configuration.as_str().to_owned(),
            outcome,
        })
        .collect();
    let page = page("DynamoML", &named);
    for heading in [
        "Services and training",
        "Response time",
        "Replicas",
        "Speed of training",
    ] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    assert!(!page.contains("NaN"));
}

fn small(service: serde_json::Value, work: serde_json::Value) -> serde_json::Value {
    json!({
        "scenario": "small", "horizon_s": 3600,
        "nodes": [{"name": "n0", "capacity": {"cpu": 4}}],
        "jobs": [
            {"at_s": 0, "model": service, "spec": {
                "name": "model", "kind": "inference", "command": {"start": ["serve"]},
                "demand": {"cpu": 1}, "containers": {"min": 1, "max": 3},
                "service": {"objective": {"latency_ms": 400, "percentile": 99}}}},
            {"at_s": 60, "model": work, "spec": {
                "name": "train", "command": {"start": ["train"]}, "demand": {"cpu": 1},
                "containers": {"min": 1, "max": 2}, "resize": "in_place"}},
        ],
    })
}

/// 24 requests per second exceed two replicas.
#[test]
fn a_rate_gets_its_replicas_and_the_simulation_ends() {
    let service = json!({
        "clients": {"rate": [5, 24], "every_s": 300, "work_ms": 100},
        "costs": {"ready_s": 20},
    });
    let scenario = small(service, json!({"work_container_s": 100}));
    let scenario = read_value(scenario).expect("a scenario");
    let outcome = simulate(&scenario, &CHECKED, |_| Ok(()), |_| ()).expect("simulates");
    let figures = mixed(&outcome);
    let service = &figures.services[0];
    assert_eq!(service.most_replicas, 3, "{service:?}");
    assert!((0.9..1.0).contains(&service.in_time), "{service:?}");
    assert_eq!(figures.training.jobs, 1);
    assert!(
        (figures.training.working_s - 50.0).abs() < 1.0,
        "{figures:?}"
    );
    let mean = outcome
        .mixed
        .as_ref()
        .map(|course| course.mean_speed(0.0, 50.0));
    assert!((mean.expect("a course") - 2.0).abs() < 0.1);
}

#[test]
fn what_makes_no_sense_of_a_service_is_refused() {
    let work = || json!({"work_container_s": 100});
    let clients = |it: serde_json::Value| json!({"clients": it});
    for (service, work, says) in [
        (
            json!({"work_container_s": 1}),
            work(),
            "until they are cancelled",
        ),
        (json!({}), json!({}), "neither work_container_s nor tasks"),
        (
            clients(json!({"every_s": 1, "work_ms": 1})),
            work(),
            "give one",
        ),
        (
            clients(json!({"rate": [], "every_s": 1, "work_ms": 1})),
            work(),
            "at least one number",
        ),
        (
            clients(json!({"rate": [-1], "every_s": 1, "work_ms": 1})),
            work(),
            "0 or more",
        ),
        (
            clients(json!({"rate": [1], "every_s": 0, "work_ms": 1})),
            work(),
            "above 0",
        ),
        (
            json!({}),
            clients(json!({"rate": [1], "every_s": 1, "work_ms": 1})),
            "kind: inference",
        ),
        (
            json!({}),
            json!({"work_container_s": 1, "crossing": 0}),
            "model.crossing",
        ),
        (
            json!({}),
            json!({"work_container_s": 1, "scaling": {"kind": "table", "speed": [1, 0]}}),
            "the last one above",
        ),
    ] {
        let error = read_value(small(service, work))
            .expect_err("refused")
            .to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_experiment_survives_faults() {
    for configuration in [Configuration::All, Configuration::Scaling] {
        for seed in 1..=3 {
            let ended = trial(seed, Some(&scenario(configuration)));
            ended.unwrap_or_else(|failure| panic!("{configuration:?}: {failure}"));
        }
    }
}
