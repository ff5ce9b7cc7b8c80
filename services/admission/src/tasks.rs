//! Checks and defaults of task sets.

use dormouse_messages::job::{
    Checkpoint, CheckpointMode, Containers, Executor, JobDocument, Kind, Success,
};

use crate::checks::MAX_CONTAINERS;
use crate::refusal::Refusal;

/// Each failing task is remembered separately.
const MAX_TASKS: u32 = 1_000_000;

/// Completes a task set: up to `concurrency` containers of one process, which finish their task before they
/// leave.
///
/// # Errors
/// Contradictions to `tasks`.
pub fn normalise(document: JobDocument) -> Result<JobDocument, Refusal> {
    let Some(tasks) = document.tasks else {
        return Ok(document);
    };
    let refuse = |reason: String| Err(Refusal::new("bad_tasks", reason));
    if tasks.count == 0 {
        return refuse("tasks.count is 0; say how many tasks there are".to_owned());
    }
    if tasks.count > MAX_TASKS {
        return refuse(format!(
            "tasks.count {} is more than {MAX_TASKS}; submit several sets",
            tasks.count
        ));
    }
    if tasks.concurrency == 0 || tasks.concurrency > MAX_CONTAINERS {
        return refuse(format!(
            "tasks.concurrency {} must lie between 1 and {MAX_CONTAINERS}",
            tasks.concurrency
        ));
    }
    if document.kind != Kind::Batch {
        return refuse("a job with tasks is a batch job; add kind: batch".to_owned());
    }
    if document.executor != Executor::Plain {
        return refuse(
            "each task is a plain process; leave executor out, or submit the job without tasks"
                .to_owned(),
        );
    }
    let containers = tasks.containers();
    let absent = Containers::between(1, 1);
    if ![absent, containers].contains(&document.containers) {
        return refuse(
            "the containers of a task set follow from tasks.concurrency; leave containers out"
                .to_owned(),
        );
    }
    if document.success != Success::All {
        return refuse(
            "a task set has no coordinator: it succeeds when all tasks have; leave success out"
                .to_owned(),
        );
    }
    let checkpoint = &document.checkpoint;
    if checkpoint.mode == CheckpointMode::Continue || !checkpoint.command.is_empty() {
        return refuse(
            "a task set needs no checkpoint: containers leave between tasks; of checkpoint give grace_s only"
                .to_owned(),
        );
    }
    if !document.command.resume.is_empty() {
        return refuse(
            "a task is never resumed: it runs to its end, or again; leave command.resume out"
                .to_owned(),
        );
    }
    Ok(JobDocument {
        containers,
        checkpoint: Checkpoint {
            mode: CheckpointMode::Exit,
            grace_s: checkpoint.grace_s,
            ..Checkpoint::default()
        },
        ..document
    })
}
