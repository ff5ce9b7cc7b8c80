//! The protocol between agent, supervisor and inits: one JSON message per line. A supervisor outlives the build
//! that started it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::isolation::{HostView, SandboxSpec};

/// A program with arguments, environment and folders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: PathBuf,
    /// The folder of the output files.
    pub output: PathBuf,
    /// Names of the files for standard output and standard error.
    pub output_files: [String; 2],
}

/// Limits of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Thousandths of a processor. 0: no limit.
    pub cpu_milli: u64,
    /// 0: no limit.
    pub memory_bytes: u64,
    /// Limit on processes. `None`: the machine's limit.
    pub processes: Option<u64>,
}

/// The orders to start a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    pub container: String,
    /// Separates two starts of one container.
    pub request: u64,
    pub demand: Demand,
    pub program: Program,
    /// The sandbox. `None`: the whole node, as the agent's user.
    pub sandbox: Option<SandboxSpec>,
}

/// A supervisor's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Separates the control groups of nodes. `None`: no limits.
    pub groups: Option<String>,
    /// The view of every sandbox. `None`: no sandboxes.
    pub view: Option<HostView>,
    /// This program's arguments to end an engine's containers. `None`: the containers are the
    /// supervisor's own.
    pub engine: Option<Vec<String>>,
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
    Signal(String, i32),
    Notify(String, i32),
    Kill(String),
    /// Runs another program in the container. Its descriptors follow. No agent uses a number again.
    Exec(u64, String, Box<Program>, Attachment),
    ExecSignal(u64, String, i32),
    Forget(String, u64),
    /// Milliseconds since boot, suspended time included.
    Deadline(Option<u64>),
    /// `None`: the lease runs out.
    Gone(Option<Box<Gone>>),
}

/// A message from a supervisor to its agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Tell {
    Welcome(Box<Welcome>),
    Started(u64, Result<u32, StartError>),
    ExecEnded(u64, ExecExit),
    Ended(String, u64, Exit),
}

/// A supervisor's identity and containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub pid: u32,
    pub started_ticks: u64,
    pub limits: Result<(), String>,
    pub held: Vec<HeldNow>,
}

/// The ends of a program of `Exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// Nobody is attached: no input, and output to the container's files.
    Files,
    Pipes,
    Terminal,
}

impl Attachment {
    /// Returns the number of descriptors.
    #[must_use]
    pub const fn descriptors(self) -> usize {
        match self {
            Self::Files => 0,
            Self::Pipes => 3,
            Self::Terminal => 1,
        }
    }
}

/// The exit of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    /// The supervisor's reason to end the container.
    pub evicted: Option<String>,
}

/// The exit of another program in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub why: Option<String>,
}

impl ExecExit {
    /// Explains every exit but a success.
    ///
    /// # Errors
    /// The explanation.
    pub fn success(self) -> Result<(), String> {
        match self {
            Self { why: Some(why), .. } => Err(why),
            Self { code: Some(0), .. } => Ok(()),
            Self {
                code: Some(code), ..
            } => Err(format!("it ended with exit code {code}")),
            Self { signal, .. } => Err(format!("it ended by signal {}", signal.unwrap_or(0))),
        }
    }

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
    pub container: String,
    pub request: u64,
    /// The program's pid (0 while starting), or the exit.
    pub status: Result<u32, Exit>,
}

/// A message from the supervisor to an init.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InitAsk {
    Run(Box<Orders>),
    Signal(i32),
    Kill,
    Exec(u64, Box<Program>, Attachment),
    ExecSignal(u64, i32),
}

/// A message from an init to the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum InitTell {
    Started(Result<(), StartError>),
    ExecEnded(u64, ExecExit),
    /// Code or signal. True if only the init is left, which then waits for another container.
    Ended(Option<i32>, Option<i32>, bool),
}
