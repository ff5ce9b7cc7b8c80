//! Publishes many messages at once, and collects admission's decisions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use dormouse_messages::events::SubmissionsRateLimited;
use dormouse_messages::{Event, JobId, TenantId};
use dormouse_runtime::{Log, LogItem};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc::Receiver;

use super::next_event;
use crate::error::Coded;

/// Admission answers in milliseconds if any copy runs.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The broker acknowledges in batches, in the order published.
const UNDER_WAY: usize = 512;

/// A message of a tenant.
pub struct Message {
    pub tenant: TenantId,
    /// `submit`, `cancel` or `revise`.
    pub verb: &'static str,
    pub payload: Bytes,
}

/// The decision on one message.
pub type Decided = Result<(JobId, &'static str), Coded>;

struct Became {
    sequences: RangeInclusive<u64>,
    /// If set, only this tenant's messages.
    tenant: Option<String>,
    decided: Decided,
}

/// Publishes all in order; returns their ingress sequences.
///
/// # Errors
/// The first message that is not stored.
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
    // Tokio's cooperative budget would interrupt every 128th message and let later ones overtake it.
    Ok(tokio::task::unconstrained(published.try_collect()).await?)
}

/// Publishes all and waits for the decisions, in order.
///
/// # Errors
/// If a message is not stored, or no admission service answers.
pub async fn decide(log: &Log, messages: Vec<Message>) -> anyhow::Result<Vec<(u64, Decided)>> {
    let tenants: Vec<TenantId> = messages.iter().map(|it| it.tenant.clone()).collect();
    let mut events = log.events_from_now().await?;
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

/// The log reader must not stall while messages are published.
async fn publish_and_follow(
    log: &Log,
    messages: Vec<Message>,
    events: &mut Receiver<LogItem>,
) -> anyhow::Result<(Vec<u64>, Vec<Became>)> {
    let mut early = Vec::new();
    let publishing = publish(log, messages);
    tokio::pin!(publishing);
    loop {
        tokio::select! {
            published = &mut publishing => return Ok((published?, early)),
            Some(received) = events.recv() => {
                if let LogItem::Event(recorded) = received {
                    early.extend(recorded.event().and_then(of));
                }
            }
        }
    }
}

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
        Event::SubmissionsRateLimited(it) => {
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

/// Returns the error for a tenant beyond its rate.
pub fn too_fast(refused: &SubmissionsRateLimited) -> Coded {
    let (tenant, rate) = (&refused.tenant, refused.max_rate);
    let twice = rate.saturating_mul(2);
    Coded::new(
        "too_fast",
        format!(
            "{tenant} submits faster than {rate} a second; submit it again more slowly, or have the operator raise it with `dormouse tenant grant {tenant} --max-rate {twice}`"
        ),
    )
}
