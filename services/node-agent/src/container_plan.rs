//! The plan of one container: all inputs of its start, for every runtime. [`crate::plan`] derives it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_messages::{Amounts, ContainerId, Python, Sequence, Workdir};
use dormouse_sandbox::folder::User;

use crate::layout::{self, JobFolder};

/// All inputs of a container's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    pub container: ContainerId,
    /// A container of another request belongs to another log.
    pub request: Sequence,
    /// The admission of its job.
    pub admitted: Sequence,
    pub argv: Vec<String>,
    /// The environment. Secrets are read at the start.
    pub env: BTreeMap<String, EnvValue>,
    /// The image. Docker only.
    pub image: Option<String>,
    pub mounts: Vec<Mount>,
    /// The user. `None`: the agent's, or the image's.
    pub user: Option<User>,
    pub port: u16,
    pub network: Network,
    /// The node's address for a container's own network. Docker only.
    pub node_address: Option<NodeAddress>,
    pub granted: Granted,
    pub demand: Amounts,
    pub gpus: Vec<String>,
    pub gpu_part: Option<GpuPart>,
    pub directory: PathBuf,
    pub checkpoint: PathBuf,
    pub resume: Option<PathBuf>,
    /// The checkpoint's URI if a store holds it.
    pub stored: Option<String>,
    pub members: Option<PathBuf>,
    pub work: Option<PathBuf>,
    pub code: Option<CodePlan>,
    pub python: Option<PythonPlan>,
}

impl ContainerPlan {
    /// Returns the folder of the job's checkpoints.
    #[must_use]
    pub fn folder(&self) -> JobFolder {
        JobFolder::new(self.container.job.clone(), self.admitted)
    }
}

/// A container's GPU share, and its folder for the scheduler of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPart {
    /// Guaranteed thousandths of each device's time.
    pub request_milli: u32,
    pub limit_milli: u32,
    pub memory_bytes: Option<u64>,
    pub folder: PathBuf,
}

/// The node's address within the container's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    pub address: Ipv4Addr,
    pub ready: PathBuf,
}

/// The code for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePlan {
    pub packed: Workdir,
    pub folder: PathBuf,
}

/// The packages and environment of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonPlan {
    pub python: Python,
    pub folder: PathBuf,
}

impl PythonPlan {
    /// Returns the environment's name within its tenant.
    #[must_use]
    pub fn name(&self) -> String {
        layout::environment_name(&self.python)
    }

    /// Returns the folder of programs.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }
}
