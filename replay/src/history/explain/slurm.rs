//! The allocation of Slurm for which a job waits.

use dormouse_messages::JobId;
use dormouse_state::{SlurmAllocation, SlurmPhase, fit::unplaced};

use super::explainer::Explainer;

/// Says for which allocation the job waits, or why no queue asks for one.
pub fn words(explainer: &Explainer, id: &JobId) -> Vec<String> {
    let cluster = &explainer.head.cluster;
    let waits = cluster.job(id).is_some_and(unplaced);
    if !waits || cluster.slurm.is_empty() {
        return Vec::new();
    }
    let pending = cluster.slurm.iter().flat_map(|(name, queue)| {
        let allocations = queue.allocations.values();
        let pending = allocations.filter(|it| it.is_pending() && !it.released);
        pending.map(move |allocation| (name, allocation))
    });
    // A request names the first jobs only; the others get what these leave.
    let chosen =
        pending.max_by_key(|(_, it)| (it.jobs.contains(id), std::cmp::Reverse(it.requested_at)));
    if let Some((queue, allocation)) = chosen {
        let says = slurm_says(allocation);
        return vec![format!(
            "it waits for an allocation of the queue {queue}: {says}"
        )];
    }
    let paused = cluster.slurm.iter().filter_map(|(name, queue)| {
        let why = queue.paused()?;
        Some(format!("the queue {name} asks Slurm for nothing: {why}"))
    });
    paused.collect()
}

fn slurm_says(allocation: &SlurmAllocation) -> String {
    let SlurmPhase::Waiting { reason, starts_at } = &allocation.phase else {
        return "it is not submitted yet; does `dormouse serve slurm` run?".to_owned();
    };
    let job = allocation.slurm_job.unwrap_or_default();
    let reason = match reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    match starts_at {
        Some(at) => format!(
            "Slurm says that job {job} starts at {}{reason}",
            at.to_words()
        ),
        None => format!("Slurm does not say when job {job} starts{reason}"),
    }
}
