//! The agent's side of its keeper: starts one where none is, asks, and hears.

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

use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence};

use super::lines::send_with;
use super::words::{
    Ask, Attachment, ExecExit, Gone, HeldNow, Orders, Program, Settings, Tell, Welcome,
};
use super::{LOG, SOCKET, make, short};
use crate::procfs::{self, Identity};
use crate::runtime::{Exit, Exits, NotStarted, RuntimeError};

/// How long a keeper may take to be there: it waits for the containers of one that was killed.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks whether it is.
const START_PAUSE: Duration = Duration::from_millis(2);

/// Before another attempt, where there is no keeper to be had.
const RETRY: Duration = Duration::from_secs(1);

/// What a keeper inherits of the agent's environment: how to reach the engine whose containers it ends.
const INHERITED: [&str; 5] = [
    "DOCKER_HOST",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "RUST_BACKTRACE",
    "PATH",
];

/// How a node's keeper is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// The keeper's folder.
    pub folder: PathBuf,
    /// The command that becomes a keeper; the folder is added to it.
    pub command: Vec<String>,
    /// How it is to work.
    pub settings: Settings,
}

/// A keeper, as its agent has it.
#[derive(Clone)]
pub struct Keeper {
    asks: mpsc::UnboundedSender<Said>,
    shared: Arc<Mutex<Shared>>,
}

/// A word, and the descriptors that go with it.
type Said = (Ask, Vec<OwnedFd>);

#[derive(Default)]
struct Shared {
    turn: u64,
    starts: BTreeMap<u64, oneshot::Sender<Result<u32, NotStarted>>>,
    beside: BTreeMap<u64, oneshot::Sender<Result<(), String>>>,
    execs: BTreeMap<u64, oneshot::Sender<ExecExit>>,
    takes_execs: bool,
    /// What runs, as far as the agent knows.
    held: BTreeMap<ContainerId, HeldNow>,
    deadline: Option<Option<u64>>,
    gone: Option<Box<Gone>>,
    identity: Option<Identity>,
}

type Reader = Lines<BufReader<OwnedReadHalf>>;

impl Keeper {
    /// The node's keeper: the one that is there, or a new one. Ends of containers go to `exits`;
    /// of those that were held before, once they are listed.
    ///
    /// # Errors
    /// When none can be started.
    pub async fn connect(config: Config, exits: Exits) -> Result<(Self, Welcome), RuntimeError> {
        let (stream, welcome) = connect(&config).await?;
        let (asks, asked) = mpsc::unbounded_channel();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let keeper = Self { asks, shared };
        keeper.shared().welcomed(&welcome);
        let talk = Talk {
            config,
            shared: Arc::clone(&keeper.shared),
            exits,
        };
        tokio::spawn(talk.run(stream, asked));
        Ok((keeper, welcome))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn ask(&self, ask: Ask) {
        let _ = self.asks.send((ask, Vec::new()));
    }

    /// Which process it is.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.shared().identity
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Vec<HeldNow> {
        self.shared().held.values().cloned().collect()
    }

    /// Starts a container, or finds it running; its program's number.
    ///
    /// # Errors
    /// Why it does not run.
    pub async fn start(&self, orders: Orders) -> Result<u32, NotStarted> {
        let (answer, answered) = oneshot::channel();
        let (container, request) = (orders.container.clone(), orders.request);
        {
            let mut shared = self.shared();
            shared.turn += 1;
            let turn = shared.turn;
            shared.starts.insert(turn, answer);
            let now = HeldNow {
                container: container.clone(),
                request,
                status: Ok(0),
            };
            shared.held.insert(container.clone(), now);
            self.ask(Ask::Start(turn, Box::new(orders)));
        }
        let gone = || {
            let why = "the node's keeper has ended; it is started again".to_owned();
            Err(NotStarted::of_node(NodeFault::Processes, why))
        };
        let result = answered.await.unwrap_or_else(|_| gone());
        let mut shared = self.shared();
        match (&result, shared.held.get_mut(&container)) {
            (Ok(program), Some(held)) if held.status == Ok(0) => held.status = Ok(*program),
            (Err(_), _) => drop(shared.held.remove(&container)),
            _ => {}
        }
        result
    }

    /// Runs a program in a container.
    ///
    /// # Errors
    /// How it ended.
    pub async fn beside(&self, container: ContainerId, program: Program) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        {
            let mut shared = self.shared();
            shared.turn += 1;
            let turn = shared.turn;
            shared.beside.insert(turn, answer);
            self.ask(Ask::Beside(turn, container, Box::new(program)));
        }
        answered
            .await
            .unwrap_or_else(|_| Err("the node's keeper has ended".to_owned()))
    }

