//! The store of packed folders: a message per piece at `<prefix>.code.<tenant>.<SHA-256>.<first byte>`.
//!
//! - An operator writes the last piece after all acknowledgements, so it proves a complete archive. Tenants
//!   write through [`crate::code_put`].
//! - Readers request single messages, since agents may create no consumer, and check the digest.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_messages::{Timestamp, Workdir};
use futures::{StreamExt, TryStreamExt, stream};

use crate::log::Log;
use crate::pieces::{IN_FLIGHT, PIECE_BYTES, PieceError, Pieces, pieces};

pub(crate) const TENANT_BYTES: u64 = 4 << 30;

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

fn failed(doing: &'static str) -> impl Fn(PieceError) -> CodeError {
    move |error| match error {
        PieceError::Denied => CodeError::Denied(doing),
        PieceError::NoStream => CodeError::NoStore,
        PieceError::Full => CodeError::Full,
        error => CodeError::Unanswered(error.to_string()),
    }
}

impl CodeStore {
    fn pieces(&self) -> Pieces {
        Pieces::new(self.log.clone(), self.log.prefix().code_stream())
    }

    fn piece_of(&self, tenant: &str, sha256: &str, offset: u64) -> String {
        let prefix = self.log.prefix();
        prefix.code_piece(tenant, sha256, &offset.to_string())
    }

    async fn message(
        &self,
        tenant: &str,
        sha256: &str,
        offset: u64,
    ) -> Result<(Bytes, Option<Timestamp>), CodeError> {
        let subject = self.piece_of(tenant, sha256, offset);
        self.pieces()
            .get(&subject)
            .await
            .map_err(|error| match error {
                PieceError::Absent => CodeError::Absent {
                    tenant: tenant.to_owned(),
                    sha256: sha256.to_owned(),
                },
                error => failed("read them")(error),
            })
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
        let put = self.pieces().put(&subject, piece).await;
        put.map_err(failed("store them"))
    }

    pub(crate) async fn taken(&self, tenant: &str) -> Result<u64, CodeError> {
        let filter = self.log.prefix().code_of(tenant);
        Ok(self.list_pieces(&filter).await?.values().sum())
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
        let mut sent: Vec<(usize, Bytes)> = pieces(archive).enumerate().collect();
        let last = sent.pop().unwrap_or_default();
        let sent = stream::iter(sent.into_iter().map(Ok));
        sent.try_for_each_concurrent(IN_FLIGHT, |piece| self.send(tenant, &packed.sha256, piece))
            .await?;
        self.send(tenant, &packed.sha256, last).await?;
        Ok(true)
    }

    async fn list_pieces(&self, filter: &str) -> Result<BTreeMap<String, u64>, CodeError> {
        let listed = self.pieces().list(filter).await;
        listed.map_err(failed("list them"))
    }

    /// Lists the stored folders.
    ///
    /// # Errors
    /// When the key may not list them, or the broker does not answer.
    pub async fn list(&self) -> Result<Vec<Stored>, CodeError> {
        let pieces = self.list_pieces(&self.log.prefix().code()).await?;
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
        stored.buffered(IN_FLIGHT).try_collect().await
    }

    /// Removes a packed folder.
    ///
    /// # Errors
    /// When the key may not, or the broker does not answer.
    pub async fn remove(&self, tenant: &str, sha256: &str) -> Result<(), CodeError> {
        let filter = self.log.prefix().code_piece(tenant, sha256, ">");
        let purged = self.pieces().purge(&filter).await;
        purged.map_err(failed("remove them"))
    }
}
