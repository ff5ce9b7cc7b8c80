//! Tests of command lines and environments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::*;
use dormouse_messages::Rank;
use dormouse_messages::job::{EnvValue, Executor, JobSpec, Kind};
use dormouse_node_agent::executor::{InPlace, Launch, Member, Setting, launch};

fn gang(addresses: &[&str]) -> Vec<Member> {
    let member = |(rank, address): (u16, &&str)| Member {
        rank: Rank(u32::from(rank)),
        address: (*address).to_owned(),
        port: 21_000 + 8 * rank,
    };
    (0..).zip(addresses).map(member).collect()
}

fn run(spec: &JobSpec, rank: u32, gang: &[Member], from: Option<&str>) -> Result<Launch, String> {
    launch(&Setting {
        spec,
        container: &id(2, rank),
        gang,
        resumed_from: from.map(Path::new),
        directory: PathBuf::from("/data/c"),
        checkpoint: PathBuf::from("/checkpoints/ads/lr/2"),
        in_place: None,
        network_ready: None,
    })
}

fn with(executor: Executor) -> JobSpec {
    let mut spec = spec(&["python3", "train.py"]);
    spec.executor = executor;
    spec
}

fn plain(launch: &Launch) -> BTreeMap<&str, &str> {
    let value = |value: &'static EnvValue| match value {
        EnvValue::Plain(text) => text.as_str(),
        EnvValue::Secret(_) => "a secret",
    };
    let env: &'static BTreeMap<String, EnvValue> = Box::leak(Box::new(launch.env.clone()));
    env.iter()
        .map(|(name, it)| (name.as_str(), value(it)))
        .collect()
}

#[test]
fn every_process_is_told_who_it_is() {
    let launch = run(
        &with(Executor::Plain),
        1,
        &gang(&["10.0.0.1", "10.0.0.2"]),
        None,
    )
    .expect("fine");
    assert_eq!(launch.argv, ["python3", "train.py"]);
    let expected = BTreeMap::from([
        ("DORMOUSE_JOB", "ads/lr"),
        ("DORMOUSE_RANK", "1"),
        ("DORMOUSE_WORLD_SIZE", "2"),
        ("DORMOUSE_INCARNATION", "2"),
        ("DORMOUSE_PROGRESS", "/data/c/progress.jsonl"),
        ("DORMOUSE_CHECKPOINT_DIR", "/checkpoints/ads/lr/2"),
        ("DORMOUSE_PORT", "21008"),
        ("DORMOUSE_PEERS", "10.0.0.1:21000,10.0.0.2:21008"),
    ]);
    assert_eq!(plain(&launch), expected);
}

#[test]
fn a_resume_runs_its_own_command_where_there_is_one() {
    let mut spec = with(Executor::Plain);
    let from = Some("/checkpoints/ads/lr/1");
    let launch = run(&spec, 0, &gang(&["10.0.0.1"]), from).expect("fine");
    assert_eq!(launch.argv, ["python3", "train.py"]);
    assert_eq!(
        plain(&launch)["DORMOUSE_RESUME_FROM"],
        "/checkpoints/ads/lr/1"
    );
    spec.command.resume = ["python3", "train.py", "--resume"]
        .map(str::to_owned)
        .into();
    let launch = run(&spec, 0, &gang(&["10.0.0.1"]), from).expect("fine");
    assert_eq!(launch.argv.len(), 3);
    assert_eq!(
        run(&spec, 0, &gang(&["10.0.0.1"]), None)
            .expect("fine")
            .argv
            .len(),
        2
    );
}

#[test]
fn the_job_has_the_last_word_on_its_environment() {
    let mut spec = with(Executor::Torch);
    spec.env
        .insert("MASTER_PORT".to_owned(), EnvValue::Plain("9".to_owned()));
    let launch = run(&spec, 1, &gang(&["10.0.0.1", "10.0.0.2"]), None).expect("fine");
    let env = plain(&launch);
    assert_eq!(env["MASTER_PORT"], "9");
    assert_eq!(
        (
            env["MASTER_ADDR"],
            env["RANK"],
            env["WORLD_SIZE"],
            env["LOCAL_RANK"]
        ),
        ("10.0.0.1", "1", "2", "0")
    );
    assert!(!env.contains_key("GLOO_SOCKET_IFNAME"));
}

#[test]
fn tensorflow_has_its_cluster_in_one_variable() {
    let launch = run(
        &with(Executor::Tensorflow),
        1,
        &gang(&["10.0.0.1", "10.0.0.2"]),
        None,
    )
    .expect("fine");
    let config: serde_json::Value =
        serde_json::from_str(plain(&launch)["TF_CONFIG"]).expect("JSON");
    let expected = serde_json::json!({
        "cluster": {"worker": ["10.0.0.1:21000", "10.0.0.2:21008"]},
        "task": {"type": "worker", "index": 1},
    });
    assert_eq!(config, expected);
}

/// MPICH needs the port numbers, and both MPIs wait for the network.
#[test]
fn in_a_network_of_its_own_a_rank_is_told_its_ports() {
    let spec = with(Executor::Mpi);
    let gang = gang(&["10.0.0.1", "10.0.0.2"]);
    let launch = launch(&Setting {
        spec: &spec,
        container: &id(2, 1),
        gang: &gang,
        resumed_from: None,
        directory: PathBuf::from("/data/c"),
        checkpoint: PathBuf::from("/checkpoints/ads/lr/2"),
        in_place: None,
        network_ready: Some(PathBuf::from("/data/c/network")),
    });
    let launch = launch.expect("fine");
    let env = plain(&launch);
    assert_eq!(env["DORMOUSE_NETWORK"], "/data/c/network");
    assert_eq!(env["DORMOUSE_MPI_ROOT"], "10.0.0.1:21000");
    assert_eq!(env["FI_TCP_IFACE"], "dormouse0");
    let ports = (env["FI_TCP_PORT_LOW_RANGE"], env["FI_TCP_PORT_HIGH_RANGE"]);
    assert_eq!(ports, ("21009", "21015"));
}

