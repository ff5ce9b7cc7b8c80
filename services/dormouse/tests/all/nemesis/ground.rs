//! Small disks, three brokers, a container engine.

use std::path::PathBuf;
use std::process::Command;

use crate::common::Cluster;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::faults::BROKERS;
use super::net::Net;

pub const NODE_DISK: &str = "size=48m";
pub const BROKER_DISK: &str = "size=512m";
pub const PORT: u16 = 4222;

#[derive(Default)]
pub struct Disks(Vec<PathBuf>);

impl Disks {
    pub fn add(&mut self, at: PathBuf, size: &str) {
        std::fs::create_dir_all(&at).expect("made");
        let kind = Some("tmpfs");
        mount(kind, &at, kind, MsFlags::empty(), Some(size)).expect("a small disk");
        self.0.push(at);
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for disk in &self.0 {
            let _ = umount2(disk, MntFlags::MNT_DETACH);
        }
    }
}

pub fn start_broker(cluster: &mut Cluster, net: &Net, name: &str) {
    let address = net.address(name);
    let routes = BROKERS.map(|it| format!("\"nats://{}:6222\"", net.address(it)));
    let config = cluster.dir().join(format!("{name}.conf"));
    let text = format!(
        "listen: \"{address}:{PORT}\"\nserver_name: {name}\nmax_payload: 8MB\nmax_pending: 256MB\n\
         lame_duck_grace_period: 1s\nlame_duck_duration: 30s\n\
         jetstream {{ store_dir: {:?}, max_file_store: 100GiB, sync_interval: always }}\n\
         cluster {{ name: nemesis, listen: \"{address}:6222\", routes: [{}] }}\n",
        cluster.dir().join(name).join("store"),
        routes.join(", "),
    );
    std::fs::write(&config, text).expect("written");
    net.on(name, || cluster.start_broker_of(name, &config, &[]));
}

/// Without an engine all nodes run plain processes.
pub fn engine() -> bool {
    let image = ["image", "inspect", "dormouse/empty"];
    let there = Command::new("docker").args(image).output();
    let there = there.is_ok_and(|it| it.status.success());
    if !there {
        let no_skip = std::env::var("DORMOUSE_NO_SKIP").as_deref() == Ok("1");
        assert!(!no_skip, "no container engine with dormouse/empty");
        eprintln!("SKIPPED: no container engine: all four nodes run plain processes");
    }
    there
}

/// Container names begin with the cluster's prefix and the agent's folder.
pub fn remove_containers(prefix: &str) {
    let name = format!("name={prefix}-");
    let list = ["ps", "-aq", "--filter", &name];
    let Ok(list) = Command::new("docker").args(list).output() else {
        return;
    };
    let ids = String::from_utf8_lossy(&list.stdout).into_owned();
    if !ids.trim().is_empty() {
        let remove = ["rm", "-f"].into_iter().chain(ids.split_whitespace());
        let _ = Command::new("docker").args(remove).output();
    }
}
