//! Tests of a GPU part in a sandbox, on a fake driver.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server};
use dormouse_gpu_standin::model::Machine;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_messages::{ContainerId, Sequence};
use dormouse_node_agent::RuntimeKind;
use dormouse_node_agent::config::{Contain, GPU_LIBRARY};
use dormouse_node_agent::container_plan::{ContainerPlan, GpuPart};
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::docker::DockerRuntime;
use dormouse_node_agent::layout::{JobFolder, TOKENS};
use dormouse_node_agent::process::ProcessRuntime;
use dormouse_node_agent::runtime::ContainerDriver;
use dormouse_sandbox::folder::User;
use tokio::sync::mpsc;

const DEVICE: &str = "GPU-d0000000-0000-0000-0000-000000000000";
const GIB: u64 = 1 << 30;

const PROGRAM: &str = r#"
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
def done(result):
    if result: raise SystemExit(f"the driver says {result}")
context, module, kernel, at = (ctypes.c_uint64() for _ in range(4))
done(cuda.cuInit(0))
done(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
done(cuda.cuModuleLoadData(ctypes.byref(module), b""))
done(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin_1000000"))
size = ctypes.c_size_t
print("within", cuda.cuMemAlloc_v2(ctypes.byref(at), size(1 << 29)))
print("beyond", cuda.cuMemAlloc_v2(ctypes.byref(at), size(3 << 28)))
null = ctypes.c_void_p()
for _ in range(100):
    for _ in range(4):
        done(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null, null, null))
    done(cuda.cuCtxSynchronize())
print("user", os.getuid())
"#;

/// Readable by all users.
fn driver(folder: &Path) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let driver = folder.join("driver");
    fs::create_dir(&driver).expect("made");
    let standin = test.with_file_name("libdormouse_gpu_standin.so");
    fs::copy(standin, driver.join("libcuda.so.1")).expect("copied");
    Machine::create(&driver.join("gpu"), 1, 16 * GIB).expect("a machine");
    let file = driver.join("gpu");
    for (path, mode) in [(folder, 0o755), (&driver, 0o755), (file.as_path(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("opened");
    }
    driver
}

fn served(folder: &Path, name: &str) -> (GpuPart, Server) {
    let part = GpuPart {
        request_milli: 300,
        limit_milli: 500,
        memory_bytes: Some(GIB),
        folder: folder.join("part"),
    };
    fs::create_dir(&part.folder).expect("made");
    let test = std::env::current_exe().expect("a path");
    let library = test.with_file_name(GPU_LIBRARY);
    fs::copy(library, part.folder.join(GPU_LIBRARY)).expect("copied");
    let server = Server::start(Settings::default()).expect("a scheduler");
    let terms = Terms {
        request_milli: part.request_milli,
        limit_milli: part.limit_milli,
        weight: part.request_milli,
    };
    let offer = Offer {
        name: name.to_owned(),
        socket: part.folder.join(TOKENS),
        parts: vec![Part {
            uuid: DEVICE.to_owned(),
            terms,
            cap_bytes: part.memory_bytes,
        }],
    };
    server.share(&offer).expect("a socket");
    (part, server)
}

fn environment(part: &GpuPart, driver: &Path) -> BTreeMap<String, EnvValue> {
    let text = |path: PathBuf| path.display().to_string();
    let named = [
        ("LD_PRELOAD", text(part.folder.join(GPU_LIBRARY))),
        ("DORMOUSE_GPU_SOCKET", text(part.folder.join(TOKENS))),
        ("DORMOUSE_GPUS", DEVICE.to_owned()),
        ("LD_LIBRARY_PATH", text(driver.to_owned())),
        ("STANDIN_GPU", text(driver.join("gpu"))),
    ];
    let named = named.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value)));
    named.into()
}

async fn held_within_walls(kind: RuntimeKind, uid: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = driver(folder.path());
    let id: ContainerId = "ads/lr/1/0".parse().expect("valid");
    let (part, server) = served(folder.path(), &id.to_string());
    let mut config = local(node(), Default::default(), folder.path().join("data"));
    config.runtime = kind;
    config.contain = Some(Contain::default());
    config.cluster = format!("gpu-sandbox-{}", std::process::id());
    let (exits, mut exited) = mpsc::unbounded_channel();
    let marks = ContainerRecords::open(&config.layout()).expect("opened");
    let runtime: Arc<dyn ContainerDriver> = match kind {
        RuntimeKind::Process => {
            let runtime = ProcessRuntime::connect(&config, marks, exits, true).await;
            Arc::new(runtime.expect("a supervisor"))
        }
        RuntimeKind::Docker => {
            let runtime = DockerRuntime::connect(&config, marks, exits).await;
            Arc::new(runtime.expect("an engine"))
        }
    };
    let layout = config.layout();
    let absolute = |path: PathBuf| std::path::absolute(path).expect("a path");
    let directory = absolute(layout.container(&id));
    let folder = JobFolder::new(id.job.clone(), Sequence(1));
    let shown = driver.display().to_string();
    let plan = ContainerPlan {
        request: Sequence(1),
        admitted: Sequence(1),
        argv: ["/usr/bin/python3", "-c", PROGRAM]
            .map(str::to_owned)
            .into(),
        env: environment(&part, &driver),
        image: None,
        mounts: vec![Mount {
            source: shown.clone(),
            target: shown,
            read_only: false,
        }],
        user: Some(User { uid, gid: uid }),
        port: 21_000,
        network: Network::Host,
        node_address: None,
        granted: Granted::default(),
        work: None,
        code: None,
        python: None,
        demand: "cpu=1,memory=512Mi".parse().expect("valid"),
        gpu_part: Some(part),
        gpus: vec![],
        directory: directory.clone(),
        checkpoint: absolute(layout.checkpoint(&folder, id.incarnation)),
        resume: None,
        stored: None,
        members: None,
        container: id.clone(),
    };
    runtime.start(plan).await.expect("started");
    let ended = tokio::time::timeout(Duration::from_secs(60), exited.recv()).await;
    assert_eq!(ended.expect("it ends").expect("open").0, id);
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    let said = read("stdout.log");
    let wrong = read("stderr.log");
    assert_eq!(said, format!("within 0\nbeyond 2\nuser {uid}\n"), "{wrong}");
    let used = server.usage(&id.to_string()).expect("known")[0].1;
    assert!(used.launches >= 400 && used.refusals == 1, "{used:?}");
    assert!(used.busy_ns > 300_000_000, "{used:?}");
    runtime.remove(&id, Sequence(1)).await;
}

#[tokio::test]
async fn a_part_of_a_gpu_holds_within_the_walls_of_a_plain_process() {
    if !Contain::is_possible() {
        return skipped("only root builds sandboxes");
    }
    held_within_walls(RuntimeKind::Process, 200_301).await;
}

#[test]
fn a_part_of_a_gpu_holds_in_docker() {
    if !Contain::is_possible() || !crate::docker::engine() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(held_within_walls(RuntimeKind::Docker, 200_302));
}
