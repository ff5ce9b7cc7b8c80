//! The product as users meet it: `up`, the command line, real programs, the log.

use crate::common::{Cluster, count_job};
use dormouse_messages::{Event, TenantId};
use dormouse_runtime::{Log, Settings};
use serde_json::json;

const NODE: &str = "cpu=4,memory=8Gi";

#[test]
fn jobs_end_as_their_programs_do_and_say_so() {
    let cluster = Cluster::up(1, NODE);
    let said = cluster.submit(&count_job("done", 10, (1, 2), &[])).ok();
    assert_eq!(said.json()["job"], "ads/done");
    assert_eq!(said.json()["state"], "allocated");
    let mut failing = count_job("bad", 10, (1, 1), &["--exit-code", "5"]);
    failing["retries"] = json!(0);
    cluster.submit(&failing).ok();
    cluster.submit(&count_job("long", 5_000, (1, 1), &[])).ok();
    let said = cluster.run(&["job", "wait", "ads/done"]);
    assert_eq!(
        (said.code, said.json()["phase"].as_str()),
        (0, Some("completed"))
    );
    assert_eq!(cluster.run(&["job", "wait", "ads/bad"]).code, 3);
    cluster.run(&["job", "cancel", "ads/long"]).ok();
    assert_eq!(cluster.run(&["job", "wait", "ads/long"]).code, 4);
    let logs = cluster.run_with(&["job", "logs", "ads/done"], &[]).ok();
    assert!(logs.out.contains("count: from step 0"), "{logs:?}");
    for (flag, said) in [
        ("--rank", "its ranks are 0"),
        ("--incarnation", "it has had 1"),
    ] {
        let logs = cluster.run(&["job", "logs", "ads/done", flag, "99"]);
        let message = logs.error()["message"].to_string();
        assert!(logs.code == 1 && message.contains(said), "{logs:?}");
    }
    for query in [
        &["cluster"][..],
        &["timeline", "utilization"],
        &["job", "show", "ads/done"],
        &["node", "show", "n0"],
        &["replay", "verify"],
    ] {
        cluster.run(query).ok();
    }
    cluster.wait_no_programs();
    cluster.check();
}

#[test]
fn an_arrival_resizes_a_running_job_through_a_checkpoint() {
    let cluster = Cluster::up(2, NODE);
    cluster.submit(&count_job("first", 400, (1, 8), &[])).ok();
    cluster.wait_event("progress", |event| match event {
        Event::Progress(_) => Some(()),
        _ => None,
    });
    cluster.submit(&count_job("second", 100, (2, 4), &[]));
    cluster.wait_completed("ads/second");
    cluster.wait_completed("ads/first");
    let log = cluster.check();
    let saved: Vec<String> = log
        .iter()
        .filter_map(|it| match it.event() {
            Some(Event::CheckpointSaved(it)) if it.job.name() == "first" => Some(it.uri.clone()),
            _ => None,
        })
        .collect();
    assert!(!saved.is_empty(), "no checkpoint was saved");
    let resumed = log.iter().any(|it| {
        matches!(it.event(), Some(Event::PartitionStarted(it))
            if it.job.name() == "first" && it.resumed_from.as_ref().is_some_and(|from| saved.contains(from)))
    });
    assert!(resumed, "nothing was resumed from {saved:?}");
    let logs = cluster.run_with(&["job", "logs", "ads/first"], &[]).ok();
    assert!(!logs.out.contains("from step 0,"), "{logs:?}");
}

#[test]
fn a_refused_submission_says_why() {
    let cluster = Cluster::up(1, NODE);
    let mut job = count_job("a", 10, (1, 1), &[]);
    job["colour"] = json!("red");
    let said = cluster.submit(&job);
    assert_eq!(said.code, 1, "{said:?}");
    let error = said.error();
    assert_eq!(error["code"], "unknown_field");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|it| it.contains("colour"))
    );
    let mut job = count_job("b", 10, (1, 1), &[]);
    job["demand"] = json!({"cpu": 64});
    let said = cluster.submit(&job);
    assert_eq!(said.code, 1, "{said:?}");
    assert_ne!(said.error()["message"], "");
    let said = cluster.run(&["job", "show", "ads/none"]);
    assert_eq!(
        (said.code, said.error()["code"].as_str()),
        (1, Some("not_found"))
    );
}

