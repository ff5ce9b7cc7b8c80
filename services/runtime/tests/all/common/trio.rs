//! A cluster of three broker processes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dormouse_runtime::{BrokerConfig, Log, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub struct Trio {
    servers: Vec<Server>,
    dir: tempfile::TempDir,
}

struct Server {
    address: Ipv4Addr,
    process: Child,
}

/// Ports for clients and routes.
const PORT: u16 = 4222;
const ROUTES: u16 = 6222;

impl Drop for Trio {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // Ends a stopped process too.
            let _ = server.process.kill();
            let _ = server.process.wait();
        }
    }
}

/// Exclusive loopback addresses: a free port of 127.0.0.1 could be taken before the server listens.
fn addresses() -> [Ipv4Addr; 3] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let first = NEXT.fetch_add(3, Ordering::Relaxed);
    assert!(
        (1..250).contains(&first),
        "too many clusters in one process"
    );
    [0, 1, 2].map(|index| Ipv4Addr::new(127, 64 | (high & 63), low, first + index))
}

fn begin(binary: &Path, configuration: &Path) -> Child {
    Command::new(binary)
        .arg("-c")
        .arg(configuration)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server starts")
}

impl Trio {
    pub async fn start() -> Self {
        Self::storing("100GiB").await
    }

    pub async fn storing(max_file_store: &str) -> Self {
        Self::with(max_file_store, |_| String::new()).await
    }

    /// Starts three brokers with extra configuration made from each folder.
    pub async fn with(max_file_store: &str, more: impl Fn(&Path) -> String) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let binary = BrokerConfig::find_binary().expect("a nats-server");
        let dir = tempfile::tempdir().expect("a directory");
        let addresses = addresses();
        let urls = addresses.map(|it| format!("\"nats://{it}:{ROUTES}\""));
        let servers = (0..3).map(|index| {
            let file = |name: &str| dir.path().join(format!("s{index}.{name}"));
            let configuration = format!(
                "listen: \"{address}:{PORT}\"\nserver_name: \"s{index}\"\nmax_payload: 8MB\n\
                 log_file: {log:?}\n\
                 jetstream {{ store_dir: {store:?}, max_file_store: {max_file_store} }}\n\
                 cluster {{ name: \"trio\", listen: \"{address}:{ROUTES}\", routes: [{routes}] }}\n{more}",
                more = more(&file("more")),
                address = addresses[index],
                log = file("log"),
                store = file("store"),
                routes = urls.join(", "),
            );
            std::fs::write(file("conf"), configuration).expect("written");
            Server {
                address: addresses[index],
                process: begin(&binary, &file("conf")),
            }
        });
        let servers = servers.collect();
        Self { servers, dir }
    }

    pub fn url(&self, server: usize) -> String {
        format!("nats://{}:{PORT}", self.servers[server].address)
    }

    pub fn kill(&mut self, server: usize) {
        let process = &mut self.servers[server].process;
        process.kill().expect("killed");
        process.wait().expect("ended");
    }

    pub fn start_again(&mut self, server: usize) {
        let binary = BrokerConfig::find_binary().expect("a nats-server");
        let file = self.dir.path().join(format!("s{server}.conf"));
        self.servers[server].process = begin(&binary, &file);
    }

    /// Connects and ensures the streams.
    pub async fn log(&self, server: usize) -> Log {
        let url = self.url(server);
        let settings = Settings {
            replicas: 3,
            connect_timeout: Duration::from_secs(20),
            ..Settings::new(&url, "test")
        };
        let log = Log::connect(&settings).await.expect("connects");
        log.ensure_streams().await.expect("streams");
        log
    }

    pub async fn followers_of_the_log(&self, log: &Log) -> Vec<usize> {
        let url = self.url(0);
        let client = async_nats::connect(url).await.expect("connects");
        let jetstream = async_nats::jetstream::new(client);
        let name = log.prefix().log_stream();
        let stream = jetstream.get_stream(name).await.expect("the stream");
        let cluster = stream.cached_info().cluster.clone();
        let leader = cluster.and_then(|it| it.leader).expect("a leader");
        (0..3).filter(|it| format!("s{it}") != leader).collect()
    }

    /// Removes what a server that is down has stored.
    pub fn lose_disk(&self, server: usize) {
        let store = self.dir.path().join(format!("s{server}.store"));
        std::fs::remove_dir_all(store).expect("removed");
    }

    /// Reports whether a server, if it does not lead, has the whole log.
    pub async fn holds_the_log(&self, log: &Log, server: usize) -> bool {
        let name = format!("s{server}");
        let client = async_nats::connect(self.url(2)).await.expect("connects");
        let jetstream = async_nats::jetstream::new(client);
        let stream = jetstream.get_stream(log.prefix().log_stream()).await;
        let Some(cluster) = stream.ok().and_then(|it| it.cached_info().cluster.clone()) else {
            return false;
        };
        let leads = cluster.leader.as_ref() == Some(&name);
        let follows = cluster
            .replicas
            .iter()
            .any(|it| it.name == name && it.current && !it.offline && it.lag.unwrap_or(0) == 0);
        leads || follows
    }

    /// Suspends a server.
    pub fn stop(&self, server: usize) {
        self.signal(server, Signal::SIGSTOP);
    }

    /// Resumes a server.
    pub fn go_on(&self, server: usize) {
        self.signal(server, Signal::SIGCONT);
    }

    fn signal(&self, server: usize, signal: Signal) {
        let pid = i32::try_from(self.servers[server].process.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("signalled");
    }

    /// Fails if a replica of a stream has stopped.
    #[track_caller]
    pub fn assert_no_write_error(&self) {
        for index in 0..3 {
            let path: PathBuf = self.dir.path().join(format!("s{index}.log"));
            let text = std::fs::read_to_string(path).expect("readable");
            let stopped = text.lines().find(|it| it.contains("critical write error"));
            assert_eq!(stopped, None);
        }
    }
}
