//! Hosts as network namespaces, each with one link to a switch.
//!
//! A cut drops packets in the host's own filter, so either direction can be cut alone. Names hold the process
//! id; a later test removes the leftovers of a killed one.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const OPERATOR: &str = "op";
const LINK: &str = "eth0";
const NAMES: &str = "/run/netns";
const PREFIX: &str = "dormouse";

/// Names are per process: one test at a time has hosts.
static HELD: Mutex<()> = Mutex::new(());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Both,
    In,
    Out,
}

pub struct Net {
    hosts: Vec<&'static str>,
    _held: MutexGuard<'static, ()>,
}

fn output(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(arguments[0]).args(&arguments[1..]).output()
}

fn attempt(arguments: &[&str]) -> Result<(), String> {
    let said = output(arguments).map_err(|error| format!("{arguments:?}: {error}"))?;
    let error = String::from_utf8_lossy(&said.stderr);
    said.status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{arguments:?}: {error}"))
}

#[track_caller]
fn system(arguments: &[&str]) {
    attempt(arguments).unwrap_or_else(|error| panic!("{error}"));
}

fn name(host: &str) -> String {
    format!("{PREFIX}-{}-{host}", std::process::id())
}

/// Missing programs are a failure if nothing may be skipped.
pub fn lacking() -> Option<String> {
    static LACKING: OnceLock<Option<String>> = OnceLock::new();
    LACKING.get_or_init(try_hosts).clone()
}

fn try_hosts() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    for program in ["ip", "iptables", "tc"] {
        if let Err(error) = output(&[program, "-V"]) {
            let why = format!("{program}: {error}; scripts/install.sh hosts");
            let no_skip = std::env::var("DORMOUSE_NO_SKIP").as_deref() == Ok("1");
            assert!(!no_skip, "{why}");
            return Some(why);
        }
    }
    let name = name("try");
    let ip = ["ip", "-n", &name, "link", "add"];
    let exec = ["ip", "netns", "exec", &name];
    let tried = attempt(&["ip", "netns", "add", &name])
        .and_then(|()| attempt(&[&ip[..], &["v0", "type", "veth", "peer", "name", "v1"]].concat()))
        .and_then(|()| attempt(&[&ip[..], &["br0", "type", "bridge"]].concat()))
        .and_then(|()| attempt(&[&exec[..], &["iptables", "-w", "-L", "INPUT"]].concat()));
    let _ = output(&["ip", "netns", "del", &name]);
    tried.err()
}

