//! Checks and defaults of services, notebooks and partitions resized in place.

use dormouse_messages::job::{CheckpointMode, EnvValue, Executor, JobDocument, Kind, Success};
use dormouse_messages::service::{Ready, Resize, ResizeMode, Service};

use crate::checks::SIGNALS;
use crate::refusal::Refusal;

/// Longer than any model load or answer.
const MAX_WAIT_S: u32 = 3_600;
/// A week.
const MAX_IDLE_S: u32 = 604_800;
/// Slower objectives suit batch jobs.
const MAX_LATENCY_MS: u32 = 3_600_000;
/// A busier replica is a proxy.
const MAX_CONCURRENCY: u32 = 10_000;

/// Completes the document by its kind.
///
/// # Errors
/// Contradictions in `kind`, `resize` or `service`.
pub fn normalise(document: JobDocument) -> Result<JobDocument, Refusal> {
    let resize = document.resize.clone().unwrap_or_default();
    check_signal(&resize)?;
    match document.kind {
        Kind::Inference | Kind::Notebook => serving(document),
        Kind::Training | Kind::Batch => {
            if document.service.is_some() {
                return refuse(
                    "bad_service",
                    "service belongs to kind: inference or kind: notebook; add the kind, or leave service out",
                );
            }
            match resize.mode {
                ResizeMode::InPlace => elastic(document, resize),
                ResizeMode::Restart if document.containers.start.is_some() => refuse(
                    "bad_containers",
                    "containers.start belongs to resize: in_place; without it a gang starts with what it is given, containers.min at least",
                ),
                ResizeMode::Restart => Ok(document),
            }
        }
    }
}

fn refuse<T>(code: &'static str, reason: impl AsRef<str>) -> Result<T, Refusal> {
    Err(Refusal::new(code, reason))
}

fn check_signal(resize: &Resize) -> Result<(), Refusal> {
    match &resize.signal {
        Some(signal) if !SIGNALS.contains(&signal.as_str()) => refuse(
            "bad_resize",
            format!("resize.signal must be one of {}", SIGNALS.join(", ")),
        ),
        Some(_) if resize.mode == ResizeMode::Restart => refuse(
            "bad_resize",
            "resize.signal tells members of another membership; it belongs to mode: in_place",
        ),
        _ => Ok(()),
    }
}

fn elastic(document: JobDocument, resize: Resize) -> Result<JobDocument, Refusal> {
    if document.kind == Kind::Batch {
        return refuse(
            "bad_resize",
            "a batch job is not resized in place; leave resize out, or use kind: training",
        );
    }
    if matches!(document.executor, Executor::Mxnet | Executor::Mpi) {
        return refuse(
            "bad_resize",
            "the world of MXNet and MPI is fixed at the start; leave resize out and give a checkpoint instead",
        );
    }
    let containers = document.containers;
    let start = containers.start();
    if start < containers.min || start > containers.max {
        return refuse(
            "bad_containers",
            format!(
                "containers.start {start} must lie between containers.min {} and .max {}",
                containers.min, containers.max
            ),
        );
    }
    Ok(JobDocument {
        resize: Some(resize),
        ..document
    })
}

