//! Describes each event in one line.
//!
//! - `bounds.rs`: grants and preemptions. `entitlement.rs`: budgets and reservations.
//! - `serving.rs`: services, gateways, partitions resized in place. `slurm.rs`: queues of Slurm.

mod bounds;
pub mod entitlement;
mod serving;
mod slurm;

use dormouse_messages::events::{
    AllocationDecided, ContainerExited, Fill, JobAllocation, JobReleased, JobRevised,
    JobSpeedFitted, LogArchived, LogFilled, NodeDrained, NodeLabelled, Outcome, PlacementRefused,
    SubmissionsRateLimited, TenantConfigured, WebhookConfigured,
};
use dormouse_messages::job::JobSpec;
use dormouse_messages::policy::Policy;
use dormouse_messages::sanitize;
use dormouse_messages::speed::CurveSource;
use dormouse_messages::{Event, JobId, Recorded, Resource, Shares, Timestamp};
use dormouse_projections::status::job_of;

pub use bounds::{grants, preemption};

/// Describes an event and its author in one line.
#[must_use]
pub fn described(recorded: &Recorded) -> String {
    let said = recorded.event().map(describe).unwrap_or_default();
    match recorded.by() {
        None => said,
        Some(by) if said.is_empty() || said == BY_THE_OPERATOR => format!("by {by}"),
        Some(by) => format!("{said}; by {by}"),
    }
}

/// Describes the policy in one line.
#[must_use]
pub fn policy(policy: &Policy) -> String {
    let shares = match policy.shares {
        Shares::Job => String::new(),
        Shares::Tenant => ", shares by tenant".to_owned(),
        Shares::Remembered(memory) => {
            format!(", shares by tenant with half-life {}", memory.half_life())
        }
    };
    format!(
        "{}, θ1 {}, θ2 {}, queue {}{shares}",
        name(&policy.allocation),
        policy.theta1,
        policy.theta2,
        policy.queue.as_str()
    )
}

/// [`described`] replaces this text by the operator's name, if known.
const BY_THE_OPERATOR: &str = "by the operator";

/// Describes an event in one line.
#[must_use]
pub fn describe(event: &Event) -> String {
    match event {
        Event::ClusterConfigured(e) => format!("policy {}", policy(&e.policy)),
        Event::TenantConfigured(e) => tenant(e),
        Event::WebhookConfigured(e) => webhook(e),
        Event::TenantGranted(e) => format!("{}: {}", e.tenant, grants(&e.grants)),
        Event::TenantRemoved(e) => match &e.reason {
            Some(reason) => format!("{}: {reason}", e.tenant),
            None => e.tenant.to_string(),
        },
        Event::KeyCreated(_) | Event::KeyRotated(_) | Event::KeyRevoked(_) => key(event),
        Event::BudgetConfigured(_)
        | Event::BudgetLevelChanged(_)
        | Event::ReservationConfigured(_)
        | Event::ReservationRemoved(_)
        | Event::ReservationPhaseChanged(_) => entitlement::describe(event),
        Event::SlurmQueueConfigured(_)
        | Event::SlurmQueueRemoved(_)
        | Event::SlurmRequested(_)
        | Event::SlurmSubmitted(_)
        | Event::SlurmRefused(_)
        | Event::SlurmEstimated(_)
        | Event::SlurmGranted(_)
        | Event::SlurmReleased(_)
        | Event::SlurmEnded(_) => slurm::describe(event),
        Event::UpgradeApproved(e) => format!("up to format {}", e.format),
        Event::BuildJoined(e) => format!("{} runs {}", e.process, e.build),
        Event::BuildLeft(e) => format!("{} left", e.process),
        Event::ClusterUpgraded(e) => format!("format {} is written from now on", e.format),
        Event::NodeDrained(e) => drained(e),
        Event::NodeRestored(_) | Event::NodeRemoved(_) => BY_THE_OPERATOR.to_owned(),
        Event::NodeLabelled(e) => labelled(e),
        Event::SubmissionReceived(e) => format!("{} from {}, {} bytes", e.verb, e.tenant, e.bytes),
        Event::SubmissionsRateLimited(e) => rate_limited(e),
        Event::JobAdmitted(e) => admitted(&e.spec),
        Event::JobRefused(e) => format!("{}: {}", e.code, e.reason),
        Event::JobReleased(e) => released(e),
        Event::PlanAccepted(e) => {
            let got = planned(e.containers);
            format!("planned after event {}: {got}", e.planned_at)
        }
        Event::PlanMissed(e) => {
            let (had, got) = (planned(e.planned), planned(e.containers));
            format!("planned: {had}; decided at event {}: {got}", e.decided)
        }
        Event::JobRevised(e) => revised(e),
        Event::JobRequeued(_) => "it gives its room back, and starts again".to_owned(),
        Event::JobCancelRequested(_) => "on request".to_owned(),
        Event::AllocationDecided(e) => allocated(e),
        Event::AllocationUnchanged(e) => format!("{}; {}", e.reason, figures(&e.outcome)),
        Event::JobSpeedFitted(e) => fitted(e),
        Event::StartsForecast(e) => format!("of {} waiting jobs", e.starts.len()),
        Event::PlacementDecided(e) => {
            format!("{} to create, {} to remove", e.create.len(), e.remove.len())
        }
        Event::PlacementRefused(e) => refused(e),
        Event::NodeLost(e) if e.last_seen == Timestamp::default() => "not seen".to_owned(),
        Event::NodeLost(e) => format!("last seen {}", e.last_seen.to_words()),
        Event::NodeFenced(e) => format!("its containers have ended: {}", e.reason),
        Event::NodeRecovered(_) => "a member again".to_owned(),
        Event::NodeQuarantined(e) => format!("until {}: {}", e.until, e.reason),
        Event::NodeReadmitted(_) => "tried again".to_owned(),
        Event::NodeFaulted(e) => format!("{}/{}/{}: {}", e.job, e.incarnation, e.rank, e.reason),
        Event::CheckpointRejected(e) => format!("{}: {}", e.uri, e.reason),
        _ => rest(event),
    }
}

