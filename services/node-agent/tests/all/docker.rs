//! Tests of Docker containers on a real engine. Skipped without one; fails then if `DORMOUSE_NO_SKIP=1`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, InspectContainerOptions};
use dormouse_messages::events::{Acknowledged, ResizeCause};
use dormouse_messages::job::{CheckpointMode, JobSpec, Mount};
use dormouse_messages::{ContainerId, Event, Incarnation, Sequence};
use dormouse_node_agent::layout::JobFolder;
use dormouse_node_agent::{AgentConfig, RuntimeKind, logs_path};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(future)
}

pub fn engine() -> bool {
    let answer = block_on(async {
        let docker = Docker::connect_with_defaults()?.negotiate_version().await?;
        docker.inspect_image("dormouse/empty").await.map(drop)
    });
    match answer {
        Ok(()) => true,
        Err(error) => {
            skipped(&format!(
                "no Docker engine with the image dormouse/empty ({error}); run scripts/install.sh docker"
            ));
            false
        }
    }
}

fn config(folder: &Path, cluster: &str) -> AgentConfig {
    let mut config = local(node(), Default::default(), folder.to_owned());
    config.runtime = RuntimeKind::Docker;
    config.cluster = format!("test-{cluster}-{}", std::process::id());
    config
}

fn sh(script: &str) -> JobSpec {
    spec(&["/bin/sh", "-c", script])
}

fn names(config: &AgentConfig) -> Vec<String> {
    let filters = [(
        "label".to_owned(),
        vec![format!("dormouse.cluster={}", config.cluster)],
    )];
    let options = bollard::query_parameters::ListContainersOptions {
        all: true,
        filters: Some(filters.into()),
        ..Default::default()
    };
    block_on(async {
        let docker = Docker::connect_with_defaults().expect("an engine");
        let docker = docker.negotiate_version().await.expect("an engine");
        let listed = docker.list_containers(Some(options)).await.expect("listed");
        listed
            .into_iter()
            .flat_map(|it| it.names.unwrap_or_default())
            .collect()
    })
}

pub fn log_file(config: &AgentConfig, container: &ContainerId) -> PathBuf {
    let id = container.to_string().replace('/', ".");
    let name = format!("{}-{}-{id}", config.cluster, config.node);
    let found = block_on(async {
        let docker = Docker::connect_with_defaults().expect("an engine");
        let options = None::<InspectContainerOptions>;
        docker.inspect_container(&name, options).await
    });
    found.expect("there").log_path.expect("a path").into()
}

