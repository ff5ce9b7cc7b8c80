//! The settings of a service, and the flags that give them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dormouse_runtime::LocalNodes;

use super::{CommonArgs, second};
use crate::context::Context;

/// Settings of a service in this process.
#[derive(Debug, Clone)]
pub struct Role {
    pub data: PathBuf,
    pub local: LocalNodes,
    pub takeover: Duration,
    pub own_thread: bool,
    pub json_status: bool,
    pub tenant_bytes: Option<u64>,
    /// The folder of this process's own broker.
    pub broker: Option<PathBuf>,
}

/// Takeover flag of services with one active copy.
#[derive(Debug, Clone, Copy, Args)]
pub struct TakeoverArg {
    /// Time until a standby copy takes over.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = second)]
    pub takeover: Duration,
}

/// Flags of a decider.
#[derive(Debug, Clone, Args)]
pub struct DeciderArgs {
    #[command(flatten)]
    pub takeover: TakeoverArg,
    #[command(flatten)]
    pub common: CommonArgs,
}

impl DeciderArgs {
    /// Returns the settings of the service.
    #[must_use]
    pub fn role(&self, context: &Context) -> Role {
        Role {
            data: context.data.clone(),
            local: LocalNodes::default(),
            takeover: self.takeover.takeover,
            own_thread: true,
            json_status: false,
            tenant_bytes: None,
            broker: None,
        }
    }
}
