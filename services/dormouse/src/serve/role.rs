//! The settings of a service.

use std::path::PathBuf;
use std::time::Duration;

use dormouse_runtime::LocalNodes;

/// Settings of a service in this process.
#[derive(Debug, Clone)]
pub struct Role {
    pub data: PathBuf,
    pub local: LocalNodes,
    pub takeover: Duration,
    pub own_thread: bool,
    pub json_status: bool,
    pub tenant_bytes: Option<u64>,
}
