//! Tests of restarts from snapshots, usable or not. Skipped without the nats-server of
//! `scripts/install.sh nats`; fails then if `DORMOUSE_NO_SKIP=1`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::{Event, Fold, Sequence, Timestamp};
use dormouse_node_agent::snapshot::AgentSnapshot;
use dormouse_node_agent::state::AgentState;
use dormouse_node_agent::{AgentConfig, run};
use dormouse_runtime::{Log, LogItem, Snapshot, Snapshots};
use tokio::sync::oneshot;

async fn folded(log: &Log, to: Sequence) -> (AgentState, Vec<Event>) {
    let mut followed = log.read(Sequence(1), to).await.expect("answers");
    let (mut state, mut events) = (AgentState::new(node()), Vec::new());
    while let Some(item) = followed.recv().await {
        if let LogItem::Event(recorded) = item {
            state.evolve(&recorded);
            events.extend(recorded.event().cloned());
        }
    }
    (state, events)
}

async fn wait(log: &Log, what: &str, check: impl Fn(&Event) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, events) = folded(log, log.head().await.expect("answers")).await;
        if events.iter().any(&check) {
            return;
        }
        assert!(Instant::now() < until, "no {what}; there is {events:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn start_agent(
    config: &AgentConfig,
    log: &Log,
) -> (oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let agent = run(config.clone(), log.clone(), async move {
        let _ = stopped.await;
    });
    let agent = tokio::spawn(async move { agent.await.expect("left in order") });
    (stop, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_from_a_snapshot_that_it_can_use() {
    let Some((folder, broker, log)) = broker().await else {
        return;
    };
    let config = local(node(), Default::default(), folder.path().join("data"));
    assert_eq!(
        AgentSnapshot::load(&config, &log)
            .await
            .expect("loads")
            .next(),
        Sequence(1)
    );

    let (stop_agent, agent) = start_agent(&config, &log);
    let is_join = |incarnation| move |event: &Event| matches!(event, Event::NodeJoined(it) if it.incarnation == incarnation);
    wait(&log, "join", is_join(1)).await;
    let script = "while :; do sleep 0.05; done";
    append(&log, admitted(spec(&["/bin/sh", "-c", script]))).await;
    append(&log, placed(1, 1)).await;
    append(&log, start(1, None)).await;
    wait(&log, "start", |event| {
        matches!(event, Event::ContainerStarted(_))
    })
    .await;
    drop(stop_agent);
    agent.await.expect("ended");

    // Equals the fold of the log.
    let mut kept = AgentSnapshot::load(&config, &log).await.expect("loads");
    let next = kept.next();
    let (state, former) = kept.take();
    assert_eq!(former, None);
    assert!(next > Sequence(4), "{next}");
    assert_eq!(state, folded(&log, state.folded).await.0);

    append(&log, stop(1)).await;
    let (stop_agent, agent) = start_agent(&config, &log);
    wait(&log, "join", |event| {
        matches!(event, Event::NodeJoined(it) if it.incarnation == 2 && it.running == [id(1, 0)])
    })
    .await;
    wait(
        &log,
        "exit",
        |event| matches!(event, Event::ContainerExited(it) if it.signal == Some(15)),
    )
    .await;
    drop(stop_agent);
    agent.await.expect("ended");
    let mut kept = AgentSnapshot::load(&config, &log).await.expect("loads");
    assert!(kept.next() > next);
    let (state, former) = kept.take();
    assert_eq!(former, None);
    assert_eq!(state, folded(&log, state.folded).await.0);
    let (_, events) = folded(&log, log.head().await.expect("answers")).await;
    let started = |event: &&Event| matches!(event, Event::ContainerStarted(_));
    assert_eq!(events.iter().filter(started).count(), 1);

    what_is_doubtful_is_not_used(&config, &log, state).await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_another_build_keeps_its_container_on_a_trimmed_log() {
    let Some((folder, broker, log)) = broker().await else {
        return;
    };
    let mut config = local(node(), Default::default(), folder.path().join("data"));
    let (stop_agent, agent) = start_agent(&config, &log);
    wait(&log, "join", |event| matches!(event, Event::NodeJoined(_))).await;
    let script = "while :; do sleep 0.05; done";
    append(&log, admitted(spec(&["/bin/sh", "-c", script]))).await;
    append(&log, placed(1, 1)).await;
    append(&log, start(1, None)).await;
    let is_start = |event: &Event| matches!(event, Event::ContainerStarted(_));
    wait(&log, "start", is_start).await;
    drop(stop_agent);
    agent.await.expect("ended");

    // As the archiver does: a state of every node, then the log without its beginning.
    let head = log.head().await.expect("answers");
    let mut followed = log.read(Sequence(1), head).await.expect("answers");
    let (mut every, mut stored_at) = (AgentState::default(), Timestamp::default());
    while let Some(item) = followed.recv().await {
        if let LogItem::Event(recorded) = item {
            every.evolve(&recorded);
            stored_at = recorded.stored_at;
        }
    }
    let snapshot = Snapshot {
        state: every,
        log: log.identity(),
        sequence: head,
        stored_at,
        own_last: Sequence(0),
    };
    log.states().put(&snapshot, "archiver").await.expect("put");
    let in_a_day = stored_at.plus_ms(24 * 3_600_000);
    assert_eq!(log.trim(head, in_a_day).await.expect("trims"), head);

    config.build = "another".to_owned();
    let mut kept = AgentSnapshot::load(&config, &log).await.expect("loads");
    assert_eq!(kept.next(), head.next());
    assert_eq!(kept.take().0.node, Some(node()));
    let (stop_agent, agent) = start_agent(&config, &log);
    let rejoined = async {
        let mut followed = log.follow(head.next());
        loop {
            if let Some(LogItem::Event(recorded)) = followed.recv().await
                && let Some(Event::NodeJoined(joined)) = recorded.event()
            {
                return joined.running.clone();
            }
        }
    };
    let running = tokio::time::timeout(Duration::from_secs(20), rejoined).await;
    assert_eq!(running.expect("joins in time"), [id(1, 0)]);
    append(&log, stop(1)).await;
    let ended = async {
        let mut followed = log.follow(head.next());
        loop {
            if let Some(LogItem::Event(recorded)) = followed.recv().await
                && let Some(Event::ContainerExited(exited)) = recorded.event()
            {
                return exited.signal;
            }
        }
    };
    let signal = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert_eq!(signal.expect("ends in time"), Some(15));
    drop(stop_agent);
    agent.await.expect("ended");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_runs_on_saves_every_twenty_thousand_events() {
    let Some((folder, broker, log)) = broker().await else {
        return;
    };
    let config = local(node(), Default::default(), folder.path().join("data"));
    let dir = config.layout().node().join("snapshots");
    let path = Snapshots::new(dir, &config.build).path::<AgentState>();
    let mut kept = AgentSnapshot::load(&config, &log).await.expect("loads");
    let (mut state, _) = kept.take();
    for due in [20_000, 40_000] {
        let mut save_at = |folded| {
            state.folded = Sequence(folded);
            kept.save_now_and_then(&state, Timestamp::from_micros(1));
        };
        save_at(due - 1);
        assert!(!path.exists(), "before {due}");
        let until = Instant::now() + Duration::from_secs(20);
        while !path.exists() {
            assert!(Instant::now() < until, "nothing at {due}");
            save_at(due);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fs::remove_file(&path).expect("was there");
    }
    broker.stop().await;
}

async fn what_is_doubtful_is_not_used(config: &AgentConfig, log: &Log, state: AgentState) {
    let next = async |config: &AgentConfig| {
        AgentSnapshot::load(config, log)
            .await
            .expect("loads")
            .next()
    };
    let dir = |config: &AgentConfig| config.layout().node().join("snapshots");
    let path = Snapshots::new(dir(config), &config.build).path::<AgentState>();
    let good = fs::read(&path).expect("written");

    let other = local(
        "n1".parse().expect("valid"),
        Default::default(),
        config.data_dir.clone(),
    );
    fs::create_dir_all(dir(&other)).expect("made");
    let name = PathBuf::from(path.file_name().expect("a file"));
    fs::write(dir(&other).join(name), &good).expect("written");
    assert_eq!(next(&other).await, Sequence(1));
    let newer = AgentConfig {
        build: "another".to_owned(),
        ..config.clone()
    };
    assert_eq!(next(&newer).await, Sequence(1));

    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&path, damaged).expect("written");
    assert_eq!(next(config).await, Sequence(1));
    fs::write(&path, &good[..middle]).expect("written");
    assert_eq!(next(config).await, Sequence(1));

    // After a log rollback the former state is kept until used.
    let head = log.head().await.expect("answers");
    let snapshots = Snapshots::new(dir(config), &config.build);
    for sequence in [Sequence(head.0 + 10), head] {
        let snapshot = Snapshot {
            state: state.clone(),
            log: log.identity(),
            sequence,
            stored_at: Timestamp::from_micros(1),
            own_last: Sequence(0),
        };
        snapshots.save(&snapshot).expect("written");
        for again in [false, true] {
            let mut kept = AgentSnapshot::load(config, log).await.expect("loads");
            assert_eq!(kept.next(), Sequence(1), "{again}");
            let (nothing, former) = kept.take();
            assert_eq!(former.as_ref(), Some(&state), "{again}");
            // Even by an agent that exits before checking containers.
            kept.save_last(nothing, Timestamp::from_micros(2)).await;
        }
        let mut kept = AgentSnapshot::load(config, log).await.expect("loads");
        kept.replace_former(&state, Timestamp::from_micros(1));
        kept.save_last(state.clone(), Timestamp::from_micros(1))
            .await;
        assert_eq!(snapshots.path::<AgentState>(), path);
        assert_ne!(fs::read(&path).expect("written"), good);
    }

    fs::write(&path, &good).expect("written");
    assert_eq!(next(config).await, state.folded.next());
}
