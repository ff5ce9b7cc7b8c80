//! The store of packed folders: a message per piece at `<prefix>.code.<tenant>.<SHA-256>.<first byte>`.
//!
//! - An operator writes the last piece after all acknowledgements, so it proves a complete archive. Tenants
//!   write through [`crate::code_put`].
//! - Readers request single messages, since agents may create no consumer, and check the digest.

use std::collections::BTreeMap;

use async_nats::jetstream::ErrorCode;
use async_nats::{Request, StatusCode};
use bytes::Bytes;
use dormouse_messages::{Timestamp, Workdir};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use crate::connection::NoAnswer;
use crate::log::Log;

/// Half of the default message limit of a broker.
pub(crate) const PIECE_BYTES: usize = 512 << 10;
const UNDER_WAY: usize = 8;
pub(crate) const TENANT_BYTES: u64 = 4 << 30;
/// The broker's limit of subjects per answer.
const PART: usize = 100_000;

/// A failed operation of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    #[error(
        "the cluster has no store of packed folders; `dormouse policy set FILE --ensure-streams` makes one"
    )]
    NoStore,
    #[error(
        "the packed folder {sha256} of {tenant} is not in the cluster's store; submit the job again with its folder"
    )]
    Absent { tenant: String, sha256: String },
    #[error(
        "the broker does not let this key {0}; an operator's does, and a submitter's its tenant's"
    )]
    Denied(&'static str),
    #[error("the packed folder is not taken: {0}")]
    Refused(String),
    #[error(
        "the packed folders of {tenant} take {taken} MiB of the {most} MiB that a tenant may have; `dormouse cluster prune` removes old ones"
    )]
    TenantFull {
        tenant: String,
        taken: u64,
        most: u64,
    },
    #[error(
        "the cluster's store of packed folders is full; `dormouse cluster prune` removes old ones"
    )]
    Full,
    #[error("the store of packed folders does not answer: {0}")]
    Unanswered(String),
}

/// A packed folder in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub tenant: String,
    pub sha256: String,
    /// Upper bound: whole pieces.
    pub bytes: u64,
    pub at: Option<Timestamp>,
}

/// The store of a log.
#[derive(Debug, Clone)]
pub struct CodeStore {
    pub(crate) log: Log,
}

impl Log {
    /// Returns the store of packed folders.
    #[must_use]
    pub fn code(&self) -> CodeStore {
        CodeStore { log: self.clone() }
    }
}

#[derive(Deserialize)]
struct Answer {
    error: Option<Told>,
    state: Option<State>,
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

fn failed(doing: &'static str) -> impl Fn(NoAnswer) -> CodeError {
    move |why| match why {
        NoAnswer::Denied => CodeError::Denied(doing),
        NoAnswer::Nobody => CodeError::NoStore,
        why => CodeError::Unanswered(why.into_words()),
    }
}

impl From<Told> for CodeError {
    fn from(told: Told) -> Self {
        let is = |code: ErrorCode| told.err_code == code.0;
        if is(ErrorCode::STREAM_NOT_FOUND) {
            return Self::NoStore;
        }
        if is(ErrorCode::STREAM_STORE_FAILED) || is(ErrorCode::INSUFFICIENT_RESOURCES) {
            return Self::Full;
        }
        Self::Unanswered(told.description)
    }
}

impl CodeStore {
    fn api(&self, call: &str) -> String {
        let own = self.log.inner.own.as_ref();
        let api = own.map_or("$JS.API", |own| own.api.as_str());
        format!("{api}.{call}.{}", self.log.prefix().code_stream())
    }

    fn piece_of(&self, tenant: &str, sha256: &str, offset: u64) -> String {
        let prefix = self.log.prefix();
        prefix.code_piece(tenant, sha256, &offset.to_string())
    }

    async fn ask(
        &self,
        doing: &'static str,
        subject: &str,
        payload: Bytes,
    ) -> Result<async_nats::Message, CodeError> {
        let request = Request::new().payload(payload);
        let asked = self.log.inner.connection.ask(subject, request).await;
        asked.map_err(failed(doing))
    }

    async fn message(
        &self,
        tenant: &str,
        sha256: &str,
        offset: u64,
    ) -> Result<(Bytes, Option<Timestamp>), CodeError> {
        let subject = format!(
            "{}.{}",
            self.api("DIRECT.GET"),
            self.piece_of(tenant, sha256, offset)
        );
        let answer = self.ask("read them", &subject, Bytes::new()).await?;
        match answer.status {
            None => {}
            Some(StatusCode::NOT_FOUND) => {
                return Err(CodeError::Absent {
                    tenant: tenant.to_owned(),
                    sha256: sha256.to_owned(),
                });
            }
            Some(status) => {
                let why = answer.description.unwrap_or_default();
                return Err(CodeError::Unanswered(format!("{status} {why}")));
            }
        }
        let headers = answer.headers.as_ref();
        let stored = headers.and_then(|headers| headers.get_last("Nats-Time-Stamp"));
        let stored = stored.and_then(|stored| stored.as_str().parse().ok());
        Ok((answer.payload, stored))
    }

    /// Returns the piece that begins at byte `offset`.
    ///
    /// # Errors
    /// When there is none, or the broker does not answer.
    pub async fn piece(&self, tenant: &str, sha256: &str, offset: u64) -> Result<Bytes, CodeError> {
        let read = self.message(tenant, sha256, offset).await?;
        Ok(read.0)
    }

