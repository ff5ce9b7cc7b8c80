//! Everyday use: many jobs, dry runs, holds and cancellations by filter, completion, lists, metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::{Cluster, PATIENCE, count_job, free_port, poll, root};
use dormouse_messages::Event;
use serde_json::{Value, json};

const NODE: &str = "cpu=4,memory=8Gi";

fn lines(text: &str) -> Vec<Value> {
    let value = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text.lines().map(value).collect()
}

#[test]
fn a_thousand_documents_are_one_command() {
    let cluster = Cluster::up(1, NODE);
    let mut text = String::new();
    for number in 0..1_000 {
        let document = json!({"name": format!("j{number}"), "tenant": "ads",
            "command": {"start": ["sleep", "1000"]}, "demand": {"cpu": 4}});
        text.push_str(&format!("{document}\n"));
    }
    let file = cluster.dir().join("many.jsonl");
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let begun = Instant::now();
    let said = cluster.run(&["submit", file]).ok();
    println!(
        "1,000 documents decided in {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    let answers = lines(&said.out);
    assert_eq!(answers.len(), 1_000);
    assert!(
        answers.iter().all(|it| it["state"] == "admitted"),
        "{said:?}"
    );
    assert_eq!(answers[999]["job"], "ads/j999");
    let stored: Vec<u64> = answers
        .iter()
        .filter_map(|it| it["ingress_sequence"].as_u64())
        .collect();
    assert!(stored.is_sorted(), "not in the order of the file");
    let wrong = cluster.dir().join("wrong.yaml");
    std::fs::write(
        &wrong,
        "name: typo\ncommand: {start: [ls]}\ndemnd: {cpu: 1}\n",
    )
    .expect("written");
    let refused = cluster.run(&["submit", "--detach", wrong.to_str().expect("UTF-8")]);
    assert_eq!(refused.error()["code"], "unknown_field", "{refused:?}");
    assert!(refused.err.contains("wrong.yaml: "), "{refused:?}");
    let alone = cluster.run(&["submit", wrong.to_str().expect("UTF-8")]);
    assert!(alone.err.contains("wrong.yaml: "), "{alone:?}");
    let again = cluster.run(&["submit", file]);
    assert_eq!(again.code, 1);
    assert_eq!(lines(&again.out)[0]["error"]["code"], "name_in_use");
    let place = lines(&again.out)[6]["document"].to_string();
    assert!(place.contains("many.jsonl, document 7"), "{place}");
    let begun = Instant::now();
    let listed = cluster.run(&["jobs", "--phase", "queued"]).ok().json();
    println!("listed in {:.2} s", begun.elapsed().as_secs_f64());
    assert!(
        listed["jobs"]
            .as_array()
            .is_some_and(|jobs| jobs.len() > 900)
    );
    the_list_is_filtered_sorted_and_cut(&cluster);
    let asked = cluster.run(&["job", "cancel", "--tenant", "ads", "--name", "j99?"]);
    assert_eq!(asked.error()["code"], "not_confirmed", "{asked:?}");
    assert!(asked.err.contains("ads/j990"), "{asked:?}");
    let begun = Instant::now();
    let done = cluster
        .run(&["job", "cancel", "--tenant", "ads", "--name", "j9*", "--yes"])
        .ok();
    println!(
        "{} cancelled in {:.2} s",
        lines(&done.out).len(),
        begun.elapsed().as_secs_f64()
    );
    assert_eq!(lines(&done.out).len(), 111);
    what_has_just_ended_is_in_the_table(&cluster, 111);
}

fn the_list_is_filtered_sorted_and_cut(cluster: &Cluster) {
    let all = cluster.run(&["jobs"]).ok().json();
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(1_000));
    assert_eq!(all["jobs"][999]["job"], "ads/j999");
    let few = [
        "jobs",
        "--name",
        "j99?",
        "--sort",
        "job",
        "--reverse",
        "--limit",
        "3",
    ];
    let few = cluster.run(&few).ok().json();
    assert_eq!(
        (&few["jobs"][0]["job"], &few["more"]),
        (&json!("ads/j999"), &json!(7))
    );
    let unknown = cluster.run(&["jobs", "--phase", "queud"]);
    assert!(
        unknown.error()["message"].to_string().contains("'queued'"),
        "{unknown:?}"
    );
}

