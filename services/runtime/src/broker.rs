//! The local broker: a supervised nats-server child.
//!
//! 1. Locks the store directory and ends a leftover broker.
//! 2. Starts the child in its own process group, so that a ^C does not end it before the services.
//! 3. Restarts a dead child on the same port, where clients look for it.
//! 4. Restarts a child whose write failed, once the disk has room: nats-server refuses all later writes to
//!    the stream.

mod write_errors;

use std::fs::File;
use std::future::ready;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::error::BrokerError;
use crate::lease::token;
use crate::retry::{forever, retry};

use write_errors::{HEALTH, Health, SUPERVISOR};

/// Covers a cold disk; a warm start takes a second.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Probes ([`LocalBroker::runs_in`]) hold the lock for less than this.
const LOOKED_AT: Duration = Duration::from_secs(1);

const PORTS_TRIED: u32 = 5;

const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
const GREETING_LIMIT: u64 = 64 << 10;

const HEALTH_EVERY: Duration = Duration::from_secs(1);
const SAY_FULL_EVERY: Duration = Duration::from_secs(10);
/// Free space for a restart; with less, the broker soon fails again.
const ROOM_BYTES: usize = 8 << 20;

/// Settings of a local broker.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    pub binary: Option<PathBuf>,
    pub store_dir: PathBuf,
    /// `None` or 0: the last used port, or any free one.
    pub port: Option<u16>,
    /// Syncs each event to disk first.
    pub sync_always: bool,
    pub max_payload_bytes: usize,
    /// Extra nats-server configuration; accounts in it disable health checks.
    pub extra: String,
}

impl BrokerConfig {
    /// Returns the defaults for `store_dir`.
    #[must_use]
    pub fn new(store_dir: impl Into<PathBuf>) -> Self {
        Self {
            binary: None,
            store_dir: store_dir.into(),
            port: None,
            sync_always: false,
            max_payload_bytes: 8 << 20,
            extra: String::new(),
        }
    }

    /// Finds nats-server: `DORMOUSE_NATS_SERVER`, next to this program, where packages install it, `.tools/bin`,
    /// the PATH.
    #[must_use]
    pub fn find_binary() -> Option<PathBuf> {
        let named = std::env::var_os("DORMOUSE_NATS_SERVER");
        if let Some(path) = named.filter(|path| !path.is_empty()) {
            return Some(PathBuf::from(path));
        }
        let program = std::env::current_exe().ok();
        let program_folder = program.as_deref().and_then(Path::parent);
        let prefix = program_folder.and_then(Path::parent);
        let own = [
            program_folder.map(|dir| dir.join("nats-server")),
            prefix.map(|dir| dir.join("lib/dormouse/nats-server")),
        ];
        let here = std::env::current_dir().unwrap_or_default();
        let tools = here
            .ancestors()
            .map(|dir| dir.join(".tools/bin/nats-server"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|dir| dir.join("nats-server"));
        own.into_iter()
            .flatten()
            .chain(tools)
            .chain(on_path)
            .find(|path| path.is_file())
    }
}

/// A running broker; dropping it kills the child.
#[derive(Debug)]
pub struct LocalBroker {
    url: String,
    pid: Arc<AtomicU32>,
    stopping: CancellationToken,
    supervisor: Option<tokio::task::JoinHandle<()>>,
    _lock: File,
}

impl LocalBroker {
    /// Starts the broker and waits until it is ready.
    ///
    /// # Errors
    /// When there is no nats-server, its directory is in use or cannot be written, or it does not become
    /// ready.
    pub async fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        let binary = config
            .binary
            .clone()
            .or_else(BrokerConfig::find_binary)
            .ok_or(BrokerError::NotFound)?;
        let files = Files::new(&config.store_dir)?;
        let lock = files.lock().await?;
        files.end_leftover().await;
        let pid = Arc::new(AtomicU32::new(0));
        let (port, child) = begin(&config, &binary, &files, &pid).await?;
        let url = format!("nats://127.0.0.1:{port}");
        files.write("url", &url)?;
        tracing::info!(url, store = %config.store_dir.display(), "the broker runs");
        let stopping = CancellationToken::new();
        let health = config
            .extra
            .is_empty()
            .then(|| Health::new(url.clone(), files.password.clone()));
        let supervisor = tokio::spawn(supervise(
            child,
            binary,
            files,
            Arc::clone(&pid),
            health,
            stopping.clone(),
        ));
        Ok(Self {
            url,
            pid,
            stopping,
            supervisor: Some(supervisor),
            _lock: lock,
        })
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the last URL of `store_dir`.
    #[must_use]
    pub fn url_of(store_dir: &Path) -> Option<String> {
        let url = std::fs::read_to_string(store_dir.join("url")).ok()?;
        Some(url.trim().to_owned())
    }

