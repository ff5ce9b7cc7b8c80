//! Parses documents into normalised specifications, or refuses with advice.

use std::collections::BTreeMap;

use dormouse_messages::events::SubmissionReceived;
use dormouse_messages::job::{CheckpointMode, Containers, EnvValue, JobDocument, JobSpec, Kind};
use dormouse_messages::needs::is_taint;
use dormouse_messages::policy::{MAX_MIN_RUN_S, MAX_PRIORITY, MAX_WEIGHT};
use dormouse_messages::quantity::Written;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Amounts, JobId, TenantId, sanitize, suggest};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{gpu, intake, python, roles, service, tasks, workdir};

/// The largest planned cluster.
pub const MAX_CONTAINERS: u32 = 10_000;
/// A day: longer than any checkpoint.
const MAX_GRACE_S: u32 = 86_400;
/// Ten years: longer is no limit.
const MAX_LIMIT_S: u32 = 315_360_000;
/// A job that fails more often is broken.
const MAX_RETRIES: u32 = 1_000;
/// More dependencies belong behind one gathering job.
const MAX_DEPENDENCIES: usize = 64;
const MAX_TOLERATIONS: usize = 16;
const MAPS: [(&str, &str); 9] = [
    ("command", "{start: [python3, train.py]}"),
    ("containers", "{min: 1, max: 4}"),
    ("demand", "{cpu: 1, memory: 1Gi}"),
    ("checkpoint", "{mode: exit, grace_s: 60}"),
    ("tasks", "{count: 100, concurrency: 8}"),
    ("env", "{BATCH: 512}"),
    ("warning", "{signal: SIGUSR1, before_s: 60}"),
    ("service", "{objective: {latency_ms: 128, percentile: 99}}"),
    ("roles", "{ps: {count: 1, demand: {cpu: 1, memory: 2Gi}}}"),
];
/// Catchable and not stopping.
pub const SIGNALS: [&str; 7] = [
    "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM",
];

/// The reason for refusing a submission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Machine-readable.
    pub code: &'static str,
    /// Problem and remedy.
    pub reason: String,
}

impl Refusal {
    /// Bounds and sanitizes the text.
    pub(crate) fn new(code: &'static str, reason: impl AsRef<str>) -> Self {
        Self {
            code,
            reason: sanitize::shown(reason.as_ref()),
        }
    }
}

/// Returns a submission's document as JSON; `None` if unreadable.
#[must_use]
pub fn document(received: &SubmissionReceived) -> Option<Value> {
    decode(received).ok()
}

/// Decodes a payload of any verb.
pub fn decode<T: DeserializeOwned>(received: &SubmissionReceived) -> Result<T, Refusal> {
    let Some(bytes) = intake::payload(received) else {
        return Err(Refusal::new(
            "too_large",
            format!(
                "the document has {} bytes; the most is {}: {}",
                received.bytes,
                SubmissionReceived::limit_bytes(&received.verb),
                match received.verb.as_str() {
                    MEASURED => "give fewer bounds",
                    _ => "move data into files and name them",
                }
            ),
        ));
    };
    let json = received.content_type.contains("json");
    let value: Option<Value> = if json {
        serde_json::from_slice(&bytes).ok()
    } else {
        rmp_serde::from_slice(&bytes).ok()
    };
    if let Some(refusal) = value.as_ref().and_then(list_for_a_map) {
        return Err(refusal);
    }
    if json {
        decode_json(&bytes)
    } else {
        decode_msgpack(&bytes, value.is_some())
    }
}

fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let decoded: T = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let place = error.path().to_string();
        let error = error.into_inner();
        let text = error.to_string();
        if !error.is_data() {
            return unreadable("JSON", &text);
        }
        // Positions refer to bytes that no person wrote.
        let text = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(text, _)| text);
        wrong_shape(&place, text)
    })?;
    match document.end() {
        Ok(()) => Ok(decoded),
        Err(error) => Err(unreadable("JSON", &error.to_string())),
    }
}

fn decode_msgpack<T: DeserializeOwned>(bytes: &[u8], readable: bool) -> Result<T, Refusal> {
    let mut document = rmp_serde::Deserializer::from_read_ref(bytes);
    serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let place = error.path().to_string();
        let text = error.into_inner().to_string();
        if readable {
            wrong_shape(&place, &text)
        } else {
            unreadable("MessagePack", &text)
        }
    })
}

