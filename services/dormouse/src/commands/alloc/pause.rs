//! `alloc pause`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::SlurmQueueConfigured;

use super::{QueueArg, folded, known};
use crate::commands::common::operator;
use crate::context::Context;

/// Let a queue ask for nothing, or let it ask again
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse alloc pause gpu\n  dormouse alloc pause gpu --off\n\nAllocations stay. --off also ends a pause after failures."
)]
pub struct PauseArgs {
    #[command(flatten)]
    pub queue: QueueArg,
    /// Ask again, and forget the failures.
    #[arg(long)]
    pub off: bool,
}

/// Runs `alloc pause QUEUE`.
///
/// # Errors
/// If there is no such queue, or the event cannot be appended.
pub async fn run(context: &Context, args: &PauseArgs) -> anyhow::Result<u8> {
    let queue = args.queue.queue.clone();
    let mut settings = known(&folded(context).await?, &queue)?.settings.clone();
    settings.paused = !args.off;
    let said = if args.off {
        format!("queue {queue} asks Slurm again")
    } else {
        format!("queue {queue} is paused; its allocations stay")
    };
    let event = SlurmQueueConfigured { queue, settings };
    operator::append(context, Event::from(event), &said).await
}