impl Net {
    /// Moves the calling thread to [`OPERATOR`].
    pub fn new(hosts: Vec<&'static str>) -> Self {
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        sweep();
        let net = Self { hosts, _held: held };
        let switch = name("switch");
        system(&["ip", "netns", "add", &switch]);
        let ip = ["ip", "-n", &switch, "link"];
        system(&[&ip[..], &["add", "br0", "type", "bridge"]].concat());
        system(&[&ip[..], &["set", "br0", "up"]].concat());
        for host in &net.hosts {
            let (name, port) = (name(host), format!("v-{host}"));
            system(&["ip", "netns", "add", &name]);
            let pair = ["type", "veth", "peer", "name", LINK, "netns", &name];
            system(&[&ip[..], &["add", &port], &pair].concat());
            system(&[&ip[..], &["set", &port, "master", "br0", "up"]].concat());
            let address = format!("{}/24", net.address(host));
            system(&["ip", "-n", &name, "addr", "add", &address, "dev", LINK]);
            system(&["ip", "-n", &name, "link", "set", LINK, "up"]);
            system(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        }
        net.enter(OPERATOR);
        net
    }

    pub fn address(&self, host: &str) -> String {
        let index = self.hosts.iter().position(|it| *it == host);
        format!("10.77.0.{}", index.expect("a host") + 1)
    }

    pub fn enter(&self, host: &str) {
        let namespace = File::open(Path::new(NAMES).join(name(host))).expect("the host");
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("enters it");
    }

    pub fn on<T>(&self, host: &str, work: impl FnOnce() -> T) -> T {
        self.enter(host);
        let done = work();
        self.enter(OPERATOR);
        done
    }

    pub fn signal(&self, host: &str, program: Option<&str>, signal: Signal) {
        signal_all(&name(host), program, signal);
    }

    pub fn cut(&self, host: &str, way: Way, peer: Option<&str>) {
        let peer = peer.map(|it| self.address(it));
        for (dropped, chain, link, end) in [
            (Way::In, "INPUT", "-i", "-s"),
            (Way::Out, "OUTPUT", "-o", "-d"),
        ] {
            if way != dropped && way != Way::Both {
                continue;
            }
            let mut rule = vec!["iptables", "-w", "-I", chain, link, LINK];
            if let Some(peer) = &peer {
                rule.extend([end, peer]);
            }
            rule.extend(["-j", "DROP"]);
            self.on(host, || system(&rule));
        }
    }

    pub fn slow(&self, host: &str) {
        let queue = ["tc", "qdisc", "replace", "dev", LINK, "root"];
        let narrow = ["tbf", "rate", "400kbit", "burst", "8kb", "latency", "300ms"];
        self.on(host, || system(&[&queue[..], &narrow[..]].concat()));
    }

    pub fn heal(&self, host: &str) {
        self.on(host, || {
            system(&["iptables", "-w", "-F"]);
            let _ = output(&["tc", "qdisc", "del", "dev", LINK, "root"]);
        });
    }
}

fn signal_all(name: &str, program: Option<&str>, signal: Signal) -> usize {
    let identity = |path: &Path| path.metadata().map(|it| (it.dev(), it.ino())).ok();
    let Some(wanted) = identity(&Path::new(NAMES).join(name)) else {
        return 0;
    };
    let mut found = 0;
    for process in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let pid = process.file_name().to_str().and_then(|it| it.parse().ok());
        let stands_there = identity(&process.path().join("ns/net")) == Some(wanted);
        let Some(pid) = pid.filter(|_| stands_there) else {
            continue;
        };
        let named = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if program.is_none_or(|it| it == named.trim_end()) {
            found += 1;
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
    found
}

fn remove(name: &str) {
    for _ in 0..100 {
        if signal_all(name, None, Signal::SIGKILL) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = output(&["ip", "netns", "del", name]);
}

fn sweep() {
    for name in std::fs::read_dir(NAMES).into_iter().flatten().flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|it| it.split('-').nth(1));
        let is_number = |it: &&str| it.parse::<u32>().is_ok();
        if let Some(pid) = pid.filter(is_number)
            && !Path::new("/proc").join(pid).exists()
        {
            println!("what a killed test has left is removed: {name}");
            remove(&name);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in &self.hosts {
            remove(&name(host));
        }
        let _ = output(&["ip", "netns", "del", &name("switch")]);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn left() -> Vec<String> {
        let of = format!("{PREFIX}-{}-", std::process::id());
        let names = std::fs::read_dir(NAMES).into_iter().flatten().flatten();
        let names = names.map(|it| it.file_name().to_string_lossy().into_owned());
        names
            .filter(|it| it.starts_with(&of) && !it.ends_with("-try"))
            .collect()
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "the end of the hosts is to end it")]
    fn hosts_go_with_a_test_that_fails() {
        if lacking().is_some() {
            return;
        }
        let failing = std::thread::spawn(|| {
            let net = Net::new(vec![OPERATOR, "a"]);
            let runs = || Command::new("sleep").arg("600").spawn();
            net.on("a", runs).expect("starts");
            assert_eq!(left(), Vec::<String>::new(), "a failure, as it is wanted");
        });
        assert!(failing.join().is_err());
        let _held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(left(), Vec::<String>::new());
    }

    #[test]
    fn a_cut_drops_what_it_says() {
        if lacking().is_some() {
            return;
        }
        let hosts = std::thread::spawn(|| {
            let net = Net::new(vec![OPERATOR, "a"]);
            let socket = |host: &str| {
                let socket = net.on(host, || UdpSocket::bind((net.address(host), 7)));
                let socket = socket.expect("binds");
                let patience = Some(Duration::from_millis(300));
                socket.set_read_timeout(patience).expect("set");
                socket
            };
            let (op, a) = (socket(OPERATOR), socket("a"));
            let arrives = |from: &UdpSocket, to: &UdpSocket| {
                let to_address = to.local_addr().expect("bound");
                from.send_to(b"x", to_address).is_ok() && to.recv(&mut [0]).is_ok()
            };
            let both = || (arrives(&op, &a), arrives(&a, &op));
            assert_eq!(both(), (true, true));
            for (way, peer, expected) in [
                (Way::In, None, (false, true)),
                (Way::Out, None, (true, false)),
                (Way::Both, Some(OPERATOR), (false, false)),
            ] {
                net.cut("a", way, peer);
                assert_eq!(both(), expected, "{way:?}");
                net.heal("a");
                assert_eq!(both(), (true, true), "healed");
            }
        });
        hosts.join().expect("no panic");
    }
}
