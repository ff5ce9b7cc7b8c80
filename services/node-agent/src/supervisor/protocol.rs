//! The protocol between agent, supervisor and inits: one JSON message per line. Fields are added, never
//! changed, because a supervisor outlives the build that started it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::{Amounts, ContainerId, Sequence};

use super::sandbox::{HostView, SandboxSpec};

/// A program with arguments, environment and folders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: PathBuf,
    pub output: PathBuf,
}

/// The orders to start a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    pub container: ContainerId,
    pub request: Sequence,
    pub demand: Amounts,
    /// Limit on processes. `None`: the machine's limit.
    #[serde(default)]
    pub processes: Option<u64>,
    pub program: Program,
    /// The sandbox. `None`: the whole node, as the agent's user.
    pub sandbox: Option<SandboxSpec>,
}

/// A supervisor's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Separates the control groups of nodes. `None`: no limits.
    #[serde(default)]
    pub groups: Option<String>,
    /// The view of every sandbox. `None`: no sandboxes.
    pub view: Option<HostView>,
    #[serde(default)]
    pub engine: Option<Engine>,
}

/// Labels that select a node's containers in an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub cluster: String,
    pub node: String,
}

/// Orders for the agent's death without a successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    pub after_ms: u64,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: PathBuf,
}

/// A message from the agent to its supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Ask {
    Hello(Box<Settings>),
    Start(u64, Box<Orders>),
    Signal(ContainerId, i32),
    Notify(ContainerId, i32),
    Kill(ContainerId),
    HookExec(u64, ContainerId, Box<Program>),
    /// Runs an attached program. Its descriptors follow.
    Exec(u64, ContainerId, Box<Program>, Attachment),
    ExecSignal(u64, ContainerId, i32),
    Forget(ContainerId, Sequence),
    /// Milliseconds since boot, suspended time included.
    Deadline(Option<u64>),
    /// `None`: the lease runs out.
    Gone(Option<Box<Gone>>),
}

/// A message from a supervisor to its agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Tell {
    Welcome(Box<Welcome>),
    Started(u64, Result<u32, NotStarted>),
    BesideEnded(u64, Result<(), String>),
    ExecEnded(u64, ExecExit),
    Ended(ContainerId, Sequence, Exit),
}

/// A supervisor's identity and containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub pid: u32,
    pub started_ticks: u64,
    pub limits: Result<(), String>,
    pub held: Vec<HeldNow>,
}

/// The kind of an attached user's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    Pipes,
    Terminal,
}

impl Attachment {
    /// Returns the number of descriptors.
    #[must_use]
    pub const fn descriptors(self) -> usize {
        match self {
            Self::Pipes => 3,
            Self::Terminal => 1,
        }
    }
}

/// The exit of an attached program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub why: Option<String>,
}

impl ExecExit {
    /// The exit of a program that did not run, or whose end was not seen.
    #[must_use]
    pub fn without(why: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            ..Self::default()
        }
    }
}

/// A container in the supervisor's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNow {
    pub container: ContainerId,
    pub request: Sequence,
    /// The program's pid (0 while starting), or the exit.
    pub status: Result<u32, Exit>,
}

/// A message from the supervisor to an init.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InitAsk {
    Run(Box<Orders>),
    Signal(i32),
    Kill,
    HookExec(u64, Box<Program>),
    Exec(u64, Box<Program>, Attachment),
    ExecSignal(u64, i32),
}

/// A message from an init to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InitTell {
    Started(Result<(), NotStarted>),
    BesideEnded(u64, Result<(), String>),
    ExecEnded(u64, ExecExit),
    /// Code or signal. True if only the init is left, which then waits for another container.
    Ended(Option<i32>, Option<i32>, bool),
}
