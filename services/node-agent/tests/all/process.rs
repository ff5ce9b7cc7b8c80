//! Tests of plain processes: limits, latency, signals.

mod waiting_inits;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_agent_core::Exit;
use dormouse_messages::Sequence;
use dormouse_messages::events::NodeFault;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_node_agent::container_plan::ContainerPlan;
use dormouse_node_agent::container_record::{ContainerRecord, ContainerRecords};
use dormouse_node_agent::process::ProcessRuntime;
use dormouse_node_agent::runtime::{ContainerDriver, RuntimeError};
use dormouse_sandbox::procfs::{Identity, stat};
use dormouse_sandbox::protocol::Gone;
use dormouse_sandbox::supervisor::Supervised;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

type Exited = mpsc::UnboundedReceiver<(dormouse_messages::ContainerId, Exit)>;

async fn runtime(folder: &Path, limits: bool) -> (ProcessRuntime, Exited) {
    let config = local(node(), Default::default(), folder.to_owned());
    let (exits, exited) = mpsc::unbounded_channel();
    let marks = ContainerRecords::open(&config.layout()).expect("opened");
    let runtime = ProcessRuntime::connect(&config, marks, exits, limits).await;
    (runtime.expect("a supervisor"), exited)
}

async fn limited(folder: &Path) -> Option<(ProcessRuntime, Exited)> {
    let (runtime, exited) = runtime(folder, true).await;
    if !runtime.has_limits() {
        skipped("this machine lets nobody make control groups");
        return None;
    }
    Some((runtime, exited))
}

fn plan(folder: &Path, incarnation: u32, script: &str) -> ContainerPlan {
    let config = local(node(), Default::default(), folder.to_owned());
    let container = id(incarnation, 0);
    ContainerPlan {
        request: Sequence(u64::from(incarnation)),
        admitted: Sequence(1),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::new(),
        image: None,
        mounts: vec![],
        user: None,
        port: 21_000,
        network: Network::Host,
        node_address: None,
        granted: Granted::default(),
        demand: Default::default(),
        gpu_part: None,
        gpus: vec![],
        directory: config.layout().container(&container),
        checkpoint: config
            .layout()
            .checkpoint(&job_folder(), container.incarnation),
        resume: None,
        stored: None,
        members: None,
        work: None,
        code: None,
        python: None,
        container,
    }
}

/// As a former agent would.
fn noted(folder: &Path, plan: &ContainerPlan, process: Identity) {
    let config = local(node(), Default::default(), folder.to_owned());
    let marks = ContainerRecords::open(&config.layout()).expect("opened");
    let mut mark = ContainerRecord::new(plan.container.clone(), plan.request);
    mark.supervised = Some(Supervised::by_supervisor(process));
    marks.put(&mark).expect("noted");
}

fn supervisor_of(folder: &Path) -> Option<u32> {
    let folder = folder.display().to_string();
    let processes = fs::read_dir("/proc").expect("read").flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let mut supervisors = numbers.filter(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        line.contains(&folder) && read("comm") == b"dormouse-superv\n"
    });
    supervisors.next()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|stat| stat.zombie)
}

async fn number_in(file: &Path) -> u32 {
    let read = || fs::read_to_string(file).unwrap_or_default();
    until("a number", || read().ends_with('\n')).await;
    read().trim().parse().expect("a number")
}

async fn exit(exited: &mut Exited) -> Exit {
    let exit = tokio::time::timeout(Duration::from_secs(10), exited.recv()).await;
    exit.expect("in time").expect("open").1
}

#[tokio::test]
async fn a_pid_of_another_start_time_is_never_signalled() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bystander = std::process::Command::new("sleep")
        .arg("30")
        .spawn()
        .expect("spawned");
    let found = stat(bystander.id()).expect("it runs");
    let plan = plan(folder.path(), 1, "true");
    let stale = Identity {
        started_ticks: found.identity.started_ticks - 1,
        ..found.identity
    };
    noted(folder.path(), &plan, stale);
    let (runtime, _exited) = runtime(folder.path(), false).await;
    let listed = runtime.recover().await.expect("listed");
    assert!(
        listed[0].status.as_ref().is_err_and(|exit| exit.evicted),
        "{listed:?}"
    );
    runtime
        .signal(&plan.container, Signal::SIGKILL)
        .await
        .expect("nothing to signal");
    runtime
        .kill(&plan.container)
        .await
        .expect("nothing to kill");
    assert!(
        bystander.try_wait().expect("waited").is_none(),
        "the bystander was hit"
    );
    bystander.kill().expect("killed");
    bystander.wait().expect("waited");
}