    /// Runs a program in a container with the descriptors of somebody who is attached to it, under
    /// a number that no other one has; how it ends.
    ///
    /// # Errors
    /// When the keeper is of a build that cannot.
    pub fn exec(
        &self,
        number: u64,
        container: ContainerId,
        program: Program,
        (attachment, descriptors): (Attachment, Vec<OwnedFd>),
    ) -> Result<oneshot::Receiver<ExecExit>, String> {
        let (answer, answered) = oneshot::channel();
        let mut shared = self.shared();
        if !shared.takes_execs {
            return Err("the node's keeper is of an earlier build, which cannot run programs in its containers; it is replaced when no container is left there".to_owned());
        }
        shared.execs.insert(number, answer);
        let ask = Ask::Exec(number, container, Box::new(program), attachment);
        let _ = self.asks.send((ask, descriptors));
        Ok(answered)
    }

    /// Signals such a program and its process group.
    pub fn signal_exec(&self, number: u64, container: &ContainerId, signal: i32) {
        self.ask(Ask::ExecSignal(number, container.clone(), signal));
    }

    /// Signals a container's program and its process group.
    pub fn signal(&self, container: &ContainerId, signal: i32) {
        self.ask(Ask::Signal(container.clone(), signal));
    }

    /// Signals those of a container's processes that handle the signal.
    pub fn notify(&self, container: &ContainerId, signal: i32) {
        self.ask(Ask::Notify(container.clone(), signal));
    }

    /// Kills a container.
    pub fn kill(&self, container: &ContainerId) {
        self.ask(Ask::Kill(container.clone()));
    }

    /// The exit of a container is on the log.
    pub fn forget(&self, container: &ContainerId, request: Sequence) {
        self.shared().held.remove(container);
        self.ask(Ask::Forget(container.clone(), request));
    }

    /// When everything ends: so long after `since`; or never.
    pub fn hold_until(&self, end: Option<(tokio::time::Instant, Duration)>) {
        let deadline = end.map(|(since, after)| {
            let now = tokio::time::Instant::now();
            let left = (since + after).saturating_duration_since(now);
            procfs::since_boot_ms() + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2)
        });
        self.shared().deadline = Some(deadline);
        self.ask(Ask::Deadline(deadline));
    }

    /// What to do when this agent dies; absent: its lease is waited for.
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
    fn welcomed(&mut self, welcome: &Welcome) {
        self.takes_execs = welcome.execs;
        self.identity = Some(Identity {
            pid: welcome.pid,
            started_ticks: welcome.started_ticks,
        });
        for held in &welcome.held {
            self.held.insert(held.container.clone(), held.clone());
        }
    }
}