/// A list's values would bind by position.
fn list_for_a_map(document: &Value) -> Option<Refusal> {
    let wrong = |place: &str, example: &str| {
        let reason = format!("{place} is a list; it must be a map such as {example}");
        Some(Refusal::new("malformed", reason))
    };
    if document.is_array() {
        return wrong(
            "the document",
            "{command: {start: [python3, train.py]}, demand: {cpu: 1, memory: 1Gi}}",
        );
    }
    let listed = |field: &str| document.get(field).is_some_and(Value::is_array);
    if let Some((field, example)) = MAPS.iter().find(|(field, _)| listed(field)) {
        return wrong(field, example);
    }
    let mounts = document.get("mounts")?.as_array()?;
    if mounts.iter().any(Value::is_array) {
        wrong("an entry of mounts", "{source: /data, target: /data}")
    } else {
        None
    }
}

fn unreadable(format: &str, error: &str) -> Refusal {
    Refusal::new(
        "malformed",
        format!("not a valid {format} document: {error}"),
    )
}

fn wrong_shape(place: &str, error: &str) -> Refusal {
    let error = &sanitize::in_words(error);
    let quoted = |prefix: &str| {
        let rest = error.split_once(prefix)?.1;
        rest.split_once('`').map(|(name, _)| name.to_owned())
    };
    let unknown = quoted("unknown field `");
    let error = match place {
        "." => error.to_owned(),
        place if unknown.as_deref() == Some(place) => error.to_owned(),
        place => format!("{place}: {error}"),
    };
    let meant = suggest::of_error(&error);
    if unknown.is_some() {
        let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
        let error = match error.split_once(", expected") {
            // Before the long list of alternatives.
            Some((what, rest)) if !meant.is_empty() => {
                format!("{what}; {meant}Expected{rest}")
            }
            _ => error,
        };
        return Refusal::new("unknown_field", format!("{error}; correct or remove it"));
    }
    if let Some(variant) = quoted("unknown variant `") {
        let meant = suggest::hint(meant.as_deref());
        return Refusal::new(
            "unknown_value",
            format!("{error} (found `{variant}`){meant}"),
        );
    }
    if let Some(field) = quoted("missing field `") {
        let example = MAPS.iter().find(|(name, _)| *name == place);
        let example = example.map_or_else(String::new, |(name, example)| {
            format!(", such as {name}: {example}")
        });
        return Refusal::new("missing_field", format!("{error}; add `{field}`{example}"));
    }
    let error = match LISTS.iter().find(|(name, _)| place.ends_with(name)) {
        Some((_, example)) => error.replace(
            "expected a list",
            &format!("expected a list such as {example}"),
        ),
        None => error,
    };
    let error = match seconds(place, &error) {
        Some(seconds) => format!("{error}; it is in seconds: {seconds}"),
        None => error,
    };
    let quotes = unquoted(&error).map_or_else(String::new, |word| {
        format!("; YAML reads it as text when it is quoted: \"{word}\"")
    });
    Refusal::new("malformed", format!("{error}{quotes}"))
}

const LISTS: [(&str, &str); 4] = [
    ("start", "[python3, train.py]"),
    ("resume", "[python3, train.py]"),
    ("depends_on", "[prepare, lab/download]"),
    ("tolerations", "[spot]"),
];

/// Reads a time such as `4h`.
fn seconds(place: &str, error: &str) -> Option<u64> {
    let written = error
        .split_once("string \"")
        .filter(|_| place.ends_with("_s"))?;
    let (written, _) = written.1.split_once('"')?;
    let (number, unit) = written.split_at(written.find(|c: char| !c.is_ascii_digit())?);
    let each = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "m" | "min" | "minutes" => 60,
        "h" | "hours" => 3600,
        "d" | "days" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

/// Returns the unquoted value: `8` in `[sleep, 8]`.
fn unquoted(error: &str) -> Option<&str> {
    if !error.contains("expected a string") {
        return None;
    }
    let kinds = ["integer `", "floating point `", "boolean `"];
    let rest = kinds.iter().find_map(|kind| error.split_once(kind));
    Some(rest?.1.split_once('`')?.0)
}

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
    };
    Ok((job, spec))
}

fn demand(document: &JobDocument) -> Result<Amounts, Refusal> {
    amounts("demand", &document.demand)
}