fn what_has_just_ended_is_in_the_table(cluster: &Cluster, expected: usize) {
    let table = cluster.run_with(&["jobs", "--tenant", "ads"], &[]).ok();
    let cancelled = table.out.lines().filter(|line| line.contains("cancelled"));
    assert_eq!(cancelled.count(), expected);
}

#[test]
fn a_dry_run_says_what_would_be_and_a_document_comes_back() {
    let cluster = Cluster::up(1, NODE);
    cluster.submit(&count_job("one", 3, (1, 1), &[])).ok();
    let path = cluster.dir().join("job.yaml");
    let text = "tenant: ads\nname: one\ncommand: {start: [\"true\"]}\ndemand: {cpu: 1}\n---\ntenant: ads\nname: two\ndepends_on: [one]\ncommand: {start: [\"true\"]}\ndemand: {cpu: 1}\n";
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("UTF-8");
    let said = cluster.run(&["submit", path, "--dry-run"]);
    let answers = lines(&said.out);
    assert_eq!(answers[0]["error"]["code"], "name_in_use", "{said:?}");
    assert_eq!((answers[1]["name"].as_str(), said.code), (Some("two"), 1));
    assert_eq!(
        cluster.run(&["job", "show", "ads/two"]).code,
        1,
        "nothing was submitted"
    );
    cluster.wait_completed("ads/one");
    let document = cluster.run(&["job", "show", "ads/one", "--document"]).ok();
    let again = cluster.dir().join("again.json");
    std::fs::write(&again, document.out).expect("written");
    let again = again.to_str().expect("UTF-8");
    let set = cluster
        .run(&[
            "submit",
            again,
            "--name",
            "s",
            "--set",
            "retries=1,2",
            "--detach",
        ])
        .ok();
    let stored = lines(&set.out);
    assert_eq!(stored.len(), 2);
    assert_eq!(
        (&stored[0]["job"], &stored[1]["job"]),
        (&json!("ads/s-1"), &json!("ads/s-2"))
    );
    a_dry_run_says_values_and_what_no_nodes_hold(&cluster, again);
    let waited = cluster.run(&["job", "wait", "ads/s-1", "ads/s-2"]).ok();
    assert_eq!(lines(&waited.out).len(), 2, "{waited:?}");
    the_worst_end_is_the_exit_code(&cluster, again);
    what_has_ended_keeps_its_command(&cluster);
    the_policy_comes_back(&cluster);
    names_that_nothing_has_are_said(&cluster);
}

fn a_dry_run_says_values_and_what_no_nodes_hold(cluster: &Cluster, again: &str) {
    let dry = |change: &str| {
        let command = ["submit", again, "--dry-run", "--name", "d", "--set", change];
        cluster.run_with(&command, &[]).ok()
    };
    let swept = dry("retries=1,2");
    assert!(
        swept
            .out
            .contains("ads/d-2 would be admitted with retries=2"),
        "{swept:?}"
    );
    let large = dry("containers={min: 100, max: 100}");
    let waits = "it would wait until nodes are added";
    assert!(large.out.contains(waits), "{large:?}");
    let change = "containers={min: 100, max: 100}";
    let document = ["submit", again, "--dry-run", "--name", "d", "--set", change];
    let document = cluster.run(&document).ok();
    assert_eq!(document.json()["containers"]["min"], 100);
    assert!(document.err.contains(waits), "{document:?}");
}

fn the_worst_end_is_the_exit_code(cluster: &Cluster, document: &str) {
    let wait = [
        "submit",
        document,
        "--wait",
        "--timeout",
        "2m",
        "--name",
        "w",
        "--set",
        "command.start=[\"true\"],[\"false\"]",
    ];
    let waited = cluster.run(&[&wait[..], &["--set", "retries=0"]].concat());
    assert_eq!(waited.code, 3, "{waited:?}");
    let ends: Vec<Value> = lines(&waited.out)
        .into_iter()
        .filter(|it| !it["phase"].is_null())
        .collect();
    assert_eq!(ends.len(), 2, "{waited:?}");
    let none = cluster.run(&["job", "wait", "--tenant", "ads", "--name", "w-*"]);
    assert_eq!(none.error()["code"], "not_found", "{none:?}");
}