/// The conversation, over the deaths of keepers.
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

    /// Whether the keeper is there.
    async fn hear(&self, lines: &mut Reader) -> bool {
        let Ok(Some(line)) = lines.next_line().await else {
            return false;
        };
        match serde_json::from_str(&line) {
            Ok(tell) => self.heard(tell),
            Err(error) => tracing::warn!(%error, "a word of the keeper's is not understood"),
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
            Tell::BesideEnded(turn, result) => {
                if let Some(answer) = shared.beside.remove(&turn) {
                    let _ = answer.send(result);
                }
            }
            Tell::ExecEnded(number, exit) => {
                if let Some(answer) = shared.execs.remove(&number) {
                    let _ = answer.send(exit);
                }
            }
            Tell::Ended(container, request, exit) => {
                if let Some(held) = shared.held.get_mut(&container)
                    && held.request == request
                {
                    held.status = Err(exit.clone());
                    let _ = self.exits.send((container, exit));
                }
            }
        }
    }

    /// The keeper is gone, and its containers with it: another one takes its place. `None` where
    /// the agent goes, too.
    async fn again(&self, asked: &mut mpsc::UnboundedReceiver<Said>) -> Option<UnixStream> {
        tracing::error!(
            "the node's keeper has ended, and its containers with it; starting another one"
        );
        loop {
            match connect(&self.config).await {
                Ok((stream, welcome)) => {
                    let mut shared = lock(&self.shared);
                    shared.welcomed(&welcome);
                    shared.starts.clear();
                    shared.beside.clear();
                    shared.execs.clear();
                    for (container, now) in &mut shared.held {
                        let is_held = welcome.held.iter().any(|it| it.container == *container);
                        if now.status.is_ok() && !is_held {
                            now.status = Err(Exit::unseen());
                            let _ = self.exits.send((container.clone(), Exit::unseen()));
                        }
                    }
                    // Sent by the loop, before anything else that waits.
                    let deadline = shared.deadline.map(Ask::Deadline);
                    let gone = shared.gone.clone().map(|it| Ask::Gone(Some(it)));
                    for ask in deadline.iter().chain(&gone) {
                        resend(&stream, ask);
                    }
                    return Some(stream);
                }
                Err(error) => tracing::error!(%error, "no keeper; trying again"),
            }
            tokio::time::sleep(RETRY).await;
            if asked.is_closed() {
                return None;
            }
        }
    }
}

/// Some kilobytes fit into a new socket at once.
fn resend(stream: &UnixStream, ask: &Ask) {
    let Ok(mut line) = serde_json::to_vec(ask) else {
        return;
    };
    line.push(b'\n');
    if let Err(error) = stream.try_write(&line) {
        tracing::warn!(%error, "the new keeper does not hear what the one before was told");
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

/// Connects to the keeper in a folder, starting one where none answers.
async fn connect(config: &Config) -> Result<(UnixStream, Welcome), RuntimeError> {
    let fail = |error: io::Error| {
        let path = config.folder.display();
        RuntimeError::Keeper(format!("{error}; see {path}/{LOG}"))
    };
    let folder = make(&config.folder).map_err(fail)?;
    let until = Instant::now() + START_TIMEOUT;
    let mut has_started = false;
    loop {
        let attempt = match UnixStream::connect(short(&folder, SOCKET)).await {
            Ok(stream) => greet(stream, &config.settings).await,
            Err(error) => Err(error),
        };
        match attempt {
            Ok(greeted) => return Ok(greeted),
            Err(error) if Instant::now() > until => return Err(fail(error)),
            // One that is just leaving hangs up.
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

/// The first words: whatever it holds is told before anything else.
async fn greet(mut stream: UnixStream, settings: &Settings) -> io::Result<(UnixStream, Welcome)> {
    write(&mut stream, &Ask::Hello(Box::new(settings.clone()))).await?;
    let mut line = Vec::new();
    loop {
        stream.readable().await?;
        // Byte by byte up to the end of the line: what is behind it is for the reader to come.
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
        .ok_or_else(|| io::Error::other("no command becomes a keeper"))?;
    let mut child = Command::new(Path::new(program))
        .args(arguments)
        .arg(&config.folder)
        // A sandbox's first process is a copy of it: nothing of the agent's environment goes along.
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
    // It outlives this agent; while the agent lives, its end is taken note of.
    std::thread::Builder::new()
        .name("keeper".to_owned())
        .spawn(move || child.wait())
        .map(drop)
}
