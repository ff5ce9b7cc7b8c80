//! The options of a service, and the reasons for its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{NewerFormat, Sequence};

use crate::clock::{Clock, SteadyClock};
use crate::error::{LogError, LogWentBack};
use crate::states::StartError;

/// Options of a service.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Time from an active copy's last message to its replacement.
    pub lease_ttl: Duration,
    /// True if the lease chooses the active copy. Otherwise all copies are active and conflict, safely.
    pub lease: bool,
    pub holder: String,
    /// True for an own thread, false for the actix system of the caller.
    pub own_thread: bool,
    /// Events between snapshots.
    pub snapshot_every: u64,
    /// Folder of snapshots and clock anchor.
    pub snapshot_dir: Option<PathBuf>,
    /// Name of the build, recorded in every decision.
    pub build: String,
    pub clock: Arc<dyn Clock>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(2),
            lease: true,
            holder: format!("pid-{}", std::process::id()),
            own_thread: true,
            // A restart folds this many events in a tenth of a second.
            snapshot_every: 20_000,
            snapshot_dir: None,
            build: concat!("dormouse-", env!("CARGO_PKG_VERSION")).to_owned(),
            clock: Arc::new(SteadyClock),
        }
    }
}

/// Reason for the end of a service.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "the event at {sequence} is {type_name}, which this build ({build}) does not know; run the build that wrote it, or a later one"
    )]
    UnknownVersion {
        sequence: Sequence,
        type_name: String,
        build: String,
    },
    #[error(transparent)]
    NewerFormat(NewerFormat),
    #[error(
        "after the event at {sequence} the state of {service} contradicts itself: {what}; it decides nothing on that. Nothing runs differently meanwhile. Export the log up to there (`dormouse log export --file log.parquet --to {sequence}`), report it with this text, and start a build that mends it, or the one that ran before"
    )]
    Contradiction {
        service: &'static str,
        sequence: Sequence,
        what: String,
    },
    #[error("event {folded} was folded, and {LogWentBack}")]
    LogWentBack { folded: Sequence },
    #[error("{0} panicked; the log up to the panic reproduces it")]
    Panicked(&'static str),
}
