//! Misbehaving jobs, and a flood of submissions, on a real local cluster.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::common::{Cluster, PATIENCE, count_job, poll};
use dormouse_messages::{Event, TenantId};
use dormouse_runtime::{Log, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

const FAULTS: [&str; 4] = ["hang", "fail", "never", "die"];

/// Draining each node asks every job to save.
#[test]
fn a_checkpoint_that_goes_wrong_costs_work_but_no_job() {
    let cluster = Cluster::up(2, "cpu=8,memory=8Gi");
    for fault in FAULTS {
        // A periodic checkpoint at the time of the request would answer it.
        let more = ["--on-checkpoint", fault, "--checkpoint-every", "45"];
        let mut job = count_job(fault, 200, (2, 2), &more);
        job["checkpoint"]["grace_s"] = json!(2);
        job["retries"] = json!(20);
        cluster.submit(&job);
    }
    for node in ["n0", "n1"] {
        cluster.wait_event("progress", |event| match event {
            Event::Progress(_) => Some(()),
            _ => None,
        });
        cluster.run(&["node", "drain", node]).ok();
        cluster.wait_event("a failed checkpoint", |event| match event {
            Event::CheckpointFailed(_) => Some(()),
            _ => None,
        });
        cluster.run(&["node", "restore", node]).ok();
    }
    for fault in FAULTS {
        cluster.wait_completed(&format!("ads/{fault}"));
    }
    let log = cluster.check();
    let mut failed = BTreeSet::new();
    for event in log.iter().filter_map(|it| it.event()) {
        match event {
            Event::CheckpointFailed(event) => failed.insert(event.job.name().to_owned()),
            Event::ContainerExited(event) if event.signal == Some(9) => {
                failed.insert(event.container.job.name().to_owned())
            }
            _ => false,
        };
    }
    assert_eq!(failed, FAULTS.map(str::to_owned).into(), "all went wrong");
    cluster.wait_no_programs();
}

#[test]
fn a_container_that_cannot_start_says_why() {
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let mut job = count_job("nothing", 10, (1, 1), &[]);
    job["command"] = json!({"start": ["/no/such/program"]});
    job["retries"] = json!(1);
    cluster.submit(&job);
    assert_eq!(cluster.run(&["job", "wait", "ads/nothing"]).code, 3);
    let reason = cluster.wait_event("the end", |event| match event {
        Event::ContainerExited(event) => event.reason.clone(),
        _ => None,
    });
    assert!(reason.contains("/no/such/program"), "{reason}");
    cluster.check();
}

#[test]
fn an_up_with_fewer_nodes_ends_what_ran_on_the_others() {
    let mut cluster = Cluster::up(2, "cpu=4,memory=8Gi");
    cluster.submit(&count_job("a", 60, (4, 8), &[])).ok();
    poll("both nodes", PATIENCE, || {
        (cluster.programs_below("nodes/n1").len() >= 4).then_some(())
    });
    cluster.kill("up");
    assert!(cluster.programs_below("nodes/n1").len() >= 4, "they run on");
    let down = cluster.run(&["down"]).error();
    assert_eq!(down["code"], "unattended", "{down}");
    cluster.start_up(1, "cpu=4,memory=8Gi");
    assert!(cluster.programs_below("nodes/n1").is_empty());
    cluster.wait_completed("ads/a");
    cluster.check();
}

/// As after a power failure, or a restored older copy.
#[test]
fn a_cluster_whose_log_went_back_begins_again_with_what_it_holds() {
    let mut cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let start = |cluster: &Cluster, name: &str, steps: u32| {
        cluster.submit(&count_job(name, steps, (1, 1), &[])).ok();
        cluster.wait_event("steps", |event| match event {
            Event::Progress(it) if it.job.name() == name => Some(()),
            _ => None,
        });
    };
    start(&cluster, "before", 250);
    // Order numbers of task assignments are reused after the rollback.
    let set = json!({
        "name": "set", "tenant": "ads", "kind": "batch",
        "command": {"start": ["/bin/sleep", "0.2"]}, "demand": {"cpu": 1, "memory": "64Mi"},
        "tasks": {"count": 60, "concurrency": 1},
    });
    cluster.submit(&set).ok();
    let ends_a_task = |cluster: &Cluster, least: u32| {
        cluster.wait_event("tasks", |event| match event {
            Event::TasksEnded(it) if it.completed.contains(least) => Some(()),
            _ => None,
        });
    };
    ends_a_task(&cluster, 0);
    let broker = cluster.dir().join("broker");
    let [store, older] = ["jetstream", "older"].map(|name| broker.join(name));
    let copied = Command::new("cp").arg("-r").args([&store, &older]).status();
    assert!(copied.expect("copies").success());
    start(&cluster, "after", 100);
    ends_a_task(&cluster, 12);
    let pid = fs::read_to_string(broker.join("nats-server.pid")).expect("its pid");
    // The broker must not restart before the older copy is in place.
    cluster.signal("up", Signal::SIGSTOP);
    let pid = Pid::from_raw(pid.trim().parse().expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("it runs");
    fs::rename(&store, broker.join("newer")).expect("renames");
    fs::rename(&older, &store).expect("renames");
    cluster.signal("up", Signal::SIGCONT);
    let status = poll("the end of up", PATIENCE, || cluster.ended("up"));
    assert!(!status.success());
    let said = fs::read_to_string(cluster.dir().join("up.log")).expect("what it said");
    let said = said.lines().last().expect("a line");
    assert!(said.contains("the log went back"), "{said}");
    assert_eq!(cluster.programs().len(), 2, "what ran runs on");
    cluster.start_up(1, "cpu=4,memory=8Gi");
    assert_eq!(cluster.run(&["job", "show", "ads/after"]).code, 1);
    poll("the end of what is not known", PATIENCE, || {
        (cluster.programs().len() == 1).then_some(())
    });
    start(&cluster, "after", 100);
    for job in ["ads/before", "ads/after", "ads/set"] {
        cluster.wait_completed(job);
    }
    let log = cluster.check();
    let starts = log.iter().filter(|it| match it.event() {
        Some(Event::PartitionStarted(it)) => it.job.name() == "before",
        _ => false,
    });
    assert_eq!(starts.count(), 1, "it was adopted");
}

#[test]
fn a_port_in_use_is_refused_and_its_cluster_goes_on() {
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let url = cluster.url();
    let port = url.rsplit_once(':').expect("a port").1;
    let other = Cluster::new();
    let said = other.run(&["up", "--port", port]);
    assert_eq!(said.code, 1);
    assert!(
        said.error()["message"]
            .as_str()
            .expect("text")
            .contains("is in use")
    );
    // The folder is checked before the metrics' address.
    let metrics = format!("127.0.0.1:{port}");
    let again = cluster.run(&["up", "--metrics", &metrics]).error();
    let message = again["message"].as_str().expect("text");
    assert!(
        message.contains("is in use by another dormouse"),
        "{message}"
    );
    cluster.submit(&count_job("a", 5, (1, 1), &[])).ok();
    cluster.wait_completed("ads/a");
}

#[test]
fn ten_thousand_submissions_at_once_are_each_decided() {
    const COUNT: u32 = 10_000;
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let mut blocker = count_job("blocker", 1_000_000, (4, 4), &[]);
    blocker["checkpoint"] = json!({"mode": "none"});
    cluster.submit(&blocker).ok();
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let settings = Settings::new(cluster.url(), "flood");
    runtime.block_on(async {
        let log = Log::connect(&settings).await.expect("connects");
        let mut publishing = tokio::task::JoinSet::new();
        for index in 0..COUNT {
            let log = log.clone();
            let job = count_job(&format!("job-{index}"), 10, (1, 1), &[]);
            let payload = match index % 10 {
                0 => b"{not a job".to_vec(),
                _ => job.to_string().into_bytes(),
            };
            publishing.spawn(async move {
                let tenant = TenantId::new("ads").expect("valid");
                let sent =
                    log.publish_ingress(&tenant, "submit", "application/json", payload.into());
                sent.await.expect("stored");
            });
            while publishing.len() >= 512 {
                publishing.join_next().await;
            }
        }
        publishing.join_all().await;
    });
    cluster.run(&["cluster", "status"]).ok();
    let decided = || {
        let (mut admitted, mut refused) = (0, 0);
        for recorded in cluster.try_log()? {
            match recorded.event() {
                Some(Event::JobAdmitted(_)) => admitted += 1,
                Some(Event::JobRefused(_)) => refused += 1,
                _ => {}
            }
        }
        (admitted + refused > COUNT).then_some((admitted, refused))
    };
    let decided = poll("every decision", 3 * PATIENCE, decided);
    assert_eq!(decided, (COUNT / 10 * 9 + 1, COUNT / 10));
    cluster.check();
}