fn what_has_ended_keeps_its_command(cluster: &Cluster) {
    let shown = cluster.run_with(&["job", "show", "ads/w-2"], &[]).ok();
    for part in ["Command     false", "at last 1 container on n0"] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
}

fn the_policy_comes_back(cluster: &Cluster) {
    let shown = cluster.run_with(&["policy", "show"], &[]).ok();
    assert!(
        shown.out.contains("these are the defaults\n  allocation"),
        "{shown:?}"
    );
    let document = cluster.run(&["policy", "show"]).ok();
    let file = cluster.dir().join("policy.json");
    std::fs::write(&file, &document.out).expect("written");
    cluster
        .run(&["policy", "set", file.to_str().expect("UTF-8")])
        .ok();
    assert_eq!(cluster.run(&["policy", "show"]).ok().out, document.out);
}

fn names_that_nothing_has_are_said(cluster: &Cluster) {
    let typo = cluster.run(&["tenant", "set", "ads", "--quota", "cpus=2"]);
    assert_eq!(typo.error()["code"], "unknown_resource", "{typo:?}");
    assert!(typo.err.contains("did you mean cpu?"), "{typo:?}");
    let ahead = ["tenant", "set", "ads", "--quota", "licence=2", "--ahead"];
    cluster.run(&ahead).ok();
    let new = cluster
        .run(&["tenant", "set", "adss", "--weight", "2"])
        .ok();
    assert!(
        new.err.contains("adss is new here") && new.err.contains("did you mean ads?"),
        "{new:?}"
    );
    assert!(new.err.contains("has no effect"), "{new:?}");
    let label = cluster.run(&["node", "label", "n9", "zone=a"]).ok();
    assert!(
        label.err.contains("no node n9 has joined (there are n0)"),
        "{label:?}"
    );
    let gpus = json!({"name": "g", "tenant": "ads", "command": {"start": ["true"]},
        "demand": {"cpus": 1}});
    let refused = cluster.submit(&gpus);
    assert!(refused.err.contains("did you mean cpu?"), "{refused:?}");
}

#[test]
fn a_running_job_is_held_and_goes_on_and_is_stopped_when_its_time_is_over() {
    let cluster = Cluster::up(1, NODE);
    cluster.submit(&count_job("held", 60, (1, 2), &[])).ok();
    cluster.wait_event("progress", |event| match event {
        Event::Progress(_) => Some(()),
        _ => None,
    });
    let late = cluster.run(&["job", "wait", "--tenant", "ads", "--timeout", "1"]);
    assert_eq!(
        (late.code, &late.error()["code"]),
        (124, &json!("timeout")),
        "{late:?}"
    );
    let said = cluster.run(&["job", "hold", "ads/held"]).ok();
    assert_eq!(said.json()["state"], "is on hold");
    poll("it has stopped", PATIENCE, || {
        let shown = cluster.run(&["job", "show", "ads/held"]).json();
        let stopped = shown["containers"]["now"] == 0 && shown["phase"] == "waiting";
        stopped.then(|| {
            assert!(
                shown["reason"]
                    .as_str()
                    .is_some_and(|it| it.contains("on hold"))
            )
        })
    });
    who_follows_a_job_that_waits_is_told_why(&cluster);
    cluster.wait_completed("ads/held");
    let resumed = cluster.log().iter().any(
        |it| matches!(it.event(), Some(Event::PartitionStarted(it)) if it.resumed_from.is_some()),
    );
    assert!(resumed, "it went on from its checkpoint");
    let mut short = json!({"name": "short", "tenant": "ads", "demand": {"cpu": 1},
        "command": {"start": ["sh", "-c", "trap 'echo warned' USR1; while :; do sleep 0.1; done"]},
        "checkpoint": {"mode": "none", "grace_s": 1}});
    short["time_limit_s"] = json!(4);
    short["warning"] = json!({"signal": "SIGUSR1", "before_s": 2});
    cluster.submit(&short).ok();
    assert_eq!(cluster.run(&["job", "wait", "ads/short"]).code, 3);
    let logs = cluster.run_with(&["job", "logs", "ads/short"], &[]).ok();
    assert!(logs.out.contains("warned"), "{logs:?}");
    cluster.check();
}