    /// Reports whether a supervisor runs a broker on `store_dir`.
    #[must_use]
    pub fn runs_in(store_dir: &Path) -> bool {
        let lock = File::open(store_dir.join("lock"));
        // Concurrent probes must not look like a supervisor.
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    /// Returns the pid of a broker that outlived its supervisor.
    #[must_use]
    pub fn left_in(store_dir: &Path) -> Option<u32> {
        let text = std::fs::read_to_string(store_dir.join("nats-server.pid")).ok()?;
        let pid = text.trim().parse::<u32>().ok()?;
        let config = store_dir.join("nats-server.conf");
        let config = config.as_os_str().as_encoded_bytes();
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_ours = command.windows(config.len()).any(|part| part == config);
        is_ours.then_some(pid)
    }

    /// Returns the process that locks `store_dir`, if visible.
    #[must_use]
    pub fn supervisor_in(store_dir: &Path) -> Option<u32> {
        let lock = store_dir.join("lock").canonicalize().ok()?;
        let has_it = |pid: u32| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
            let mut open = open.into_iter().flatten().flatten();
            open.any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path == lock))
        };
        let own = std::process::id();
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.find(|pid| *pid != own && has_it(*pid))
    }

    /// Returns the child's current pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Ends the broker gracefully.
    pub async fn stop(mut self) {
        self.stopping.cancel();
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.await;
        }
    }
}

impl Drop for LocalBroker {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            self.stopping.cancel();
            supervisor.abort();
            signal(self.pid(), Signal::SIGKILL);
        }
    }
}

#[derive(Debug, Clone)]
struct Files {
    dir: PathBuf,
    password: String,
}