/// Parses the amounts of a field.
pub(crate) fn amounts(
    field: &str,
    written: &BTreeMap<String, Written>,
) -> Result<Amounts, Refusal> {
    let entries = written
        .iter()
        .map(|(name, written)| (name.as_str(), written));
    let demand = Amounts::parse(entries)
        .map_err(|error| Refusal::new("bad_demand", format!("{field}: {error}")))?;
    if let Some(why) = demand.lacks_unit() {
        return Err(Refusal::new("bad_demand", format!("{field}: {why}")));
    }
    if demand.is_empty() {
        return Err(Refusal::new(
            "bad_demand",
            format!(
                "{field} is empty; say what one container needs, such as {{cpu: 1, memory: 1Gi}}"
            ),
        ));
    }
    Ok(demand)
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

/// Checks bounds. A service may scale to zero.
pub fn check_containers(
    bounds: Containers,
    fixed: Option<u32>,
    is_service: bool,
) -> Result<(), Refusal> {
    let Containers { min, max, .. } = bounds;
    let bad = |reason| Err(Refusal::new("bad_containers", reason));
    let least = u32::from(!is_service);
    if min < least || min > max || max == 0 || max > MAX_CONTAINERS {
        return bad(format!(
            "containers: min {min} and max {max} must satisfy {least} ≤ min ≤ max ≤ {MAX_CONTAINERS}"
        ));
    }
    match fixed.filter(|fixed| !(min..=max).contains(fixed)) {
        None => Ok(()),
        Some(fixed) => bad(format!(
            "static_containers {fixed} must lie between containers.min {min} and .max {max}"
        )),
    }
}

/// Checks the bounds of a weight.
pub fn check_weight(weight: u32) -> Result<(), Refusal> {
    if (1..=MAX_WEIGHT).contains(&weight) {
        return Ok(());
    }
    let reason = format!("weight {weight} must lie between 1 and {MAX_WEIGHT}");
    Err(Refusal::new("bad_weight", reason))
}

/// Checks the bounds of a priority.
pub fn check_priority(priority: i32) -> Result<(), Refusal> {
    if (-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Ok(());
    }
    let reason = format!("priority {priority} must lie between -{MAX_PRIORITY} and {MAX_PRIORITY}");
    Err(Refusal::new("bad_priority", reason))
}

/// Checks a time limit; 0 means none.
pub fn check_limit(field: &str, limit_s: Option<u32>) -> Result<(), Refusal> {
    match limit_s.filter(|limit_s| *limit_s > MAX_LIMIT_S) {
        None => Ok(()),
        Some(limit_s) => {
            let reason = format!(
                "{field} {limit_s} must lie between 1 and {MAX_LIMIT_S}; leave it out for no limit"
            );
            Err(Refusal::new("bad_limit", reason))
        }
    }
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

/// Explains a command or environment that no program can receive.
pub(crate) fn unfit<'a>(
    mut words: impl Iterator<Item = &'a String>,
    env: &BTreeMap<String, EnvValue>,
) -> Option<String> {
    let nul = |text: &String| text.contains('\0');
    if let Some(word) = words.find(|word| nul(word)) {
        return Some(format!(
            "the word {word:?} of the command has a NUL byte, which no program can be given; take it out"
        ));
    }
    env.iter().find_map(|(name, value)| {
        if name.is_empty() || name.contains('=') || nul(name) {
            return Some(format!(
                "env has the name {name:?}: a name is not empty and has neither '=' nor a NUL byte"
            ));
        }
        let is_bad = matches!(value, EnvValue::Plain(text) if nul(text));
        is_bad.then(|| {
            format!("env.{name} has a NUL byte, which no program can be given; take it out")
        })
    })
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Event;

    use super::*;

    /// Returns the refusals of a JSON text and of the equal MessagePack.
    fn reasons(json: &str) -> Vec<String> {
        let value: Option<serde_json::Value> = serde_json::from_str(json).ok();
        let packed = value.map(|value| rmp_serde::to_vec_named(&value).expect("encodes"));
        let payloads = [Some(json.as_bytes().to_vec()), packed];
        let reason = |payload: Vec<u8>| {
            let Event::SubmissionReceived(received) =
                intake::received(1, "ads", "submit", None, &payload)
            else {
                panic!("a submission");
            };
            let decoded: Result<JobDocument, Refusal> = decode(&received);
            decoded.expect_err("wrong").reason
        };
        payloads.into_iter().flatten().map(reason).collect()
    }

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
    fn a_refusal_names_the_place_in_the_document() {
        let all = |json: &str, beginning: &str, place: &str| {
            for reason in reasons(json) {
                assert!(reason.starts_with(beginning), "{reason}");
                assert!(reason.contains(place), "{reason}");
                assert!(!reason.contains("column"), "{reason}");
            }
        };
        all(
            r#"{"colour": 1}"#,
            "unknown field `colour`, expected",
            "remove it",
        );
        all(
            r#"{"containers": {"mim": 1}}"#,
            "containers.mim: unknown field `mim`",
            "`min`",
        );
        all(
            r#"{"containers": {"min": "four at line 3"}}"#,
            "containers.min: ",
            "expected a whole number",
        );
        all(
            r#"{"command": {"start": ["sh", 4]}}"#,
            "command.start[1]: ",
            "expected a string",
        );
        all(
            r#"{"containers": 3}"#,
            "containers: ",
            "expected a map such as {min: 1, max: 4}",
        );
        all(
            r#"{"weight": 1.5}"#,
            "weight: invalid type: floating point `1.5`, expected a whole number",
            "0 or more",
        );
        all(
            r#"{"roles": {"ps": {"count": 1}}}"#,
            "roles.ps: missing field `demand`",
            "add `demand`",
        );
    }

    #[test]
    fn a_refusal_says_what_may_be_meant() {
        for (json, meant) in [
            (r#"{"demnd": {"cpu": 1}}"#, "did you mean demand?"),
            (r#"{"gpus": 2}"#, "did you mean demand: {gpu: 1}?"),
            (
                r#"{"replicas": 2}"#,
                "did you mean containers: {min: 1, max: 4}?",
            ),
            (
                r#"{"checkpoint": {"signl": "SIGHUP"}}"#,
                "did you mean signal?",
            ),
            (r#"{"kind": "trainning"}"#, "did you mean training?"),
            (
                r#"{"command": {"resume": ["sleep", "8"]}}"#,
                "add `start`, such as command: {start: [python3, train.py]}",
            ),
            (r#"{"command": {"start": ["sleep", 8]}}"#, "quoted: \"8\""),
            (
                r#"{"command": {"start": "train"}}"#,
                "a list such as [python3, train.py]",
            ),
            (
                r#"{"depends_on": "a"}"#,
                "a list such as [prepare, lab/download]",
            ),
            (r#"{"time_limit_s": "4h"}"#, "it is in seconds: 14400"),
            (
                r#"{"command": {"start": ["echo", true]}}"#,
                "quoted: \"true\"",
            ),
        ] {
            for reason in reasons(json) {
                assert!(reason.contains(meant), "{json}: {reason}");
            }
        }
        for reason in reasons(r#"{"colour": 1}"#) {
            assert!(!reason.contains("did you mean"), "{reason}");
        }
    }

    #[test]
    fn a_list_in_place_of_a_map_is_refused_by_name() {
        for (json, place) in [
            ("[1, 2]", "the document is a list"),
            (r#"{"containers": [1, 4]}"#, "containers is a list"),
            (r#"{"command": ["sh"]}"#, "command is a list"),
            (
                r#"{"mounts": [["/a", "/b"]]}"#,
                "an entry of mounts is a list",
            ),
        ] {
            for reason in reasons(json) {
                assert!(reason.starts_with(place), "{reason}");
                assert!(reason.contains("must be a map such as {"), "{reason}");
            }
        }
    }

    #[test]
    fn a_language_without_integers_can_submit() {
        let json = r#"{"command": {"start": ["true"]}, "demand": {"cpu": 1.0}, "weight": 2.0,
            "containers": {"min": 1.0, "max": 4.0}, "retries": 3.0, "priority": -1.0,
            "checkpoint": {"grace_s": 30.0}}"#;
        let Event::SubmissionReceived(received) =
            intake::received(1, "ads", "submit", None, json.as_bytes())
        else {
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

    #[test]
    fn what_a_refusal_repeats_is_bounded_and_printable() {
        let name = "\\u001b[2J".repeat(10_000);
        for json in [
            format!(r#"{{"weight": "{name}"}}"#),
            format!(r#"{{"{name}": 1}}"#),
            format!(r#"{{"executor": "{name}"}}"#),
        ] {
            for reason in reasons(&json) {
                assert!(reason.chars().count() < 2_000, "{}", reason.len());
                assert!(!reason.contains(char::is_control), "{reason:?}");
            }
        }
    }

    #[test]
    fn what_is_not_json_names_the_position() {
        let twice =
            r#"{"executor": "plain", "command": {"start": ["true"]}, "demand": {"cpu": 1}} {}"#;
        for json in [r#"{"name": "#, twice, "[", r#"{"name" 4}"#] {
            for reason in reasons(json) {
                assert!(reason.contains("at line 1 column"), "{reason}");
            }
        }
    }
}