fn who_follows_a_job_that_waits_is_told_why(cluster: &Cluster) {
    let (dir, said) = (cluster.dir(), cluster.dir().join("followed.err"));
    let printed = dir.join("followed.out");
    let mut following = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["job", "logs", "ads/held", "-f", "--data"])
        .arg(dir)
        .stdout(std::fs::File::create(&printed).expect("made"))
        .stderr(std::fs::File::create(&said).expect("made"))
        .spawn()
        .expect("dormouse");
    poll("why it waits", PATIENCE, || {
        let said = std::fs::read_to_string(&said).expect("read");
        said.contains("ads/held is waiting: on hold").then_some(())
    });
    cluster.run(&["job", "release", "ads/held"]).ok();
    assert!(following.wait().expect("ended").success());
}

#[test]
fn names_are_completed_and_no_command_shows_the_state() {
    let mut cluster = Cluster::up(1, NODE);
    cluster.submit(&count_job("long", 5_000, (1, 1), &[])).ok();
    cluster.submit(&count_job("done", 1, (1, 1), &[])).ok();
    cluster.wait_completed("ads/done");
    let program = env!("CARGO_BIN_EXE_dormouse");
    let script = format!(
        "dormouse() {{ {program} --data {} \"$@\"; }}; source <(dormouse completion bash); COMP_WORDS=(dormouse job show ads/l); COMP_CWORD=3; _dormouse_or_names dormouse; echo \"${{COMPREPLY[@]}}\"; COMP_WORDS=(dormouse node show ''); _dormouse_or_names dormouse; echo \"${{COMPREPLY[@]}}\"; COMP_WORDS=(dormouse job cancel --phase q); COMP_CWORD=4; _dormouse_or_names dormouse q --phase; echo \"${{COMPREPLY[@]}}\"; COMP_WORDS=(dormouse job logs ads/d); COMP_CWORD=3; _dormouse_or_names dormouse; echo \"${{COMPREPLY[@]}}\"; COMP_WORDS=(dormouse job cancel ads/); COMP_CWORD=3; _dormouse_or_names dormouse; echo \"${{COMPREPLY[@]}}\"",
        cluster.dir().display()
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        said, "ads/long\nn0\nqueued\nads/done\nads/long\n",
        "{output:?}"
    );
    let state = cluster.run(&[]).ok().json();
    assert_eq!(state["jobs"]["jobs"][0]["job"], "ads/long");
    assert_eq!(state["cluster"]["nodes"]["up"], 1);
    let schema = cluster.run(&["schema", "job"]).ok().json();
    assert!(schema["properties"]["time_limit_s"].is_object(), "{schema}");
    it_goes_down_and_comes_up_as_it_was(&mut cluster);
}

