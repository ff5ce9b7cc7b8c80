//! A real Slurm on this machine, two nodes of it, and a cluster that has no others.
//!
//! Needs root, munge and Slurm's daemons (`scripts/install.sh slurm`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dormouse_messages::Event;
use serde_json::Value;

use crate::clients::skipped;
use crate::common::{Cluster, PATIENCE, count_job, free_port, poll};

/// Slurm's own minute, twice.
const LONG: Duration = Duration::from_secs(150);

/// Slurm's daemons, in a folder of their own.
struct Slurm {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.any(|folder| folder.join(program).is_file())
}

impl Slurm {
    /// Starts the daemons, or reports missing programs.
    fn start() -> Option<Self> {
        let missing = ["munged", "slurmctld", "slurmd", "sbatch"];
        let missing = missing.into_iter().find(|program| !have(program));
        let is_root = nix::unistd::geteuid().is_root();
        if missing.is_some() || !is_root {
            let missing = missing.unwrap_or("root");
            skipped(&format!(
                "no {missing}; run scripts/install.sh slurm, and the tests as root"
            ));
            return None;
        }
        // A socket's path has 108 bytes.
        let folder = tempfile::Builder::new()
            .prefix("dm-slurm-")
            .tempdir_in("/tmp");
        let mut slurm = Self {
            folder: folder.expect("a folder"),
            daemons: Vec::new(),
        };
        slurm.configure();
        let socket = slurm.path("munge.socket");
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", slurm.path("munge.key").display()),
            format!("--socket={}", socket.display()),
            format!("--pid-file={}", slurm.path("munged.pid").display()),
            format!("--log-file={}", slurm.path("munged.log").display()),
            format!("--seed-file={}", slurm.path("munged.seed").display()),
        ];
        slurm.daemon("munged", &munged);
        poll("munged", PATIENCE, || socket.exists().then_some(()));
        let conf = slurm.path("slurm.conf").display().to_string();
        slurm.daemon(
            "slurmctld",
            &["-D".to_owned(), "-f".to_owned(), conf.clone()],
        );
        for node in ["sn1", "sn2"] {
            let arguments = ["-D", "-N", node, "-f", &conf];
            slurm.daemon("slurmd", &arguments.map(str::to_owned));
        }
        poll("two idle nodes", PATIENCE, || {
            let listed = slurm.run("sinfo", &["--noheader", "--format=%t %D"]);
            (listed.trim() == "idle 2").then_some(())
        });
        Some(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = self.folder.path().display();
        let key = self.path("munge.key");
        std::fs::write(&key, "k".repeat(128)).expect("writes");
        let only_own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&key, only_own).expect("its own");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.folder.path(), open).expect("its own");
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let host = host.trim().split('.').next().unwrap_or_default();
        let (port, first) = (free_port(), free_port());
        let second = free_port();
        let conf = format!(
            "ClusterName=test\n\
             SlurmctldHost={host}(127.0.0.1)\n\
             SlurmctldPort={port}\n\
             AuthType=auth/munge\n\
             AuthInfo=socket={folder}/munge.socket\n\
             CryptoType=crypto/munge\n\
             SlurmUser=root\n\
             SlurmdUser=root\n\
             StateSaveLocation={folder}/state\n\
             SlurmctldPidFile={folder}/slurmctld.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\n\
             SlurmdPidFile={folder}/slurmd-%n.pid\n\
             SlurmdSpoolDir={folder}/spool-%n\n\
             SlurmdLogFile={folder}/slurmd-%n.log\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             SelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\n\
             SchedulerParameters=sched_interval=1,batch_sched_delay=0\n\
             ReturnToService=2\n\
             KillWait=3\n\
             NodeName=sn1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=2000\n\
             NodeName=sn2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=2000\n\
             PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        std::fs::write(self.path("slurm.conf"), conf).expect("writes");
        std::fs::create_dir(self.path("state")).expect("makes");
    }

    fn daemon(&mut self, program: &str, arguments: &[String]) {
        let output = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{program}.out")))
            .expect("opens");
        let path = Path::new("/usr/sbin").join(program);
        let child = Command::new(path)
            .args(arguments)
            .env("SLURM_CONF", self.path("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("clones"))
            .stderr(output)
            .spawn()
            .expect("a daemon starts");
        self.daemons.push(child);
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.path("slurm.conf"))
            .output()
            .expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.run("scancel", &["--full", "--signal=KILL", "--partition=p"]);
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for log in ["slurmctld.log", "slurmd-sn1.log"] {
                let text = std::fs::read_to_string(self.path(log)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines.get(lines.len().saturating_sub(20)..);
                eprintln!("{log}:\n{}", last.unwrap_or_default().join("\n"));
            }
        }
    }
}

