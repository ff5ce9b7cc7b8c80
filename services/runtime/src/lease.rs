//! Leases for liveness. Safety comes from the fence on the log.
//!
//! 1. A holder rewrites its key three times per TTL.
//! 2. Every write expects the last revision and carries the TTL, which the library's `create_with_ttl` omits
//!    over an ended lease's marker.
//! 3. A term counts from the sending of its renewal: the broker counts from later, so the holder stops first.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::{HeaderMap, Request};
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Build, NodeId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::answer::{Reply, within};
use crate::connection::NoAnswer;
use crate::error::LogError;
use crate::log::Log;

/// Poll interval of a foreign lease, which delays a fail-over.
const LOOK: Duration = Duration::from_millis(100);

/// The value of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseValue {
    #[serde(default)]
    pub incarnation: u64,
    pub holder: String,
    #[serde(default)]
    pub token: String,
    /// Only a later incarnation from here takes over the lease.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// No watcher may declare a node's lease ended sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term_ms: Option<u64>,
    /// True on the broker's machine without a fence: silence does not make the node lost.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub unfenced: bool,
    /// Reason why the log refuses decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The holder's build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
}

/// State of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseState {
    Waiting { by: Option<LeaseValue> },
    Held { renewed_at: Instant },
}

impl LeaseState {
    /// Waits for `held`.
    pub async fn until(watched: &mut watch::Receiver<Self>, held: bool) {
        let is = |state: &Self| matches!(state, Self::Held { .. }) == held;
        let _ = watched.wait_for(is).await;
    }
}

/// The leases of a log.
#[derive(Debug, Clone)]
pub struct Leases {
    pub(crate) log: Log,
}

/// A lease sought in the background. A drop stops the renewals.
#[derive(Debug)]
pub struct Lease {
    state: watch::Receiver<LeaseState>,
    refused: watch::Sender<Option<String>>,
    stopping: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
    ttl: Duration,
}

impl Log {
    /// Returns the leases.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases { log: self.clone() }
    }
}

impl Leases {
    /// Seeks the lease `key` in the background.
    #[must_use]
    pub fn seek(&self, key: &str, holder: &str, incarnation: u64, ttl: Duration) -> Lease {
        // The broker's shortest TTL.
        let ttl = ttl.max(Duration::from_secs(1));
        self.hold(key, holder, incarnation, ttl).seek()
    }

    /// Returns the lease `key`, not yet held.
    #[must_use]
    pub fn hold(&self, key: &str, holder: &str, incarnation: u64, ttl: Duration) -> Hold {
        Hold {
            log: self.log.clone(),
            subject: format!("$KV.{}.{key}", self.log.prefix().lease_bucket()),
            value: LeaseValue {
                incarnation,
                holder: holder.to_owned(),
                token: token(),
                home: String::new(),
                term_ms: None,
                unfenced: false,
                refused: None,
                build: None,
            },
            ttl: ttl.max(Duration::from_secs(1)),
            revision: None,
        }
    }

    /// Returns a node's lease for its agent; `home` is that of the agent's folder ([`home`]).
    #[must_use]
    pub fn hold_node(&self, node: &NodeId, incarnation: u64, home: String, fenced: bool) -> Hold {
        let ttl = Duration::from_millis(LeaseTerm::default().lease_ms);
        let mut hold = self.hold(&format!("node.{node}"), node.as_str(), incarnation, ttl);
        hold.value.home = home;
        hold.value.unfenced = !fenced;
        hold
    }

    /// Returns the holder of `key`.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn holder(&self, key: &str) -> Result<Option<LeaseValue>, LogError> {
        let subject = format!("$KV.{}.{key}", self.log.prefix().lease_bucket());
        let (_, value) = read(&self.log, &subject)
            .await
            .map_err(|why| LogError::request("read the lease", key, why))?;
        Ok(value)
    }
}

impl Lease {
    /// Returns a watch of the state.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    /// Returns the channel for [`LeaseValue::refused`].
    #[must_use]
    pub fn refused(&self) -> watch::Sender<Option<String>> {
        self.refused.clone()
    }

