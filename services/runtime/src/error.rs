//! Errors, with advice for operators.

use std::path::PathBuf;

use dormouse_messages::{CodecError, NewerFormat, Sequence};

/// The log is shorter than it was, or another one.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error(
    "the log went back: it no longer holds what was read of it, or was trimmed beyond a reader that stood still. It was restored from an older copy or made anew, or the power failed before its broker had written it (`up --sync always` writes first). Start again: everything begins with what the log holds now, nodes end the containers that it does not know, or that were asked since what it does not know, and what was submitted since is to be submitted again"
)]
pub struct LogWentBack;

/// The broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot connect to {server}: {why}; is the broker running there?")]
    Connect { server: String, why: String },
    #[error(
        "no TLS with {server}: {why}; beyond this machine it is required: give the broker certificates (deploy/nats/make-tls.sh) and name their authority with --tls-ca, or say --plaintext"
    )]
    NoTls { server: String, why: String },
    #[error("{server} does not accept the credentials: {why}; check the creds or nkey file")]
    Credentials { server: String, why: String },
    #[error("cannot read {path}: {why}")]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("cannot {operation} {subject}: {why}")]
    Request {
        operation: &'static str,
        subject: String,
        why: String,
    },
    #[error(
        "there is no log {0} at this broker; `dormouse up` makes one, or `dormouse policy set FILE --ensure-streams`; or is --prefix another?"
    )]
    NoLog(String),
    #[error(
        "the log begins at event {first}: those before are in its archive; name it with --archive, as `dormouse serve archiver` does"
    )]
    Trimmed { first: Sequence },
    #[error(
        "the stream {0} of an older build forbids every removal for good, so the log cannot be trimmed; move it: stop the services, `dormouse log export`, then `dormouse log import` into a new broker"
    )]
    Untrimmable(String),
    #[error(
        "the broker is a single server and keeps one copy; use --replicas 1, or make it a cluster"
    )]
    NoReplicas,
    #[error(
        "the broker has no room for the stream {0}; free space on its disk, or raise its max_file_store"
    )]
    NoRoom(String),
    #[error("the payload has {bytes} bytes; the broker takes {limit} at most")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the broker denies publishing on {subject}; check the user's permissions")]
    Denied { subject: String },
    #[error(transparent)]
    NewerFormat(#[from] NewerFormat),
}

impl LogError {
    pub(crate) fn request(
        operation: &'static str,
        subject: impl Into<String>,
        why: impl std::fmt::Display,
    ) -> Self {
        Self::Request {
            operation,
            subject: subject.into(),
            why: why.to_string(),
        }
    }
}

/// A failed or doubtful append.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the broker denies appending on {subject}; check the user's permissions")]
    Denied { subject: String },
    #[error(
        "another writer appended {found} under {filter} after {expected}; is a second copy running under this name?"
    )]
    Superseded {
        filter: String,
        expected: Sequence,
        found: Sequence,
    },
    #[error("{type_name} has {bytes} bytes; a message may have {limit}")]
    TooLarge {
        type_name: &'static str,
        bytes: usize,
        limit: usize,
    },
    #[error("the broker refuses {subject}: {why} (error {code})")]
    Rejected {
        subject: String,
        code: u64,
        why: String,
    },
    #[error("cannot encode the event: {0}")]
    Codec(#[from] CodecError),
}

/// The local broker does not run.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error(
        "no nats-server found; set DORMOUSE_NATS_SERVER to its path, or put it on the PATH (version 2.12 or later)"
    )]
    NotFound,
    #[error("{0} is in use by another dormouse; stop it, or choose another directory")]
    InUse(PathBuf),
    #[error("port {0} is in use; name another with --port, or leave it out for a free one")]
    PortInUse(u16),
    #[error("cannot write {path}: {why}")]
    File { path: PathBuf, why: std::io::Error },
    #[error(
        "cannot run {binary} as nats-server: {why}; set DORMOUSE_NATS_SERVER to its path, or put it on the PATH (version 2.12 or later)"
    )]
    Program {
        binary: PathBuf,
        why: std::io::Error,
    },
    #[error("nats-server did not become ready: {why}; see {log}")]
    NotReady { why: String, log: PathBuf },
}