fn wait_removed(config: &AgentConfig) {
    let until = Instant::now() + Duration::from_secs(10);
    while !names(config).is_empty() {
        assert!(
            Instant::now() < until,
            "left in the engine: {:?}",
            names(config)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn without_an_agent_containers_end_before_the_lease() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let mut config = config(folder.path(), "deadline");
    config.lease = Some(dormouse_messages::policy::LeaseTerm {
        lease_ms: 6_000,
        fence_ms: 3_000,
    });
    let agent = Running::start(&log, config.clone(), true);
    log.append(admitted(sh("trap '' TERM; while :; do sleep 0.05; done")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    let runs = || {
        let docker = Docker::connect_with_defaults().expect("an engine");
        let name = format!("{}-n0-ads.lr.1.0", config.cluster);
        let found = block_on(async move {
            docker
                .inspect_container(&name, None::<InspectContainerOptions>)
                .await
        });
        found.is_ok_and(|it| it.state.and_then(|it| it.running) == Some(true))
    };
    assert!(runs(), "it runs");
    agent.stop().expect("left in order");
    let left = Instant::now();
    while runs() {
        assert!(
            left.elapsed() < Duration::from_secs(6),
            "it outlives the lease"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("gone {:?} after the agent", left.elapsed());
    let exit = {
        let agent = Running::start(&log, config.clone(), true);
        let exit = log.wait_exited(&id(1, 0));
        wait_removed(&config);
        agent.stop().expect("left in order");
        exit
    };
    assert_eq!(exit.signal, Some(9));
}

#[test]
fn containers_start_save_stop_and_are_removed() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "whole");
    let agent = Running::start(&log, config.clone(), false);
    let script = r#"trap 'echo "{\"step\":3,\"bytes\":2}" >$DORMOUSE_CHECKPOINT_DIR/checkpoint.json; exit 0' TERM
        echo "{\"step\":1}" >>$DORMOUSE_PROGRESS
        echo out $DORMOUSE_RANK; echo err >&2
        while :; do sleep 0.05; done"#;
    log.append(admitted(sh(script)));
    log.append(placed(1, 2));
    let request = log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.wait_started(&id(1, 1));
    println!("two started after {:?}", log.at(request).elapsed());
    log.wait("progress", |event| {
        matches!(event, Event::Progress(_)).then_some(())
    });
    let asked = Instant::now();
    log.append(save(1));
    log.wait("saved", |event| {
        matches!(event, Event::CheckpointSaved(it) if it.step == 3).then_some(())
    });
    for rank in [0, 1] {
        let exit = log.wait_exited(&id(1, rank));
        assert_eq!(
            (exit.exit_code, exit.signal, exit.evicted),
            (Some(0), None, false)
        );
    }
    println!("saved and out after {:?}", asked.elapsed());
    let logs = logs_path(folder.path(), &id(1, 1)).expect("logs");
    assert_eq!(fs::read_to_string(logs.stdout).expect("read"), "out 1\n");
    assert_eq!(fs::read_to_string(logs.stderr).expect("read"), "err\n");
    wait_removed(&config);
    agent.stop().expect("left in order");
}

#[test]
fn what_has_ended_is_removed_before_the_agent_leaves() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "over");
    let agent = Running::start(&log, config.clone(), false);
    log.append(admitted(sh("exit 3")));
    log.append(placed(1, 3));
    log.append(start(1, None));
    for rank in 0..3 {
        log.wait_started(&id(1, rank));
        assert_eq!(log.wait_exited(&id(1, rank)).exit_code, Some(3));
    }
    agent.stop().expect("left in order");
    assert_eq!(names(&config), Vec::<String>::new());
}

#[test]
fn one_that_was_created_and_never_started_is_started_once() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "created");
    let admitted = log.append(admitted(sh(
        "echo started >>$DORMOUSE_CHECKPOINT_DIR/starts",
    )));
    log.append(placed(1, 1));
    let request = log.append(start(1, None));
    // The agent died between create and start.
    let own = JobFolder::new(job(), admitted);
    let checkpoint = config.layout().checkpoint(&own, Incarnation(1));
    fs::create_dir_all(&checkpoint).expect("made");
    create(&config, &id(1, 0), request, &checkpoint);
    let agent = Running::start(&log, config.clone(), false);
    assert_eq!(log.wait_joined(1).running, []);
    log.wait_started(&id(1, 0));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    let starts = fs::read_to_string(checkpoint.join("starts")).expect("read");
    assert_eq!(starts, "started\n");
    agent.stop().expect("left in order");
    assert_eq!(names(&config), Vec::<String>::new());
}