#[test]
fn containers_outlive_up_and_the_next_one_adopts_them() {
    let mut cluster = Cluster::up(1, NODE);
    cluster.submit(&count_job("a", 150, (1, 1), &[])).ok();
    cluster.wait_event("the start", |event| match event {
        Event::ContainerStarted(_) => Some(()),
        _ => None,
    });
    cluster.stop("up");
    assert_eq!(cluster.programs().len(), 1);
    cluster.start_up(1, NODE);
    cluster.wait_completed("ads/a");
    let log = cluster.check();
    let starts = log
        .iter()
        .filter(|it| matches!(it.event(), Some(Event::ContainerStarted(_))));
    assert_eq!(starts.count(), 1, "adopted, not started again");
}

#[test]
fn a_cluster_that_was_stopped_and_started_again_goes_on() {
    let mut cluster = Cluster::up(2, NODE);
    cluster.submit(&count_job("before", 20, (1, 4), &[])).ok();
    cluster.wait_completed("ads/before");
    cluster.submit(&count_job("across", 150, (1, 4), &[])).ok();
    cluster.stop("up");
    cluster.start_up(2, NODE);
    cluster.submit(&count_job("after", 20, (1, 4), &[])).ok();
    cluster.wait_completed("ads/after");
    cluster.wait_completed("ads/across");
    cluster.check();
}

#[test]
fn a_log_is_exported_imported_and_replayed() {
    let cluster = Cluster::up(1, NODE);
    cluster.submit(&count_job("a", 5, (1, 1), &[])).ok();
    cluster.wait_completed("ads/a");
    let log = cluster.check();
    let file = cluster.log_file();
    let file = file.to_str().expect("UTF-8");
    let elsewhere = Cluster::broker();
    crate::common::poll("the import", crate::common::PATIENCE, || {
        (elsewhere.run(&["log", "import", file]).code == 0).then_some(())
    });
    let imported = elsewhere.check();
    let ids = |log: &[std::sync::Arc<dormouse_messages::Recorded>]| -> Vec<_> {
        log.iter()
            .map(|it| (it.sequence, it.envelope.id.clone(), it.stored_at))
            .collect()
    };
    assert_eq!(ids(&imported), ids(&log));
    let said = elsewhere.run(&["log", "import", file]);
    assert_eq!(
        said.code, 1,
        "an import onto a log that is not empty: {said:?}"
    );
    let said = elsewhere.run(&["replay", "verify"]).ok();
    assert_eq!(said.json()["findings"], json!([]));
    cluster.run(&["replay", "verify", "--log", file]).ok();
    let last = log.last().expect("events").sequence.0.to_string();
    let state = ["replay", "state", "--log", file, "--at"];
    let at = |sequence: &str| cluster.run(&[&state[..], &[sequence]].concat()).ok();
    assert!(at(&last).out.contains("completed"));
    assert!(!at("1").out.contains("ads/a"));
    let of_file = |command: &[&str]| cluster.run(&[command, &["--log", file]].concat()).ok();
    let events = ["job", "events", "ads/a"];
    assert_eq!(of_file(&events).out, cluster.run(&events).ok().out);
    assert_eq!(
        of_file(&["job", "show", "ads/a"]).json()["phase"],
        "completed"
    );
    assert_eq!(of_file(&["timeline", "jobs"]).json()["metric"], "jobs");
    let window = ["timeline", "jobs", "--from", &last, "--to", "0s"];
    let window = of_file(&window).json();
    assert_eq!(window["from"], window["to"], "{window}");
    let turned = ["timeline", "jobs", "--from", &last, "--to", "1"];
    let turned = cluster.run(&[&turned[..], &["--log", file]].concat());
    assert!(turned.err.contains("is before --from"), "{turned:?}");
    let archive = file.replace(".jsonl", ".parquet");
    let again = file.replace(".jsonl", "-again.jsonl");
    let export =
        |from: &str, to: &str| cluster.run_with(&["log", "export", "--log", from], &["-o", to]);
    export(file, &archive).ok();
    export(&archive, &again).ok();
    let read = |file: &str| std::fs::read(file).expect("a file");
    assert_eq!(read(&again), read(file));
}

#[test]
fn what_a_tenant_is_entitled_to_stays_where_it_is_not_named() {
    let cluster = Cluster::up(1, NODE);
    for round in 1..20 {
        let (weight, quota) = (round.to_string(), format!("cpu={round}"));
        cluster
            .run(&["tenant", "set", "ads", "--weight", &weight])
            .ok();
        cluster
            .run(&["tenant", "set", "ads", "--quota", &quota])
            .ok();
        let set = cluster
            .log()
            .into_iter()
            .rev()
            .find_map(|it| match it.event() {
                Some(Event::TenantConfigured(event)) => {
                    Some((event.weight, event.quota.to_string()))
                }
                _ => None,
            });
        assert_eq!(set, Some((round, quota)));
    }
}