#[tokio::test]
async fn a_signal_right_after_the_start_is_not_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), false).await;
    for incarnation in 1..=100 {
        let plan = plan(folder.path(), incarnation, "exec sleep 60");
        let container = plan.container.clone();
        runtime.start(plan).await.expect("started");
        tokio::time::sleep(Duration::from_micros(u64::from(incarnation) * 40)).await;
        let signalled = runtime.signal(&container, Signal::SIGTERM);
        signalled.await.expect("signalled");
        let exit = tokio::time::timeout(Duration::from_secs(20), exited.recv()).await;
        let (_, exit) = exit.expect("it ended").expect("open");
        assert_eq!(exit.signal, Some(15), "{incarnation}");
    }
}

#[tokio::test]
async fn a_mount_that_a_plain_process_cannot_have_is_no_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), false).await;
    let here = folder.path().display().to_string();
    let mounted = |incarnation, source: &str, target: &str| ContainerPlan {
        mounts: vec![Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: true,
        }],
        ..plan(folder.path(), incarnation, "true")
    };
    let elsewhere = runtime.start(mounted(1, &here, "/data")).await;
    let said = elsewhere.expect_err("refused").to_string();
    assert!(said.contains("--runtime docker"), "{said}");
    let missing = runtime.start(mounted(2, "/no/such", "/no/such")).await;
    let said = missing.expect_err("refused").to_string();
    assert!(said.contains("not on this node"), "{said}");
    runtime
        .start(mounted(3, &here, &here))
        .await
        .expect("starts");
    assert_eq!(exit(&mut exited).await.code, Some(0));
}

#[tokio::test]
async fn what_a_container_leaves_behind_is_killed_before_its_exit_is_told() {
    for limits in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (runtime, mut exited) = runtime(folder.path(), limits).await;
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 60 & echo $! >{}; exit 0", pid_file.display());
        let plan = plan(folder.path(), 1, &script);
        runtime.start(plan).await.expect("started");
        assert_eq!(exit(&mut exited).await.code, Some(0));
        let pid: u32 = fs::read_to_string(pid_file)
            .expect("read")
            .trim()
            .parse()
            .expect("a pid");
        assert!(
            stat(pid).is_none_or(|stat| stat.zombie),
            "limits {limits}: it is left"
        );
    }
}

/// A child leaves its session and loses its parent.
const ESCAPES: &str = "setsid sh -c 'sh -c \"while :; do sleep 0.05; done\" & echo $! >$0' $FILE; echo $$ >$FILE.own; while :; do sleep 0.05; done";

#[tokio::test]
async fn a_killed_supervisor_takes_everything_along_and_the_agent_hears_of_it() {
    for limits in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (runtime, mut exited) = runtime(folder.path(), limits).await;
        let (file, own) = (folder.path().join("pid"), folder.path().join("pid.own"));
        let mut plan = plan(folder.path(), 1, ESCAPES);
        let value = EnvValue::Plain(file.display().to_string());
        plan.env.insert("FILE".to_owned(), value);
        let container = plan.container.clone();
        runtime.start(plan).await.expect("started");
        let pids = [number_in(&file).await, number_in(&own).await];
        let supervisor = supervisor_of(folder.path()).expect("a supervisor");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(supervisor).expect("small"));
        nix::sys::signal::kill(pid, Signal::SIGKILL).expect("killed");
        let exit = exit(&mut exited).await;
        assert!(exit.evicted, "{exit:?}");
        assert!(
            pids.iter().all(|pid| is_gone(*pid)),
            "limits {limits}: {pids:?}"
        );
        runtime.remove(&container, Sequence(1)).await;
        runtime
            .start(self::plan(folder.path(), 2, "exit 4"))
            .await
            .expect("started");
        assert_eq!(self::exit(&mut exited).await.code, Some(4));
    }
}

#[tokio::test]
async fn what_leaves_its_session_and_loses_its_parent_ends_with_the_program() {
    for limits in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (runtime, mut exited) = runtime(folder.path(), limits).await;
        let (file, own) = (folder.path().join("pid"), folder.path().join("pid.own"));
        let mut plan = plan(folder.path(), 1, ESCAPES);
        let value = EnvValue::Plain(file.display().to_string());
        plan.env.insert("FILE".to_owned(), value);
        let container = plan.container.clone();
        let pid = runtime.start(plan).await.expect("started");
        let (child, program) = (number_in(&file).await, number_in(&own).await);
        assert_eq!(program, pid);
        runtime
            .signal(&container, Signal::SIGTERM)
            .await
            .expect("signalled");
        assert_eq!(exit(&mut exited).await.signal, Some(15));
        assert!(is_gone(child), "limits {limits}: it is left");
    }
}

#[tokio::test]
async fn a_killed_init_takes_its_container_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), false).await;
    let script = "while :; do sleep 0.05; done";
    let pid = runtime
        .start(plan(folder.path(), 1, script))
        .await
        .expect("started");
    let init = stat(pid).expect("it runs").parent;
    let init = nix::unistd::Pid::from_raw(i32::try_from(init).expect("small"));
    nix::sys::signal::kill(init, Signal::SIGKILL).expect("killed");
    assert_eq!(exit(&mut exited).await.signal, Some(9));
    assert!(is_gone(pid), "the program is left");
}

