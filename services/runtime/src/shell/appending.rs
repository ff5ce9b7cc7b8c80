//! The actor that appends decided events: an atomic batch with replicas; on a single server a few pipelined,
//! or many as a batch. After another writer's interruption each event is fenced by its predecessor's
//! sequence. Only the fold tells the outcome.

use std::time::Instant;

use actix::{Actor, Context, Handler, Message, ResponseFuture};

use crate::log::Log;
use crate::publish::{Fence, Outgoing, PublishError, batch_len};
use crate::spans::AppendSpan;

/// Above this an atomic batch is faster.
const AHEAD_MOST: usize = 100;

/// On a single server, cheaper than single appends from here.
const BATCH_FROM: usize = 24;

const BATCH_FROM_REPLICATED: usize = 2;

#[derive(Message)]
#[rtype(result = "Appended")]
pub(crate) struct Chain {
    pub fence: Fence,
    pub links: Vec<Link>,
}

pub(crate) struct Link {
    pub message: Outgoing,
    pub span: AppendSpan,
}

#[derive(Debug)]
pub(crate) struct Appended {
    pub last: Option<u64>,
    pub stored: usize,
    pub error: Option<PublishError>,
    pub took: std::time::Duration,
}

pub(crate) struct AppenderActor {
    log: Log,
}

impl AppenderActor {
    pub fn new(log: Log) -> Self {
        Self { log }
    }
}

impl Actor for AppenderActor {
    type Context = Context<Self>;
}

impl Handler<Chain> for AppenderActor {
    type Result = ResponseFuture<Appended>;

    fn handle(&mut self, chain: Chain, _: &mut Self::Context) -> Self::Result {
        Box::pin(append(self.log.clone(), chain))
    }
}

async fn append(log: Log, chain: Chain) -> Appended {
    let started = Instant::now();
    let Chain { mut fence, links } = chain;
    let (messages, spans): (Vec<_>, Vec<_>) =
        links.into_iter().map(|it| (it.message, it.span)).unzip();
    let mut spans = spans.into_iter();
    let mut outcome = Appended {
        last: None,
        stored: 0,
        error: None,
        took: std::time::Duration::ZERO,
    };
    let mut stored = |outcome: &mut Appended, fence: &mut Fence, last: u64, count: usize| {
        // Members of a batch are stored consecutively.
        let first = (last + 1).saturating_sub(count as u64);
        for (span, sequence) in spans.by_ref().take(count).zip(first..) {
            span.stored(sequence);
        }
        (fence.last, fence.head) = (last, None);
        outcome.last = Some(last);
        outcome.stored += count;
    };
    let batch_from = if log.is_replicated() {
        BATCH_FROM_REPLICATED
    } else {
        BATCH_FROM
    };
    // After an interruption pipelining would mostly fail again.
    let mut ahead = messages.len() > 1 && log.may_send_ahead();
    let mut rest = messages.as_slice();
    if let (Some(_), Some((first, later))) = (fence.head, rest.split_first()) {
        match log.publish(first, &fence).await {
            Ok(last) => stored(&mut outcome, &mut fence, last, 1),
            Err(error) => outcome.error = Some(error),
        }
        rest = later;
    }
    while !rest.is_empty() && outcome.error.is_none() {
        if ahead && rest.len() > 1 && rest.len() <= AHEAD_MOST {
            let (now, _) = rest.split_at(batch_len(rest));
            let (sequences, error) = log.publish_ahead(now, &fence).await;
            for sequence in &sequences {
                stored(&mut outcome, &mut fence, *sequence, 1);
            }
            ahead = sequences.len() == now.len();
            rest = rest.get(sequences.len()..).unwrap_or_default();
            outcome.error = error;
            continue;
        }
        let count = if rest.len() < batch_from {
            1
        } else {
            batch_len(rest)
        };
        let (now, later) = rest.split_at(count.min(rest.len()));
        match log.publish_batch(now, &fence).await {
            Ok(last) => stored(&mut outcome, &mut fence, last, now.len()),
            Err(error) => outcome.error = Some(error),
        }
        rest = later;
    }
    for span in spans {
        span.failed("not stored, as far as is known");
    }
    outcome.took = started.elapsed();
    outcome
}