fn key(event: &Event) -> String {
    match event {
        Event::KeyCreated(e) => match e.role {
            Some(role) => format!("{} has a key, as {role}", e.name),
            None => format!("{} has a key", e.name),
        },
        Event::KeyRotated(e) if e.revoked == 0 => {
            format!("{} has another key next to the one before", e.name)
        }
        Event::KeyRotated(e) => format!("{} has another key instead of {}", e.name, e.revoked),
        Event::KeyRevoked(e) => format!("{} has no key any more", e.name),
        _ => String::new(),
    }
}

fn admitted(spec: &JobSpec) -> String {
    let (demand, bounds) = (&spec.demand, spec.containers);
    let roles = spec.roles.iter();
    let roles = roles.map(|(name, it)| format!(", {name}: {} × {}", it.demand, it.count));
    let roles: String = roles.collect();
    format!("{demand} × {}–{}{roles}", bounds.min, bounds.max)
}

fn tenant(event: &TenantConfigured) -> String {
    let quota = if event.quota.is_empty() {
        "no quota".to_owned()
    } else {
        format!("quota {}", event.quota)
    };
    format!("{}: weight {}, {quota}", event.tenant, event.weight)
}

fn planned(containers: u32) -> String {
    match containers {
        0 => "it waits".to_owned(),
        count => sanitize::containers(count),
    }
}

fn revised(e: &JobRevised) -> String {
    let weight = e.weight.map(|weight| format!("weight {weight}"));
    let containers = e
        .containers
        .map(|it| format!("{}–{} containers", it.min, it.max));
    let number = |name: &str, value: Option<String>| value.map(|it| format!("{name} {it}"));
    let priority = number("priority", e.priority.map(|it| it.to_string()));
    let time = number("time limit", e.time_limit_s.map(|it| format!("{it} s")));
    let queue = number("queue limit", e.queue_limit_s.map(|it| format!("{it} s")));
    let held = e
        .held
        .map(|held| if held { "on hold" } else { "let go" }.to_owned());
    let limit = e.gpu_limit_milli.map(|it| Resource::Gpu.display(it));
    let gpu = number("GPU limit", limit);
    let changes = [weight, containers, priority, time, queue, gpu, held];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    changes.join(", ")
}

fn drained(event: &NodeDrained) -> String {
    let reason = event.reason.as_deref().unwrap_or(BY_THE_OPERATOR);
    let deadline = event.deadline_s;
    let deadline = deadline.map(|s| format!("; what stays is stopped in {s} s"));
    format!("{reason}{}", deadline.unwrap_or_default())
}

