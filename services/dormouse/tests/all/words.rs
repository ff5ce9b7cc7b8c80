//! Messages of the command line: refusals, endings, missing places.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Cluster, count_job, root};

fn dormouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .current_dir(root())
        .env_remove("DORMOUSE_OUTPUT")
        .env_remove("DORMOUSE_SERVER")
        .stdin(Stdio::null());
    command
}

fn said(output: &Output) -> (Option<i32>, String) {
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), err)
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    for args in [
        &["lab", "simulate", "--generate", "trace", "--jobs", "2000"][..],
        &["completion", "bash"],
        &["--help"],
    ] {
        let mut child = dormouse()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let (code, err) = said(&child.wait_with_output().expect("it ends"));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_cluster_that_cannot_start_is_not_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = dormouse()
        .args(["up", "--runtime", "docker", "--data"])
        .arg(folder.path())
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        .output()
        .expect("it ends");
    let (code, err) = said(&output);
    assert_eq!(code, Some(1), "{err}");
    assert!(!err.contains("A cluster"), "{err}");
    assert!(!folder.path().join("broker").exists(), "{err}");
}

#[test]
fn what_is_wrong_with_a_document_is_said_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.yaml");
    for (text, words) in [
        ("policy: {theta1: [", "not valid YAML"),
        ("policy: {theta1: a}", "policy.theta1: "),
        ("policy: {theta1: a}", "expected a number"),
        ("policy: dorm", "expected a map such as {allocation: dorm"),
        ("policy: [dorm]", "a list where a map is meant"),
        ("theta1: 0.2", "stand below `policy`"),
        ("[]", "a list where a map is meant"),
        (
            "policy: {reserve_after_s: 0.5}",
            "expected a whole number, 0 or more",
        ),
    ] {
        std::fs::write(&file, text).expect("writes");
        let output = dormouse().args(["policy", "set"]).arg(&file).output();
        let (code, err) = said(&output.expect("it ends"));
        assert_eq!(code, Some(1), "{text}: {err}");
        assert!(err.contains(words), "{text}: {err}");
        for name in ["u32", "f64", "struct "] {
            assert!(!err.contains(name), "{text}: {err}");
        }
    }
}

#[test]
fn a_word_of_fifty_thousand_letters_is_not_repeated() {
    let name = format!("\u{1b}[2J{}", "x".repeat(50_000));
    for args in [
        &["job", "show", &name][..],
        &["timeline", &name],
        &["node", "show", &name],
        &["submit", &name],
        &["lab", "simulate", &name],
    ] {
        let output = dormouse().args(args).output().expect("it ends");
        let (code, err) = said(&output);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.len() < 2_000, "{}: {}", args[0], err.len());
        assert!(!err.contains('\u{1b}'), "{}: {err:?}", args[0]);
    }
}

#[test]
fn who_asks_a_busy_cluster_is_answered_at_once_and_truthfully() {
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let mut first = count_job("first", 5_000, (4, 4), &[]);
    first["demand"] = json!({"cpu": 1.0, "memory": "1Gi"});
    first["weight"] = json!(1.0);
    cluster.submit(&first).ok();
    let mut second = first.clone();
    second["name"] = json!("second");
    let begun = Instant::now();
    let queued = cluster.submit(&second);
    let took = begun.elapsed();
    assert_eq!(queued.code, 2, "{queued:?}");
    assert_eq!(queued.json()["state"], "queued", "{queued:?}");
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    let logs = cluster.run(&["job", "logs", "ads/second"]);
    let message = logs.error()["message"].to_string();
    assert!(
        message.contains("no container yet; it is queued: ") && !message.contains("job show"),
        "{message}"
    );
    let mut long = first.clone();
    long["name"] = json!(format!("\u{1b}[2J{}", "x".repeat(50_000)));
    let refused = cluster.submit(&long);
    let message = refused.error()["message"].to_string();
    assert!(message.len() < 500, "{}", message.len());
    assert!(!message.contains('\u{1b}'), "{message:?}");
    places_on_the_log(&cluster);
    cluster.run(&["job", "cancel", "ads/second"]).ok();
    cluster.run(&["job", "cancel", "ads/first"]).ok();
    cluster.run(&["job", "wait", "ads/first"]);
    cluster.wait_no_programs();
    cluster.check();
}

