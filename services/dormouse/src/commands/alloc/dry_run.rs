//! `alloc dry-run`.

use clap::Args;
use dormouse_messages::{Decider, Event};
use dormouse_slurm::Slurm as Decision;
use dormouse_slurm_client::Slurm;
use dormouse_slurm_client::commands::Submission;
use serde::{Deserialize, Serialize};

use super::{QueueArg, folded, known};
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Show what a queue asks of Slurm, and let Slurm check it without submitting anything
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse alloc dry-run gpu\n  dormouse alloc dry-run gpu -o json"
)]
pub struct DryRunArgs {
    #[command(flatten)]
    pub queue: QueueArg,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    /// Arguments of sbatch.
    sbatch: Vec<String>,
    /// The allocations that the queue would request now.
    requests: usize,
    /// The jobs for which it would request the first one.
    jobs: Vec<String>,
    paused: Option<String>,
    /// Slurm's answer to `sbatch --test-only`.
    slurm: String,
    accepted: bool,
}

/// Runs `alloc dry-run QUEUE`.
///
/// # Errors
/// If there is no such queue, or Slurm cannot be asked.
pub async fn run(context: &Context, args: &DryRunArgs) -> anyhow::Result<u8> {
    let queue = &args.queue.queue;
    let state = folded(context).await?;
    let known = known(&state, queue)?;
    let decided = Decision.decide(&state, state.now).proposals;
    let requests = decided.iter().filter_map(|proposal| match &proposal.event {
        Event::SlurmRequested(it) if it.queue == *queue => Some(it),
        _ => None,
    });
    let requests: Vec<_> = requests.collect();
    let jobs = requests.first().map_or(&[][..], |it| &it.jobs);
    let submission = Submission {
        name: &format!("dormouse-dry-run-{queue}"),
        settings: &known.settings,
        nodes: known.settings.nodes,
        script: None,
        output: "/dev/null".as_ref(),
    };
    let (slurm, accepted) = match Slurm.check(&submission).await {
        Ok(said) => (said, true),
        Err(refusal) if refusal.is_refusal() => (refusal.to_string(), false),
        Err(error) => return Err(error.into()),
    };
    let answer = Answer {
        sbatch: submission.arguments(),
        requests: requests.len(),
        jobs: jobs.iter().map(ToString::to_string).collect(),
        paused: known.paused(),
        slurm,
        accepted,
    };
    print::value(context.output()?, &answer, |answer, _| text(answer))?;
    Ok(DONE)
}

fn text(answer: &Answer) -> String {
    let wants = match (&answer.paused, answer.requests) {
        (Some(why), _) => format!("asks for nothing: it is paused: {why}"),
        (None, 0) => "asks for nothing now: no job waits for its nodes".to_owned(),
        (None, count) => format!("asks for {count} now, for {}", answer.jobs.join(", ")),
    };
    let verdict = if answer.accepted {
        "takes it"
    } else {
        "refuses it"
    };
    format!(
        "{wants}\nsbatch {}\nSlurm {verdict}: {}",
        answer.sbatch.join(" "),
        answer.slurm
    )
}
