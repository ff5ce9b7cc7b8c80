//! A part of a GPU: a real program under a real agent, on a stand-in for the driver, in Python as
//! frameworks are. It is held to its cap and limit, what it used is on the log, and an agent that
//! begins again holds it as the one before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use dormouse_gpu_standin::model::{Machine, now_ns};
use dormouse_messages::Event;
use dormouse_messages::events::{ContainerGpuUsed, Gpu};
use dormouse_messages::job::JobSpec;
use dormouse_node_agent::AgentConfig;

/// The stand-in's first device.
const DEVICE: &str = "GPU-d0000000-0000-0000-0000-000000000000";
const GIB: u64 = 1 << 30;

/// Allocates below and beyond the cap, then launches kernels of a millisecond and waits for them,
/// until it is told to stop.
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

/// The share of the device between now and so many milliseconds later.
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
    let machine = Machine::create(&folder.path().join("gpu"), 1, 16 * GIB).expect("a machine");
    let standin = library("libdormouse_gpu_standin.so");
    std::os::unix::fs::symlink(standin, folder.path().join("libcuda.so.1")).expect("a link");
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
    // Without an agent it keeps to its request.
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
    // Its memory is that at a window's end: the last one ends with the program, which has given it back.
    let windows = windows(&log);
    let devices = || windows.iter().map(|window| &window.devices[0]);
    assert!(devices().all(|device| device.uuid == DEVICE));
    let last = devices().next_back().expect("a window");
    assert!(last.busy_us > 500_000 && last.waits > 0, "{last:?}");
    drop(agent);
}