impl Files {
    fn new(dir: &Path) -> Result<Self, BrokerError> {
        let problem = |why| BrokerError::File {
            path: dir.to_owned(),
            why,
        };
        std::fs::create_dir_all(dir).map_err(problem)?;
        let dir = dir.canonicalize().map_err(problem)?;
        let password = token();
        Ok(Self { dir, password })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes atomically, since others read the URL at any time.
    fn write(&self, name: &str, text: &str) -> Result<(), BrokerError> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|why| BrokerError::File { path, why })
    }

    /// Distinguishes brokers on one port.
    fn server_name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.dir.hash(&mut hasher);
        format!("dormouse-local-{:016x}", hasher.finish())
    }

    /// Retries, since a probe may hold the lock briefly.
    async fn lock(&self) -> Result<File, BrokerError> {
        let path = self.path("lock");
        let file = File::create(&path).map_err(|why| BrokerError::File { path, why })?;
        let pause = Duration::from_millis(10);
        let locked = retry(pause, LOOKED_AT, |_| true, || ready(file.try_lock())).await;
        match locked {
            Ok(()) => Ok(file),
            Err(_) => Err(BrokerError::InUse(self.dir.clone())),
        }
    }

    async fn end_leftover(&self) {
        let Some(pid) = LocalBroker::left_in(&self.dir) else {
            return;
        };
        tracing::warn!(pid, "ending the broker that an earlier run left behind");
        signal(pid, Signal::SIGTERM);
        let asked = Instant::now();
        while LocalBroker::left_in(&self.dir) == Some(pid) {
            if asked.elapsed() > STOP_TIMEOUT {
                signal(pid, Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// By a write, since quotas and reserved blocks count.
    async fn has_room(&self) -> bool {
        let path = self.path("room");
        let write = move || {
            let written = std::fs::write(&path, vec![0; ROOM_BYTES]);
            let removed = std::fs::remove_file(&path);
            written.and(removed)
        };
        matches!(tokio::task::spawn_blocking(write).await, Ok(Ok(())))
    }

    fn choose_port(&self, wanted: Option<u16>) -> Result<u16, BrokerError> {
        if let Some(port) = wanted.filter(|port| *port != 0) {
            // Another cluster's broker on the port would serve these clients.
            return free_port(port).ok_or(BrokerError::PortInUse(port));
        }
        let before = LocalBroker::url_of(&self.dir)
            .and_then(|url| url.rsplit_once(':')?.1.parse::<u16>().ok())
            .filter(|port| free_port(*port).is_some());
        Ok(before.or_else(|| free_port(0)).unwrap_or(4222))
    }
}

fn free_port(port: u16) -> Option<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).ok()?;
    listener.local_addr().ok().map(|address| address.port())
}

async fn begin(
    config: &BrokerConfig,
    binary: &Path,
    files: &Files,
    pid: &AtomicU32,
) -> Result<(u16, Child), BrokerError> {
    let mut tries = PORTS_TRIED;
    loop {
        let port = files.choose_port(config.port)?;
        files.write("nats-server.conf", &configuration(config, files, port))?;
        let mut child = spawn(binary, files, pid)?;
        tries -= 1;
        match wait_ready(port, &mut child, files).await {
            // Another process took the port first.
            Err(BrokerError::PortInUse(_)) if config.port.unwrap_or(0) == 0 && tries > 0 => {
                let _ = child.kill().await;
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok((port, child)),
        }
    }
}

fn configuration(config: &BrokerConfig, files: &Files, port: u16) -> String {
    let quoted = |name: &str| format!("{:?}", files.path(name).display().to_string());
    let sync = if config.sync_always {
        "sync_interval: always"
    } else {
        ""
    };
    let more = match config.extra.as_str() {
        "" => format!(
            "accounts {{ $SYS {{ users: [{{ user: {SUPERVISOR}, password: \"{}\", permissions: {{ publish: \"{HEALTH}\", subscribe: \"_INBOX.>\" }} }}] }} }}",
            files.password
        ),
        extra => extra.to_owned(),
    };
    format!(
        "# Written at every start.\n\
         listen: \"127.0.0.1:{port}\"\n\
         server_name: {:?}\n\
         max_payload: {}\n\
         max_pending: 256MB\n\
         pid_file: {}\n\
         log_file: {}\n\
         logfile_size_limit: 10MB\n\
         logfile_max_num: 3\n\
         jetstream {{ store_dir: {} {sync} }}\n\
         {more}\n",
        files.server_name(),
        config.max_payload_bytes,
        quoted("nats-server.pid"),
        quoted("nats-server.log"),
        quoted("jetstream"),
    )
}

fn spawn(binary: &Path, files: &Files, pid: &AtomicU32) -> Result<Child, BrokerError> {
    let child = Command::new(binary)
        .arg("-c")
        .arg(files.path("nats-server.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|why| BrokerError::Program {
            binary: binary.to_owned(),
            why,
        })?;
    pid.store(child.id().unwrap_or(0), Ordering::Relaxed);
    Ok(child)
}

async fn wait_ready(port: u16, child: &mut Child, files: &Files) -> Result<(), BrokerError> {
    let started = Instant::now();
    let not_ready = |why: String| BrokerError::NotReady {
        why,
        log: files.path("nats-server.log"),
    };
    let name = files.server_name();
    let mut why = String::new();
    while started.elapsed() < READY_TIMEOUT {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(match free_port(port) {
                Some(_) => not_ready(format!("it ended with {status}")),
                None => BrokerError::PortInUse(port),
            });
        }
        match name_at(port).await {
            Ok(there) if there != name => return Err(BrokerError::PortInUse(port)),
            Ok(_) => match probe(port).await {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            },
            Err(error) => why = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(not_ready(why))
}

/// Returns the greeting's server name; empty if the listener is no broker.
async fn name_at(port: u16) -> std::io::Result<String> {
    let mut line = String::new();
    let reading = async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let mut stream = BufReader::new(stream).take(GREETING_LIMIT);
        stream.read_line(&mut line).await
    };
    tokio::time::timeout(GREETING_TIMEOUT, reading).await??;
    let greeting = line.strip_prefix("INFO ").unwrap_or_default();
    let greeting: serde_json::Value = serde_json::from_str(greeting).unwrap_or_default();
    Ok(greeting["server_name"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// With users of its own (`extra`) the broker refuses, which suffices.
async fn probe(port: u16) -> Result<(), String> {
    let client = match async_nats::connect(format!("127.0.0.1:{port}")).await {
        Ok(client) => client,
        Err(error) => {
            return match error.kind() {
                async_nats::ConnectErrorKind::AuthorizationViolation => Ok(()),
                _ => Err(error.to_string()),
            };
        }
    };
    let jetstream = async_nats::jetstream::new(client);
    jetstream
        .query_account()
        .await
        .map(|_| ())
        .map_err(|error| error.to_string())
}

enum Ended {
    Died(std::io::Result<ExitStatus>),
    StoresNothing(String),
}

async fn supervise(
    mut child: Child,
    binary: PathBuf,
    files: Files,
    pid: Arc<AtomicU32>,
    mut health: Option<Health>,
    stopping: CancellationToken,
) {
    let mut quick_ends = 0_u32;
    loop {
        let started = Instant::now();
        let ended = tokio::select! {
            status = child.wait() => Ended::Died(status),
            why = stores_nothing(health.as_mut(), &files) => Ended::StoresNothing(why),
            () = stopping.cancelled() => return end(&mut child).await,
        };
        quick_ends = if started.elapsed() > Duration::from_secs(10) {
            0
        } else {
            quick_ends + 1
        };
        let delay = Duration::from_millis(50 << quick_ends.min(7));
        let log = files.path("nats-server.log");
        match ended {
            Ended::Died(status) => tracing::error!(
                status = %status.as_ref().map_or_else(ToString::to_string, ExitStatus::to_string),
                log = %log.display(),
                ?delay,
                "the broker died; starting it again"
            ),
            Ended::StoresNothing(why) => {
                tracing::error!(
                    why,
                    log = %log.display(),
                    "the broker stores nothing since a write has failed, and its disk has room; starting it again"
                );
                end(&mut child).await;
            }
        }
        let again = async {
            tokio::time::sleep(delay).await;
            let failed =
                |error: BrokerError| tracing::error!(%error, "the broker cannot be started");
            forever(delay, failed, || ready(spawn(&binary, &files, &pid))).await
        };
        child = tokio::select! {
            again = again => again,
            () = stopping.cancelled() => return,
        };
    }
}

/// Returns the error after a failed write, once the disk has room.
async fn stores_nothing(health: Option<&mut Health>, files: &Files) -> String {
    let Some(health) = health else {
        return std::future::pending().await;
    };
    let mut said: Option<Instant> = None;
    loop {
        tokio::time::sleep(HEALTH_EVERY).await;
        let Some(why) = health.write_error().await else {
            continue;
        };
        if files.has_room().await {
            return why;
        }
        if said.is_none_or(|said| said.elapsed() > SAY_FULL_EVERY) {
            said = Some(Instant::now());
            tracing::error!(
                why,
                store = %files.dir.display(),
                "the broker stores nothing, and its disk is full: free some room there, then the broker is started again"
            );
        }
    }
}

async fn end(child: &mut Child) {
    let Some(pid) = child.id() else { return };
    signal(pid, Signal::SIGTERM);
    if tokio::time::timeout(STOP_TIMEOUT, child.wait())
        .await
        .is_err()
    {
        tracing::warn!("the broker does not end; killing it");
        let _ = child.kill().await;
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 0
    {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

#[cfg(test)]
mod tests;
