//! Tests of Docker networking: without a grant only the placement's ports are published.

use std::io::Read;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::docker::engine;
use dormouse_messages::Event;
use dormouse_messages::grants::Network;
use dormouse_messages::job::JobSpec;
use dormouse_node_agent::{AgentConfig, RuntimeKind, logs_path};

pub fn own_address() -> Option<String> {
    // Nothing is sent; the kernel selects an address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    let found = socket.connect("192.0.2.1:9").and(socket.local_addr());
    match found.map(|it| it.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() => Some(address.to_string()),
        _ => {
            skipped("this machine has no address but the loopback");
            None
        }
    }
}

/// Keeps the ports of parallel tests apart.
const INCARNATION: u32 = 51;

fn config(folder: &Path, node: &str, cluster: &str, address: &str) -> AgentConfig {
    let node = node.parse().expect("valid");
    let mut config = local(node, Default::default(), folder.to_owned());
    config.runtime = RuntimeKind::Docker;
    config.cluster = format!("test-{cluster}-{}", std::process::id());
    address.clone_into(&mut config.address);
    config
}

fn python(network: Network, script: &str) -> JobSpec {
    JobSpec {
        network: Some(network),
        ..spec(&["/usr/bin/python3", "-c", script])
    }
}

fn printed(config: &AgentConfig, incarnation: u32, rank: u32) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let logs = logs_path(&config.data_dir, &id(incarnation, rank));
    logs.map_or_else(String::new, |logs| read(logs.stdout) + &read(logs.stderr))
}

#[test]
fn only_the_node_s_network_has_the_node_s_loopback() {
    if !engine() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let script = format!(
        "import socket\ntry:\n  socket.create_connection(('127.0.0.1', {port}), 2); print('reached')\nexcept OSError as e: print('not reached')\nprint(sorted(name for _, name in socket.if_nameindex()))"
    );
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), NODE, "loopback", "127.0.0.1");
    let agent = Running::start(&log, config.clone(), false);
    for (incarnation, network, expected) in [
        (61, Network::Host, "reached\n"),
        (62, Network::Published, "not reached\n['eth0', 'lo']\n"),
        (63, Network::None, "not reached\n['lo']\n"),
    ] {
        log.append(admitted(python(network, &script)));
        log.append(placed(incarnation, 1));
        log.append(start(incarnation, None));
        let exit = log.wait_exited(&id(incarnation, 0));
        let said = printed(&config, incarnation, 0);
        assert_eq!(exit.exit_code, Some(0), "{said}");
        assert!(said.starts_with(expected), "{network}: {said}");
        log.append(stop(incarnation));
    }
    agent.stop().expect("left in order");
}

/// Each rank asks every peer.
const TALK: &str = "
import os, socket, threading, time
peers = [peer.rsplit(':', 1) for peer in os.environ['DORMOUSE_PEERS'].split(',')]
rank, asked = os.environ['DORMOUSE_RANK'], threading.Semaphore(0)
listener = socket.create_server(('', int(os.environ['DORMOUSE_PORT'])))
def answer():
    while True:
        peer, _ = listener.accept()
        peer.sendall(rank.encode())
        peer.close()
threading.Thread(target=answer, daemon=True).start()
def ask(host, port):
    for _ in range(100):
        try:
            with socket.create_connection((host, int(port)), 2) as peer:
                said = peer.recv(9)
                if said:
                    return said.decode()
        except OSError:
            pass
        time.sleep(.1)
print(' '.join(ask(*peer) for peer in peers), flush=True)
time.sleep(2)
";

#[test]
fn a_gang_of_two_nodes_talks_over_published_ports() {
    let (true, Some(address)) = (engine(), own_address()) else {
        return;
    };
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let log = FakeLog::default();
    let configs = ["n0", "n1"].map(|node| {
        let folder = &folders[usize::from(node == "n1")];
        config(folder.path(), node, "published", &address)
    });
    let agents = configs
        .clone()
        .map(|config| Running::start(&log, config, false));
    // A gang starts once its nodes are known.
    for config in &configs {
        log.wait("node.joined", |event| match event {
            Event::NodeJoined(it) if it.node == config.node => Some(()),
            _ => None,
        });
    }
    log.append(admitted(python(Network::Published, TALK)));
    log.append(placed_on(INCARNATION, &["n0", "n1"]));
    log.append(start(INCARNATION, None));
    for (rank, config) in (0..).zip(&configs) {
        let exit = log.wait_exited(&id(INCARNATION, rank));
        let said = printed(config, INCARNATION, rank);
        let ended = (exit.exit_code, said.trim());
        assert_eq!(ended, (Some(0), "0 1"), "{exit:?}");
    }
    for agent in agents {
        agent.stop().expect("left in order");
    }
}

/// Rank 0 listens on rank 1's port number in vain.
const TAKE: &str = "
import os, socket
rank, port = int(os.environ['DORMOUSE_RANK']), int(os.environ['DORMOUSE_PORT'])
listener = socket.create_server(('', port + 8 * (1 - rank)))
print('listens', flush=True)
while True:
    peer, _ = listener.accept()
    peer.sendall(str(rank).encode())
    peer.close()
";

#[test]
fn nobody_takes_the_port_of_another_container() {
    const INCARNATION: u32 = 71;
    if !engine() {
        return;
    }
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), NODE, "port", "127.0.0.1");
    let agent = Running::start(&log, config.clone(), false);
    log.append(admitted(python(Network::Published, TAKE)));
    log.append(placed(INCARNATION, 2));
    log.append(start(INCARNATION, None));
    let until = Instant::now() + Duration::from_secs(20);
    while (0..2).any(|rank| !printed(&config, INCARNATION, rank).contains("listens")) {
        let said = [0, 1].map(|rank| printed(&config, INCARNATION, rank));
        assert!(Instant::now() < until, "{said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut said = String::new();
    let taken = ("127.0.0.1", 21_000 + 100 * 71 + 8);
    let mut peer = TcpStream::connect(taken).expect("published");
    peer.read_to_string(&mut said).expect("an answer");
    assert_eq!(said, "1");
    log.append(stop(INCARNATION));
    for rank in 0..2 {
        log.wait_exited(&id(INCARNATION, rank));
    }
    agent.stop().expect("left in order");
}