/// As the agent does, without a start.
fn create(config: &AgentConfig, container: &ContainerId, request: Sequence, checkpoint: &Path) {
    let labels = [
        ("dormouse.cluster", config.cluster.clone()),
        ("dormouse.node", config.node.to_string()),
        ("dormouse.container", container.to_string()),
        ("dormouse.request", request.to_string()),
    ];
    let folders = ["/usr", "/lib", "/lib64", "/bin"].map(|folder| format!("{folder}:{folder}:ro"));
    let checkpoint = checkpoint.display();
    let body = ContainerCreateBody {
        image: Some("dormouse/empty".to_owned()),
        cmd: Some(
            [
                "/bin/sh",
                "-c",
                &format!("echo started >>{checkpoint}/starts"),
            ]
            .map(str::to_owned)
            .into(),
        ),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(HostConfig {
            network_mode: Some("host".to_owned()),
            binds: Some([folders.to_vec(), vec![format!("{checkpoint}:{checkpoint}")]].concat()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let id = container.to_string().replace('/', ".");
    let options = CreateContainerOptions {
        name: Some(format!("{}-{}-{id}", config.cluster, config.node)),
        ..Default::default()
    };
    block_on(async {
        let docker = Docker::connect_with_defaults().expect("an engine");
        let docker = docker.negotiate_version().await.expect("an engine");
        let created = docker.create_container(Some(options), body).await;
        created.expect("created");
    });
}

/// Only their folders differ.
#[test]
fn agents_of_two_clusters_leave_each_others_containers_alone() {
    if !engine() {
        return;
    }
    let (one, other) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (log, other_log) = (FakeLog::default(), FakeLog::default());
    let (config, other_config) = (config(one.path(), "one"), config(other.path(), "two"));
    let other_agent = Running::start(&other_log, other_config.clone(), false);
    other_log.append(admitted(sh("while :; do sleep 0.05; done")));
    other_log.append(placed(1, 1));
    other_log.append(start(1, None));
    other_log.wait_started(&id(1, 0));
    let agent = Running::start(&log, config.clone(), false);
    log.wait_joined(1);
    assert_eq!((names(&other_config).len(), names(&config).len()), (1, 0));
    let exits = |event: &Event| matches!(event, Event::ContainerExited(_));
    assert_eq!((log.count(exits), other_log.count(exits)), (0, 0));
    other_log.append(stop(1));
    other_log.wait_exited(&id(1, 0));
    other_agent.stop().expect("left in order");
    agent.stop().expect("left in order");
}

#[test]
fn exit_codes_kills_and_refusals_are_told() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "exit");
    let _agent = Running::start(&log, config.clone(), false);
    let mut mixed =
        sh("[ $DORMOUSE_RANK = 0 ] && exit 7; trap '' TERM; while :; do sleep 0.05; done");
    mixed.checkpoint.grace_s = 1;
    log.append(admitted(mixed));
    log.append(placed(1, 2));
    log.append(start(1, None));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(7));
    log.wait_started(&id(1, 1));
    log.append(stop(1));
    let exit = log.wait_exited(&id(1, 1));
    assert_eq!((exit.signal, exit.evicted), (Some(9), false));
    for (incarnation, spec, part) in [
        (2, spec(&["/no/such/program"]), "/no/such/program"),
        (
            3,
            JobSpec {
                image: Some("no/such/image".to_owned()),
                ..sh("true")
            },
            "no/such/image",
        ),
        (
            4,
            JobSpec {
                mounts: vec![Mount {
                    source: "/no/such/folder".to_owned(),
                    target: "/x".to_owned(),
                    read_only: true,
                }],
                ..sh("true")
            },
            "/no/such/folder",
        ),
    ] {
        log.append(admitted(spec));
        log.append(placed(incarnation, 1));
        log.append(start(incarnation, None));
        let exit = log.wait_exited(&id(incarnation, 0));
        let reason = exit.reason.expect("a reason");
        assert!(
            reason.starts_with("cannot start") && reason.contains(part),
            "{reason}"
        );
    }
    wait_removed(&config);
}

#[test]
fn limits_hold_and_want_of_memory_is_told() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "oom");
    let _agent = Running::start(&log, config.clone(), false);
    let mut hungry = spec(&[
        "/usr/bin/python3",
        "-c",
        "x = bytearray(200 << 20); print(len(x))",
    ]);
    hungry.demand = "cpu=4,memory=64Mi".parse().expect("valid");
    log.append(admitted(hungry));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let exit = log.wait_exited(&id(1, 0));
    assert!(exit.out_of_memory, "{exit:?}");
    assert_eq!(exit.signal, Some(9));
    wait_removed(&config);
}

