//! The agent's connection to its supervisor. Starts a supervisor if none answers.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence};
use dormouse_runtime::{UNBOUNDED, retry};
use dormouse_sandbox::framed_socket::send_with;
use dormouse_sandbox::procfs::{self, Identity};
use dormouse_sandbox::protocol::{
    self, Ask, Attachment, ExecExit, Gone, HeldNow, Orders, Program, Settings, Tell, Welcome,
};
use dormouse_sandbox::supervisor::{LOG, make, socket};
use dormouse_sandbox::{Fault, StartError};

use crate::runtime::{Exits, Found, RuntimeError};

/// Includes the wait for a killed predecessor's containers.
const START_TIMEOUT: Duration = Duration::from_secs(20);

const START_PAUSE: Duration = Duration::from_millis(2);

const RETRY: Duration = Duration::from_secs(1);

/// Variables to reach the engine.
const INHERITED: [&str; 5] = [
    "DOCKER_HOST",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "RUST_BACKTRACE",
    "PATH",
];

/// The start of a node's supervisor.
#[derive(Debug, Clone)]
pub struct Config {
    pub folder: PathBuf,
    pub command: Vec<String>,
    pub settings: Settings,
}

/// The agent's handle of its supervisor.
#[derive(Clone)]
pub struct Supervisor {
    asks: mpsc::UnboundedSender<Said>,
    shared: Arc<Mutex<Shared>>,
}

type Said = (Ask, Vec<OwnedFd>);

#[derive(Default)]
struct Shared {
    last_number: u64,
    starts: BTreeMap<u64, oneshot::Sender<Result<u32, StartError>>>,
    execs: BTreeMap<u64, oneshot::Sender<ExecExit>>,
    held: BTreeMap<ContainerId, Found>,
    deadline: Option<Option<u64>>,
    gone: Option<Box<Gone>>,
    identity: Option<Identity>,
}

type Reader = Lines<BufReader<OwnedReadHalf>>;

impl Supervisor {
    /// Connects to the node's supervisor, or starts one. Exits go to `exits`, those of earlier containers
    /// after their listing.
    ///
    /// # Errors
    /// If no supervisor can be started.
    pub async fn connect(config: Config, exits: Exits) -> Result<(Self, Welcome), RuntimeError> {
        let (stream, welcome) = connect(&config).await?;
        let (asks, asked) = mpsc::unbounded_channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let supervisor = Self { asks, shared };
        supervisor.shared().welcomed(&welcome);
        let talk = Talk {
            config,
            shared: Arc::clone(&supervisor.shared),
            exits,
        };
        tokio::spawn(talk.run(stream, asked));
        Ok((supervisor, welcome))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn ask(&self, ask: Ask) {
        let _ = self.asks.send((ask, Vec::new()));
    }

    /// Returns the supervisor's process identity.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.shared().identity
    }

    /// Returns the containers that the supervisor holds.
    #[must_use]
    pub fn held(&self) -> Vec<Found> {
        self.shared().held.values().cloned().collect()
    }

    /// Starts a container, or finds it running. Returns the program's pid.
    ///
    /// # Errors
    /// The reason of a failure.
    pub async fn start(
        &self,
        container: ContainerId,
        request: Sequence,
        orders: Orders,
    ) -> Result<u32, NotStarted> {
        let (answer, answered) = oneshot::channel();
        {
            let mut shared = self.shared();
            let turn = shared.next_number();
            shared.starts.insert(turn, answer);
            let now = Found {
                container: container.clone(),
                request,
                status: Ok(0),
            };
            shared.held.insert(container.clone(), now);
            self.ask(Ask::Start(turn, Box::new(orders)));
        }
        let gone = || {
            let why = "the node's supervisor has ended; it is started again".to_owned();
            Err(StartError::of_node(why))
        };
        let result = answered.await.unwrap_or_else(|_| gone());
        let result = result.map_err(not_started);
        let mut shared = self.shared();
        match (&result, shared.held.get_mut(&container)) {
            (Ok(program), Some(held)) if held.status == Ok(0) => held.status = Ok(*program),
            (Err(_), _) => drop(shared.held.remove(&container)),
            _ => {}
        }
        result
    }

    /// Runs another program in a container. Returns the program's number and a receiver of its exit.
    pub fn exec(
        &self,
        container: &ContainerId,
        program: Program,
        (attachment, descriptors): (Attachment, Vec<OwnedFd>),
    ) -> (u64, oneshot::Receiver<ExecExit>) {
        let (answer, answered) = oneshot::channel();
        let mut shared = self.shared();
        let number = shared.next_number();
        shared.execs.insert(number, answer);
        let (container, program) = (container.to_string(), Box::new(program));
        let ask = Ask::Exec(number, container, program, attachment);
        let _ = self.asks.send((ask, descriptors));
        (number, answered)
    }

