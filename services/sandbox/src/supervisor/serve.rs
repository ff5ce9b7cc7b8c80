//! The supervisor's loop over agent, inits, children and deadline. Inits wait in advance in their own
//! groups and sandboxes, so a start avoids forks, new groups and moves, for which the kernel takes locks. A
//! init without a sandbox is reused.
//!
//! Files: `children` inits and exits, `execs` attached programs, `agent_loss` a dead agent.

mod agent_loss;
mod children;
mod execs;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::child::{Heard, Held, Init, Stage};
use super::zygote::Zygote;
use crate::cgroups::{Cgroups, Group};
use crate::framed_socket::Lines;
use crate::protocol::{Ask, InitAsk, Orders, Settings, Tell, Welcome};
use crate::{StartError, procfs};

/// Favours running containers.
const FILL_AFTER: Duration = Duration::from_millis(5);

const FIRST_AGENT: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_secs(5);

const NAME: &CStr = c"dormouse-superv";

const PAST: &str =
    "the node's lease was not renewed in time, and its supervisor has ended everything";

/// The state of the supervisor.
pub struct Supervisor {
    folder: PathBuf,
    listener: Option<UnixListener>,
    agent: Option<Lines>,
    had_agent: bool,
    since: Instant,
    settings: Settings,
    cgroups: Cgroups,
    held: BTreeMap<String, Held>,
    waiting: Vec<Init>,
    leaving: Vec<Init>,
    unused: Vec<Group>,
    ending: Option<u32>,
    signals: SignalFd,
    timer: TimerFd,
    has_deadline: bool,
    is_past: bool,
    absence: agent_loss::Absence,
    fill_at: Option<Instant>,
    to_make: usize,
    groups_made: u64,
    /// The next container's likely CPU demand, in thousandths of a processor.
    likely_cpu_milli: u64,
    zygote: Zygote,
    has_zygote: bool,
}