fn of_allocations<T>(cluster: &Cluster, wanted: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    let log = cluster.log();
    log.iter()
        .filter_map(|it| it.event())
        .filter_map(wanted)
        .collect()
}

fn granted(cluster: &Cluster) -> Vec<u64> {
    of_allocations(cluster, |event| match event {
        Event::SlurmGranted(event) => Some(event.number),
        _ => None,
    })
}

fn allocations(cluster: &Cluster) -> Vec<Value> {
    let shown = cluster.run(&["alloc", "show", "q"]).ok().json();
    shown["allocations"].as_array().cloned().unwrap_or_default()
}

/// A cluster without nodes of its own, with the queue `q` of allocations.
fn with_queue(slurm: &Slurm) -> Cluster {
    let mut cluster = Cluster::new();
    let conf = slurm.path("slurm.conf").display().to_string();
    cluster.env("SLURM_CONF", &conf);
    cluster.start_up(0, "cpu=1");
    let policy = cluster.dir().join("policy.yaml");
    std::fs::write(&policy, "policy: {lease_s: 20}\n").expect("writes");
    cluster
        .run(&["policy", "set", policy.to_str().expect("UTF-8")])
        .ok();
    let agents = cluster.dir().join("agents").display().to_string();
    // The tests are root, whose agents would wall jobs off.
    let serve = [
        "serve",
        "slurm",
        "--poll",
        "1s",
        "--agent-data",
        &agents,
        "--agent-arg=--trust-jobs",
    ];
    let dir = cluster.dir().to_owned();
    cluster.start("slurm", &serve, &dir);

    let add = [
        "alloc",
        "add",
        "q",
        "--node",
        "cpu=2,memory=512Mi",
        "--time-limit",
        "2m",
        "--drain",
        "60s",
        "--idle",
        "3s",
        "--most",
        "3",
        "--backlog",
        "2",
    ];
    cluster.run(&add).ok();
    let dry = cluster.run(&["alloc", "dry-run", "q"]).ok().json();
    assert_eq!(
        (&dry["accepted"], &dry["requests"]),
        (&true.into(), &0.into())
    );
    cluster
}

/// A second job fills the other node; Slurm's user cancels its allocation.
fn cancels_under_a_job(slurm: &Slurm, cluster: &Cluster) {
    let other = whole_node("other", 300);
    assert_eq!(cluster.submit(&other).json()["state"], "queued");
    cancel_under(slurm, cluster, "other");
    cluster.wait_event("the loss of its node", |event| match event {
        Event::NodeLost(_) => Some(()),
        _ => None,
    });
}

/// Returns a job that fills one node and that no attempt of its own may repeat.
fn whole_node(name: &str, steps: u32) -> Value {
    let mut job = count_job(name, steps, (1, 1), &[]);
    job["demand"]["cpu"] = 2.into();
    job["retries"] = 0.into();
    job
}

/// Waits for the job's container, and cancels its allocation as Slurm's user.
fn cancel_under(slurm: &Slurm, cluster: &Cluster, name: &str) {
    let node = cluster.wait_event("its container", |event| match event {
        Event::ContainerStarted(it) if it.container.job.name() == name => Some(it.node.to_string()),
        _ => None,
    });
    let has_it = |it: &&Value| it["nodes"][0] == node.as_str() && it["state"] == "running";
    let job = poll("its allocation", PATIENCE, || {
        let own = allocations(cluster);
        Some(own.iter().find(has_it)?["slurm_job"].to_string())
    });
    slurm.run("scancel", &[&job]);
}