fn rate_limited(event: &SubmissionsRateLimited) -> String {
    let what = match event.verb {
        Some(_) => "measurements",
        None => "messages",
    };
    format!(
        "{} {what} from {} in {:.1} s refused: {} a second are taken",
        event.count,
        event.tenant,
        event.until.seconds_since(event.since),
        event.max_rate
    )
}

fn archived(event: &LogArchived) -> String {
    let mut text = format!(
        "segment {}, events {} to {}, in {}",
        event.number, event.first, event.last, event.place
    );
    if event.findings > 0 {
        text.push_str(&format!(
            "; {} decisions did not come out again",
            event.findings
        ));
    }
    text
}

fn filled(event: &LogFilled) -> String {
    let does = match event.fill {
        Fill::Roomy => "it has room again",
        Fill::Filling => "it is archived and trimmed sooner",
        Fill::Full => "submissions are refused until it has room",
    };
    format!(
        "{} % of {} are used: {does}",
        event.percent(),
        Resource::Memory.display(event.most_bytes)
    )
}

fn labelled(event: &NodeLabelled) -> String {
    let labels = event.labels.iter().map(|(label, value)| match value {
        Some(value) => format!("{label}={value}"),
        None => format!("{label} taken away"),
    });
    let taints = event.taints.iter().map(|(taint, is_put)| match is_put {
        true => format!("taint {taint}"),
        false => format!("taint {taint} taken away"),
    });
    labels.chain(taints).collect::<Vec<_>>().join(", ")
}

fn released(event: &JobReleased) -> String {
    event.turn.as_ref().map_or_else(
        || "may have containers".to_owned(),
        |turn| {
            let factor = turn.factor.map(|factor| {
                let (whole, part) = (factor / 1000, factor % 1000);
                format!(", its past use counts ×{whole}.{part:03}")
            });
            format!(
                "{} turn: {} runs {:.1}% and has {:.1}% queued{}",
                turn.queue.as_str(),
                event.job.tenant(),
                100.0 * turn.share,
                100.0 * turn.demand_share,
                factor.unwrap_or_default()
            )
        },
    )
}

fn rest(event: &Event) -> String {
    match event {
        Event::ClockStepped(e) => format!("by {} ms, at event {}", e.by_ms, e.sequence),
        Event::LogArchived(e) => archived(e),
        Event::LogTrimmed(e) => {
            format!(
                "begins at event {}: segments to {} are archived",
                e.first, e.number
            )
        }
        Event::LogFilled(e) => filled(e),
        Event::CheckpointRequested(e) => format!("incarnation {}", e.incarnation),
        Event::PartitionStartRequested(e) => {
            format!(
                "incarnation {}, {}{}",
                e.incarnation,
                sanitize::containers(e.containers),
                from(e.resumed_from.as_deref())
            )
        }
        Event::PartitionStopRequested(e) => {
            format!("incarnation {}: {}", e.incarnation, name(&e.reason))
        }
        Event::PartitionStarted(e) => {
            format!(
                "incarnation {}, {}{}",
                e.incarnation,
                sanitize::containers(e.containers),
                from(e.resumed_from.as_deref())
            )
        }
        Event::PartitionStopped(e) => {
            format!("incarnation {}: {}", e.incarnation, name(&e.reason))
        }
        Event::ResizeAbandoned(e) => e.reason.clone(),
        Event::PartitionWarned(e) => format!("{} s are left: {}", e.left_s, e.signal),
        Event::JobCompleted(e) => e.reason.clone(),
        Event::JobFailed(e) => e.reason.clone(),
        Event::JobCancelled(e) => e.reason.clone(),
        Event::NodeJoined(e) => format!(
            "{} ({}), {} running",
            e.capacity,
            e.runtime,
            e.running.len()
        ),
        Event::ContainerStarted(e) => format!("{} on {}", e.container, e.node),
        Event::ContainerExited(e) => format!("{} on {}: {}", e.container, e.node, exit(e)),
        Event::CheckpointSaved(e) => {
            format!("step {}, {} bytes in {} ms", e.step, e.bytes, e.duration_ms)
        }
        Event::CheckpointFailed(e) => e.reason.clone(),
        Event::Progress(e) => {
            let metrics = e
                .metrics
                .iter()
                .map(|(name, value)| format!(", {name} {value:.4}"));
            format!(
                "step {} of {}{}",
                e.step,
                e.steps_total,
                metrics.collect::<String>()
            )
        }
        _ => tasks(event),
    }
}

