//! The service's side of tenants' uploads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use dormouse_messages::{TenantId, Workdir};
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{AT_ONCE, REFUSED, Taken};
use crate::code::{CodeError, CodeStore, TENANT_BYTES};
use crate::error::LogError;
use crate::log::Log;
use crate::pieces::PIECE_BYTES;

/// Limit over all tenants; more pieces are refused at once.
const UNDER_WAY: usize = 8;
/// Limit per tenant, 32 MiB a second.
const PIECES_A_SECOND: u32 = 64;
/// An incomplete folder is removed this long after its last piece.
const EXPIRES: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(60);
const COUNTED: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    tenant: TenantId,
    packed: Workdir,
    offset: u64,
    bytes: Bytes,
}

type Refusal = (&'static str, String);

impl Piece {
    fn read(name: &str, tenant: &str, bytes: Bytes) -> Result<Self, Refusal> {
        let wrong = |why: String| ("bad_request", why);
        let tenant = TenantId::new(tenant).map_err(|error| wrong(error.to_string()))?;
        let mut steps = name.split('.').skip(1);
        let mut number = || steps.next().map(str::to_owned).unwrap_or_default();
        let sha256 = number();
        let parsed = (number().parse(), number().parse());
        let (Ok(length), Ok(offset)) = parsed else {
            return Err(wrong("its subject names no length and no place".to_owned()));
        };
        let packed = Workdir {
            sha256,
            bytes: length,
        };
        packed.check().map_err(|error| wrong(error.to_string()))?;
        let most = PIECE_BYTES as u64;
        let fits = offset % most == 0 && offset < length;
        let wanted = length.saturating_sub(offset).min(most);
        if fits && bytes.len() as u64 == wanted {
            Ok(Self {
                tenant,
                packed,
                offset,
                bytes,
            })
        } else {
            Err(wrong(format!(
                "a piece begins with a multiple of {most} bytes, and has so many, but for the last one"
            )))
        }
    }

    fn count(&self) -> u64 {
        self.packed.bytes.div_ceil(PIECE_BYTES as u64)
    }

    const fn is_last(&self) -> bool {
        self.offset + self.bytes.len() as u64 == self.packed.bytes
    }
}

#[derive(Debug)]
struct Sender {
    /// The last count plus the pieces stored since.
    pieces: u64,
    counted: Option<Instant>,
    second: Instant,
    in_second: u32,
}

struct Intake {
    store: CodeStore,
    most_bytes: u64,
    senders: Mutex<BTreeMap<TenantId, Sender>>,
    begun: Mutex<BTreeMap<(TenantId, Workdir), Instant>>,
}

fn refused(error: &CodeError) -> Refusal {
    let code = match error {
        CodeError::TenantFull { .. } => "tenant_full",
        CodeError::Full => "store_full",
        CodeError::NoStore => "no_store",
        _ => "unavailable",
    };
    (code, error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Intake {
    fn new(store: CodeStore, most_bytes: Option<u64>) -> Self {
        Self {
            store,
            most_bytes: most_bytes.map_or(TENANT_BYTES, |most| most.min(TENANT_BYTES)),
            senders: Mutex::default(),
            begun: Mutex::default(),
        }
    }

    fn may_send(&self, tenant: &TenantId, now: Instant) -> bool {
        let mut senders = lock(&self.senders);
        let sender = senders.entry(tenant.clone()).or_insert_with(|| Sender {
            pieces: 0,
            counted: None,
            second: now,
            in_second: 0,
        });
        if now.duration_since(sender.second) >= Duration::from_secs(1) {
            (sender.second, sender.in_second) = (now, 0);
        }
        sender.in_second += 1;
        sender.in_second <= PIECES_A_SECOND
    }

    async fn has_room(&self, piece: &Piece) -> Result<(), CodeError> {
        let counted = |sender: &Sender| {
            let fresh = sender.counted.filter(|at| at.elapsed() < COUNTED);
            fresh.map(|_| sender.pieces)
        };
        let known = lock(&self.senders).get(&piece.tenant).and_then(counted);
        let known = known.filter(|_| piece.offset > 0);
        let pieces = match known {
            Some(pieces) => pieces,
            None => self.store.taken(piece.tenant.as_str()).await?,
        };
        // The first piece needs space for the whole folder.
        let more = if piece.offset == 0 { piece.count() } else { 1 };
        let taken = (pieces + more) * PIECE_BYTES as u64;
        if taken > self.most_bytes.max(PIECE_BYTES as u64) {
            return Err(CodeError::TenantFull {
                tenant: piece.tenant.to_string(),
                taken: taken >> 20,
                most: self.most_bytes >> 20,
            });
        }
        if let Some(sender) = lock(&self.senders).get_mut(&piece.tenant) {
            sender.pieces = pieces + 1;
            if known.is_none() {
                sender.counted = Some(Instant::now());
            }
        }
        Ok(())
    }

    async fn take(&self, piece: Piece) -> Result<Taken, Refusal> {
        let (tenant, packed) = (piece.tenant.clone(), piece.packed.clone());
        let said = |error: CodeError| refused(&error);
        let has = self.store.has(tenant.as_str(), &packed).await;
        if has.map_err(said)? {
            return Ok(Taken {
                whole: true,
                was_whole: true,
            });
        }
        self.has_room(&piece).await.map_err(said)?;
        let key = (tenant.clone(), packed.clone());
        lock(&self.begun).insert(key.clone(), Instant::now());
        let is_last = piece.is_last();
        if is_last {
            self.check(&piece).await?;
        }
        let index = usize::try_from(piece.offset).unwrap_or(usize::MAX) / PIECE_BYTES;
        let sent = self
            .store
            .send(tenant.as_str(), &packed.sha256, (index, piece.bytes));
        sent.await.map_err(said)?;
        if is_last {
            lock(&self.begun).remove(&key);
        }
        Ok(Taken {
            whole: is_last,
            was_whole: false,
        })
    }

    /// Checks that all other pieces exist, and the digest.
    async fn check(&self, last: &Piece) -> Result<(), Refusal> {
        let (tenant, sha256) = (last.tenant.as_str(), last.packed.sha256.as_str());
        let offsets = (0..last.count() - 1).map(|index| index * PIECE_BYTES as u64);
        let mut pieces = stream::iter(offsets)
            .map(|offset| self.store.piece(tenant, sha256, offset))
            .buffered(AT_ONCE);
        let mut digest = Sha256::new();
        loop {
            match pieces.try_next().await {
                Ok(Some(piece)) => digest.update(&piece),
                Ok(None) => break,
                Err(CodeError::Absent { .. }) => {
                    let why = "a piece before the last one is missing; send all of them again";
                    return Err(("incomplete", why.to_owned()));
                }
                Err(error) => return Err(refused(&error)),
            }
        }
        digest.update(&last.bytes);
        let found: String = digest
            .finalize()
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        if found == last.packed.sha256 {
            return Ok(());
        }
        let _ = self.store.remove(tenant, sha256).await;
        lock(&self.begun).remove(&(last.tenant.clone(), last.packed.clone()));
        let why = format!("the pieces have the SHA-256 {found}, not {sha256}; they are removed");
        Err(("wrong_digest", why))
    }

    async fn expire(&self) {
        let old: Vec<_> = {
            let begun = lock(&self.begun);
            let old = begun.iter().filter(|(_, at)| at.elapsed() >= EXPIRES);
            old.map(|(key, _)| key.clone()).collect()
        };
        for key in old {
            let (tenant, packed) = &key;
            // Another copy may have completed the folder.
            if let Ok(false) = self.store.has(tenant.as_str(), packed).await {
                let removed = self.store.remove(tenant.as_str(), &packed.sha256).await;
                tracing::info!(%tenant, sha256 = packed.sha256, ?removed, "a packed folder was not sent to its end");
            }
            lock(&self.begun).remove(&key);
        }
    }
}

impl Log {
    /// Serves uploads until the connection closes, up to `most_bytes` per tenant.
    ///
    /// # Errors
    /// When the broker does not let this client subscribe.
    pub async fn serve_code(&self, most_bytes: Option<u64>) -> Result<(), LogError> {
        let subject = self.prefix().tenant_api("*", "code.*.*.*");
        let client = self.inner.connection.client.clone();
        let requests = client.queue_subscribe(subject.clone(), "code".to_owned());
        let mut requests = requests
            .await
            .map_err(|error| LogError::request("serve", &subject, error))?;
        let intake = Arc::new(Intake::new(self.code(), most_bytes));
        let turns = Arc::new(Semaphore::new(UNDER_WAY));
        let mut look = tokio::time::interval(LOOK);
        loop {
            let message = tokio::select! {
                message = requests.next() => message,
                _ = look.tick() => {
                    intake.expire().await;
                    continue;
                }
            };
            let Some(message) = message else {
                return Ok(());
            };
            let prefix = self.prefix();
            let asked = prefix.parse_tenant_api(&message.subject);
            let (tenant, name) = asked.unwrap_or_default();
            let read = Piece::read(name, tenant, message.payload.clone());
            let turn = Arc::clone(&turns).try_acquire_owned();
            let allowed = read.and_then(|piece| {
                let busy = || ("busy", "too much is sent at once; send it again".to_owned());
                let in_time = intake.may_send(&piece.tenant, Instant::now());
                let turn = turn.ok().filter(|_| in_time).ok_or_else(busy)?;
                Ok((piece, turn))
            });
            let (client, intake) = (client.clone(), Arc::clone(&intake));
            tokio::spawn(async move {
                let answer = match allowed {
                    Ok((piece, _turn)) => intake.take(piece).await,
                    Err(refusal) => Err(refusal),
                };
                respond(&client, &message, answer).await;
            });
        }
    }
}

async fn respond(client: &async_nats::Client, message: &Message, answer: Result<Taken, Refusal>) {
    let Some(reply) = message.reply.clone() else {
        return;
    };
    let sent = match answer {
        Ok(taken) => {
            let text = serde_json::to_vec(&taken).unwrap_or_default();
            client.publish(reply, text.into()).await
        }
        Err((code, why)) => {
            let mut headers = HeaderMap::new();
            headers.insert(REFUSED, format!("{code}: {why}").as_str());
            client
                .publish_with_headers(reply, headers, Bytes::new())
                .await
        }
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "an answer was not sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: usize) -> Result<Piece, String> {
        let piece = Piece::read(name, "ads", Bytes::from(vec![0; bytes]));
        piece.map_err(|(_, why)| why)
    }

    #[test]
    fn a_piece_fits_its_place_or_is_refused() {
        let digest = "a".repeat(64);
        let name = |bytes: u64, offset: u64| format!("code.{digest}.{bytes}.{offset}");
        let most = PIECE_BYTES as u64;
        let first = read(&name(most + 7, 0), PIECE_BYTES).expect("the first");
        assert!(!first.is_last() && first.count() == 2);
        assert!(read(&name(most + 7, most), 7).expect("the last").is_last());
        for (name, bytes) in [
            (name(most + 7, 0), 7),
            (name(most + 7, 1), PIECE_BYTES),
            (name(most + 7, 2 * most), 7),
            (name(Workdir::MOST_BYTES + 1, 0), PIECE_BYTES),
            (name(0, 0), 0),
            (format!("code.{}.7.0", "A".repeat(64)), 7),
            ("code.x".to_owned(), 7),
        ] {
            assert!(read(&name, bytes).is_err(), "{name}");
        }
    }
}