/// Everything goes back to Slurm, and nothing stays behind.
fn gives_all_back(slurm: &Slurm, cluster: &Cluster) {
    poll("idle allocations go back", LONG, || {
        let nodes = cluster.run(&["nodes"]).ok().json();
        let is_empty = nodes["nodes"].as_array().is_some_and(Vec::is_empty);
        (allocations(cluster).is_empty() && is_empty).then_some(())
    });
    let listed = slurm.run("squeue", &["--noheader"]);
    assert_eq!(listed.trim(), "");
    cluster.run(&["alloc", "remove", "q"]).ok();
    let queues = cluster.run(&["alloc", "list"]).ok().json();
    assert_eq!(queues.as_array().map(Vec::len), Some(0));
}

#[test]
fn jobs_outlive_their_allocations() {
    let Some(slurm) = Slurm::start() else {
        return;
    };
    let cluster = with_queue(&slurm);
    // Slurm's reason reaches the one who waits.
    slurm.run("scontrol", &["update", "PartitionName=p", "State=DOWN"]);
    let queued = cluster.submit(&count_job("long", 700, (1, 1), &[]));
    assert_eq!(queued.json()["state"], "queued", "{queued:?}");
    poll("Slurm's reason", PATIENCE, || {
        let said = cluster.run(&["explain", "ads/long"]).json()["words"].to_string();
        (said.contains("allocation of the queue q") && said.contains("PartitionDown")).then_some(())
    });
    slurm.run("scontrol", &["update", "PartitionName=p", "State=UP"]);

    cancels_under_a_job(&slurm, &cluster);
    poll("both ends", LONG, || {
        let ends = of_allocations(&cluster, |event| match event {
            Event::JobCompleted(event) => Some(event.job.to_string()),
            Event::JobFailed(event) => panic!("{} failed: {}", event.job, event.reason),
            _ => None,
        });
        (ends.len() == 2).then_some(())
    });

    // The first job was warned, saved, and went on where it was.
    let drained = of_allocations(&cluster, |event| match event {
        Event::NodeDrained(event) => event.deadline_s,
        _ => None,
    });
    assert!(drained.contains(&30), "{drained:?}");
    let incarnations = of_allocations(&cluster, |event| match event {
        Event::PartitionStarted(it) if it.job.name() == "long" => {
            Some((it.incarnation.0, it.resumed_from.is_some()))
        }
        _ => None,
    });
    // An incarnation that is placed again before its start has no event of a start.
    assert!(
        matches!(incarnations[..], [(1, false), (_, true)]),
        "{incarnations:?}"
    );
    assert!(granted(&cluster).len() >= 3);

    gives_all_back(&slurm, &cluster);
    cluster.check();
}

/// Allocations of the trial.
const ALLOCATIONS: usize = 50;

#[test]
#[ignore = "six minutes: make slurm-trial"]
fn fifty_allocations_come_and_go() {
    let Some(slurm) = Slurm::start() else {
        return;
    };
    let cluster = with_queue(&slurm);
    let ended = || {
        of_allocations(&cluster, |event| match event {
            Event::JobCompleted(event) => Some(event.job.to_string()),
            Event::JobFailed(event) => panic!("{} failed: {}", event.job, event.reason),
            _ => None,
        })
    };
    let (mut round, mut cancelled) = (0, 0);
    while granted(&cluster).len() < ALLOCATIONS {
        round += 1;
        let names = [format!("a{round}"), format!("b{round}")];
        for name in &names {
            let submitted = cluster.submit(&whole_node(name, 30));
            assert_eq!(submitted.json()["state"], "queued");
        }
        if round % 5 == 0 {
            cancel_under(&slurm, &cluster, &names[1]);
            cancelled += 1;
        }
        poll("both ends", LONG, || {
            (ended().len() == 2 * round).then_some(())
        });
        poll("idle allocations go back", LONG, || {
            allocations(&cluster).is_empty().then_some(())
        });
        eprintln!(
            "{} allocations, {cancelled} cancelled",
            granted(&cluster).len()
        );
    }
    let mut jobs = ended();
    jobs.sort_unstable();
    jobs.dedup();
    assert_eq!(jobs.len(), 2 * round, "each job completes once");
    gives_all_back(&slurm, &cluster);
    cluster.check();
}
