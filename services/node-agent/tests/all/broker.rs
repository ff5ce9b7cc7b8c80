//! Tests of killed agents over a real broker: each container is adopted or reported once. Skipped without the
//! nats-server of `scripts/install.sh nats`; fails then if `DORMOUSE_NO_SKIP=1`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Event, Sequence};
use dormouse_node_agent::run;
use dormouse_runtime::{Log, LogItem, Settings};

/// A test that waits for the lease's end fails.
const LEASE: Duration = Duration::from_secs(60);
const URL: &str = "DORMOUSE_TEST_AGENT_URL";
const DATA: &str = "DORMOUSE_TEST_AGENT_DATA";

fn lasting(lease: Duration) -> LeaseTerm {
    let lease_ms = u64::try_from(lease.as_millis()).expect("short");
    LeaseTerm {
        lease_ms,
        fence_ms: lease_ms / 4 * 3,
    }
}

/// A killable agent process, spawned by the other test.
#[tokio::test]
#[ignore = "the agent process of the other test"]
async fn agent_process() {
    let (Ok(url), Ok(data)) = (std::env::var(URL), std::env::var(DATA)) else {
        return;
    };
    let log = Log::connect(&Settings::new(url, "agent"))
        .await
        .expect("connects");
    let mut config = local(node(), Default::default(), PathBuf::from(data));
    config.lease = Some(lasting(LEASE));
    run(config, log, std::future::pending())
        .await
        .expect("runs");
}

fn spawn(url: &str, data: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "broker::agent_process",
            "--ignored",
            "--nocapture",
        ])
        .env(URL, url)
        .env(DATA, data)
        .stdout(Stdio::null())
        .spawn()
        .expect("spawned")
}

async fn events(log: &Log) -> Vec<Event> {
    let head = log.head().await.expect("answers");
    let mut followed = log.read(Sequence(1), head).await.expect("answers");
    let mut events = Vec::new();
    while let Some(item) = followed.recv().await {
        match item {
            LogItem::Event(recorded) => events.extend(recorded.event().cloned()),
            LogItem::Flagged { why, .. } => panic!("flagged: {why}"),
            LogItem::CaughtUp(_) => {}
        }
    }
    events
}

async fn wait(log: &Log, what: &str, check: impl Fn(&Event) -> bool) -> Event {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let events = events(log).await;
        if let Some(found) = events.iter().find(|event| check(event)) {
            return found.clone();
        }
        assert!(Instant::now() < until, "no {what}; there is {events:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn count(events: &[Event], name: &str) -> usize {
    events
        .iter()
        .filter(|event| event.subject_name() == name)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one history, told in order")]
async fn killed_agents_lose_and_repeat_nothing() {
    let Some((folder, broker, log)) = broker().await else {
        return;
    };
    let data = folder.path().join("data");

    let mut agent = spawn(broker.url(), &data);
    wait(
        &log,
        "join",
        |event| matches!(event, Event::NodeJoined(it) if it.incarnation == 1),
    )
    .await;
    let script =
        "[ $DORMOUSE_RANK = 0 ] || { sleep 0.5; exit 5; }; echo once; while :; do sleep 0.05; done";
    append(&log, admitted(spec(&["/bin/sh", "-c", script]))).await;
    append(&log, placed(1, 2)).await;
    append(&log, start(1, None)).await;
    wait(
        &log,
        "start",
        |event| matches!(event, Event::ContainerStarted(it) if it.container.rank.0 == 0),
    )
    .await;
    wait(
        &log,
        "start",
        |event| matches!(event, Event::ContainerStarted(it) if it.container.rank.0 == 1),
    )
    .await;

    agent.kill().expect("killed");
    agent.wait().expect("ended");
    tokio::time::sleep(Duration::from_millis(700)).await;
    // The agent takes its own lease over at once.
    let mut agent = spawn(broker.url(), &data);
    let joined = wait(
        &log,
        "join",
        |event| matches!(event, Event::NodeJoined(it) if it.incarnation == 2),
    )
    .await;
    assert!(matches!(joined, Event::NodeJoined(it) if it.running == [id(1, 0)]));
    let exit = wait(
        &log,
        "exit",
        |event| matches!(event, Event::ContainerExited(it) if it.container.rank.0 == 1),
    )
    .await;
    assert!(matches!(exit, Event::ContainerExited(it) if it.exit_code == Some(5) && !it.evicted));

    // Kills during start, join and stop.
    for pause_ms in [1, 10, 30, 60] {
        agent.kill().expect("killed");
        agent.wait().expect("ended");
        agent = spawn(broker.url(), &data);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    append(&log, stop(1)).await;
    let exit = wait(
        &log,
        "exit",
        |event| matches!(event, Event::ContainerExited(it) if it.container.rank.0 == 0),
    )
    .await;
    assert!(matches!(exit, Event::ContainerExited(it) if it.signal == Some(15) && !it.evicted));
    let forever = "echo once; while :; do sleep 0.05; done";
    append(&log, admitted(spec(&["/bin/sh", "-c", forever]))).await;
    for (incarnation, pause_ms) in (2..).zip([0, 2, 5, 10, 20]) {
        append(&log, placed(incarnation, 3)).await;
        append(&log, start(incarnation, None)).await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        agent.kill().expect("killed");
        agent.wait().expect("ended");
        agent = spawn(broker.url(), &data);
        for rank in 0..3 {
            let is_start = |event: &Event| matches!(event, Event::ContainerStarted(it) if it.container == id(incarnation, rank));
            wait(&log, "start", is_start).await;
        }
        // The supervisor creates the file.
        let logs = dormouse_node_agent::logs_path(&data, &id(incarnation, 0)).expect("logs");
        while std::fs::read_to_string(&logs.stdout)
            .unwrap_or_default()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        append(&log, stop(incarnation)).await;
        for rank in 0..3 {
            let is_exit = |event: &Event| matches!(event, Event::ContainerExited(it) if it.container == id(incarnation, rank));
            wait(&log, "exit", is_exit).await;
        }
    }
    agent.kill().expect("killed");
    agent.wait().expect("ended");
    let events = events(&log).await;
    assert_eq!(count(&events, "container.started"), 2 + 5 * 3);
    assert_eq!(count(&events, "container.exited"), 2 + 5 * 3);
    for incarnation in 1..7 {
        let logs = dormouse_node_agent::logs_path(&data, &id(incarnation, 0)).expect("logs");
        let printed = std::fs::read_to_string(logs.stdout).expect("read");
        assert_eq!(printed, "once\n", "incarnation {incarnation}");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_of_the_same_name_leaves_the_first_one_alone() {
    let Some((folder, broker, log)) = broker().await else {
        return;
    };
    let mut first = spawn(broker.url(), &folder.path().join("data"));
    let joined = |event: &Event| matches!(event, Event::NodeJoined(_));
    wait(&log, "join", joined).await;
    let elsewhere = folder.path().join("elsewhere");
    let mut config = local(node(), Default::default(), elsewhere);
    config.lease = Some(lasting(Duration::from_secs(1)));
    let refused = run(config, log.clone(), std::future::pending()).await;
    let refused = refused.expect_err("the node has an agent").to_string();
    assert!(
        refused.contains("another agent acts for this node"),
        "{refused}"
    );
    assert_eq!(first.try_wait().expect("known"), None, "the first runs on");
    assert_eq!(count(&events(&log).await, "node.joined"), 1);
    first.kill().expect("killed");
    first.wait().expect("ended");
    broker.stop().await;
}
