//! Measures the cost of the sandbox: starts `date` alternately with and without, from the runtime's call to
//! the printed time.
//!
//! `cargo bench -p dormouse-node-agent --bench sandbox [starts]`, as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use dormouse_agent_core::Exit;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::{ContainerId, Sequence};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::container_plan::ContainerPlan;
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::layout::JobFolder;
use dormouse_node_agent::process::ProcessRuntime;
use dormouse_node_agent::runtime::ContainerDriver;
use dormouse_runtime::{Clock as _, SystemClock};
use dormouse_sandbox::folder::User;
use tokio::sync::mpsc;

const USER: User = User {
    uid: 200_001,
    gid: 200_001,
};

struct Node {
    config: AgentConfig,
    runtime: ProcessRuntime,
    exited: mpsc::UnboundedReceiver<(ContainerId, Exit)>,
}

impl Node {
    async fn new(folder: PathBuf, contain: Option<Contain>) -> Self {
        let config = AgentConfig {
            contain,
            supervisor: vec![env!("CARGO_BIN_EXE_dormouse-supervisor").to_owned()],
            ..AgentConfig::local("n0".parse().expect("valid"), Default::default(), folder)
        };
        let (exits, exited) = mpsc::unbounded_channel();
        let marks = ContainerRecords::open(&config.layout()).expect("opened");
        let runtime = ProcessRuntime::connect(&config, marks, exits, true).await;
        Self {
            config,
            runtime: runtime.expect("a supervisor"),
            exited,
        }
    }

    fn plan(&self, container: ContainerId) -> ContainerPlan {
        let layout = self.config.layout();
        let absolute = |path: PathBuf| std::path::absolute(path).expect("a path");
        let folder = JobFolder::new(container.job.clone(), Sequence(1));
        ContainerPlan {
            request: Sequence(1),
            admitted: Sequence(1),
            argv: ["date", "+%s%N"].map(str::to_owned).into(),
            env: Default::default(),
            image: None,
            mounts: vec![],
            user: self.config.contain.as_ref().map(|_| USER),
            port: 21_000,
            network: Network::Host,
            node_address: None,
            granted: Granted::default(),
            work: None,
            code: None,
            python: None,
            demand: "cpu=1,memory=64Mi".parse().expect("valid"),
            gpu_part: None,
            gpus: vec![],
            directory: absolute(layout.container(&container)),
            checkpoint: absolute(layout.checkpoint(&folder, container.incarnation)),
            resume: None,
            stored: None,
            members: None,
            container,
        }
    }

    async fn start(&mut self, number: usize) -> f64 {
        let id: ContainerId = format!("ads/date/{}/0", number + 1).parse().expect("valid");
        let plan = self.plan(id.clone());
        let printed = plan.directory.join("stdout.log");
        let called = SystemClock.now();
        self.runtime.start(plan).await.expect("started");
        let ended = tokio::time::timeout(Duration::from_secs(30), self.exited.recv()).await;
        ended.expect("it ends").expect("open");
        let said = fs::read_to_string(printed).expect("it prints");
        let at_ns: f64 = said.trim().parse().expect("nanoseconds");
        self.runtime.remove(&id, Sequence(1)).await;
        at_ns / 1e6 - called.as_micros() as f64 / 1e3
    }
}

fn quantile(times: &mut [f64], per_cent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() * per_cent / 100).min(times.len() - 1)]
}

async fn measure(starts: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("opened");
    let mut plain = Node::new(folder.path().join("plain"), None).await;
    let mut sandboxed = Node::new(folder.path().join("sandboxed"), Some(Contain::default())).await;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..starts {
        without.push(plain.start(number).await);
        with.push(sandboxed.start(number).await);
    }
    // The first starts read programs from the disk.
    let (without, with) = (&mut without[starts / 10..], &mut with[starts / 10..]);
    let (before, behind) = (quantile(without, 50), quantile(with, 50));
    println!(
        "start to the program's word, {} of each in turn: {before:.2} ms median and {:.2} p90 without a sandbox, {behind:.2} and {:.2} behind them: {:.2} ms more",
        without.len(),
        quantile(without, 90),
        quantile(with, 90),
        behind - before,
    );
}

fn main() {
    if !Contain::is_possible() {
        println!("only root builds sandboxes; nothing was measured");
        return;
    }
    let numbers = std::env::args().skip(1).find_map(|it| it.parse().ok());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(numbers.unwrap_or(300)));
}
