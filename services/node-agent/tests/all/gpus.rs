//! Tests of GPU parts on a fake driver: caps, limits, restarts, revisions, usage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use dormouse_gpu_standin::model::{Machine, now_ns};
use dormouse_messages::Event;
use dormouse_messages::events::{ContainerGpuUsed, Gpu, JobRevised, NodeGpuReconciled};
use dormouse_messages::job::JobSpec;
use dormouse_node_agent::AgentConfig;

const DEVICE: &str = "GPU-d0000000-0000-0000-0000-000000000000";
const GIB: u64 = 1 << 30;

/// Launches kernels of a millisecond until stopped.
const PROGRAM: &str = r#"
import ctypes, os, signal, sys
cuda = ctypes.CDLL("libcuda.so.1")
def done(result):
    if result: sys.exit(f"the driver says {result}")
context, module, kernel, at = (ctypes.c_uint64() for _ in range(4))
done(cuda.cuInit(0))
done(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
done(cuda.cuModuleLoadData(ctypes.byref(module), b""))
done(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin_1000000"))
half, more = ctypes.c_size_t(1 << 29), ctypes.c_size_t(3 << 28)
done(cuda.cuMemAlloc_v2(ctypes.byref(at), half))
print("beyond", cuda.cuMemAlloc_v2(ctypes.byref(at), more), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
null = ctypes.c_void_p()
while True:
    for _ in range(8):
        done(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null, null, null))
    done(cuda.cuCtxSynchronize())
"#;

fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.with_file_name(name)
}

fn config(folder: &Path) -> AgentConfig {
    let device = Gpu {
        uuid: DEVICE.to_owned(),
        model: "Stand-in".to_owned(),
        memory_bytes: 16 * GIB,
    };
    AgentConfig {
        gpus: vec![device],
        gpu_library: Some(library("libdormouse_gpu.so")),
        ..local(node(), Default::default(), folder.to_owned())
    }
}

fn part(folder: &Path) -> JobSpec {
    let mut spec = spec(&["/usr/bin/python3", "-c", PROGRAM]);
    let text = |path: PathBuf| path.display().to_string();
    spec.demand = serde_json::from_value(serde_json::json!({"gpu": 0.25})).expect("a demand");
    spec.gpu_limit_milli = Some(400);
    spec.gpu_memory_bytes = Some(GIB);
    spec.env = serde_json::from_value(serde_json::json!({
        "LD_LIBRARY_PATH": text(folder.to_owned()),
        "STANDIN_GPU": text(folder.join("gpu")),
    }))
    .expect("an environment");
    spec
}

fn on_device(mut placed: Event) -> Event {
    if let Event::PlacementDecided(placed) = &mut placed {
        placed.create[0].gpus = vec![DEVICE.to_owned()];
    }
    placed
}

fn windows(log: &FakeLog) -> Vec<ContainerGpuUsed> {
    let events = log.events().into_iter();
    let used = events.filter_map(|event| match event {
        Event::ContainerGpuUsed(event) => Some(*event),
        _ => None,
    });
    used.collect()
}

fn share(machine: &Machine, ms: u64) -> f64 {
    let from = now_ns();
    std::thread::sleep(Duration::from_millis(ms));
    let until = now_ns();
    let busy = machine.busy(from, until);
    let used: u64 = busy.iter().map(|it| it.end_ns - it.begin_ns).sum();
    used as f64 / (until - from) as f64
}

#[test]
fn a_container_is_held_to_its_part_of_a_gpu_and_what_it_used_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let log = FakeLog::default();
    let mut agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(part(folder.path())));
    log.append(on_device(placed(1, 1)));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    let own = folder.path().join("nodes/n0/containers/ads/lr/1/0");
    log.wait("the answer beyond the cap", |_| {
        let said = std::fs::read_to_string(own.join("stdout.log")).unwrap_or_default();
        said.contains("beyond 2").then_some(())
    });
    let alone = share(&machine, 3000);
    assert!((0.05..=0.44).contains(&alone), "{alone}");
    agent.stop().expect("left in order");
    // Without an agent the program keeps to its request.
    std::thread::sleep(Duration::from_millis(500));
    let unheard = share(&machine, 2000);
    assert!((0.01..=0.29).contains(&unheard), "{unheard}");
    let before = windows(&log).len();
    agent = Running::start(&log, config(folder.path()), false);
    std::thread::sleep(Duration::from_millis(1000));
    let again = share(&machine, 3000);
    assert!((0.05..=0.44).contains(&again), "{again}");
    log.append(stop(1));
    log.wait("the last window", |_| {
        (windows(&log).len() > before).then_some(())
    });
    // Sampled at a window's end; the last follows the exit.
    let windows = windows(&log);
    let devices = || windows.iter().map(|window| &window.devices[0]);
    assert!(devices().all(|device| device.uuid == DEVICE));
    let last = devices().next_back().expect("a window");
    assert!(last.busy_us > 500_000 && last.waits > 0, "{last:?}");
    drop(agent);
}