/// The connection ends as in a crash.
#[tokio::test]
async fn exit_codes_are_kept_while_no_agent_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, _) = runtime(folder.path(), true).await;
    let scripts = ["exit 3", "kill -9 $$", "sleep 2; exit 5"];
    for (script, incarnation) in scripts.iter().zip(1..) {
        first
            .start(plan(folder.path(), incarnation, script))
            .await
            .expect("started");
    }
    let supervisor = supervisor_of(folder.path()).expect("a supervisor");
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (second, mut exited) = runtime(folder.path(), true).await;
    let found = second.recover().await.expect("listed");
    let ended: Vec<_> = found
        .iter()
        .filter_map(|it| it.status.as_ref().err())
        .collect();
    assert_eq!(
        ended
            .iter()
            .map(|it| (it.code, it.signal))
            .collect::<Vec<_>>(),
        [(Some(3), None), (None, Some(9))]
    );
    assert_eq!(exit(&mut exited).await.code, Some(5));
    assert_eq!(
        supervisor_of(folder.path()),
        Some(supervisor),
        "the same supervisor"
    );
    for found in found {
        second.remove(&found.container, found.request).await;
    }
    drop(second);
    until("the supervisor ends when it holds nothing", || {
        is_gone(supervisor)
    })
    .await;
}

#[tokio::test]
async fn at_the_deadline_everything_ends_and_nothing_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), true).await;
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    runtime
        .start(plan(folder.path(), 1, script))
        .await
        .expect("started");
    let supervisor = runtime.supervisor();
    let since = tokio::time::Instant::now();
    supervisor.hold_until(Some((since, Duration::from_millis(300))));
    let exit = exit(&mut exited).await;
    assert!(
        since.elapsed() >= Duration::from_millis(290),
        "{:?}",
        since.elapsed()
    );
    // No grace for ignoring SIGTERM; a busy machine may be late.
    assert!(
        since.elapsed() < Duration::from_secs(4),
        "{:?}",
        since.elapsed()
    );
    assert!(exit.evicted && exit.reason.expect("a reason").contains("lease"));
    let refused = runtime.start(plan(folder.path(), 2, "true")).await;
    assert!(refused.is_err(), "{refused:?}");
    supervisor.hold_until(Some((tokio::time::Instant::now(), Duration::from_secs(60))));
    runtime
        .start(plan(folder.path(), 3, "true"))
        .await
        .expect("started");
    assert_eq!(self::exit(&mut exited).await.code, Some(0));
}

/// Records whether `running` outlives the agent.
fn if_gone(told: &Path, after_ms: u64, running: u32) -> Gone {
    let script = format!("kill -0 {running} && echo runs >> told || echo ended >> told");
    Gone {
        after_ms,
        command: ["/bin/sh", "-c", &script].map(str::to_owned).into(),
        env: BTreeMap::new(),
        working_dir: told.to_owned(),
    }
}

#[tokio::test]
async fn when_an_agent_is_gone_for_too_long_everything_ends_and_then_it_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, _) = runtime(folder.path(), true).await;
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let running = first.start(plan(folder.path(), 1, script)).await;
    let running = running.expect("started");
    let supervisor = first.supervisor();
    supervisor.if_gone(Some(if_gone(folder.path(), 1, running)));
    supervisor.if_gone(None);
    drop((supervisor, first));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!is_gone(running));

    let (second, _) = runtime(folder.path(), true).await;
    second
        .supervisor()
        .if_gone(Some(if_gone(folder.path(), 2_000, running)));
    // The supervisor sees the disconnect first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(second);
    let (third, _) = runtime(folder.path(), true).await;
    tokio::time::sleep(Duration::from_millis(2_300)).await;
    assert!(!is_gone(running));

    // The last order is executed.
    drop(third);
    let told = folder.path().join("told");
    let read = || fs::read_to_string(&told).unwrap_or_default();
    until("it is said", || read().ends_with('\n')).await;
    assert_eq!(read(), "ended\n");
    let (last, _) = runtime(folder.path(), true).await;
    let found = last.recover().await.expect("listed");
    let [found] = &found[..] else {
        panic!("{found:?}")
    };
    let exit = found.status.as_ref().expect_err("it has ended");
    let reason = exit.reason.as_deref().expect("a reason");
    assert!(exit.evicted && reason.contains("agent died"), "{exit:?}");
}

