//! What becomes of many messages at once: each is published without waiting for the ones before it,
//! and the log says what each of them led to.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dormouse_messages::{Event, JobId, Sequence, TenantId};
use dormouse_runtime::{Followed, Log};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc::Receiver;

use super::next_event;
use crate::error::Coded;

/// Admission answers in milliseconds; this long only when none runs.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Messages under way to the broker at once: it acknowledges in batches, in the order published.
const UNDER_WAY: usize = 512;

/// A message of a tenant.
pub struct Message {
    /// Whose.
    pub tenant: TenantId,
    /// `submit`, `cancel` or `revise`.
    pub verb: &'static str,
    /// In JSON.
    pub payload: Bytes,
}

/// What one message led to.
pub type Decided = Result<(JobId, &'static str), Coded>;

/// Publishes all, in their order; the ingress sequence of each.
///
/// # Errors
/// The first that is not stored.
pub async fn publish(log: &Log, messages: Vec<Message>) -> anyhow::Result<Vec<u64>> {
    let published = messages.into_iter().map(|message| async move {
        let Message {
            tenant,
            verb,
            payload,
        } = message;
        log.publish_ingress(&tenant, verb, "application/json", payload)
            .await
    });
    let published = stream::iter(published).buffered(UNDER_WAY);
    Ok(published.try_collect().await?)
}

/// Follows the log from now on, publishes all, and waits for the decision on each, in their order.
///
/// # Errors
/// When one is not stored, or nothing decides.
pub async fn decide(log: &Log, messages: Vec<Message>) -> anyhow::Result<Vec<(u64, Decided)>> {
    let head: Sequence = log.head().await?;
    let mut events = log.follow(head.next());
    // What is decided while the last ones are still on their way is taken as it comes.
    let (sequences, early) = publish_and_follow(log, messages, &mut events).await?;
    let mut open: BTreeMap<u64, usize> = sequences.iter().copied().zip(0..).collect();
    let mut decided: Vec<Option<Decided>> = sequences.iter().map(|_| None).collect();
    let mut take = |sequence: u64, became: Decided| {
        if let Some(index) = open.remove(&sequence) {
            decided[index] = Some(became);
        }
        open.is_empty().then_some(())
    };
    let mut all = sequences.is_empty();
    for (sequence, became) in early {
        all |= take(sequence, became).is_some();
    }
    if !all {
        let waited = next_event(&mut events, Some(PATIENCE), |event| {
            let (sequence, became) = of(event)?;
            take(sequence, became)
        });
        waited.await?;
    }
    let undecided = || {
        Coded::new(
            "undecided",
            "it is stored and holds, but nothing decides on it now: is `dormouse up`, or admission, running? Do not repeat it",
        )
    };
    let decided = sequences.iter().zip(decided);
    Ok(decided
        .map(|(sequence, became)| (*sequence, became.unwrap_or_else(|| Err(undecided()))))
        .collect())
}

/// The reader of the log is emptied while messages are published: it must not stand still.
async fn publish_and_follow(
    log: &Log,
    messages: Vec<Message>,
    events: &mut Receiver<Followed>,
) -> anyhow::Result<(Vec<u64>, Vec<(u64, Decided)>)> {
    let mut early = Vec::new();
    let publishing = publish(log, messages);
    tokio::pin!(publishing);
    loop {
        tokio::select! {
            published = &mut publishing => return Ok((published?, early)),
            Some(received) = events.recv() => {
                if let Followed::Event(recorded) = received {
                    early.extend(recorded.event().and_then(of));
                }
            }
        }
    }
}

/// Which message an event decides on, and how.
fn of(event: &Event) -> Option<(u64, Decided)> {
    Some(match event {
        Event::JobAdmitted(it) => (it.ingress_sequence, Ok((it.job.clone(), "is admitted"))),
        Event::JobRevised(it) => {
            let said = match it.held {
                Some(true) => "is on hold",
                Some(false) => "is let go",
                None => "is revised",
            };
            (it.ingress_sequence, Ok((it.job.clone(), said)))
        }
        Event::JobCancelRequested(it) => {
            let said = "is being cancelled";
            (it.ingress_sequence, Ok((it.job.clone(), said)))
        }
        Event::JobCancelled(it) => (it.ingress_sequence?, Ok((it.job.clone(), "is cancelled"))),
        Event::JobRefused(it) => {
            let refusal = Coded::new(it.code.clone(), it.reason.clone());
            (it.ingress_sequence, Err(refusal))
        }
        _ => return None,
    })
}
