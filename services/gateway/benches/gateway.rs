//! Compares the gateway with HAProxy: same replicas, same load, alternating. The replicas are one HAProxy
//! that answers three bytes.
//!
//! `make bench-gateway` (needs `haproxy` and `wrk` of Debian, and a nats-server)

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_gateway::{Config, Gateway};
use dormouse_messages::events::{
    ContainerReady, JobAdmitted, NodeJoined, PlacedContainer, PlacementDecided,
};
use dormouse_messages::{
    Amounts, ContainerId, Epoch, Event, Incarnation, JobId, NodeId, Rank, Writer,
};
use dormouse_runtime::{BrokerConfig, LocalBroker, Log, Settings};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The gateway's own allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REPLICAS: u32 = 4;
const ROUNDS: usize = 3;
const RATE: u32 = 2_000;
const SENDERS: u32 = 16;

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    for program in ["haproxy", "wrk"] {
        if Command::new(program).arg("-v").output().is_err() {
            println!("{program} is not installed: apt-get install haproxy wrk");
            return;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let ports: Vec<u16> = (0..REPLICAS).map(|_| free_port()).collect();
    let front = free_port();
    let replicas = Haproxy::start(&folder.path().join("replicas.cfg"), &replicas(&ports));
    let proxy = Haproxy::start(&folder.path().join("proxy.cfg"), &proxy(front, &ports));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (broker, gateway) = runtime.block_on(gateway(&folder.path().join("broker"), &ports));
    let ways = [
        Way::new("direct", at(ports[0]), "/"),
        Way::new("haproxy", at(front), "/"),
        Way::new("gateway", gateway, "/ads/model/"),
    ];
    for way in &ways {
        way.wait();
    }
    compare(&ways);
    drop((replicas, proxy));
    runtime.block_on(broker.stop());
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

struct Haproxy(Child);

impl Haproxy {
    fn start(file: &Path, config: &str) -> Self {
        std::fs::write(file, config).expect("written");
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(file).stderr(Stdio::null());
        Self(command.spawn().expect("haproxy runs"))
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DEFAULTS: &str =
    "defaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n";

fn replicas(ports: &[u16]) -> String {
    let binds: String = ports
        .iter()
        .map(|port| format!("  bind 127.0.0.1:{port}\n"))
        .collect();
    format!(
        "global\n  nbthread 1\n  maxconn 4000\n{DEFAULTS}frontend replicas\n{binds}  http-request return status 200 content-type text/plain string ok!\n"
    )
}

fn proxy(front: u16, ports: &[u16]) -> String {
    let servers: String = ports
        .iter()
        .map(|port| format!("  server s{port} 127.0.0.1:{port} maxconn 256\n"))
        .collect();
    format!(
        "global\n  nbthread 2\n  maxconn 4000\n{DEFAULTS}frontend front\n  bind 127.0.0.1:{front}\n  option forwardfor\n  default_backend back\nbackend back\n  balance leastconn\n  http-reuse always\n{servers}"
    )
}

async fn gateway(folder: &Path, ports: &[u16]) -> (LocalBroker, SocketAddr) {
    let broker = LocalBroker::start(BrokerConfig::new(folder)).await;
    let broker = broker.expect("the broker runs");
    let log = Log::connect(&Settings::new(broker.url(), "bench")).await;
    let log = log.expect("connects");
    log.ensure_streams().await.expect("streams");
    let node: NodeId = "n0".parse().expect("valid");
    for event in events(&node, ports) {
        let writer = event.writers()[0];
        let node = (writer == Writer::Node).then(|| node.clone());
        let mut appender = log.appender(writer, node);
        appender.append(event, &[]).await.expect("appended");
    }
    let config = Config {
        threads: 2,
        ..Config::new("g0".parse().expect("valid"), at(0))
    };
    let gateway = Gateway::bind(config).await.expect("a port");
    let address = gateway.listens_at().expect("an address");
    tokio::spawn(gateway.run(log, CancellationToken::new()));
    (broker, address)
}

fn events(node: &NodeId, ports: &[u16]) -> Vec<Event> {
    let job: JobId = "ads/model".parse().expect("valid");
    let spec = json!({
        "name": "model", "tenant": "ads", "kind": "inference",
        "command": {"start": ["serve"]}, "demand": {}, "weight": 1,
        "containers": {"min": 1, "max": 100}, "resize": "in_place",
        "checkpoint": {"mode": "none", "signal": "SIGTERM", "grace_s": 5},
        "service": {"access": "open", "concurrency": 256},
    });
    let placed = (0..).zip(ports).map(|(rank, port)| PlacedContainer {
        job: job.clone(),
        incarnation: Incarnation(1),
        rank: Rank(rank),
        node: node.clone(),
        gpus: Vec::new(),
        port: *port,
    });
    let mut events = vec![
        Event::from(NodeJoined {
            node: node.clone(),
            capacity: Amounts::new(),
            labels: Default::default(),
            gpus: Vec::new(),
            incarnation: 1,
            running: Vec::new(),
            address: "127.0.0.1".to_owned(),
            runtime: "process".to_owned(),
            taints: Default::default(),
        }),
        Event::from(JobAdmitted {
            job: job.clone(),
            spec: serde_json::from_value(spec).expect("valid"),
            ingress_sequence: 1,
            by: None,
            basis: None,
        }),
        Event::from(PlacementDecided {
            epoch: Epoch(1),
            create: placed.collect(),
            remove: Vec::new(),
            basis: None,
        }),
    ];
    events.extend((0..REPLICAS).map(|rank| {
        Event::from(ContainerReady {
            container: ContainerId {
                job: job.clone(),
                incarnation: Incarnation(1),
                rank: Rank(rank),
            },
            node: node.clone(),
            after_ms: 1,
            token_blake3: None,
        })
    }));
    events
}

struct Way {
    name: &'static str,
    address: SocketAddr,
    path: &'static str,
}

struct Asking {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: [u8; 4096],
}

impl Asking {
    fn ask(&mut self) {
        self.stream.write_all(&self.request).expect("written");
        let mut length = 0;
        while !self.buffer[..length].ends_with(b"\r\n\r\nok!") {
            let read = self.stream.read(&mut self.buffer[length..]);
            let read = read.expect("read");
            assert!(read > 0, "the connection ended");
            length += read;
        }
    }
}

impl Way {
    const fn new(name: &'static str, address: SocketAddr, path: &'static str) -> Self {
        Self {
            name,
            address,
            path,
        }
    }

    fn connect(&self) -> std::io::Result<Asking> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.path);
        Ok(Asking {
            stream,
            request: request.into_bytes(),
            buffer: [0; 4096],
        })
    }

    fn wait(&self) {
        let began = Instant::now();
        while self.connect().map(|mut it| it.ask()).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn throughput(&self) -> f64 {
        let url = format!("http://{}{}", self.address, self.path);
        let output = Command::new("wrk")
            .args(["-t1", "-c64", "-d5s", &url])
            .output();
        let text = String::from_utf8(output.expect("wrk runs").stdout).expect("text");
        assert!(!text.contains("Non-2xx"), "{text}");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Requests/sec:"));
        line.and_then(|it| it.trim().parse().ok()).expect("a rate")
    }

    /// Sequential requests, in milliseconds.
    fn closed(&self) -> Vec<f64> {
        let mut asking = self.connect().expect("connects");
        (0..5_000)
            .map(|_| {
                let began = Instant::now();
                asking.ask();
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect()
    }

    /// At [`RATE`] for five seconds, in milliseconds from the scheduled times.
    fn open(&self) -> Vec<f64> {
        let began = Instant::now() + Duration::from_millis(50);
        let gap = Duration::from_secs(1) / RATE;
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS)
                .map(|sender| {
                    scope.spawn(move || {
                        let mut asking = self.connect().expect("connects");
                        let turns = 5 * RATE / SENDERS;
                        let times = (0..turns).map(|turn| {
                            let due = began + gap * (turn * SENDERS + sender);
                            std::thread::sleep(due.saturating_duration_since(Instant::now()));
                            asking.ask();
                            due.elapsed().as_secs_f64() * 1e3
                        });
                        times.collect::<Vec<_>>()
                    })
                })
                .collect();
            let joined = senders.into_iter().map(|it| it.join().expect("no panic"));
            joined.flatten().collect()
        })
    }
}

fn percentile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * part) as usize]
}

fn median(mut values: Vec<f64>) -> f64 {
    percentile(&mut values, 0.5)
}

fn compare(ways: &[Way; 3]) {
    let mut rates = [const { Vec::new() }; 3];
    let mut medians = [const { Vec::new() }; 3];
    let mut tails = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (index, way) in ways.iter().enumerate() {
            rates[index].push(way.throughput());
            medians[index].push(percentile(&mut way.closed(), 0.5));
            tails[index].push(percentile(&mut way.open(), 0.99));
        }
    }
    println!("medians of {ROUNDS} rounds in turn");
    let (rates, medians, tails) = (rates.map(median), medians.map(median), tails.map(median));
    for (index, way) in ways.iter().enumerate() {
        println!(
            "{:8} {:8.0} requests/s   median {:.3} ms   p99 at {RATE}/s {:.3} ms",
            way.name, rates[index], medians[index], tails[index]
        );
    }
    println!(
        "beside HAProxy: {:.2} of its throughput, {:+.3} ms at the median, {:+.3} ms at p99",
        rates[2] / rates[1],
        medians[2] - medians[1],
        tails[2] - tails[1]
    );
}
