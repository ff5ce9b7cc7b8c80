//! Tests of inits that wait for a container.

use std::path::PathBuf;

use super::*;

#[tokio::test]
async fn inits_that_wait_are_used_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    for limits in [false, true] {
        let (runtime, mut exited) = runtime(folder.path(), limits).await;
        let mut parent = None::<PathBuf>;
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
            let groups = fs::read_to_string(directory.join("groups")).expect("read");
            if let Some(path) = groups.lines().find_map(|it| it.split_once(":memory:"))
                && limits
                && runtime.has_limits()
            {
                assert!(
                    path.1.contains(".once-"),
                    "not in a group of its own: {groups}"
                );
                let group = Path::new("/sys/fs/cgroup/memory").join(&path.1[1..]);
                parent = group.parent().map(Path::to_owned);
            }
            let request = Sequence(incarnation.into());
            runtime.remove(&container, request).await;
        }
        drop(runtime);
        until("the supervisor ends", || {
            supervisor_of(folder.path()).is_none()
        })
        .await;
        let left = parent.filter(|parent| parent.exists());
        assert_eq!(left, None);
    }
}

async fn ran(
    runtime: &ProcessRuntime,
    exited: &mut Exited,
    plan: ContainerPlan,
) -> (Vec<String>, Exit) {
    let directory = plan.directory.clone();
    let (container, request) = (plan.container.clone(), plan.request);
    runtime.start(plan).await.expect("started");
    let exit = exit(exited).await;
    runtime.remove(&container, request).await;
    let printed = fs::read_to_string(directory.join("stdout.log")).expect("read");
    (printed.lines().map(str::to_owned).collect(), exit)
}

/// Init process, memory group (version 1, or the only one), limit.
const WHERE: &str = "echo $PPID; path=$(sed -n 's/.*:memory://p' /proc/self/cgroup); \
    if [ -n \"$path\" ]; then cat /sys/fs/cgroup/memory$path/memory.limit_in_bytes; \
    else cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/memory.max; fi; ";

#[tokio::test]
async fn a_init_takes_the_next_container_which_finds_nothing_of_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((runtime, mut exited)) = limited(folder.path()).await else {
        return;
    };
    let held = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    let mut incarnation = 0;
    let mut next = |memory: &str, then: &str| {
        incarnation += 1;
        let mut plan = plan(folder.path(), incarnation, &format!("{WHERE}{then}"));
        let memory = memory
            .split_terminator(' ')
            .map(|it| format!("memory={it}"));
        let demand = memory.chain(["cpu=500m".to_owned()]).collect::<Vec<_>>();
        plan.demand = demand.join(",").parse().expect("valid");
        plan
    };
    let mib = |count: u64| (count << 20).to_string();
    // The first reads are charged to the group.
    ran(&runtime, &mut exited, next("", "")).await;
    let (first, _) = ran(&runtime, &mut exited, next("64Mi", "sleep 60 &")).await;
    assert_eq!(first[1], mib(64));
    let (larger, _) = ran(&runtime, &mut exited, next("128Mi", "")).await;
    assert_eq!((&larger[0], &larger[1]), (&first[0], &mib(128)));
    let (unlimited, _) = ran(&runtime, &mut exited, next("", "")).await;
    assert_eq!(unlimited[0], first[0]);
    assert!(
        unlimited[1] == "max" || unlimited[1].parse::<u64>().is_ok_and(|it| it > 1 << 60),
        "{unlimited:?}"
    );
    // Cached files stay charged to the group that wrote them.
    let fills = format!("head -c 16M /dev/zero >{}", held.path().display());
    let (fills, _) = ran(&runtime, &mut exited, next("64Mi", &fills)).await;
    assert_eq!((&fills[0], &fills[1]), (&first[0], &mib(64)));
    let (other, _) = ran(&runtime, &mut exited, next("64Mi", "")).await;
    assert_ne!(
        other[0], first[0],
        "its group holds what the one before wrote"
    );
    // An out-of-memory kill is not charged to the next container.
    let greedy = "python3 -c 'x = bytearray(200 << 20)'; exit 0";
    let (greedy, _) = ran(&runtime, &mut exited, next("64Mi", greedy)).await;
    assert_eq!(greedy[0], other[0]);
    let (last, exit) = ran(&runtime, &mut exited, next("64Mi", "exit 1")).await;
    assert_ne!(last[0], greedy[0]);
    assert_eq!((exit.code, exit.out_of_memory), (Some(1), false));
}

#[tokio::test]
async fn a_init_of_other_settings_takes_no_other_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let (former, _exited) = runtime(folder.path(), false).await;
    let go = folder.path().join("go");
    let waits = format!(
        "echo $PPID; while [ ! -e {} ]; do sleep 0.01; done",
        go.display()
    );
    let waits = plan(folder.path(), 1, &waits);
    let directory = waits.directory.clone();
    former.start(waits).await.expect("started");
    drop(former);
    let Some((runtime, mut exited)) = limited(folder.path()).await else {
        return;
    };
    fs::write(&go, "").expect("written");
    assert_eq!(exit(&mut exited).await.code, Some(0));
    let init = fs::read_to_string(directory.join("stdout.log")).expect("read");
    for incarnation in 2..4 {
        let plan = plan(
            folder.path(),
            incarnation,
            "echo $PPID; cat /proc/self/cgroup",
        );
        let (printed, _) = ran(&runtime, &mut exited, plan).await;
        assert_ne!(printed[0], init.trim());
        assert!(
            printed.iter().any(|it| it.contains(".once-")),
            "{printed:?}"
        );
    }
}