#[test]
fn mpi_and_mxnet_wrap_the_command() {
    for executor in [Executor::Mpi, Executor::Mxnet] {
        let launch = run(
            &with(executor),
            1,
            &gang(&["127.0.0.1", "127.0.0.1", "127.0.0.1"]),
            None,
        )
        .expect("fine");
        assert_eq!(
            (launch.argv[0].as_str(), launch.argv[1].as_str()),
            ("/bin/sh", "-c")
        );
        assert_eq!(launch.argv[3..], ["dormouse", "python3", "train.py"]);
        let env = plain(&launch);
        if executor == Executor::Mpi {
            assert_eq!(
                (env["DORMOUSE_MPI_ROOT"], env["FI_TCP_IFACE"]),
                ("127.0.0.1:21000", "lo")
            );
            assert_eq!(env["DORMOUSE_EXIT"], "/data/c/mpi-exit");
            assert_eq!(env["DORMOUSE_GO"], "/data/c/go");
        } else {
            let numbers = (
                env["DMLC_NUM_WORKER"],
                env["DMLC_NUM_SERVER"],
                env["DMLC_PS_ROOT_PORT"],
            );
            assert_eq!(numbers, ("3", "2", "21000"));
            assert_eq!(
                (env["DMLC_PS_ROOT_URI"], env["DMLC_NODE_HOST"]),
                ("127.0.0.1", "127.0.0.1")
            );
        }
    }
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let error =
        run(&with(Executor::Mxnet), 0, &gang(&["node-a.example"]), None).expect_err("a name");
    assert!(
        error.contains("needs the IP") && error.contains("node-a.example"),
        "{error}"
    );
    let error = run(&spec(&[]), 0, &gang(&["10.0.0.1"]), None).expect_err("no command");
    assert!(error.contains("command.start"), "{error}");
    let error =
        run(&with(Executor::Plain), 5, &gang(&["10.0.0.1"]), None).expect_err("no such rank");
    assert!(error.contains("rank 5"), "{error}");
}

fn in_place(spec: &JobSpec, rank: u32, gang: &[Member]) -> Launch {
    let launch = launch(&Setting {
        spec,
        container: &id(2, rank),
        gang,
        resumed_from: None,
        directory: PathBuf::from("/data/c"),
        checkpoint: PathBuf::from("/checkpoints/ads/lr/2"),
        in_place: Some(InPlace {
            members: PathBuf::from("/data/m/members.json"),
            ack: PathBuf::from("/data/c/ack.json"),
            generation: 3,
        }),
        network_ready: None,
    });
    launch.expect("it can start")
}

/// Ranks 1, 3 and 4 have left.
fn with_gaps() -> Vec<Member> {
    let mut gang = gang(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    (gang[1].rank, gang[2].rank) = (Rank(2), Rank(5));
    gang
}

#[test]
fn a_newcomer_is_told_its_change_and_its_place_without_gaps() {
    let launch = in_place(&with(Executor::Plain), 5, &with_gaps());
    let env = plain(&launch);
    assert_eq!(env["DORMOUSE_MEMBERS"], "/data/m/members.json");
    assert_eq!(env["DORMOUSE_ACK"], "/data/c/ack.json");
    assert_eq!(
        (env["DORMOUSE_MEMBER"], env["DORMOUSE_GENERATION"]),
        ("5", "3")
    );
    assert_eq!(
        (env["DORMOUSE_RANK"], env["DORMOUSE_WORLD_SIZE"]),
        ("2", "3")
    );
    let launch = in_place(&with(Executor::Tensorflow), 5, &with_gaps());
    let config: serde_json::Value =
        serde_json::from_str(plain(&launch)["TF_CONFIG"]).expect("JSON");
    assert_eq!(config["task"]["index"], 2);
}

#[test]
fn torchrun_meets_at_the_coordinator() {
    let launch = in_place(&with(Executor::Torch), 5, &with_gaps());
    let env = plain(&launch);
    assert_eq!(env["PET_NNODES"], "1:4");
    assert_eq!(env["PET_RDZV_ENDPOINT"], "10.0.0.1:21000");
    assert_eq!(env["PET_RDZV_ID"], "ads-lr-2");
    assert!(env["PET_RDZV_CONF"].starts_with("is_host=0,"));
    assert!(env["PET_RDZV_CONF"].contains(",keep_alive_interval=1,"));
    assert_eq!(env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"], "1");
    assert_eq!(env["PET_LOCAL_ADDR"], "10.0.0.3");
    assert!(!env.contains_key("WORLD_SIZE"), "torchrun says it");
    let launch = in_place(&with(Executor::Torch), 0, &with_gaps());
    assert!(plain(&launch)["PET_RDZV_CONF"].starts_with("is_host=1,"));
}

#[test]
fn a_notebook_listens_on_its_own_port_or_not_at_all() {
    let mut spec = with(Executor::Plain);
    spec.kind = Kind::Notebook;
    let launch = in_place(&spec, 2, &with_gaps());
    let env = plain(&launch);
    assert_eq!(env["JUPYTER_PORT"], env["DORMOUSE_PORT"]);
    assert_eq!(env["JUPYTER_PORT_RETRIES"], "0");
}