fn tasks(event: &Event) -> String {
    match event {
        Event::TasksAssigned(e) => {
            let tasks: u64 = e.assigned.iter().map(|given| given.tasks.len()).sum();
            format!("{tasks} tasks for {} containers", e.assigned.len())
        }
        Event::TasksEnded(e) => {
            let failed = match e.failed.first() {
                Some(first) => format!(
                    ", {} failed (task {} with exit code {})",
                    e.failed.len(),
                    first.task,
                    first.exit_code
                ),
                None => String::new(),
            };
            format!(
                "{} tasks completed at rank {} on {}{failed}",
                e.completed.len(),
                e.rank,
                e.node
            )
        }
        _ => serving::describe(event).unwrap_or_default(),
    }
}

/// Returns an enum value as it is serialized, with spaces for underscores.
pub fn name(word: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(word).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn allocated(event: &AllocationDecided) -> String {
    let change = |job: &JobAllocation| format!("{} {}→{}", job.job, job.previous, job.containers);
    let changes: Vec<String> = event.jobs.iter().map(change).collect();
    format!("{}; {}", changes.join(", "), figures(&event.outcome))
}

fn webhook(event: &WebhookConfigured) -> String {
    let url = event.url.as_deref().unwrap_or("nowhere");
    format!("events of {} are posted to {url}", event.tenant)
}

fn fitted(event: &JobSpeedFitted) -> String {
    let from = match event.source {
        CurveSource::Measured => "measured at",
        CurveSource::Family => "measured on jobs of its name at",
        CurveSource::Document => "stated for",
    };
    let counts = event.points.len();
    let plural = if counts == 1 { "" } else { "s" };
    let error = event.error * 100.0;
    format!("{from} {counts} number{plural} of containers, error {error:.0} %")
}

fn refused(event: &PlacementRefused) -> String {
    let first = event.unplaceable.first().map(ToString::to_string);
    let more = match event.unplaceable.len() {
        0 | 1 => String::new(),
        all => format!(", and {} more", all - 1),
    };
    let first = first.unwrap_or_default();
    format!("{first}{more}; the optimizer decides again")
}

fn figures(outcome: &Outcome) -> String {
    format!(
        "utilization {:.3} of {}, loss {:.3} ≤ {:.3}, adjusted {}{}, waiting {}",
        outcome.utilization.total,
        outcome.utilization.resources.len(),
        outcome.fairness_loss,
        outcome.fairness_loss_bound,
        outcome.adjusted_jobs,
        match outcome.adjustment_bound {
            u32::MAX => String::new(),
            bound => format!(" ≤ {bound}"),
        },
        outcome.waiting.len()
    )
}

fn from(checkpoint: Option<&str>) -> String {
    let short = |uri: &str| {
        uri.rsplit_once("checkpoints/")
            .map(|(_, rest)| rest.to_owned())
    };
    checkpoint.map_or(String::new(), |uri| {
        format!(
            ", resumed from {}",
            short(uri).unwrap_or_else(|| uri.to_owned())
        )
    })
}

fn exit(event: &ContainerExited) -> String {
    let how = match (&event.reason, event.exit_code, event.signal) {
        (Some(reason), _, _) => reason.clone(),
        (None, Some(code), _) => format!("exit code {code}"),
        (None, None, Some(signal)) => format!("signal {signal}"),
        (None, None, None) => "ended".to_owned(),
    };
    let memory = if event.out_of_memory {
        ", out of memory"
    } else {
        ""
    };
    format!("{how}{memory}")
}

/// True if the event is about `job`, alone or among others.
#[must_use]
pub fn concerns(event: &Event, job: &JobId) -> bool {
    match event {
        Event::AllocationDecided(e) => {
            e.jobs.iter().any(|a| a.job == *job) || e.outcome.waiting.iter().any(|w| w.job == *job)
        }
        Event::AllocationUnchanged(e) => e.outcome.waiting.iter().any(|w| w.job == *job),
        Event::StartsForecast(e) => e.starts.iter().any(|it| it.job == *job),
        Event::PlacementDecided(e) => {
            e.create.iter().any(|c| c.job == *job) || e.remove.iter().any(|c| c.job == *job)
        }
        Event::PlacementRefused(e) => e.unplaceable.iter().any(|it| it.job == *job),
        Event::NodeGpuReconciled(e) => e.beyond.iter().any(|it| it.container.job == *job),
        event => job_of(event) == Some(job),
    }
}
