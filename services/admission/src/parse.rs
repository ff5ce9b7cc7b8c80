//! Turns job documents into normalised specifications, or refuses them with advice.

use dormouse_messages::job::{Batch, CheckpointMode, JobDocument, JobSpec, Kind};
use dormouse_messages::needs::is_taint;
use dormouse_messages::policy::MAX_MIN_RUN_S;
use dormouse_messages::reservation::is_of_reservations;
use dormouse_messages::speed::MOST_SPEEDS;
use dormouse_messages::{Amounts, JobId, TenantId};

use crate::checks::{
    SIGNALS, amounts, check_containers, check_limit, check_priority, check_weight, unfit,
};
use crate::refusal::Refusal;
use crate::{gpu, python, roles, service, tasks, workdir};

/// A day: longer than any checkpoint.
const MAX_GRACE_S: u32 = 86_400;
/// A job that fails more often is broken.
const MAX_RETRIES: u32 = 1_000;
/// More dependencies belong behind one gathering job.
const MAX_DEPENDENCIES: usize = 64;
/// Samples of a batch; sums of squares stay exact in a double.
const MAX_BATCH: u32 = 1 << 26;
const MAX_TOLERATIONS: usize = 16;
/// Checks and normalises a document; `fallback_name` and `default_priority` replace missing values.
///
/// # Errors
/// The first problem, with its remedy.
pub fn parse_job(
    document: JobDocument,
    tenant: &TenantId,
    fallback_name: &str,
    default_priority: i32,
) -> Result<(JobId, JobSpec), Refusal> {
    if let Some(other) = document
        .tenant
        .as_deref()
        .filter(|named| *named != tenant.as_str())
    {
        return Err(Refusal::new(
            "wrong_tenant",
            format!(
                "the document names tenant {other:?} but came in as {tenant}; leave `tenant` out or submit it there"
            ),
        ));
    }
    let name = document
        .name
        .clone()
        .unwrap_or_else(|| fallback_name.to_owned());
    let job =
        JobId::new(tenant, &name).map_err(|error| Refusal::new("bad_name", error.to_string()))?;
    let demand = demand(&document)?;
    let (gpu_limit_milli, gpu_memory_bytes) = gpu::check(&document, &demand)?;
    let workdir = workdir::check(&document)?;
    let python = python::check(&document)?;
    let document = service::normalise(tasks::normalise(document)?)?;
    check_numbers(&document)?;
    check_commands(&document)?;
    check_needs(&document)?;
    let roles = roles::normalise(&document)?;
    let priority = document.priority.unwrap_or(default_priority);
    let depends_on = dependencies(&document, tenant)?;
    let speed_milli = speeds(&document.speed)?;
    let spec = JobSpec {
        name,
        tenant: tenant.to_string(),
        kind: document.kind,
        executor: document.executor,
        image: document.image,
        command: document.command,
        env: document.env,
        demand,
        weight: document.weight,
        containers: document.containers,
        static_containers: document.static_containers,
        checkpoint: document.checkpoint,
        min_run_s: document.min_run_s,
        ready: document.ready,
        time_limit_s: document.time_limit_s.filter(|limit_s| *limit_s > 0),
        warning: document.warning,
        queue_limit_s: document.queue_limit_s.filter(|limit_s| *limit_s > 0),
        success: document.success,
        mounts: document.mounts,
        network: document.network,
        retries: document.retries,
        priority,
        // Admission resolves the class.
        priority_class: None,
        depends_on,
        tasks: document.tasks,
        resize: document.resize.unwrap_or_default(),
        service: document.service,
        constraints: document.constraints,
        tolerations: document.tolerations,
        gpu_limit_milli,
        gpu_memory_bytes,
        roles,
        workdir,
        python,
        speed_milli,
        batch: document.batch,
    };
    Ok((job, spec))
}

fn demand(document: &JobDocument) -> Result<Amounts, Refusal> {
    amounts("demand", &document.demand)
}