#[test]
fn draining_a_node_moves_its_job() {
    let cluster = Cluster::up(2, NODE);
    cluster.submit(&count_job("a", 150, (1, 1), &[])).ok();
    let before = cluster.wait_event("the start", |event| match event {
        Event::ContainerStarted(event) => Some(event.node.clone()),
        _ => None,
    });
    let unknown = cluster.run(&["node", "drain", "n9"]);
    assert_eq!(unknown.error()["code"], "not_found");
    let drain = ["node", "drain", before.as_str()];
    assert!(cluster.run(&drain).ok().json()["sequence"].is_u64());
    assert!(
        cluster.run(&drain).ok().json()["sequence"].is_null(),
        "again"
    );
    cluster.wait_event("the start elsewhere", |event| match event {
        Event::ContainerStarted(event) => (event.node != before).then_some(()),
        _ => None,
    });
    cluster.run(&["node", "restore", before.as_str()]).ok();
    cluster.wait_completed("ads/a");
    cluster.check();
}

#[test]
fn every_bad_message_is_on_the_log_with_a_reason() {
    let cluster = Cluster::up(1, NODE);
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let url = cluster.url();
    let log = runtime
        .block_on(async { Log::connect(&Settings::new(url, "test")).await })
        .expect("connects");
    let tenant = TenantId::new("ads").expect("valid");
    let publish = |payload: Vec<u8>| {
        let sent = log.publish_ingress(&tenant, "submit", "application/json", payload.into());
        runtime.block_on(sent)
    };
    cluster.submit(&count_job("taken", 5_000, (1, 1), &[])).ok();
    let with = |field: &str, value: serde_json::Value| {
        let mut job = count_job("other", 10, (1, 1), &[]);
        job[field] = value;
        job.to_string().into_bytes()
    };
    let bad = [
        b"not json at all".to_vec(),
        b"\xff\x00\xfe".to_vec(),
        b"".to_vec(),
        b"[1, 2]".to_vec(),
        with("weight", json!("heavy")),
        with("containers", json!({"min": 3, "max": 2})),
        with("colour", json!("red")),
        with("tasks", json!({"count": 3})),
        with("tenant", json!("search")),
        with("name", json!("taken")),
        [
            b"{\"env\": \"".to_vec(),
            vec![b'x'; 1 << 20],
            b"\"}".to_vec(),
        ]
        .concat(),
    ];
    for payload in bad {
        let shown = String::from_utf8_lossy(&payload[..payload.len().min(60)]).into_owned();
        let ingress = publish(payload).expect("stored");
        let (code, reason) = cluster.wait_event(&shown, |event| match event {
            Event::JobRefused(event) if event.ingress_sequence == ingress => {
                Some((event.code.clone(), event.reason.clone()))
            }
            Event::JobAdmitted(event) if event.ingress_sequence == ingress => {
                panic!("{shown} was admitted")
            }
            _ => None,
        });
        assert!(
            !code.is_empty() && reason.len() > 10,
            "{shown}: {code}: {reason}"
        );
        println!("{shown}: {code}: {reason}");
    }
    let error = publish(vec![b' '; 10 << 20])
        .expect_err("too large")
        .to_string();
    assert!(error.contains("10485760"), "{error}");
    cluster.check();
}

#[test]
fn prometheus_finds_every_service() {
    let mut cluster = Cluster::new();
    let address = format!("127.0.0.1:{}", crate::common::free_port());
    let args = [
        "up",
        "--nodes",
        "1",
        "--capacity",
        NODE,
        "--metrics",
        &address,
    ];
    let dir = cluster.dir().to_owned();
    cluster.start("up", &args, &dir);
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("a", 5, (1, 1), &[])).ok();
    cluster.wait_completed("ads/a");
    let page = metrics(&address);
    for service in ["admission", "optimizer", "placer", "checkpointer"] {
        let appended = format!("dormouse_appends_total{{service=\"{service}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&appended));
        let count: f64 = line.and_then(|it| it.parse().ok()).unwrap_or(0.0);
        assert!(count >= 1.0, "{service} has appended: {page}");
    }
    assert!(
        page.contains("# TYPE dormouse_events_folded_total counter"),
        "{page}"
    );
}

fn metrics(address: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let request = "GET /metrics HTTP/1.0\r\nHost: dormouse\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains(" 200 "), "{answer}");
    answer
}
