//! What can go wrong between this process and the log, in words an operator can act on.

use std::path::PathBuf;

use dormouse_messages::{CodecError, Sequence};

/// The log is shorter than it was, or another one: who follows it is told by the end of the channel, and
/// begins again.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error(
    "the log went back: it no longer holds what was read of it. It was restored from an older copy or made anew, or the power failed before its broker had written it (`up --sync always` writes first). Start again: everything begins with what the log holds now, nodes end the containers that it does not know, or that were asked since what it does not know, and what was submitted since is to be submitted again"
)]
pub struct LogWentBack;

/// The broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// No connection within the time allowed.
    #[error("cannot connect to {server}: {why}; is the broker running there?")]
    Connect {
        /// Where.
        server: String,
        /// The last attempt's error.
        why: String,
    },
    /// No connection with TLS, which is required.
    #[error(
        "no TLS with {server}: {why}; beyond this machine it is required: give the broker certificates (deploy/nats/make-tls.sh) and name their authority with --tls-ca, or say --plaintext"
    )]
    NoTls {
        /// Where.
        server: String,
        /// The last attempt's error.
        why: String,
    },
    /// The broker knows this client and refuses it, or the credentials cannot be used.
    #[error("{server} does not accept the credentials: {why}; check the creds or nkey file")]
    Credentials {
        /// Where.
        server: String,
        /// What was said.
        why: String,
    },
    /// A file of credentials or certificates.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: std::io::Error,
    },
    /// A request failed.
    #[error("cannot {operation} {subject}: {why}")]
    Request {
        /// What was asked.
        operation: &'static str,
        /// Of what.
        subject: String,
        /// Why not.
        why: String,
    },
    /// No stream of that name.
    #[error(
        "there is no log {0} at this broker; `dormouse up` makes one, or `dormouse configure FILE --ensure-streams`; or is --prefix another?"
    )]
    NoLog(String),
    /// One server keeps one copy.
    #[error(
        "the broker is a single server and keeps one copy; use --replicas 1, or make it a cluster"
    )]
    NoReplicas,
    /// The broker has less room than the stream must have.
    #[error(
        "the broker has no room for the stream {0}; free space on its disk, or raise its max_file_store"
    )]
    NoRoom(String),
    /// The message is larger than the broker takes.
    #[error("the payload has {bytes} bytes; the broker takes {limit} at most")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// `max_payload`.
        limit: usize,
    },
    /// The broker's permissions do not allow it.
    #[error("the broker denies publishing on {subject}; check the user's permissions")]
    Denied {
        /// The subject.
        subject: String,
    },
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

/// An event was not appended, for certain or as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The broker's permissions do not allow it.
    #[error("the broker denies appending on {subject}; check the user's permissions")]
    Denied {
        /// The subject.
        subject: String,
    },
    /// Someone else writes under the same name.
    #[error(
        "another writer appended {found} under {filter} after {expected}; is a second copy running under this name?"
    )]
    Superseded {
        /// This writer's subjects.
        filter: String,
        /// The last own sequence as this writer knew it.
        expected: Sequence,
        /// What was found after it.
        found: Sequence,
    },
    /// The event is larger than a message may be.
    #[error("{type_name} has {bytes} bytes; a message may have {limit}")]
    TooLarge {
        /// Its type.
        type_name: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The broker refuses it.
    #[error("the broker refuses {subject}: {why} (error {code})")]
    Rejected {
        /// The subject.
        subject: String,
        /// The broker's error code.
        code: u64,
        /// The broker's words.
        why: String,
    },
    /// The event cannot be encoded.
    #[error("cannot encode the event: {0}")]
    Codec(#[from] CodecError),
}

/// The local broker does not run.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No nats-server.
    #[error(
        "no nats-server found; set DORMOUSE_NATS_SERVER to its path, or put it on the PATH (version 2.12 or later)"
    )]
    NotFound,
    /// Another process runs a broker on the same data.
    #[error("{0} is in use by another dormouse; stop it, or choose another directory")]
    InUse(PathBuf),
    /// Something else listens where the broker was told to.
    #[error("port {0} is in use; name another with --port, or leave it out for a free one")]
    PortInUse(u16),
    /// A file of the broker cannot be written.
    #[error("cannot write {path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// It cannot be run.
    #[error(
        "cannot run {binary} as nats-server: {why}; set DORMOUSE_NATS_SERVER to its path, or put it on the PATH (version 2.12 or later)"
    )]
    Program {
        /// Which.
        binary: PathBuf,
        /// Why not.
        why: std::io::Error,
    },
    /// It does not start.
    #[error("nats-server did not become ready: {why}; see {log}")]
    NotReady {
        /// What was seen last.
        why: String,
        /// Its log.
        log: PathBuf,
    },
}
