//! Checks that a container's own processes listen on its port. On the node's network another job may hold the
//! port, and clients would obey that job.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use dormouse_messages::ContainerId;
use dormouse_sandbox::procfs;

use crate::blocking::aside;
use crate::runtime::ContainerDriver;

const LOOK: Duration = Duration::from_millis(20);

const LOOK_LATE: Duration = Duration::from_millis(250);

const CLOSELY: Duration = Duration::from_secs(10);

/// Total time, longer than the members' own timeout: MXNet is loaded first.
const WITHIN: Duration = Duration::from_secs(310);

/// The kernel's state of a listening socket.
const LISTENS: &str = "0A";

const PROCESSES: usize = 4096;

/// Waits until a container listens on its port. Returns the time, or `None` after the time limit.
pub async fn until_own(
    runtime: &dyn ContainerDriver,
    container: &ContainerId,
    port: u16,
) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < WITHIN {
        if let Some(first) = runtime.first_process(container).await
            && aside(move || is_own(first, port)).await?
        {
            return Some(began.elapsed());
        }
        let is_late = began.elapsed() > CLOSELY;
        tokio::time::sleep(if is_late { LOOK_LATE } else { LOOK }).await;
    }
    None
}

/// True if a socket listens on the port, and all such sockets belong to the process or its descendants.
/// Blocking.
#[must_use]
pub fn is_own(first: u32, port: u16) -> bool {
    let listening = listening(first, port);
    !listening.is_empty() && listening.is_subset(&sockets(first))
}

fn listening(pid: u32, port: u16) -> BTreeSet<u64> {
    let tables = ["tcp", "tcp6"].map(|name| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        parse(&table.unwrap_or_default(), port)
    });
    tables.into_iter().flatten().collect()
}

/// Fields: number, address:port, peer, state, queues, timer, retransmits, user, timeout, inode.
fn parse(table: &str, port: u16) -> BTreeSet<u64> {
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    let sockets = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let own = words.nth(1)?;
        let state = words.nth(1)?;
        let socket = words.nth(5)?.parse().ok()?;
        (own.ends_with(&port) && state == LISTENS).then_some(socket)
    });
    sockets.collect()
}

fn sockets(first: u32) -> BTreeSet<u64> {
    let (mut sockets, mut processes) = (BTreeSet::new(), vec![first]);
    let mut next = 0;
    while let Some(pid) = processes.get(next).copied().filter(|_| next < PROCESSES) {
        next += 1;
        processes.extend(procfs::children(pid));
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let links = open.into_iter().flatten().flatten();
        let links = links.filter_map(|it| fs::read_link(it.path()).ok());
        sockets.extend(links.filter_map(|link| {
            let socket = link.to_str()?.strip_prefix("socket:[")?;
            socket.strip_suffix(']')?.parse::<u64>().ok()
        }));
    }
    sockets
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_port_is_a_processes_own_and_nobody_elses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let own = std::process::id();
        assert!(is_own(own, port));
        assert!(!is_own(own, 1));
        let mut other = Command::new("sleep").arg("60").spawn().expect("run");
        assert!(!is_own(other.id(), port));
        other.kill().expect("killed");
        other.wait().expect("ended");
        drop(listener);
        assert!(!is_own(own, port));
    }

    #[test]
    fn only_sockets_that_listen_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:5208 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n\
            1: 0100007F:5208 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100 0 0 10 0\n\
            2: 0100007F:5209 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 79 1 0 100 0 0 10 0\n";
        assert_eq!(parse(table, 21_000), BTreeSet::from([77]));
        assert_eq!(parse("", 21_000), BTreeSet::new());
    }
}
