//! Tests of the environment of jobs with roles, including TensorFlow's cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::common::*;
use dormouse_messages::Rank;
use dormouse_messages::job::{EnvValue, Executor, JobSpec};
use dormouse_node_agent::executor::{Launch, Member, Setting, launch};
use serde_json::{Value, json};

/// One coordinator, an evaluator, two servers and a second worker.
fn gang() -> Vec<Member> {
    let member = |rank: u16| Member {
        rank: Rank(u32::from(rank)),
        address: "10.0.0.1".to_owned(),
        port: 21_000 + 8 * rank,
    };
    (0..5).map(member).collect()
}

fn of(executor: Executor) -> JobSpec {
    let mut spec = spec(&["python3", "train.py"]);
    spec.executor = executor;
    spec.roles = serde_json::from_value(json!({
        "ps": {"count": 2, "demand": {"cpu_milli": 500}, "command": {"start": ["python3", "serve.py"]}},
        "evaluator": {"count": 1, "demand": {"cpu_milli": 500}},
    }))
    .expect("roles");
    spec
}

fn told(spec: &JobSpec, rank: u32) -> Launch {
    launch(&Setting {
        spec: &spec.of_rank(Rank(rank)),
        container: &id(1, rank),
        gang: &gang(),
        resumed_from: None,
        directory: PathBuf::from("/data/c"),
        checkpoint: PathBuf::from("/checkpoints/ads/lr/1"),
        in_place: None,
        network_ready: None,
    })
    .expect("fine")
}

fn value<'a>(env: &'a BTreeMap<String, EnvValue>, name: &str) -> &'a str {
    match env.get(name) {
        Some(EnvValue::Plain(text)) => text,
        _ => "",
    }
}

#[test]
fn each_container_knows_its_role_and_the_others() {
    let spec = of(Executor::Plain);
    for (rank, role, place, size, program) in [
        (0, "worker", "0", "2", "train.py"),
        (1, "evaluator", "0", "1", "train.py"),
        (2, "ps", "0", "2", "serve.py"),
        (3, "ps", "1", "2", "serve.py"),
        (4, "worker", "1", "2", "train.py"),
    ] {
        let launch = told(&spec, rank);
        assert_eq!(launch.argv, ["python3", program], "rank {rank}");
        assert_eq!(value(&launch.env, "DORMOUSE_ROLE"), role);
        assert_eq!(value(&launch.env, "DORMOUSE_ROLE_RANK"), place);
        assert_eq!(value(&launch.env, "DORMOUSE_ROLE_SIZE"), size);
        assert_eq!(
            value(&launch.env, "DORMOUSE_ROLE_PEERS"),
            "evaluator=10.0.0.1:21008;ps=10.0.0.1:21016,10.0.0.1:21024;worker=10.0.0.1:21000,10.0.0.1:21032"
        );
    }
}

/// `ParameterServerStrategy` wants a chief, workers and servers; the evaluator is outside the cluster.
#[test]
fn tensorflow_is_told_its_cluster_and_task() {
    let spec = of(Executor::Tensorflow);
    let cluster = json!({
        "chief": ["10.0.0.1:21000"], "worker": ["10.0.0.1:21032"],
        "ps": ["10.0.0.1:21016", "10.0.0.1:21024"],
    });
    for (rank, kind, index) in [
        (0, "chief", 0),
        (1, "evaluator", 0),
        (2, "ps", 0),
        (3, "ps", 1),
        (4, "worker", 0),
    ] {
        let launch = told(&spec, rank);
        let config: Value =
            serde_json::from_str(value(&launch.env, "TF_CONFIG")).expect("a document");
        assert_eq!(config["cluster", "status"], cluster, "rank {rank}");
        assert_eq!(config["task"], json!({"type": kind, "index": index}));
    }
    let mut alone = of(Executor::Tensorflow);
    alone.roles.clear();
    let config = told(&alone, 1);
    assert!(value(&config.env, "TF_CONFIG").contains(r#""type":"worker""#));
    assert_eq!(value(&config.env, "DORMOUSE_ROLE"), "");
}