    /// Signals such a program and its process group.
    pub fn signal_exec(&self, number: u64, container: &ContainerId, signal: i32) {
        self.ask(Ask::ExecSignal(number, container.to_string(), signal));
    }

    /// Signals a container's program and its process group.
    pub fn signal(&self, container: &ContainerId, signal: i32) {
        self.ask(Ask::Signal(container.to_string(), signal));
    }

    /// Signals the container's processes that handle the signal.
    pub fn notify(&self, container: &ContainerId, signal: i32) {
        self.ask(Ask::Notify(container.to_string(), signal));
    }

    /// Kills a container.
    pub fn kill(&self, container: &ContainerId) {
        self.ask(Ask::Kill(container.to_string()));
    }

    /// Tells the supervisor that a container's exit is on the log.
    pub fn forget(&self, container: &ContainerId, request: Sequence) {
        self.shared().held.remove(container);
        self.ask(Ask::Forget(container.to_string(), request.0));
    }

    /// Sets the deadline of all containers: `after` past `since`, or none.
    pub fn hold_until(&self, end: Option<(tokio::time::Instant, Duration)>) {
        let deadline = end.map(|(since, after)| {
            let now = tokio::time::Instant::now();
            let left = (since + after).saturating_duration_since(now);
            procfs::since_boot_ms() + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2)
        });
        self.shared().deadline = Some(deadline);
        self.ask(Ask::Deadline(deadline));
    }

    /// Sets the action after this agent's death. `None`: the lease runs out.
    pub fn if_gone(&self, orders: Option<Gone>) {
        let orders = orders.map(Box::new);
        self.shared().gone.clone_from(&orders);
        self.ask(Ask::Gone(orders));
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Returns a number that no earlier agent has used, because numbers follow the time.
    fn next_number(&mut self) -> u64 {
        let now = procfs::since_boot_ms() << 16;
        self.last_number = now.max(self.last_number + 1);
        self.last_number
    }

    fn welcomed(&mut self, welcome: &Welcome) {
        self.identity = Some(Identity {
            pid: welcome.pid,
            started_ticks: welcome.started_ticks,
        });
        let held = welcome.held.iter().filter_map(found);
        self.held.extend(held.map(|it| (it.container.clone(), it)));
    }
}

/// Names the sandbox's failure in the log's terms.
#[must_use]
pub fn not_started(error: StartError) -> NotStarted {
    NotStarted {
        why: error.why,
        fault: error.fault.map(|fault| match fault {
            Fault::Disk => NodeFault::Disk,
            Fault::Processes => NodeFault::Processes,
        }),
    }
}

fn exit_of(exit: protocol::Exit) -> Exit {
    let own = Exit {
        code: exit.code,
        signal: exit.signal,
        out_of_memory: exit.out_of_memory,
        ..Exit::default()
    };
    own.with_eviction(exit.evicted)
}

fn found(held: &HeldNow) -> Option<Found> {
    Some(Found {
        container: held.container.parse().ok()?,
        request: Sequence(held.request),
        status: held.status.clone().map_err(exit_of),
    })
}

struct Talk {
    config: Config,
    shared: Arc<Mutex<Shared>>,
    exits: Exits,
}

impl Talk {
    async fn run(self, stream: UnixStream, mut asked: mpsc::UnboundedReceiver<Said>) {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        loop {
            let is_open = tokio::select! {
                ask = asked.recv() => match ask {
                    None => return,
                    Some(said) => say(&mut writer, said).await.is_ok(),
                },
                heard = self.hear(&mut lines) => heard,
            };
            if !is_open {
                let stream = self.again(&mut asked).await;
                let Some(stream) = stream else { return };
                let (reader, own) = stream.into_split();
                (lines, writer) = (BufReader::new(reader).lines(), own);
            }
        }
    }

    async fn hear(&self, lines: &mut Reader) -> bool {
        let Ok(Some(line)) = lines.next_line().await else {
            return false;
        };
        match serde_json::from_str(&line) {
            Ok(tell) => self.heard(tell),
            Err(error) => tracing::warn!(%error, "a word of the supervisor's is not understood"),
        }
        true
    }