#[test]
fn a_job_that_cannot_start_points_to_no_logs() {
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let mut job = count_job("nowhere", 10, (1, 1), &[]);
    job["command"] = json!({"start": ["/no/such/\u{1b}[31mprogram"]});
    job["retries"] = json!(0);
    cluster.submit(&job);
    let ended = cluster.run_with(&["job", "wait", "ads/nowhere"], &[]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(!ended.out.contains("job logs"), "{ended:?}");
    assert!(!ended.out.contains('\u{1b}'), "{ended:?}");
    let mut job = count_job("bad", 10, (1, 1), &["--exit-code", "5"]);
    job["retries"] = json!(0);
    cluster.submit(&job);
    let ended = cluster.run_with(&["job", "wait", "ads/bad"], &[]);
    assert!(ended.out.contains("job logs ads/bad"), "{ended:?}");
    a_notebook_without_a_server_is_not_waited_for(&cluster);
    cluster.wait_no_programs();
    cluster.check();
}

fn a_notebook_without_a_server_is_not_waited_for(cluster: &Cluster) {
    let notebook = json!({"name": "nb", "tenant": "ads", "kind": "notebook",
        "command": {"start": ["no-such-jupyter", "server"]}, "demand": {"cpu": 1},
        "containers": {"min": 1, "max": 1}});
    cluster.submit(&notebook);
    let opened = cluster.run(&["notebook", "open", "ads/nb", "--timeout", "60s"]);
    let error = opened.error();
    let message = error["message"].to_string();
    assert_eq!(error["code"], "not_started", "{opened:?}");
    assert!(
        message.contains("is not found in PATH on this node"),
        "{message}"
    );
    let listed = cluster.run(&["notebook", "list"]).ok().json();
    assert_eq!(listed["notebooks"][0]["state"], "starting", "{listed}");
    cluster.run(&["job", "cancel", "ads/nb"]).ok();
    cluster.run(&["job", "wait", "ads/nb"]);
}

/// A clean clone has no folder `demo`.
#[test]
fn a_demo_without_training_frameworks_runs_plain_jobs_and_says_so() {
    let mut cluster = Cluster::new();
    cluster.env("DORMOUSE_TOOLS", "/nowhere");
    let examples = cluster.dir().join("examples");
    std::fs::create_dir_all(examples.join("demo")).expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(examples.join("demo").join(name), text).expect("written");
    };
    write("plain.json", r#"[{"at_s": 0, "file": "hello.yaml"}]"#);
    write(
        "hello.yaml",
        "{name: hello, tenant: ads, kind: training, executor: plain, image: dormouse/empty, command: {start: [echo, hello]}, demand: {cpu: 1, memory: 1Gi}, containers: {min: 1, max: 1}, success: all}",
    );
    let file = cluster.dir().join("new").join("log.jsonl");
    let (examples, file) = (examples.display().to_string(), file.display().to_string());
    let demo = cluster
        .run_with(
            &["demo", "--examples", &examples, "--write-log", &file],
            &[],
        )
        .ok();
    assert!(
        demo.out.contains("MPI and MXNet are not installed"),
        "{demo:?}"
    );
    assert!(demo.out.contains("log verify --archive "), "{demo:?}");
}

fn places_on_the_log(cluster: &Cluster) {
    let folder = cluster.dir().join("not-there");
    let file = folder.join("log.jsonl");
    let file = file.to_str().expect("a name");
    let export = cluster.run_with(&["log", "export"], &["--file", file]);
    assert_eq!(export.code, 1, "{export:?}");
    assert!(export.err.contains("there is no folder"), "{export:?}");
    assert!(!folder.exists());
    let policy = cluster
        .run_with(&["policy", "set", "deploy/policy.yaml"], &[])
        .ok();
    assert!(
        policy.out.contains("\n  allocation  dorm, θ1"),
        "{policy:?}"
    );
    assert!(!policy.out.contains('{'), "{policy:?}");
    let admitted = cluster.log().into_iter().find(|it| {
        matches!(it.event(), Some(dormouse_messages::Event::JobAdmitted(it)) if it.job.name() == "first")
    });
    let at = admitted.expect("on the log").stored_at;
    let state = cluster.run(&["log", "state", "--at", &at.to_string()]).ok();
    let jobs = state.json()["jobs"].as_array().map(Vec::len);
    assert_eq!(jobs, Some(1), "{state:?}");
    let state = cluster.run(&["log", "state", "--at", "23:59:59.999"]).ok();
    let jobs = state.json()["jobs"].as_array().map(Vec::len);
    assert_eq!(jobs, Some(2), "{state:?}");
    let now = cluster.run(&["log", "state", "--at", "0s"]).ok();
    assert_eq!(now.json()["jobs"].as_array().map(Vec::len), Some(2));
    for question in [&["log", "state"][..], &["explain", "ads/first"]] {
        let beyond = cluster.run(&[question, &["--at", "999999"]].concat()).ok();
        assert!(beyond.err.contains("the log ends at event"), "{beyond:?}");
    }
    let long_ago = cluster.run(&["log", "state", "--at", "1d"]);
    assert!(
        long_ago.err.contains("the log begins after"),
        "{long_ago:?}"
    );
}