fn it_goes_down_and_comes_up_as_it_was(cluster: &mut Cluster) {
    let down = cluster.run(&["down"]).ok().json();
    assert_eq!(down["stopped"], true, "{down}");
    assert!(down["containers"].is_u64(), "{down}");
    let again = cluster.run(&["down"]).ok().json();
    assert_eq!(again["stopped"], false, "{again}");
    cluster.kill("up");
    let dir = cluster.dir().to_path_buf();
    cluster.start("up", &["up"], &dir);
    poll("the same nodes", PATIENCE, || {
        let nodes = cluster.run(&["nodes"]);
        let row = (nodes.code == 0).then(|| nodes.json()["nodes"][0].clone())?;
        let capacity = json!({"cpu_milli": 4000, "memory_bytes": 8_u64 << 30});
        (row["state"] == "up").then(|| assert_eq!(row["capacity"], capacity))
    });
    let said = std::fs::read_to_string(dir.join("up.log")).expect("a log");
    let expected = "As at the last start: --capacity cpu=4,memory=8Gi --nodes 1";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_cluster_itself_is_served_to_prometheus() {
    let mut cluster = Cluster::new();
    let address = format!("127.0.0.1:{}", free_port());
    let dir = cluster.dir().to_path_buf();
    let up = [
        "up",
        "--nodes",
        "1",
        "--capacity",
        NODE,
        "--metrics",
        &address,
    ];
    cluster.start("up", &up, &dir);
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("one", 3, (1, 1), &[])).ok();
    cluster.wait_completed("ads/one");
    cluster.submit(&service()).ok();
    let scrape = || -> Option<String> {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let served = poll("the metrics", PATIENCE, || {
        let text = scrape()?;
        let ended = "dormouse_jobs_ended_total{phase=\"completed\"} 1";
        let told = "dormouse_service_objective_seconds{";
        (text.contains(ended) && text.contains(told)).then_some(text)
    });
    for part in [
        "# HELP dormouse_jobs ",
        "# TYPE dormouse_job_wait_seconds histogram",
        "dormouse_job_wait_seconds_bucket{kind=\"training\",le=\"+Inf\"} 1",
        "dormouse_nodes{state=\"up\"} 1",
        "dormouse_tenant_share{tenant=\"ads\"}",
        "dormouse_utilization{",
        "dormouse_allocation_gap ",
        "dormouse_service_objective_seconds{tenant=\"ads\",name=\"line\"} 0.128",
        "dormouse_service_objective_ratio{tenant=\"ads\",name=\"line\"} 0.99",
        "dormouse_service_requests_total{tenant=\"ads\",name=\"line\"} 0",
        "dormouse_service_objective_total{tenant=\"ads\",name=\"line\",outcome=\"missed\"} 0",
        "dormouse_service_replicas{tenant=\"ads\",name=\"line\",state=\"ready\"} 0",
        "dormouse_service_latency_seconds{tenant=\"ads\",name=\"line\"} NaN",
    ] {
        assert!(served.contains(part), "{part} is not in {served}");
    }
    let rules = std::fs::read_to_string(rules("rules.yaml")).expect("the alerts");
    let part_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = rules.split(|c| !part_of_a_name(c));
    for name in words.filter(|word| word.starts_with("dormouse_")) {
        assert!(
            served.contains(&format!("\n{name}")),
            "{name} is not served"
        );
    }
    promtool(
        &["check", "metrics"],
        Some(&served[served.find('#').unwrap_or(0)..]),
    );
}

fn service() -> Value {
    json!({
        "name": "line", "tenant": "ads", "kind": "inference",
        "command": {"start": ["sleep", "60"]}, "demand": {"cpu": 1},
        "containers": {"min": 0, "max": 1},
        "service": {"objective": {"latency_ms": 128, "percentile": 99}},
    })
}

fn rules(file: &str) -> PathBuf {
    root().join("deploy/prometheus").join(file)
}

/// Without promtool, prints SKIPPED, or fails if `DORMOUSE_NO_SKIP=1`.
#[track_caller]
fn promtool(args: &[&str], input: Option<&str>) {
    let tools = std::env::var_os("DORMOUSE_TOOLS").map(PathBuf::from);
    let program = tools
        .unwrap_or_else(|| root().join(".tools"))
        .join("bin/promtool");
    if !program.exists() {
        let no_skip = std::env::var("DORMOUSE_NO_SKIP").is_ok_and(|it| it == "1");
        assert!(!no_skip, "no promtool: scripts/install.sh promtool");
        eprintln!("SKIPPED: no promtool: scripts/install.sh promtool");
        return;
    }
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(input.unwrap_or_default().as_bytes())
        .expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn alerts_fire_on_what_they_are_for_and_on_nothing_else() {
    let tests = rules("rules-test.yaml");
    promtool(&["test", "rules", tests.to_str().expect("UTF-8")], None);
    let rules = rules("rules.yaml");
    promtool(&["check", "rules", rules.to_str().expect("UTF-8")], None);
}