    fn heard(&self, tell: Tell) {
        let mut shared = lock(&self.shared);
        match tell {
            Tell::Welcome(_) => {}
            Tell::Started(turn, result) => {
                if let Some(answer) = shared.starts.remove(&turn) {
                    let _ = answer.send(result);
                }
            }
            Tell::ExecEnded(number, exit) => {
                if let Some(answer) = shared.execs.remove(&number) {
                    let _ = answer.send(exit);
                }
            }
            Tell::Ended(container, request, exit) => {
                if let Ok(container) = container.parse()
                    && let Some(held) = shared.held.get_mut(&container)
                    && held.request.0 == request
                {
                    let exit = exit_of(exit);
                    held.status = Err(exit.clone());
                    let _ = self.exits.send((container, exit));
                }
            }
        }
    }

    /// Replaces an ended supervisor. Returns `None` if the agent ends too.
    async fn again(&self, asked: &mut mpsc::UnboundedReceiver<Said>) -> Option<UnixStream> {
        tracing::error!(
            "the node's supervisor has ended, and its containers with it; starting another one"
        );
        let again = |error: &RuntimeError| {
            tracing::error!(%error, "no supervisor; trying again");
            !asked.is_closed()
        };
        let connected = retry(RETRY, UNBOUNDED, again, || connect(&self.config)).await;
        let (stream, welcome) = connected.ok()?;
        let mut shared = lock(&self.shared);
        shared.welcomed(&welcome);
        shared.starts.clear();
        shared.execs.clear();
        for (container, now) in &mut shared.held {
            let name = container.to_string();
            let is_held = welcome.held.iter().any(|it| it.container == name);
            if now.status.is_ok() && !is_held {
                now.status = Err(Exit::unseen());
                let _ = self.exits.send((container.clone(), Exit::unseen()));
            }
        }
        let deadline = shared.deadline.map(Ask::Deadline);
        let gone = shared.gone.clone().map(|it| Ask::Gone(Some(it)));
        for ask in deadline.iter().chain(&gone) {
            resend(&stream, ask);
        }
        Some(stream)
    }
}

fn resend(stream: &UnixStream, ask: &Ask) {
    let Ok(mut line) = serde_json::to_vec(ask) else {
        return;
    };
    line.push(b'\n');
    if let Err(error) = stream.try_write(&line) {
        tracing::warn!(%error, "the new supervisor does not hear what the one before was told");
    }
}

async fn say(writer: &mut OwnedWriteHalf, (ask, with): Said) -> io::Result<()> {
    if with.is_empty() {
        return write(writer, &ask).await;
    }
    let mut line = serde_json::to_vec(&ask)?;
    line.push(b'\n');
    let stream: &UnixStream = writer.as_ref();
    let sent = stream.async_io(Interest::WRITABLE, || send_with(stream, &line, &with));
    let sent = sent.await?;
    writer.write_all(&line[sent..]).await
}

async fn write(writer: &mut (impl AsyncWriteExt + Unpin), ask: &Ask) -> io::Result<()> {
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

async fn connect(config: &Config) -> Result<(UnixStream, Welcome), RuntimeError> {
    let fail = |error: io::Error| {
        let path = config.folder.display();
        RuntimeError::Supervisor(format!("{error}; see {path}/{LOG}"))
    };
    let folder = make(&config.folder).map_err(fail)?;
    let until = Instant::now() + START_TIMEOUT;
    let mut has_started = false;
    loop {
        let attempt = match UnixStream::connect(socket(&folder)).await {
            Ok(stream) => greet(stream, &config.settings).await,
            Err(error) => Err(error),
        };
        match attempt {
            Ok(greeted) => return Ok(greeted),
            Err(error) if Instant::now() > until => return Err(fail(error)),
            Err(error) if is_hang_up(&error) => has_started = false,
            Err(_) if !has_started => {
                start(config).map_err(fail)?;
                has_started = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

async fn greet(mut stream: UnixStream, settings: &Settings) -> io::Result<(UnixStream, Welcome)> {
    write(&mut stream, &Ask::Hello(Box::new(settings.clone()))).await?;
    let mut line = Vec::new();
    loop {
        stream.readable().await?;
        // Later bytes belong to the later reader.
        let mut byte = [0];
        match stream.try_read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte == *b"\n" => match serde_json::from_slice(&line)? {
                Tell::Welcome(welcome) => return Ok((stream, *welcome)),
                _ => line.clear(),
            },
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn start(config: &Config) -> io::Result<()> {
    let log = config.folder.join(LOG);
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    let (program, arguments) = config
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no command becomes a supervisor"))?;
    let mut child = Command::new(Path::new(program))
        .args(arguments)
        .arg(&config.folder)
        // A sandbox's init is a copy of the supervisor: no secrets of the agent.
        .env_clear()
        .envs(
            INHERITED
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .process_group(0)
        .spawn()?;
    // A living agent reaps the supervisor.
    std::thread::Builder::new()
        .name("supervisor".to_owned())
        .spawn(move || child.wait())
        .map(drop)
}