    /// Returns the send time of the last renewal, if held.
    #[must_use]
    pub fn renewed_at(&self) -> Option<Instant> {
        match *self.state.borrow() {
            LeaseState::Held { renewed_at } => Some(renewed_at),
            LeaseState::Waiting { .. } => None,
        }
    }

    /// Reports whether the lease is held, by this machine's clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.renewed_at()
            .is_some_and(|renewed_at| renewed_at.elapsed() < self.ttl)
    }

    /// Returns the time to live.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Waits until the lease is held.
    pub async fn held(&mut self) {
        let held = |state: &LeaseState| matches!(state, LeaseState::Held { .. });
        let _ = self.state.wait_for(held).await;
    }

    /// Releases the lease at once.
    pub async fn release(mut self) {
        self.stopping.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// A lease that its holder renews itself, counting terms from the sending of the last renewal.
#[derive(Debug)]
pub struct Hold {
    log: Log,
    subject: String,
    value: LeaseValue,
    ttl: Duration,
    revision: Option<u64>,
}

/// Reason for a failed renewal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    #[error("{} (incarnation {}) holds the lease", by.holder, by.incarnation)]
    Held { by: LeaseValue, revision: u64 },
    #[error("the lease could not be written: {why}")]
    Unanswered { why: String },
}

impl Hold {
    /// Seeks the lease in the background.
    #[must_use]
    pub fn seek(self) -> Lease {
        let ttl = self.ttl;
        let (state_tx, state) = watch::channel(LeaseState::Waiting { by: None });
        let (refused, refused_rx) = watch::channel(None);
        let stopping = CancellationToken::new();
        let seeker = Seeker {
            hold: self,
            ttl,
            state: state_tx,
            refused: refused_rx,
        };
        let task = tokio::spawn(seeker.run(stopping.clone()));
        Lease {
            state,
            refused,
            stopping,
            task: Some(task),
            ttl,
        }
    }

    /// Names the holder's build in the lease.
    #[must_use]
    pub fn runs(mut self, build: Build) -> Self {
        self.value.build = Some(build);
        self
    }

    /// Sets the next term.
    pub fn lasts(&mut self, ttl: Duration) {
        self.ttl = ttl.max(Duration::from_secs(1));
        self.value.term_ms = u64::try_from(self.ttl.as_millis()).ok();
    }

    /// Takes or renews the lease, within 5 s.
    ///
    /// # Errors
    /// When another holds it, or the broker did not confirm; then the lease may be held or not.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let unanswered = |why| RenewError::Unanswered { why };
        let revision = match self.revision {
            Some(revision) => revision,
            None => {
                let (revision, held) = read(&self.log, &self.subject).await.map_err(unanswered)?;
                match held {
                    // A restarted agent takes over its own lease at once.
                    Some(by)
                        if by.token != self.value.token && !self.is_later_incarnation_of(&by) =>
                    {
                        return Err(RenewError::Held { by, revision });
                    }
                    _ => revision,
                }
            }
        };
        // An unconfirmed write leaves the revision unknown.
        self.revision = None;
        let written = write(&self.log, &self.subject, &self.value, revision, self.ttl).await;
        self.revision = Some(written.map_err(unanswered)?);
        Ok(())
    }

    fn is_later_incarnation_of(&self, other: &LeaseValue) -> bool {
        let at_home = other.home.is_empty() || self.value.home == other.home;
        at_home && self.value.holder == other.holder && self.value.incarnation > other.incarnation
    }

    /// Releases the lease at once.
    pub async fn give_back(&mut self) {
        let revision = match self.revision.take() {
            Some(revision) => Some(revision),
            None => match read(&self.log, &self.subject).await {
                Ok((revision, Some(by))) if by.token == self.value.token => Some(revision),
                _ => None,
            },
        };
        if let Some(revision) = revision {
            let mut headers = expecting(revision);
            headers.insert("KV-Operation", "DEL");
            let request = Request::new().headers(headers);
            let _ = self.log.inner.connection.ask(&self.subject, request).await;
        }
    }
}

struct Seeker {
    hold: Hold,
    ttl: Duration,
    state: watch::Sender<LeaseState>,
    refused: watch::Receiver<Option<String>>,
}