fn check_batch(document: &JobDocument) -> Result<(), Refusal> {
    let Some(Batch { min, max }) = document.batch else {
        return Ok(());
    };
    let most = document.containers.max;
    let reason = if document.kind != Kind::Training {
        "batch belongs to kind: training".to_owned()
    } else if min == 0 || min > max || max > MAX_BATCH {
        format!("batch: min {min} and max {max} must satisfy 1 ≤ min ≤ max ≤ {MAX_BATCH}")
    } else if most > max {
        format!(
            "batch.max {max} is below containers.max {most}, and each container needs a sample; raise the one or lower the other"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new("bad_batch", reason))
}

/// In thousandths of the speed of one container.
fn speeds(table: &[f64]) -> Result<Vec<u32>, Refusal> {
    let refuse = |reason: String| Err(Refusal::new("bad_speed", reason));
    if table.len() > MOST_SPEEDS {
        return refuse(format!(
            "speed states {} numbers of containers; the most is {MOST_SPEEDS}, the last holds for more",
            table.len()
        ));
    }
    let [first, ..] = table else {
        return Ok(Vec::new());
    };
    if (first - 1.0).abs() > 1e-9 {
        return refuse(format!(
            "speed begins with {first}; it must begin with 1, the speed of one container, such as [1, 1.9, 2.6]"
        ));
    }
    let mut milli = Vec::with_capacity(table.len());
    for (at, speed) in table.iter().enumerate() {
        if !(0.001..=1e6).contains(speed) {
            return refuse(format!(
                "speed[{at}] is {speed}; it must lie between 0.001 and 1000000 speeds of one container"
            ));
        }
        milli.push((speed * 1000.0).round() as u32);
    }
    Ok(milli)
}

fn dependencies(document: &JobDocument, tenant: &TenantId) -> Result<Vec<JobId>, Refusal> {
    let refuse = |reason: String| Err(Refusal::new("bad_dependency", reason));
    if document.depends_on.len() > MAX_DEPENDENCIES {
        return refuse(format!(
            "depends_on names {} jobs; the most is {MAX_DEPENDENCIES}: let one job gather them",
            document.depends_on.len()
        ));
    }
    let mut jobs = Vec::new();
    for text in &document.depends_on {
        let name = match text.split_once('/') {
            Some((other, _)) if other != tenant.as_str() => {
                return refuse(format!(
                    "depends_on: {text:?} is another tenant's; a job depends on jobs of its own tenant"
                ));
            }
            Some((_, name)) => name,
            None => text,
        };
        let job = JobId::new(tenant, name)
            .map_err(|error| Refusal::new("bad_dependency", format!("depends_on: {error}")))?;
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    Ok(jobs)
}

fn check_warning(document: &JobDocument) -> Result<(), Refusal> {
    let limit_s = document.time_limit_s.filter(|limit_s| *limit_s > 0);
    let bad = |reason: String| Err(Refusal::new("bad_limit", reason));
    if document.kind.is_served() && limit_s.is_some() {
        return bad(
            "time_limit_s belongs to training and batch; a service runs until it is cancelled, a notebook has service.idle_s"
                .to_owned(),
        );
    }
    let Some(warning) = &document.warning else {
        return Ok(());
    };
    if !SIGNALS.contains(&warning.signal.as_str()) {
        return bad(format!(
            "warning.signal must be one of {}",
            SIGNALS.join(", ")
        ));
    }
    match limit_s {
        None => bad("warning comes before time_limit_s; give that, too".to_owned()),
        Some(limit_s) if warning.before_s == 0 || warning.before_s >= limit_s => bad(format!(
            "warning.before_s {} must lie between 1 and less than time_limit_s {limit_s}",
            warning.before_s
        )),
        Some(_) => Ok(()),
    }
}

fn check_numbers(document: &JobDocument) -> Result<(), Refusal> {
    let containers = document.containers;
    let is_service = matches!(document.kind, Kind::Inference | Kind::Notebook);
    check_containers(containers, document.static_containers, is_service)?;
    check_weight(document.weight)?;
    if document.kind == Kind::Batch && document.tasks.is_none() && containers.max > 1 {
        return Err(Refusal::new(
            "bad_containers",
            "a batch job has one container; use kind: training for more, or tasks: {count, concurrency} for many tasks",
        ));
    }
    if document
        .min_run_s
        .is_some_and(|min_run_s| min_run_s > MAX_MIN_RUN_S)
    {
        return Err(Refusal::new(
            "bad_min_run",
            format!(
                "min_run_s must lie between 0 and {MAX_MIN_RUN_S}, a day; checkpoint: {{mode: none}} is never resized"
            ),
        ));
    }
    if document.checkpoint.grace_s == 0 || document.checkpoint.grace_s > MAX_GRACE_S {
        return Err(Refusal::new(
            "bad_checkpoint",
            format!("checkpoint.grace_s must lie between 1 and {MAX_GRACE_S}"),
        ));
    }
    check_batch(document)?;
    check_priority(document.priority.unwrap_or(0))?;
    check_limit("time_limit_s", document.time_limit_s)?;
    check_limit("queue_limit_s", document.queue_limit_s)?;
    check_warning(document)?;
    if document.ready.is_some() && (document.kind.is_served() || document.tasks.is_some()) {
        return Err(Refusal::new(
            "bad_ready",
            "ready belongs to training jobs; a service has service.ready, a task set needs none",
        ));
    }
    if document.retries > MAX_RETRIES {
        return Err(Refusal::new(
            "bad_retries",
            format!("retries must be at most {MAX_RETRIES}"),
        ));
    }
    Ok(())
}

fn check_needs(document: &JobDocument) -> Result<(), Refusal> {
    let wrong = document.tolerations.iter().find(|taint| !is_taint(taint));
    if let Some(taint) = wrong {
        let reason = format!(
            "tolerations: {taint:?} cannot be a taint; it is a label such as old, or one with its value such as owner=ads"
        );
        return Err(Refusal::new("bad_tolerations", reason));
    }
    let reserved = document
        .tolerations
        .iter()
        .find(|it| is_of_reservations(it));
    if let Some(taint) = reserved {
        let reason = format!(
            "tolerations: {taint:?} is of reservations, which name their tenants and jobs themselves; leave it out"
        );
        return Err(Refusal::new("bad_tolerations", reason));
    }
    if document.tolerations.len() > MAX_TOLERATIONS {
        let reason = format!("tolerations are at most {MAX_TOLERATIONS}");
        return Err(Refusal::new("bad_tolerations", reason));
    }
    Ok(())
}

fn check_commands(document: &JobDocument) -> Result<(), Refusal> {
    let empty = |words: &[String]| words.first().is_none_or(String::is_empty);
    if empty(&document.command.start) {
        return Err(Refusal::new(
            "bad_command",
            "command.start is empty; give the program and its arguments as a list",
        ));
    }
    if document
        .image
        .as_deref()
        .is_some_and(|image| image.trim().is_empty())
    {
        return Err(Refusal::new(
            "bad_image",
            "image is empty; name one such as python:3.12, or leave it out",
        ));
    }
    if !SIGNALS.contains(&document.checkpoint.signal.as_str()) {
        return Err(Refusal::new(
            "bad_checkpoint",
            format!("checkpoint.signal must be one of {}", SIGNALS.join(", ")),
        ));
    }
    let command = &document.checkpoint.command;
    if document.checkpoint.mode == CheckpointMode::None && !command.is_empty() {
        return Err(Refusal::new(
            "bad_checkpoint",
            "checkpoint.command is given but checkpoint.mode is none; set it to exit or continue",
        ));
    }
    for mount in &document.mounts {
        if !mount.source.starts_with('/') || !mount.target.starts_with('/') {
            return Err(Refusal::new(
                "bad_mount",
                format!(
                    "mount {} → {}: both paths must be absolute",
                    mount.source, mount.target
                ),
            ));
        }
        if let Some(kernels) = covers_the_kernels(&mount.target) {
            return Err(Refusal::new(
                "bad_mount",
                format!(
                    "mount {} → {}: the target would cover {kernels} or lie in it, which a container needs as it is; choose another one, without ..",
                    mount.source, mount.target
                ),
            ));
        }
    }
    let words = document.command.start.iter();
    let words = words.chain(&document.command.resume).chain(command);
    match unfit(words, &document.env) {
        Some(why) => Err(Refusal::new("bad_command", why)),
        None => Ok(()),
    }
}

/// Returns the kernel folder that a mount would cover or enter.
fn covers_the_kernels(target: &str) -> Option<&'static str> {
    let mut names = target.split('/').filter(|name| !matches!(*name, "" | "."));
    match names.next() {
        None => Some("/"),
        Some("dev") => Some("/dev"),
        Some("proc") => Some("/proc"),
        Some("sys") => Some("/sys"),
        Some(first) => [first]
            .into_iter()
            .chain(names)
            .any(|it| it == "..")
            .then_some("/"),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::{Event, Timestamp};

    use super::*;
    use crate::decode::decode;
    use crate::intake;

    #[test]
    fn a_mount_covers_nothing_of_the_kernels() {
        for (target, covered) in [
            ("/", Some("/")),
            ("/dev", Some("/dev")),
            ("//dev/", Some("/dev")),
            ("/./dev/shm", Some("/dev")),
            ("/proc/self", Some("/proc")),
            ("/sys/fs/cgroup", Some("/sys")),
            ("/data/../dev", Some("/")),
            ("/..", Some("/")),
            ("/data", None),
            ("/devices", None),
            ("/data/dev", None),
            ("/data/..x", None),
        ] {
            assert_eq!(covers_the_kernels(target), covered, "{target}");
        }
    }

    #[test]
    fn an_empty_image_is_refused() {
        let json = r#"{"command": {"start": ["true"]}, "demand": {"cpu": 1}, "image": " "}"#;
        let document: JobDocument = serde_json::from_str(json).expect("a document");
        let tenant = TenantId::new("ads").expect("valid");
        let refused = parse_job(document, &tenant, "a", 0).expect_err("refused");
        assert_eq!(refused.code, "bad_image");
    }

    #[test]
    fn a_batch_has_a_sample_for_each_container() {
        let refused = |batch: &str, max: u32| {
            let json = format!(
                r#"{{"command": {{"start": ["true"]}}, "demand": {{"cpu": 1}}, "containers": {{"max": {max}}}, "batch": {batch}}}"#
            );
            let document: JobDocument = serde_json::from_str(&json).expect("a document");
            let tenant = TenantId::new("ads").expect("valid");
            parse_job(document, &tenant, "a", 0)
                .err()
                .map(|it| it.reason)
        };
        assert_eq!(refused(r#"{"min": 4, "max": 64}"#, 8), None);
        let below = refused(r#"{"min": 4, "max": 7}"#, 8).expect("refused");
        assert!(
            below.contains("batch.max 7 is below containers.max 8"),
            "{below}"
        );
        for wrong in [r#"{"min": 0, "max": 7}"#, r#"{"min": 8, "max": 7}"#] {
            let reason = refused(wrong, 2).expect("refused");
            assert!(reason.contains("1 ≤ min ≤ max"), "{reason}");
        }
    }

    #[test]
    fn a_language_without_integers_can_submit() {
        let json = r#"{"command": {"start": ["true"]}, "demand": {"cpu": 1.0}, "weight": 2.0,
            "containers": {"min": 1.0, "max": 4.0}, "retries": 3.0, "priority": -1.0,
            "checkpoint": {"grace_s": 30.0}}"#;
        let Event::SubmissionReceived(received) = intake::received(
            1,
            Timestamp::default(),
            "ads",
            "submit",
            None,
            json.as_bytes(),
        ) else {
            panic!("a submission");
        };
        let document: JobDocument = decode(&received).expect("valid");
        let tenant = TenantId::new("ads").expect("valid");
        let (_, spec) = parse_job(document, &tenant, "a", 0).expect("valid");
        assert_eq!((spec.weight, spec.containers.max), (2, 4));
        assert_eq!(
            (spec.retries, spec.priority, spec.checkpoint.grace_s),
            (3, -1, 30)
        );
    }
}
