//! What an agent, its keeper and the guards say to each other: JSON, a line each. Fields are added,
//! never changed: a keeper outlives the build that started it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use dormouse_messages::{Amounts, ContainerId, Sequence};

use super::sandbox::{HostView, SandboxSpec};
use crate::runtime::{Exit, NotStarted};

/// A program with its arguments, where it runs and what it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The executable file.
    pub path: PathBuf,
    /// Its arguments, its own name not among them.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    pub working_dir: PathBuf,
    /// The folder that its output is appended in.
    pub output: PathBuf,
}

/// A container that is to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// The container.
    pub container: ContainerId,
    /// The start request.
    pub request: Sequence,
    /// Its limits.
    pub demand: Amounts,
    /// How many processes it may have; absent: as many as the machine.
    #[serde(default)]
    pub processes: Option<u64>,
    /// What it runs.
    pub program: Program,
    /// What it sees of the node; absent: all of it, as the agent's own user.
    pub sandbox: Option<SandboxSpec>,
}

/// How a keeper is to work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tells the control groups of this node from another's; absent: no limits.
    #[serde(default)]
    pub groups: Option<String>,
    /// What every container in a sandbox sees; absent: there are no sandboxes.
    pub view: Option<HostView>,
    /// The containers of an engine that end at the deadline, too.
    #[serde(default)]
    pub engine: Option<Engine>,
}

/// Which containers of an engine are a node's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// The label of their cluster.
    pub cluster: String,
    /// The label of their node.
    pub node: String,
}

/// What to do when the agent dies and no other one comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// For how many milliseconds another one is waited for.
    pub after_ms: u64,
    /// The program that tells the log, with its arguments, once everything has ended.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    pub working_dir: PathBuf,
}

/// From the agent to its keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Ask {
    /// First of all.
    Hello(Box<Settings>),
    /// Starts a container; answered by its number.
    Start(u64, Box<Orders>),
    /// Signals the program's process group.
    Signal(ContainerId, i32),
    /// Signals those processes that handle the signal.
    Notify(ContainerId, i32),
    /// Kills everything in it.
    Kill(ContainerId),
    /// Runs a program in a container; answered by its number.
    Beside(u64, ContainerId, Box<Program>),
    /// Runs a program in a container for somebody who is attached to it; answered by its number.
    /// Its descriptors come with it: what it reads, prints and prints of errors; or its terminal.
    Exec(u64, ContainerId, Box<Program>, Attachment),
    /// Signals such a program's process group.
    ExecSignal(u64, ContainerId, i32),
    /// Its exit is on the log.
    Forget(ContainerId, Sequence),
    /// When everything ends, in milliseconds since the machine's boot, suspended or not.
    Deadline(Option<u64>),
    /// What to do when the agent dies; absent: its lease is waited for. A keeper of an earlier
    /// build does not hear it.
    Gone(Option<Box<Gone>>),
}

/// From a keeper to its agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Tell {
    /// Answers `Hello`.
    Welcome(Box<Welcome>),
    /// A container runs, or could not be started.
    Started(u64, Result<u32, NotStarted>),
    /// How a program beside a container ended.
    BesideEnded(u64, Result<(), String>),
    /// How a program ended that somebody was attached to.
    ExecEnded(u64, ExecExit),
    /// How a container ended; nothing of it runs any more.
    Ended(ContainerId, Sequence, Exit),
}

/// What a keeper is, and holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the boot.
    pub started_ticks: u64,
    /// Whether containers have limits; why not.
    pub limits: Result<(), String>,
    /// What it holds.
    pub held: Vec<HeldNow>,
    /// Whether it runs programs that somebody is attached to: an earlier build's does not.
    #[serde(default)]
    pub execs: bool,
}

/// What somebody who is attached to a program has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// Three pipes.
    Pipes,
    /// A terminal.
    Terminal,
}

impl Attachment {
    /// How many descriptors come with it.
    #[must_use]
    pub const fn descriptors(self) -> usize {
        match self {
            Self::Pipes => 3,
            Self::Terminal => 1,
        }
    }
}

/// How a program ended that somebody was attached to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it has neither.
    pub why: Option<String>,
}

impl ExecExit {
    /// It has not run, or nobody saw its end.
    #[must_use]
    pub fn without(why: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            ..Self::default()
        }
    }
}

/// A container that a keeper holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNow {
    /// The container.
    pub container: ContainerId,
    /// The start request.
    pub request: Sequence,
    /// Its program's number (0: it is being started), or how it ended.
    pub status: Result<u32, Exit>,
}

/// From the keeper to a guard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum GuardAsk {
    /// First of all.
    Run(Box<Orders>),
    /// Signals the program's process group.
    Signal(i32),
    /// Kills everything.
    Kill,
    /// Runs a program with the container's own.
    Beside(u64, Box<Program>),
    /// Runs a program that somebody is attached to; its descriptors come with it.
    Exec(u64, Box<Program>, Attachment),
    /// Signals such a program's process group.
    ExecSignal(u64, i32),
}

/// From a guard to the keeper.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum GuardTell {
    /// The program runs, or cannot.
    Started(Result<(), NotStarted>),
    /// How a program beside it ended.
    BesideEnded(u64, Result<(), String>),
    /// How a program ended that somebody was attached to.
    ExecEnded(u64, ExecExit),
    /// How the program ended: its code, or its signal; and whether nothing of the container is left but
    /// the guard itself, which then waits for another one.
    Ended(Option<i32>, Option<i32>, bool),
}