impl Supervisor {
    /// Creates a supervisor without containers.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn new(folder: PathBuf, listener: UnixListener, zygote: Zygote) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        prctl::set_child_subreaper(true)?;
        let _ = prctl::set_name(NAME);
        Ok(Self {
            folder,
            listener: Some(listener),
            agent: None,
            had_agent: false,
            since: Instant::now(),
            settings: Settings::default(),
            cgroups: Cgroups::Absent("no agent has asked for them".to_owned()),
            held: BTreeMap::new(),
            waiting: Vec::new(),
            leaving: Vec::new(),
            unused: Vec::new(),
            ending: None,
            signals: SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            timer: TimerFd::new(
                ClockId::CLOCK_BOOTTIME,
                TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
            )?,
            has_deadline: false,
            is_past: false,
            absence: agent_loss::Absence::default(),
            fill_at: None,
            to_make: 0,
            groups_made: 0,
            likely_cpu_milli: 1000,
            zygote,
            has_zygote: true,
        })
    }

    /// Runs until no container is held and no agent is connected.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn run(mut self) -> io::Result<()> {
        while !self.is_done() {
            self.wait()?;
            self.accept();
            self.hear_agent();
            self.hear_inits();
            self.reap();
            self.look_at_the_clock();
            self.look_for_an_agent();
            self.fill();
            self.end_if_unreachable();
        }
        self.unused.iter().for_each(Group::remove);
        self.cgroups.remove_if_empty();
        Ok(())
    }

    /// Without the folder no agent can reach the supervisor.
    fn end_if_unreachable(&mut self) {
        if self.agent.is_none() && !self.folder.exists() {
            self.held.retain(|_, held| held.init.is_some());
            self.held.values_mut().for_each(Held::kill);
        }
    }

    fn is_done(&self) -> bool {
        let waits_for_first = !self.had_agent && self.since.elapsed() < FIRST_AGENT;
        let is_empty = self.held.is_empty() && self.waiting.is_empty() && self.leaving.is_empty();
        let is_awaited = self.settings.engine.is_some() && self.has_deadline && !self.is_past;
        let has_work = self.ending.is_some() || self.absence.is_pending();
        let has_time = waits_for_first || is_awaited || has_work;
        let is_over = !self.has_zygote && self.held.is_empty();
        (self.agent.is_none() && is_empty && !has_time) || is_over
    }

    fn wait(&mut self) -> io::Result<()> {
        let input = PollFlags::POLLIN;
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), input),
            PollFd::new(self.timer.as_fd(), input),
        ];
        fds.extend(
            self.listener
                .as_ref()
                .map(|it| PollFd::new(it.as_fd(), input)),
        );
        fds.extend(
            self.agent
                .as_ref()
                .map(|it| PollFd::new(it.as_fd(), it.interest())),
        );
        let others = fds.len();
        let inits = self.held.values().filter_map(Held::talks);
        fds.extend(inits.map(|it| PollFd::new(it.as_fd(), it.interest())));
        let due = self.held.values().filter_map(Held::due).chain(self.fill_at);
        let first = (!self.had_agent).then(|| self.since + FIRST_AGENT);
        let look = self.agent.is_none().then(|| Instant::now() + LOOK);
        let due = due.chain(first).chain(look).chain(self.absence.due()).min();
        let now = Instant::now();
        let left = due.map(|due| due.saturating_duration_since(now));
        let left = if self.fill_at.is_some_and(|at| at <= now) {
            PollTimeout::ZERO
        } else {
            left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            })
        };
        match poll(&mut fds, left) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let news = fds[others..].iter().map(|fd| fd.any().unwrap_or(true));
        let news: Vec<bool> = news.collect();
        let talking = self.held.values_mut().filter(|it| it.talks().is_some());
        for (held, news) in talking.zip(news) {
            held.has_news = news;
        }
        Ok(())
    }

    /// The newest agent holds the lock on the node's folder.
    fn accept(&mut self) {
        let accepted = self.listener.as_ref().and_then(|it| it.accept().ok());
        if let Some(lines) = accepted.and_then(|(stream, _)| Lines::new(stream).ok()) {
            self.end_execs();
            self.agent = Some(lines);
            self.had_agent = true;
            self.absence.agent_came();
        }
    }

    fn tell(&mut self, word: &Tell) {
        if let Some(agent) = &mut self.agent {
            agent.say(word);
        }
    }

    fn hear_agent(&mut self) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        agent.flush();
        let asked = agent.hear::<Ask>();
        if !agent.is_open() {
            self.agent = None;
            self.end_execs();
            // The next agent may want another sandbox.
            self.end_waiting();
        }
        for ask in asked {
            self.answer(ask);
        }
        if self.agent.is_none() {
            self.absence.agent_left();
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Hello(settings) => self.settle(*settings),
            Ask::Start(turn, orders) => self.start(turn, orders),
            Ask::Signal(container, signal) => self.tell_init(&container, &InitAsk::Signal(signal)),
            Ask::Notify(container, signal) => self.notify(&container, signal),
            Ask::Kill(container) => {
                if let Some(held) = self.held.get_mut(&container) {
                    held.kill();
                }
            }
            Ask::Exec(number, container, program, attachment) => {
                self.exec(number, &container, program, attachment);
            }
            Ask::ExecSignal(number, container, signal) => {
                self.tell_init(&container, &InitAsk::ExecSignal(number, signal));
            }
            Ask::Forget(container, request) => {
                let has_ended = |held: &Held| matches!(held.stage, Stage::Ended(_));
                if self
                    .held
                    .get(&container)
                    .is_some_and(|it| it.request == request && has_ended(it))
                {
                    self.held.remove(&container);
                }
            }
            Ask::Deadline(deadline) => self.set_deadline(deadline),
            Ask::Gone(orders) => self.absence.ordered(orders.map(|it| *it)),
        }
    }

    fn settle(&mut self, settings: Settings) {
        if self.settings.groups != settings.groups {
            self.cgroups = match &settings.groups {
                Some(owner) => Cgroups::detect(owner),
                None => Cgroups::Absent("the agent asks for none".to_owned()),
            };
            self.cgroups.remove_unused();
            self.cgroups.remove_abandoned(|pid| {
                procfs::name(pid).is_some_and(|it| it.as_bytes() == NAME.to_bytes())
            });
        }
        if self.settings != settings {
            self.settings = settings;
            self.end_waiting();
            let inits = self.held.values_mut().filter_map(|it| it.init.as_mut());
            inits.for_each(|init| init.may_stay = false);
        }
        let own = procfs::stat(std::process::id()).map(|stat| stat.identity);
        let limits = match &self.cgroups {
            Cgroups::Absent(why) => Err(why.clone()),
            _ => Ok(()),
        };
        let held = self
            .held
            .iter()
            .map(|(container, held)| held.now(container));
        let welcome = Tell::Welcome(Box::new(Welcome {
            pid: std::process::id(),
            started_ticks: own.map_or(0, |own| own.started_ticks),
            limits,
            held: held.collect(),
        }));
        self.tell(&welcome);
        self.fill_at = Some(Instant::now());
    }

    fn tell_init(&mut self, container: &str, word: &InitAsk) {
        if let Some(init) = self.held.get_mut(container).and_then(|it| it.init.as_mut()) {
            init.lines.say(word);
        }
    }

    fn notify(&self, container: &str, signal: i32) {
        if let Some(held) = self.held.get(container)
            && let (Some(init), Stage::Running(program)) = (&held.init, &held.stage)
            && let Ok(signal) = Signal::try_from(signal)
        {
            procfs::notify(init.group.members(), *program, init.number(), signal);
        }
    }

    fn start(&mut self, turn: u64, orders: Box<Orders>) {
        if let Some(held) = self.held.get_mut(&orders.container) {
            let answer = match &mut held.stage {
                _ if held.request != orders.request => {
                    Err("another start of it is not forgotten yet".into())
                }
                Stage::Starting(turns) => return turns.push(turn),
                Stage::Running(program) => Ok(*program),
                Stage::Ended(_) => Err("it has been started, and has ended".into()),
            };
            return self.tell(&Tell::Started(turn, answer));
        }
        let init = if self.is_past {
            Err(StartError::of_node(PAST.to_owned()))
        } else {
            self.init_for(&orders)
        };
        match init {
            Ok(mut init) => {
                let (container, request) = (orders.container.clone(), orders.request);
                init.lines.say(&InitAsk::Run(orders));
                self.held.insert(container, Held::new(request, init, turn));
            }
            Err(why) => self.tell(&Tell::Started(turn, Err(why))),
        }
        self.fill_at = self.fill_at.or(Some(Instant::now() + FILL_AFTER));
    }

    fn hear_inits(&mut self) {
        let (mut told, mut over) = (Vec::new(), Vec::new());
        for (container, held) in self.held.iter_mut().filter(|(_, it)| it.has_news) {
            let heard = held.hear();
            if heard.is_over {
                over.push(container.clone());
            }
            if let Some((turns, result)) = heard.started {
                let failed = result.is_err().then(|| container.clone());
                told.push((turns, result, failed));
            }
            for (number, exit) in heard.execs {
                if let Some(agent) = &mut self.agent {
                    agent.say(&Tell::ExecEnded(number, exit));
                }
            }
        }
        for (turns, result, failed) in told {
            for turn in turns {
                self.tell(&Tell::Started(turn, result.clone()));
            }
            if let Some(held) = failed.and_then(|container| self.held.remove(&container)) {
                self.leaving.extend(held.init);
            }
        }
        for container in over {
            if let Some(init) = self.has_ended(container, Heard::default(), None) {
                self.put_back(init);
            }
        }
    }

    fn set_deadline(&mut self, deadline: Option<u64>) {
        self.has_deadline = deadline.is_some();
        self.is_past = deadline.is_some_and(|at| at <= procfs::since_boot_ms());
        let set = match deadline {
            Some(at) => {
                let at = Duration::from_millis(at.max(1));
                let at = Expiration::OneShot(TimeSpec::from_duration(at));
                self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
            None => self.timer.unset(),
        };
        if let Err(errno) = set {
            eprintln!("the deadline cannot be set: {errno}");
        }
    }

    fn look_at_the_clock(&mut self) {
        let mut expired = [0; 8];
        if nix::unistd::read(&self.timer, &mut expired).is_ok() {
            self.absence.give_up();
            self.end_everything(PAST);
        }
        let now = Instant::now();
        for held in self.held.values_mut() {
            held.kill_what_is_due(now);
        }
    }

    /// Ends all containers and refuses starts. Returns true if all have ended once nothing is held and
    /// `ending` is done.
    fn end_everything(&mut self, why: &str) -> bool {
        eprintln!("{why}: {} containers", self.held.len());
        self.is_past = true;
        for held in self.held.values_mut() {
            if !matches!(held.stage, Stage::Ended(_)) {
                held.evicted = Some(why.to_owned());
                held.kill();
            }
        }
        let Some(engine) = &self.settings.engine else {
            return true;
        };
        let ending = end_engines(engine);
        self.ending = ending.or(self.ending);
        ending.is_some()
    }
}

/// An engine's client may block, so another process of this build ends the engine's containers.
fn end_engines(arguments: &[String]) -> Option<u32> {
    let started = Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(child.id()),
        Err(error) => {
            eprintln!("the engine's containers cannot be ended: {error}");
            None
        }
    }
}