#[tokio::test]
async fn what_cannot_be_said_is_tried_again_until_another_agent_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, _) = runtime(folder.path(), true).await;
    let script = "echo tried >> told; test $(wc -l < told) = 2";
    first.supervisor().if_gone(Some(Gone {
        command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        ..if_gone(folder.path(), 1, 1)
    }));
    first
        .start(plan(folder.path(), 1, "sleep 60"))
        .await
        .expect("started");
    drop(first);
    let told = folder.path().join("told");
    let tries = || {
        fs::read_to_string(&told)
            .unwrap_or_default()
            .lines()
            .count()
    };
    until("the second try", || tries() == 2).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(tries(), 2, "it was said");
}

#[tokio::test]
async fn limits_hold_and_want_of_memory_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((runtime, mut exited)) = limited(folder.path()).await else {
        return;
    };
    let mut plan = plan(
        folder.path(),
        1,
        "exec python3 -c 'x = bytearray(200 << 20)'",
    );
    plan.demand = "cpu=500m,memory=64Mi".parse().expect("valid");
    let container = plan.container.clone();
    runtime.start(plan).await.expect("started");
    let exit = exit(&mut exited).await;
    assert_eq!((exit.signal, exit.out_of_memory), (Some(9), true));
    runtime.remove(&container, Sequence(1)).await;
}

#[tokio::test]
async fn a_full_disk_is_a_container_that_cannot_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        skipped("a small disk cannot be mounted here");
        return;
    }
    let (runtime, mut exited) = runtime(&disk, false).await;
    // Too full for the record or already the request.
    let _ = fs::write(disk.join("filler"), vec![0; 64 << 10]);
    let why = match runtime.start(plan(&disk, 1, "true")).await {
        Err(RuntimeError::Start(error)) => {
            assert_eq!(error.fault, Some(NodeFault::Disk), "{error:?}");
            error.to_string()
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => {
            let exit = exit(&mut exited).await;
            assert_eq!((exit.fault, exit.evicted), (Some(NodeFault::Disk), true));
            exit.reason.expect("a reason")
        }
    };
    assert!(why.contains("free space on this node's disk"), "{why}");
    fs::remove_file(disk.join("filler")).expect("removed");
    runtime
        .start(plan(&disk, 2, "true"))
        .await
        .expect("started");
    assert_eq!(exit(&mut exited).await.code, Some(0));
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(&disk)
        .status();
    assert!(unmounted.expect("umount runs").success());
}

#[tokio::test]
async fn a_start_that_an_agent_did_not_live_to_see_is_made_again_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), 1, "echo ran");
    let (runtime, _) = runtime(folder.path(), false).await;
    // A former agent died between its record and its request.
    let supervisor = runtime.supervisor().identity().expect("a supervisor");
    let config = local(node(), Default::default(), folder.path().to_owned());
    let marks = ContainerRecords::open(&config.layout()).expect("opened");
    let mut mark = ContainerRecord::new(plan.container.clone(), plan.request);
    mark.supervised = Some(Supervised::by_supervisor(supervisor));
    marks.put(&mark).expect("noted");
    assert_eq!(runtime.recover().await.expect("listed"), []);
    marks.put(&mark).expect("noted");
    drop(runtime);
    until("the supervisor leaves", || {
        supervisor_of(folder.path()).is_none()
    })
    .await;
    let (runtime, mut exited) = self::runtime(folder.path(), false).await;
    assert_eq!(runtime.recover().await.expect("listed"), []);
    let stdout = plan.directory.join("stdout.log");
    runtime.start(plan.clone()).await.expect("started");
    assert_eq!(exit(&mut exited).await.code, Some(0));
    let again = runtime.start(plan).await;
    assert!(again.is_err(), "{again:?}");
    assert_eq!(fs::read_to_string(stdout).expect("read"), "ran\n");
}

#[tokio::test]
async fn what_escapes_its_session_and_its_group_s_folder_is_ended_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((runtime, mut exited)) = limited(folder.path()).await else {
        return;
    };
    let pid_file = folder.path().join("pid");
    // Its own session, and a nested group.
    let script = format!(
        "memory=$(sed -n 's/.*:memory://p;s/^0:://p' /proc/self/cgroup | head -1); \
         for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do own=$root$memory; \
         mkdir $own/deeper 2>/dev/null && break; done; \
         setsid sh -c \"echo \\$\\$ >$own/deeper/cgroup.procs; echo \\$\\$ >{}; exec sleep 60\" & \
         while [ ! -s {0} ]; do sleep 0.02; done; exit 0",
        pid_file.display()
    );
    let plan = plan(folder.path(), 1, &script);
    let container = plan.container.clone();
    runtime.start(plan).await.expect("started");
    assert_eq!(exit(&mut exited).await.code, Some(0));
    let pid = fs::read_to_string(pid_file).expect("read");
    let pid: u32 = pid.trim().parse().expect("a pid");
    assert!(stat(pid).is_none_or(|stat| stat.zombie), "it is left");
    runtime.remove(&container, Sequence(1)).await;
}
