//! The client's side of uploads.

use std::time::Duration;

use async_nats::{Message, Request};
use bytes::Bytes;
use dormouse_messages::{TenantId, Workdir};
use futures::{TryStreamExt, stream};

use super::{AT_ONCE, REFUSED, Taken};
use crate::code::{CodeError, CodeStore};
use crate::connection::NoAnswer;
use crate::pieces::PIECE_BYTES;
use crate::retry::retry;

const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(100);

impl CodeStore {
    /// Returns whether the folder is new.
    pub(crate) async fn put_as(
        &self,
        tenant: &TenantId,
        packed: &Workdir,
        archive: &Bytes,
    ) -> Result<bool, CodeError> {
        let count = archive.len().div_ceil(PIECE_BYTES);
        if count > 1 && self.offer(tenant, packed, archive, 0).await?.whole {
            return Ok(false);
        }
        let last = count.saturating_sub(1);
        let sent = stream::iter((1..last).map(Ok));
        sent.try_for_each_concurrent(AT_ONCE, |index| async move {
            self.offer(tenant, packed, archive, index).await.map(drop)
        })
        .await?;
        let last = self.offer(tenant, packed, archive, last).await?;
        Ok(!last.was_whole)
    }

    async fn offer(
        &self,
        tenant: &TenantId,
        packed: &Workdir,
        archive: &Bytes,
        index: usize,
    ) -> Result<Taken, CodeError> {
        let start = index * PIECE_BYTES;
        let piece = archive.slice(start..archive.len().min(start + PIECE_BYTES));
        let name = format!("code.{}.{}.{start}", packed.sha256, packed.bytes);
        let subject = self.log.prefix().tenant_api(tenant.as_str(), &name);
        let unanswered = |again: bool, why: &str| (again, CodeError::Unanswered(why.to_owned()));
        let send = || async {
            let request = Request::new().payload(piece.clone());
            let answer = self.log.inner.connection.ask(&subject, request).await;
            let answer = answer.map_err(|error| match error {
                NoAnswer::Denied => (false, CodeError::Denied("store them")),
                NoAnswer::Nobody => {
                    unanswered(true, "no query service takes them (`dormouse serve api`)")
                }
                NoAnswer::TooLarge { .. } => unanswered(false, "it takes no such pieces"),
                NoAnswer::Doubt(why) => unanswered(true, &why),
            })?;
            match refusal(&answer) {
                None => serde_json::from_slice(&answer.payload)
                    .map_err(|error| unanswered(false, &error.to_string())),
                Some((code, why)) if code == "busy" => Err(unanswered(true, &why)),
                Some((_, why)) => Err((false, CodeError::Refused(why))),
            }
        };
        let sent = retry(AGAIN, PATIENCE, |(again, _)| *again, send).await;
        sent.map_err(|(_, error)| error)
    }
}

fn refusal(answer: &Message) -> Option<(String, String)> {
    let refused = answer.headers.as_ref()?.get(REFUSED)?.as_str();
    let (code, why) = refused.split_once(": ").unwrap_or(("error", refused));
    Some((code.to_owned(), why.to_owned()))
}