#[test]
fn a_successor_adopts_by_labels() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "adopt");
    let agent = Running::start(&log, config.clone(), false);
    let mut spec = sh(
        "echo before; [ $DORMOUSE_RANK = 0 ] || { sleep 0.5; exit 5; }; while :; do sleep 0.05; done",
    );
    spec.checkpoint.mode = CheckpointMode::Continue;
    spec.checkpoint.command = [
        "/bin/sh",
        "-c",
        "echo '{\"step\":8}' >$DORMOUSE_CHECKPOINT_DIR/checkpoint.json",
    ]
    .map(str::to_owned)
    .into();
    log.append(admitted(spec));
    log.append(placed(1, 2));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.wait_started(&id(1, 1));
    agent.stop().expect("left in order");
    std::thread::sleep(Duration::from_millis(800));
    let agent = Running::start(&log, config.clone(), false);
    assert_eq!(log.wait_joined(2).running, [id(1, 0)]);
    assert_eq!(log.wait_exited(&id(1, 1)).exit_code, Some(5));
    log.append(save(1));
    log.wait("saved", |event| {
        matches!(event, Event::CheckpointSaved(it) if it.step == 8).then_some(())
    });
    log.append(stop(1));
    assert_eq!(log.wait_exited(&id(1, 0)).signal, Some(15));
    let logs = logs_path(folder.path(), &id(1, 0)).expect("logs");
    assert_eq!(fs::read_to_string(logs.stdout).expect("read"), "before\n");
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerStarted(_))),
        2
    );
    log.append(placed(2, 1));
    log.append(start(2, None));
    log.wait_started(&id(2, 0));
    agent.stop().expect("left in order");
    log.append(lost(2));
    let agent = Running::start(&log, config.clone(), false);
    log.wait_joined(3);
    assert!(log.wait_exited(&id(2, 0)).evicted);
    wait_removed(&config);
    agent.stop().expect("left in order");
}

#[test]
fn a_task_set_runs_in_a_container() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "tasks");
    let _agent = Running::start(&log, config.clone(), false);
    log.append(admitted(task_set("[ $DORMOUSE_TASK != 3 ] || exit 7")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.append(assigned(&[(0, 0..50)]));
    wait_tasks(&log, 50);
    let (completed, failures) = task_reports(&log);
    assert_eq!((completed.len(), failures), (49, vec![(3, 7)]));
    log.append(save(1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    wait_removed(&config);
}

/// Acknowledges changes; cannot write the members' file.
const MEMBER: &str = r#"
(: >$DORMOUSE_MEMBERS) 2>/dev/null && exit 9
say() { echo "{\"generation\": 1, \"state\": \"$1\"}" >$DORMOUSE_ACK.new; mv $DORMOUSE_ACK.new $DORMOUSE_ACK; }
[ $DORMOUSE_GENERATION = 0 ] || say ready
until grep -q '"generation":1' $DORMOUSE_MEMBERS; do sleep 0.05; done
say joined
trap 'exit 0' TERM
while :; do sleep 0.1; done"#;

#[test]
fn members_in_containers_read_their_file_and_answer() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "elastic");
    let agent = Running::start(&log, config.clone(), false);
    log.append(admitted(elastic(&["/bin/sh", "-c", MEMBER])));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.append(placed_more(1, &[(1, NODE)]));
    log.append(resize(1, &[1], &[], &[0], ResizeCause::Adjusted));
    let is_ready =
        |event: &Event| matches!(event, Event::ContainerReady(it) if it.container.rank.0 == 1);
    log.wait("ready", |event| is_ready(event).then_some(()));
    log.append(resized(1, &[0, 1], ResizeCause::Adjusted));
    for rank in [0, 1] {
        log.wait("joined", |event| match event {
            Event::MemberAcknowledged(it) if it.container.rank.0 == rank => {
                (it.state == Acknowledged::Joined).then_some(())
            }
            _ => None,
        });
    }
    log.append(leave(2, &[1]));
    assert_eq!(log.wait_exited(&id(1, 1)).exit_code, Some(0));
    log.append(stop(1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    wait_removed(&config);
    agent.stop().expect("left in order");
}

#[test]
fn a_replica_in_a_container_is_asked_on_its_port() {
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), "replica");
    let agent = Running::start(&log, config.clone(), false);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let script = "exec python3 -m http.server --bind 127.0.0.1 $DORMOUSE_PORT";
    log.append(admitted(service(&["/bin/sh", "-c", script])));
    log.append(placed_at(1, port));
    log.append(start(1, None));
    let after_ms = log.wait("ready", |event| match event {
        Event::ContainerReady(it) => Some(it.after_ms),
        _ => None,
    });
    println!("ready {after_ms} ms after its start");
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    wait_removed(&config);
    agent.stop().expect("left in order");
}