fn machine(folder: &Path) -> Machine {
    let machine = Machine::create(&folder.join("gpu"), 1, 16 * GIB).expect("a machine");
    let standin = library("libdormouse_gpu_standin.so");
    std::os::unix::fs::symlink(&standin, folder.join("libcuda.so.1")).expect("a link");
    std::fs::copy(&standin, folder.join("libnvidia-ml.so.1")).expect("a copy");
    machine
}

fn comes_to(machine: &Machine, bounds: std::ops::RangeInclusive<f64>) {
    let begun = std::time::Instant::now();
    loop {
        let share = share(machine, 1000);
        if bounds.contains(&share) {
            return;
        }
        assert!(
            begun.elapsed().as_secs() < 60,
            "{share} is not within {bounds:?}"
        );
    }
}

#[test]
fn a_revised_limit_holds_for_a_container_that_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let log = FakeLog::default();
    let config = config(folder.path());
    let mut agent = Running::start(&log, config.clone(), false);
    log.append(admitted(part(folder.path())));
    log.append(on_device(placed(1, 1)));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    comes_to(&machine, 0.3..=0.44);
    let revised = |limit: u64| JobRevised {
        gpu_limit_milli: Some(limit),
        ..JobRevised::nothing(job(), 2)
    };
    log.append(revised(900));
    comes_to(&machine, 0.6..=0.94);
    log.append(revised(250));
    comes_to(&machine, 0.1..=0.29);
    agent.stop().expect("left in order");
    agent = Running::start(&log, config, false);
    std::thread::sleep(Duration::from_secs(1));
    comes_to(&machine, 0.1..=0.29);
    let started = log.events().into_iter();
    let started = started.filter(|it| matches!(it, Event::ContainerStarted(_)));
    assert_eq!(started.count(), 1, "it was not started again");
    drop(agent);
}

/// Memory that no library counts.
const HIDING: &str = r#"
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 29)) == 0
if os.environ.get("HIDE"):
    assert cuda.standinHide(ctypes.c_size_t(3 << 30)) == 0
print("holds", flush=True)
time.sleep(600)
"#;

fn reconciled(log: &FakeLog) -> Vec<NodeGpuReconciled> {
    let events = log.events().into_iter();
    let found = events.filter_map(|event| match event {
        Event::NodeGpuReconciled(event) => Some(*event),
        _ => None,
    });
    found.collect()
}

#[test]
fn what_the_driver_says_of_a_shared_device_is_held_against_who_has_a_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    let log = FakeLog::default();
    let config = AgentConfig {
        nvml: folder.path().join("libnvidia-ml.so.1"),
        gpu_window: Duration::from_millis(300),
        ..config(folder.path())
    };
    let agent = Running::start(&log, config, false);
    let mut hiding = part(folder.path());
    hiding.command.start[2] = HIDING.to_owned();
    hiding.env.extend(
        serde_json::from_value::<std::collections::BTreeMap<String, _>>(
            serde_json::json!({"HIDE": "yes"}),
        )
        .expect("an environment"),
    );
    log.append(admitted(hiding));
    log.append(on_device(placed(1, 1)));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    // Half a gigabyte is counted; the driver's overhead raises the bound to two.
    let beyond = log.wait("a container beyond its cap", |_| {
        reconciled(&log)
            .into_iter()
            .find(|it| !it.beyond.is_empty())
    });
    assert_eq!(beyond.strangers, []);
    assert_eq!(beyond.uuid, DEVICE);
    let its = &beyond.beyond[0];
    assert_eq!((&its.container, its.cap_bytes), (&id(1, 0), GIB));
    assert_eq!(its.driver_bytes, 7 * GIB / 2);
    assert_eq!(its.counted_bytes, GIB / 2);
    let window = log.wait("a window with the driver's word", |_| {
        windows(&log)
            .into_iter()
            .find(|it| it.devices[0].beyond_bytes > 0)
    });
    assert_eq!(window.devices[0].driver_bytes, Some(7 * GIB / 2));
    let mut stranger = std::process::Command::new("/usr/bin/python3");
    stranger.args(["-c", HIDING]).env_remove("LD_PRELOAD");
    stranger.env("LD_LIBRARY_PATH", folder.path());
    stranger.env("STANDIN_GPU", folder.path().join("gpu"));
    let mut stranger = stranger.spawn().expect("it starts");
    let told = log.wait("a stranger", |_| {
        reconciled(&log)
            .into_iter()
            .find(|it| !it.strangers.is_empty())
    });
    assert_eq!(told.strangers[0].pid, stranger.id());
    assert_eq!(told.strangers[0].program.as_deref(), Some("python3"));
    assert_eq!(told.strangers[0].memory_bytes, Some(GIB / 2));
    stranger.kill().expect("killed");
    stranger.wait().expect("waited for");
    log.wait("that it is gone", |_| {
        reconciled(&log)
            .last()
            .filter(|it| it.strangers.is_empty())
            .cloned()
    });
    log.append(stop(1));
    log.wait("that there is nothing to doubt", |_| {
        let last = reconciled(&log).pop()?;
        (last.beyond.is_empty() && last.strangers.is_empty()).then_some(())
    });
    drop((agent, machine));
}
