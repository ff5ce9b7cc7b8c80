//! Plain processes, below the agent: limits, latency, and what must never be signalled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Sequence;
use dormouse_messages::events::NodeFault;
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::marks::{Mark, Marks, Supervised};
use dormouse_node_agent::process::{Cgroups, Identity, ProcessRuntime, stat};
use dormouse_node_agent::runtime::{ContainerPlan, ContainerRuntime, Exit, RuntimeError};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

type Exited = mpsc::UnboundedReceiver<(dormouse_messages::ContainerId, Exit)>;

fn runtime(folder: &Path, limits: bool) -> (ProcessRuntime, Exited) {
    let config = AgentConfig::local(node(), Default::default(), folder.to_owned());
    let (exits, exited) = mpsc::unbounded_channel();
    let marks = Marks::open(&config.layout()).expect("opened");
    let runtime = if limits {
        ProcessRuntime::new(&config, marks, exits)
    } else {
        ProcessRuntime::with_cgroups(&config, marks, Cgroups::Absent("a test".to_owned()), exits)
    };
    (runtime, exited)
}

fn plan(folder: &Path, incarnation: u32, script: &str) -> ContainerPlan {
    let config = AgentConfig::local(node(), Default::default(), folder.to_owned());
    let container = id(incarnation, 0);
    ContainerPlan {
        request: Sequence(u64::from(incarnation)),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::new(),
        image: None,
        mounts: vec![],
        demand: Default::default(),
        gpus: vec![],
        directory: config.layout().container(&container),
        checkpoint: config
            .layout()
            .checkpoint(&container.job, container.incarnation),
        resume: None,
        members: None,
        work: None,
        container,
    }
}

/// A former agent has noted that this process stands for the container, and given its orders.
fn noted(folder: &Path, plan: &ContainerPlan, process: Identity) {
    let config = AgentConfig::local(node(), Default::default(), folder.to_owned());
    let marks = Marks::open(&config.layout()).expect("opened");
    let mut mark = Mark::new(plan.container.clone(), plan.request);
    mark.supervised = Some(Supervised::new(process, String::new()));
    marks.put(&mark).expect("noted");
    let records = marks.records(&plan.container, plan.request);
    fs::write(format!("{}.ended", records.display()), "").expect("written");
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
    let (runtime, _exited) = runtime(folder.path(), false);
    let listed = runtime.list().await.expect("listed");
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
    let (runtime, mut exited) = runtime(folder.path(), false);
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
    let (runtime, mut exited) = runtime(folder.path(), false);
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
        let (runtime, mut exited) = runtime(folder.path(), limits);
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

#[tokio::test]
async fn a_killed_supervisor_takes_its_program_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), false);
    let pid_file = folder.path().join("pid");
    let script = format!(
        "echo $$ >{}; while :; do sleep 0.05; done",
        pid_file.display()
    );
    let pid = runtime
        .start(plan(folder.path(), 1, &script))
        .await
        .expect("started");
    while fs::read_to_string(&pid_file).unwrap_or_default().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let supervisor = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("small"));
    nix::sys::signal::kill(supervisor, Signal::SIGKILL).expect("killed");
    assert_eq!(exit(&mut exited).await.signal, Some(9));
    let program: u32 = fs::read_to_string(pid_file)
        .expect("read")
        .trim()
        .parse()
        .expect("a pid");
    assert!(
        stat(program).is_none_or(|stat| stat.zombie),
        "the program is left"
    );
}

#[tokio::test]
async fn limits_hold_and_want_of_memory_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), true);
    if !runtime.has_limits() {
        skipped("this machine lets nobody make control groups");
        return;
    }
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
    runtime.forget(&container, Sequence(1)).await;
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
    let (runtime, mut exited) = runtime(&disk, false);
    // So full that its record cannot be written, or already its request.
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

/// A supervisor with these orders, until it ends.
fn supervise(orders: &str) -> std::process::ExitStatus {
    let mut supervisor = std::process::Command::new("/bin/sh")
        .args(["-c", include_str!("../../src/process/supervise.sh")])
        .arg("dormouse")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let mut stdin = supervisor.stdin.take().expect("a pipe");
    stdin.write_all(orders.as_bytes()).expect("written");
    drop(stdin);
    supervisor.wait().expect("ends")
}

#[test]
fn a_supervisor_with_half_its_orders_runs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let orders = format!(
        "directory='{0}'\nrecords='{0}/r'\nenvironment() {{ :; }}\ncd \"$directory\"\nset -- /bin/sh -c 'touch ran'\n",
        folder.path().display()
    );
    for length in 0..=orders.len() {
        supervise(&orders[..length]);
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 0);
    }
}

