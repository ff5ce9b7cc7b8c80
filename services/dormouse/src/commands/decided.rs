//! What becomes of many messages at once: each is published without waiting for the ones before it,
//! and the log says what each of them led to.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use dormouse_messages::events::SubmissionsShed;
use dormouse_messages::{Event, JobId, TenantId};
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

/// What an event says of messages: of one, or of those of a tenant among many.
struct Became {
    sequences: RangeInclusive<u64>,
    /// Absent: anybody's.
    tenant: Option<String>,
    decided: Decided,
}

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
    // With tokio's budget, which every 128th message would use up, those behind that one would go
    // before it.
    Ok(tokio::task::unconstrained(published.try_collect()).await?)
}

/// Follows what happens from now on, publishes all, and waits for the decision on each, in their order.
///
/// # Errors
/// When one is not stored, or nothing decides.
pub async fn decide(log: &Log, messages: Vec<Message>) -> anyhow::Result<Vec<(u64, Decided)>> {
    let tenants: Vec<TenantId> = messages.iter().map(|it| it.tenant.clone()).collect();
    let mut events = log.events_from_now().await?;
    // What is decided while the last ones are still on their way is taken as it comes.
    let (sequences, early) = publish_and_follow(log, messages, &mut events).await?;
    let mut open: BTreeMap<u64, usize> = sequences.iter().copied().zip(0..).collect();
    let mut decided: Vec<Option<Decided>> = sequences.iter().map(|_| None).collect();
    let mut take = |became: &Became| {
        let of_it: Vec<u64> = open
            .range(became.sequences.clone())
            .filter(|(_, index)| {
                let tenant = became.tenant.as_deref();
                tenant.is_none_or(|tenant| tenants[**index].as_str() == tenant)
            })
            .map(|(sequence, _)| *sequence)
            .collect();
        for sequence in of_it {
            if let Some(index) = open.remove(&sequence) {
                decided[index] = Some(became.decided.clone());
            }
        }
        open.is_empty().then_some(())
    };
    let mut all = sequences.is_empty();
    for became in early {
        all |= take(&became).is_some();
    }
    if !all {
        let waited = next_event(&mut events, Some(PATIENCE), |event| take(&of(event)?));
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
) -> anyhow::Result<(Vec<u64>, Vec<Became>)> {
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

/// Which messages an event decides on, and how.
fn of(event: &Event) -> Option<Became> {
    let (sequence, decided) = match event {
        Event::JobAdmitted(it) => (it.ingress_sequence, Ok((it.job.clone(), "is admitted"))),
        Event::JobRevised(it) => {
            let said = match it.held {
                Some(true) => "is on hold",
                Some(false) => "is let go",
                None => "is revised",
            };
            (it.ingress_sequence, Ok((it.job.clone(), said)))
        }
        Event::JobRequeued(it) => {
            let said = "is requeued: it starts again when it has room";
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
        Event::SubmissionsShed(it) => {
            return Some(Became {
                sequences: it.first..=it.last,
                tenant: Some(it.tenant.clone()),
                decided: Err(too_fast(it)),
            });
        }
        _ => return None,
    };
    Some(Became {
        sequences: sequence..=sequence,
        tenant: None,
        decided,
    })
}

/// What a tenant is told that submits faster than it may.
pub fn too_fast(shed: &SubmissionsShed) -> Coded {
    let (tenant, rate) = (&shed.tenant, shed.max_rate);
    let twice = rate.saturating_mul(2);
    Coded::new(
        "too_fast",
        format!(
            "{tenant} submits faster than {rate} a second; submit it again more slowly, or have the operator raise it with `dormouse tenant set {tenant} --max-rate {twice}`"
        ),
    )
}
