//! Events about Slurm allocations.

use dormouse_messages::Event;
use dormouse_messages::QueueId;

fn named(queue: &QueueId, number: u64) -> String {
    format!("allocation {number} of {queue}")
}

/// Describes an event about a queue or an allocation.
pub fn describe(event: &Event) -> String {
    match event {
        Event::SlurmQueueConfigured(e) => {
            let (queue, it) = (&e.queue, &e.settings);
            let paused = if it.paused { ", paused" } else { "" };
            format!(
                "queue {queue}: up to {} of {} × {}{paused}",
                it.most, it.nodes, it.node
            )
        }
        Event::SlurmQueueRemoved(e) => format!("queue {}", e.queue),
        Event::SlurmRequested(e) => {
            let jobs: Vec<String> = e.jobs.iter().map(ToString::to_string).collect();
            format!("{} for {}", named(&e.queue, e.number), jobs.join(", "))
        }
        Event::SlurmSubmitted(e) => {
            format!(
                "{} is job {} of Slurm",
                named(&e.queue, e.number),
                e.slurm_job
            )
        }
        Event::SlurmRefused(e) => format!("{}: {}", named(&e.queue, e.number), e.reason),
        Event::SlurmEstimated(e) => {
            let at = e
                .starts_at
                .map(|at| format!(" starts at {}", at.to_words()));
            let at = at.unwrap_or_else(|| " waits".to_owned());
            format!("{}{at} ({})", named(&e.queue, e.number), e.reason)
        }
        Event::SlurmGranted(e) => format!("{} runs on {}", named(&e.queue, e.number), e.hosts),
        Event::SlurmReleased(e) => format!("{}: {}", named(&e.queue, e.number), e.reason),
        Event::SlurmEnded(e) => {
            format!("{}: {} {}", named(&e.queue, e.number), e.state, e.reason)
        }
        _ => String::new(),
    }
}
