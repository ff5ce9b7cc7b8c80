//! `alloc remove`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::SlurmQueueRemoved;

use super::{QueueArg, folded, known};
use crate::commands::common::operator;
use crate::context::Context;

/// Remove a queue: its nodes are drained, and its allocations given back
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse alloc remove gpu")]
pub struct RemoveArgs {
    #[command(flatten)]
    pub queue: QueueArg,
}

/// Runs `alloc remove QUEUE`.
///
/// # Errors
/// If there is no such queue, or the event cannot be appended.
pub async fn run(context: &Context, args: &RemoveArgs) -> anyhow::Result<u8> {
    let queue = args.queue.queue.clone();
    let live = known(&folded(context).await?, &queue)?.allocations.len();
    let said = match live {
        0 => format!("queue {queue} is removed"),
        live => format!(
            "queue {queue} is removed; {live} allocations are given back once their jobs have left"
        ),
    };
    operator::append(context, Event::from(SlurmQueueRemoved { queue }), &said).await
}