impl Seeker {
    async fn run(mut self, stopping: CancellationToken) {
        // A stop must wait: a lease of unknown revision cannot be released.
        while !stopping.is_cancelled() {
            let sent_at = Instant::now();
            let end = self.end_of_term();
            let refused = self.refused.borrow_and_update().clone();
            self.hold.value.refused = refused;
            let pause = tokio::select! {
                biased;
                attempt = self.hold.renew() => self.note(attempt, sent_at),
                () = until(end) => {
                    self.set(LeaseState::Waiting { by: None });
                    continue;
                }
            };
            let end = self.end_of_term();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.refused.changed() => {}
                () = until(end) => self.set(LeaseState::Waiting { by: None }),
                () = stopping.cancelled() => {}
            }
        }
        self.hold.give_back().await;
        self.set(LeaseState::Waiting { by: None });
    }

    /// Returns the pause before the next attempt.
    fn note(&self, attempt: Result<(), RenewError>, sent_at: Instant) -> Duration {
        match attempt {
            Ok(()) => {
                self.set(LeaseState::Held {
                    renewed_at: sent_at,
                });
                (self.ttl / 3).saturating_sub(sent_at.elapsed())
            }
            Err(RenewError::Held { by, .. }) => {
                self.set(LeaseState::Waiting { by: Some(by) });
                LOOK
            }
            // The term decides whether the lease is held.
            Err(error @ RenewError::Unanswered { .. }) => {
                tracing::debug!(%error, "trying on");
                LOOK
            }
        }
    }

    fn set(&self, state: LeaseState) {
        self.state.send_if_modified(|old| {
            let changed = *old != state;
            *old = state;
            changed
        });
    }

    fn end_of_term(&self) -> Option<Instant> {
        match *self.state.borrow() {
            LeaseState::Held { renewed_at } => Some(renewed_at + self.ttl),
            LeaseState::Waiting { .. } => None,
        }
    }
}

pub(crate) fn token() -> String {
    RandomIdGenerator::default().new_span_id().to_string()
}

/// Returns a folder's token, created once in the file `path`.
///
/// # Errors
/// When the file can neither be read nor written.
pub fn home(path: &Path) -> std::io::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(home) if !home.is_empty() => return Ok(home),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let home = token();
    std::fs::write(path, &home)?;
    Ok(home)
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

fn expecting(revision: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        "Nats-Expected-Last-Subject-Sequence",
        revision.to_string().as_str(),
    );
    headers
}

async fn write(
    log: &Log,
    subject: &str,
    value: &LeaseValue,
    revision: u64,
    ttl: Duration,
) -> Result<u64, String> {
    let payload = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    let mut headers = expecting(revision);
    headers.insert("Nats-TTL", format!("{}ms", ttl.as_millis()).as_str());
    let request = Request::new().headers(headers).payload(payload.into());
    let answer = match log.inner.connection.ask(subject, request).await {
        Ok(answer) => answer,
        Err(NoAnswer::Denied) => {
            tracing::error!(
                subject,
                "the broker denies this lease; check the permissions"
            );
            // A denial does not change quickly.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Err("denied".to_owned());
        }
        Err(error) => return Err(format!("{error:?}")),
    };
    let written = Reply::read(&answer)?.map(|reply| reply.seq);
    written.map_err(|error| error.description)
}

/// Returns revision (0: none) and value, from the leader.
async fn read(log: &Log, subject: &str) -> Result<(u64, Option<LeaseValue>), String> {
    let bucket = format!("KV_{}", log.prefix().lease_bucket());
    let stream = within(log.inner.jetstream.get_stream_no_info(bucket)).await?;
    let last = async {
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    Ok(match within(last).await? {
        Some(message) => (
            message.sequence,
            parse(Some(&message.headers), &message.payload),
        ),
        None => (0, None),
    })
}

/// Parses a message of the bucket; `None` for an ended lease.
pub(crate) fn parse(headers: Option<&HeaderMap>, payload: &[u8]) -> Option<LeaseValue> {
    let ended = headers.is_some_and(|headers| {
        headers.get("Nats-Marker-Reason").is_some() || headers.get("KV-Operation").is_some()
    });
    if ended {
        return None;
    }
    serde_json::from_slice(payload).ok()
}