#[tokio::test]
async fn those_that_wait_are_used_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    for limits in [false, true] {
        let (runtime, mut exited) = runtime(folder.path(), limits);
        let config = AgentConfig::local(node(), Default::default(), folder.path().to_owned());
        let marks = Marks::open(&config.layout()).expect("opened");
        let (mut names, mut parent) = (BTreeSet::new(), None::<PathBuf>);
        let first = 1 + 10 * u32::from(limits);
        for incarnation in first..first + 9 {
            let mut plan = plan(
                folder.path(),
                incarnation,
                "echo $A; pwd; cat; cat /proc/self/cgroup >groups; exit 3",
            );
            plan.demand = "cpu=500m,memory=64Mi".parse().expect("valid");
            let value = EnvValue::Plain(format!("it's {incarnation}"));
            plan.env.insert("A".to_owned(), value);
            let (container, directory) = (plan.container.clone(), plan.directory.clone());
            runtime.start(plan).await.expect("started");
            assert_eq!(exit(&mut exited).await.code, Some(3));
            let stdout = fs::read_to_string(directory.join("stdout.log")).expect("read");
            assert_eq!(
                stdout,
                format!("it's {incarnation}\n{}\n", directory.display())
            );
            if limits && runtime.has_limits() {
                let groups = fs::read_to_string(directory.join("groups")).expect("read");
                let request = Sequence(incarnation.into());
                let mark = marks.get(&container, request).expect("noted");
                let name = mark.supervised.expect("it runs").group;
                let memory = groups.lines().find_map(|it| it.split_once(":memory:"));
                let path = memory.map_or("", |(_, path)| path);
                assert!(path.ends_with(&name), "{name} is not in {groups}");
                let group = Path::new("/sys/fs/cgroup/memory").join(&path[1..]);
                parent = group.parent().map(Path::to_owned);
                names.insert(name);
            }
            runtime
                .forget(&container, Sequence(incarnation.into()))
                .await;
            // The first finds none that waits, the others do.
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        assert!(
            !limits || !runtime.has_limits() || names.len() == 9,
            "{names:?}"
        );
        drop(runtime);
        let until = Instant::now() + Duration::from_secs(5);
        while let Some(parent) = parent.as_ref().filter(|parent| parent.exists()) {
            assert!(Instant::now() < until, "{} is left", parent.display());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_start_that_an_agent_did_not_live_to_see_is_made_again_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), 1, "echo ran");
    // A former agent died between its note and its orders; its supervisor is gone with it.
    let gone = Identity {
        pid: std::process::id(),
        started_ticks: 1,
    };
    noted(folder.path(), &plan, gone);
    let config = AgentConfig::local(node(), Default::default(), folder.path().to_owned());
    let marks = Marks::open(&config.layout()).expect("opened");
    let records = marks.records(&plan.container, plan.request);
    fs::remove_file(format!("{}.ended", records.display())).expect("removed");
    let (runtime, mut exited) = runtime(folder.path(), false);
    assert_eq!(runtime.list().await.expect("listed"), []);
    let stdout = plan.directory.join("stdout.log");
    runtime.start(plan).await.expect("started");
    assert_eq!(exit(&mut exited).await.code, Some(0));
    assert_eq!(fs::read_to_string(stdout).expect("read"), "ran\n");
}

#[tokio::test]
async fn what_runs_since_an_agent_of_before_is_adopted() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(folder.path(), 1, "");
    fs::create_dir_all(&plan.directory).expect("made");
    let script = "# Supervises one container that is a plain process, so that…\nsleep 60 & wait";
    let mut supervisor = std::process::Command::new("/bin/sh")
        .args(["-c", script, "dormouse"])
        .process_group(0)
        .spawn()
        .expect("runs");
    std::thread::sleep(Duration::from_millis(50));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    let stat = fs::read_to_string(format!("/proc/{}/stat", supervisor.id())).expect("read");
    let write = |name: &str, text: &str| {
        fs::write(plan.directory.join(name), text).expect("written");
    };
    write("request", "1\n");
    write("process", &format!("{} {stat}", boot.trim()));
    let (runtime, mut exited) = runtime(folder.path(), false);
    let listed = runtime.list().await.expect("listed");
    assert_eq!(listed[0].status, Ok(supervisor.id()));
    write("ended", "");
    write("exit", "7\n");
    let signalled = runtime.signal(&plan.container, Signal::SIGKILL).await;
    signalled.expect("signalled");
    supervisor.wait().expect("ends");
    assert_eq!(exit(&mut exited).await.code, Some(7));
}

#[tokio::test]
async fn what_escapes_its_session_and_its_group_s_folder_is_ended_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (runtime, mut exited) = runtime(folder.path(), true);
    if !runtime.has_limits() {
        skipped("this machine lets nobody make control groups");
        return;
    }
    let pid_file = folder.path().join("pid");
    // Into a session of its own, and into a group of its own making below the container's.
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
    runtime.forget(&container, Sequence(1)).await;
}
