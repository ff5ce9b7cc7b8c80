//! An upgraded connection. The server's graceful stop does not cover it; its visit does.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::in_flight::InFlight;
use crate::upstream::Upstream;

const LAST_WORDS: Duration = Duration::from_secs(5);

/// Copies until either side, or the replica, ends.
pub async fn splice(
    client: OnUpgrade,
    replica: OnUpgrade,
    visit: InFlight,
    upstream: Arc<Upstream>,
) {
    let both = async {
        let (client, replica) = match tokio::try_join!(client, replica) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade came to nothing");
                return;
            }
        };
        let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
        let (from_replica, to_replica) = tokio::io::split(TokioIo::new(replica));
        let there = std::pin::pin!(pass(from_client, to_replica));
        let back = std::pin::pin!(pass(from_replica, to_client));
        match futures::future::select(there, back).await {
            futures::future::Either::Left(((), back)) => {
                let _ = tokio::time::timeout(LAST_WORDS, back).await;
            }
            futures::future::Either::Right(((), there)) => {
                let _ = tokio::time::timeout(LAST_WORDS, there).await;
            }
        }
    };
    tokio::select! {
        () = both => {}
        () = upstream.ended() => {}
    }
    drop(visit);
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}