fn serving(document: JobDocument) -> Result<JobDocument, Refusal> {
    let named = match document.kind {
        Kind::Notebook => "a notebook",
        _ => "a service",
    };
    let says = |code, what: &str| refuse(code, format!("{named} {what}"));
    if document
        .resize
        .as_ref()
        .is_some_and(|it| it.mode == ResizeMode::Restart)
    {
        return says("bad_resize", "is resized in place; leave resize out");
    }
    if document.tasks.is_some() {
        return says(
            "bad_tasks",
            "has no tasks; leave tasks out, or use kind: batch",
        );
    }
    if document.executor != Executor::Plain {
        return says(
            "bad_service",
            "has replicas that do not know each other; leave executor out",
        );
    }
    if document.checkpoint.mode != CheckpointMode::None {
        return says("bad_checkpoint", "has no checkpoint; leave checkpoint out");
    }
    if document.success != Success::All {
        return says(
            "bad_service",
            "runs until it is cancelled; leave success out",
        );
    }
    if document.containers.start.is_some() {
        return says(
            "bad_containers",
            "has no containers.start: its replicas start one by one; give min and max",
        );
    }
    if document.kind == Kind::Notebook && document.containers.max != 1 {
        return says(
            "bad_containers",
            "has one container; leave containers out, or give {min: 0, max: 1}",
        );
    }
    let mut service = document.service.clone().unwrap_or_default();
    check_service(&service)?;
    if document.kind == Kind::Notebook {
        check_token(&document)?;
        // Jupyter's first page requires a token; this path does not.
        if service.ready.path == Ready::default().path {
            "/api".clone_into(&mut service.ready.path);
        }
    }
    if document.kind == Kind::Notebook && service.objective.is_some() {
        return says(
            "bad_objective",
            "has no objective; leave service.objective out",
        );
    }
    let resize = document.resize.clone().unwrap_or_else(Resize::in_place);
    Ok(JobDocument {
        resize: Some(resize),
        service: Some(service),
        ..document
    })
}

/// Notebooks run arbitrary code, so a token is required, but not on the log.
fn check_token(document: &JobDocument) -> Result<(), Refusal> {
    if let Some(EnvValue::Plain(_)) = document.env.get("JUPYTER_TOKEN") {
        return refuse(
            "bad_token",
            "env.JUPYTER_TOKEN would stand on the log for everybody to read; leave it out, and the node's agent makes a token (`dormouse notebook open` prints it), or refer to one: {from: {file: PATH}}",
        );
    }
    let command = &document.command;
    let words = command.start.iter().chain(&command.resume);
    let is_of_token = |word: &&String| {
        let name = word.split('=').next().unwrap_or_default();
        let name = name.trim_start_matches('-').to_ascii_lowercase();
        name == "token" || name.ends_with(".token") || name.ends_with("password")
    };
    match words.into_iter().find(is_of_token) {
        Some(word) => refuse(
            "bad_token",
            format!(
                "command: {} would stand on the log, or leave the notebook without a token; leave it out, and the node's agent makes one (`dormouse notebook open` prints it)",
                word.split('=').next().unwrap_or_default()
            ),
        ),
        None => Ok(()),
    }
}

fn check_service(service: &Service) -> Result<(), Refusal> {
    let bad = |reason: String| refuse("bad_service", reason);
    if let Some(objective) = service.objective {
        if !(1..=MAX_LATENCY_MS).contains(&objective.latency_ms) {
            return refuse(
                "bad_objective",
                format!(
                    "service.objective.latency_ms {} must lie between 1 and {MAX_LATENCY_MS}",
                    objective.latency_ms
                ),
            );
        }
        if !objective.percentile.is_meaningful() {
            return refuse(
                "bad_objective",
                "service.objective.percentile must lie between 1 and 99.999: nothing promises every request",
            );
        }
    }
    let path = &service.ready.path;
    if !path.starts_with('/') || path.chars().any(|c| c.is_control() || c == ' ') {
        return bad("service.ready.path must be a path such as /healthz".to_owned());
    }
    if !(1..=MAX_WAIT_S).contains(&service.ready.timeout_s) {
        return bad(format!(
            "service.ready.timeout_s must lie between 1 and {MAX_WAIT_S}"
        ));
    }
    if service.drain_s > MAX_WAIT_S {
        return bad(format!("service.drain_s must be at most {MAX_WAIT_S}"));
    }
    if !(1..=MAX_IDLE_S).contains(&service.idle_s) {
        return bad(format!(
            "service.idle_s must lie between 1 and {MAX_IDLE_S}, a week"
        ));
    }
    if !(1..=MAX_CONCURRENCY).contains(&service.concurrency) {
        return bad(format!(
            "service.concurrency must lie between 1 and {MAX_CONCURRENCY}: the requests that a replica works on at once"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