    pub(crate) async fn has(&self, tenant: &str, packed: &Workdir) -> Result<bool, CodeError> {
        let pieces = (packed.bytes.max(1) - 1) / PIECE_BYTES as u64;
        let last = self
            .message(tenant, &packed.sha256, pieces * PIECE_BYTES as u64)
            .await;
        match last {
            Ok(_) => Ok(true),
            Err(CodeError::Absent { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn send(
        &self,
        tenant: &str,
        sha256: &str,
        (index, piece): (usize, Bytes),
    ) -> Result<(), CodeError> {
        let subject = self.piece_of(tenant, sha256, (index * PIECE_BYTES) as u64);
        let answer = self.ask("store them", &subject, piece).await?;
        let answer: Answer = serde_json::from_slice(&answer.payload)
            .map_err(|error| CodeError::Unanswered(error.to_string()))?;
        answer.error.map_or(Ok(()), |told| Err(told.into()))
    }

    pub(crate) async fn taken(&self, tenant: &str) -> Result<u64, CodeError> {
        let pieces = self.pieces(&self.log.prefix().code_of(tenant)).await?;
        Ok(pieces.values().sum())
    }

    /// Stores a packed folder and returns whether it is new; a tenant's key stores for that tenant.
    ///
    /// # Errors
    /// When the key may not, there is no room, or the broker does not answer.
    pub async fn put(
        &self,
        tenant: &str,
        packed: &Workdir,
        archive: &Bytes,
    ) -> Result<bool, CodeError> {
        if let Some(own) = self.log.tenant() {
            return self.put_as(own, packed, archive).await;
        }
        if self.has(tenant, packed).await? {
            return Ok(false);
        }
        let taken = self.taken(tenant).await? * PIECE_BYTES as u64 + packed.bytes;
        if taken > TENANT_BYTES {
            return Err(CodeError::TenantFull {
                tenant: tenant.to_owned(),
                taken: taken >> 20,
                most: TENANT_BYTES >> 20,
            });
        }
        let count = archive.len().div_ceil(PIECE_BYTES);
        let piece = |index: usize| {
            let end = archive.len().min((index + 1) * PIECE_BYTES);
            (index, archive.slice(index * PIECE_BYTES..end))
        };
        let last = count.saturating_sub(1);
        let sent = stream::iter((0..last).map(|index| Ok(piece(index))));
        sent.try_for_each_concurrent(UNDER_WAY, |piece| self.send(tenant, &packed.sha256, piece))
            .await?;
        self.send(tenant, &packed.sha256, piece(last)).await?;
        Ok(true)
    }

    async fn pieces(&self, filter: &str) -> Result<BTreeMap<String, u64>, CodeError> {
        let mut all = BTreeMap::new();
        loop {
            let asked = json!({"subjects_filter": filter, "offset": all.len()}).to_string();
            let subject = self.api("STREAM.INFO");
            let answer = self.ask("list them", &subject, asked.into()).await?;
            let answer: Answer = serde_json::from_slice(&answer.payload)
                .map_err(|error| CodeError::Unanswered(error.to_string()))?;
            if let Some(told) = answer.error {
                return Err(told.into());
            }
            let part = answer.state.and_then(|state| state.subjects);
            let part = part.unwrap_or_default();
            let is_last = part.len() < PART;
            all.extend(part);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Lists the stored folders.
    ///
    /// # Errors
    /// When the key may not list them, or the broker does not answer.
    pub async fn list(&self) -> Result<Vec<Stored>, CodeError> {
        let pieces = self.pieces(&self.log.prefix().code()).await?;
        let head = self.log.prefix().code();
        let head = head.trim_end_matches('>');
        let mut found: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (subject, count) in pieces {
            let names = subject.strip_prefix(head).unwrap_or_default();
            let mut names = names.split('.');
            let (Some(tenant), Some(sha256)) = (names.next(), names.next()) else {
                continue;
            };
            let key = (tenant.to_owned(), sha256.to_owned());
            *found.entry(key).or_default() += count * PIECE_BYTES as u64;
        }
        let stored = stream::iter(found).map(|((tenant, sha256), bytes)| async move {
            let at = match self.message(&tenant, &sha256, 0).await {
                Ok((_, at)) => at,
                // The upload ended before its first piece.
                Err(CodeError::Absent { .. }) => None,
                Err(error) => return Err(error),
            };
            Ok(Stored {
                tenant,
                sha256,
                bytes,
                at,
            })
        });
        stored.buffered(UNDER_WAY).try_collect().await
    }

    /// Removes a packed folder.
    ///
    /// # Errors
    /// When the key may not, or the broker does not answer.
    pub async fn remove(&self, tenant: &str, sha256: &str) -> Result<(), CodeError> {
        let filter = self.log.prefix().code_piece(tenant, sha256, ">");
        let asked = json!({ "filter": filter }).to_string();
        let subject = self.api("STREAM.PURGE");
        let answer = self.ask("remove them", &subject, asked.into()).await?;
        let answer: Answer = serde_json::from_slice(&answer.payload)
            .map_err(|error| CodeError::Unanswered(error.to_string()))?;
        answer.error.map_or(Ok(()), |told| Err(told.into()))
    }
}
