//! The query `job`, and the lines of the lists.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_messages::events::StopReason;
use dormouse_messages::job::{Executor, JobSpec, Kind};
use dormouse_messages::near;
use dormouse_messages::roles::Part;
use dormouse_messages::workdir::Workdir;
use dormouse_messages::{Amounts, By, Epoch, Incarnation, JobClass, JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use super::QueryError;
use crate::ReadModel;
use crate::jobs::{
    GpuUsed, Job, Life, Phase, Refused, SavedCheckpoint, StoppedFor, TaskCounts, reason, room::Room,
};
use crate::services::health::Health;
use crate::timelines::{Metric, Timeline, Window};
use dormouse_state::{Queues, Share};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A job's line in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// `tenant/name`.
    pub job: JobId,
    /// Training or batch.
    pub kind: Kind,
    /// How its processes are told their cluster.
    pub executor: Executor,
    /// Where it is in its life.
    pub phase: Phase,
    /// Why it is as it is, for a person.
    pub reason: String,
    /// Its place in its tenant's queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// While it is queued: dominant share of what its tenant has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_share: Option<f64>,
    /// While it is queued: dominant share of what its tenant has queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand_share: Option<f64>,
    /// Machine-readable cause of waiting.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Weight of its fair share.
    pub weight: u32,
    /// Its priority class, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<JobClass>,
    /// How often it was restarted with fewer containers, or sent back to the queue, for others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub preempted: u32,
    /// Its containers.
    pub containers: ContainerCounts,
    /// Dominant share s, a fraction of the cluster as it was when an allocation named the job last.
    pub share: f64,
    /// The same of the cluster as it is: of what the nodes offer that are there now, drained ones
    /// included. Absent where the job has no containers to come or to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_now: Option<f64>,
    /// Weighted DRF share ŝ, a fraction of the cluster.
    pub fair_share: f64,
    /// The last allocation that names it.
    pub epoch: Epoch,
    /// Its partition's life; 0 before the first.
    pub incarnation: Incarnation,
    /// The submission was received.
    pub submitted_at: Timestamp,
    /// The job was admitted.
    pub admitted_at: Timestamp,
    /// The queue let it go.
    pub released_at: Option<Timestamp>,
    /// Its first partition ran.
    pub first_started_at: Option<Timestamp>,
    /// The present phase began.
    pub phase_since: Timestamp,
    /// It ended.
    pub ended_at: Option<Timestamp>,
    /// Seconds from the submission to the end, or to now.
    pub age_s: f64,
    /// Seconds from the submission to now, also of one that has ended.
    #[serde(default)]
    pub submitted_ago_s: f64,
    /// Job completion time: seconds from the submission to the end, once it has ended.
    pub jct_s: Option<f64>,
    /// Seconds from the submission to the first start (to now, to the end).
    pub waiting_s: f64,
    /// Lives that an adjustment began.
    pub resizes: u32,
    /// Lives that a lost node or a failed gang began.
    pub restarts: u32,
    /// Lives that ended in a failure of the job's own.
    pub attempts: u32,
    /// Seconds without progress because of adjustments.
    pub resize_lost_s: f64,
    /// Seconds without progress because of lost nodes and failures.
    pub recovery_lost_s: f64,
    /// Container-seconds run.
    pub container_s: f64,
    /// Steps done, by the last report.
    pub step: Option<u64>,
    /// Steps in all, where it is known.
    pub steps_total: Option<u64>,
    /// How far its tasks are, where it is a task set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    /// What it used of GPUs, where it has parts of some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUsed>,
    /// When it last reported.
    pub progress_at: Option<Timestamp>,
    /// Whatever else it reports, such as loss or accuracy.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Containers by node.
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, u32>,
    /// Whether its tenant has put it on hold.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_hold: bool,
    /// Where a gateway serves it, where it is a service or a notebook that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A job's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerCounts {
    /// The fewest it runs with.
    pub min: u32,
    /// The most it uses.
    pub max: u32,
    /// How many run.
    pub now: u32,
    /// How many the last allocation gives it.
    pub target: u32,
    /// How many of both stand beside its workers, which the bounds are of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beside: u32,
}

/// Which job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    /// `tenant/name`.
    pub job: JobId,
}

/// All that is known of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    /// Its line in the list.
    #[serde(flatten)]
    pub row: JobRow,
    /// The submission that made it: what the broker's acknowledgement said.
    #[serde(default)]
    pub ingress_sequence: u64,
    /// SHA-256 of the bytes that were submitted, in hex.
    #[serde(default)]
    pub sha256: String,
    /// Who submitted it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<By>,
    /// Who asked for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<By>,
    /// Demand of one worker.
    pub demand: Amounts,
    /// What stands beside its workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRow>,
    /// Its specification; dropped when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSpec>,
    /// What it ran, once it has ended; a long command is cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The packed folder that went with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<Workdir>,
    /// The last checkpoint on the log.
    pub checkpoint: Option<SavedCheckpoint>,
    /// Its partition's lives, oldest first.
    pub lives: Vec<LifeRow>,
    /// Older lives that are not listed.
    pub lives_dropped: u32,
    /// Its containers over time.
    pub containers_timeline: Timeline,
    /// What standing on several nodes costs it, by the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// How it is, where it is a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Health>,
}

/// Containers that stand beside a job's workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRow {
    /// The role's name.
    pub role: String,
    /// How many.
    pub count: u32,
    /// Demand of one.
    pub demand: Amounts,
    /// The first of their ranks; the others follow.
    pub first_rank: u32,
}

/// Training on several nodes, where the policy gives that a price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The part of its speed that it loses (`objective.crossing`).
    pub crossing: f64,
    /// As many containers on one node would work as fast.
    pub works_as: f64,
}

/// One life of a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LifeRow {
    /// Its number.
    pub incarnation: Incarnation,
    /// The allocation that it carried out.
    pub epoch: Epoch,
    /// Its containers.
    pub containers: u32,
    /// The nodes they were on.
    pub nodes: u32,
    /// The same by name: where what its containers printed lies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NodeId>,
    /// When its start was requested.
    pub requested_at: Timestamp,
    /// When every container ran.
    pub started_at: Option<Timestamp>,
    /// When none ran any more.
    pub stopped_at: Option<Timestamp>,
    /// Seconds that it ran, until now where it runs.
    pub ran_s: f64,
    /// Why it ended; absent where it runs, or where the job ended with it.
    pub stop_reason: Option<StopReason>,
    /// For what it was stopped, if not to be resized or moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_for: Option<StoppedFor>,
    /// The step that it resumed from; absent on a first start.
    pub resumed_step: Option<u64>,
}

pub(super) fn job(
    model: &ReadModel,
    query: &JobQuery,
    now: Timestamp,
) -> Result<JobDetail, QueryError> {
    let Some(job) = model.jobs.get(&query.job) else {
        let named = |refused: &&Refused| refused.job.as_ref() == Some(&query.job);
        let refused = model.jobs.refused().rev().find(named);
        return Err(QueryError::not_found(match refused {
            Some(refused) => format!("{} was refused: {}", query.job, refused.reason),
            None => format!(
                "there is no job {}{}; `dormouse jobs --all` lists those that are known",
                query.job,
                near::hint(meant(model, &query.job).map(JobId::as_str))
            ),
        }));
    };
    let place = places(&model.queues).get(&query.job).copied();
    // What is over is drawn to its end.
    let window = Window {
        from: None,
        to: job.times.ended,
    };
    let containers_timeline =
        model
            .timelines
            .timeline(Metric::Containers, Some(&query.job), window, 1);
    let room = Room::new(&model.queues, &model.jobs);
    let row = row((model, &room), &query.job, job, place, now);
    let spec = job.live.as_ref().and_then(|live| live.spec.get());
    Ok(JobDetail {
        spread: spread(model, &row),
        service: model.services.get(&query.job).map(|it| it.health(now)),
        row,
        ingress_sequence: job.ingress_sequence,
        sha256: job.sha256.clone(),
        submitted_by: job.submitted_by.clone(),
        cancelled_by: job.cancelled_by.clone(),
        demand: job.demand.clone(),
        roles: roles(job),
        spec: spec.map(std::borrow::Cow::into_owned),
        command: job.command.clone(),
        workdir: job.workdir.as_deref().cloned(),
        checkpoint: job.checkpoint.as_deref().cloned(),
        lives: job.lives.iter().map(|life| life_row(life, now)).collect(),
        lives_dropped: job.lives_dropped,
        containers_timeline,
    })
}

/// The job of the same tenant that may be meant. Of others nothing is said: a tenant asks here, too.
fn meant<'a>(model: &'a ReadModel, id: &JobId) -> Option<&'a JobId> {
    let known = model.jobs.live().chain(model.jobs.ended());
    let own = known.map(|(id, _)| id);
    let own: Vec<&JobId> = own.filter(|it| it.tenant() == id.tenant()).collect();
    let near = near::nearest(id.name(), own.iter().map(|it| it.name()))?;
    own.into_iter().find(|it| it.name() == near)
}

fn roles(job: &Job) -> Vec<RoleRow> {
    let parts = job.beside.parts().iter().enumerate();
    let row = |(index, part): (usize, &Part)| RoleRow {
        role: part.role.clone(),
        count: part.count,
        demand: part.demand.clone(),
        first_rank: job.beside.ranks(index).start,
    };
    parts.map(row).collect()
}

/// What it costs a training job to stand on several nodes, where it does and that has a price.
fn spread(model: &ReadModel, row: &JobRow) -> Option<Spread> {
    let crossing = model.cluster.policy.objective.crossing;
    let crosses = row.nodes.len() > 1 && row.kind == Kind::Training && crossing > 0.0;
    let containers: u32 = row.nodes.values().sum();
    crosses.then(|| Spread {
        crossing,
        works_as: f64::from(containers) * (1.0 - crossing),
    })
}

/// The place of each queued job in its tenant's queue, from 1.
pub(super) fn places(queues: &Queues) -> BTreeMap<&JobId, u64> {
    let queues = queues.tenants.values();
    let places = queues.flat_map(|tenant| tenant.order.iter().map(|(_, id)| id).zip(1..));
    places.collect()
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

pub(super) fn row(
    (model, room): (&ReadModel, &Room<'_>),
    id: &JobId,
    job: &Job,
    position: Option<u64>,
    now: Timestamp,
) -> JobRow {
    let tenant = model
        .queues
        .tenants
        .get(id.tenant())
        .filter(|_| job.phase == Phase::Queued);
    let times = &job.times;
    let progress = job.progress.as_deref();
    let metrics = progress.map(|p| p.metrics.iter().cloned().collect());
    let nodes = job.gang().map(|gang| gang.nodes.iter().cloned().collect());
    JobRow {
        job: id.clone(),
        kind: job.kind,
        executor: job.executor,
        phase: job.phase,
        reason: why((model, room), id, job, position, now),
        position,
        tenant_share: tenant.map(|tenant| model.queues.share(tenant).as_f64()),
        demand_share: tenant.map(|tenant| model.queues.demand_share(tenant).as_f64()),
        code: match is_idle(model, id, job) {
            true => IDLE.to_owned(),
            false => job.code.clone(),
        },
        weight: job.weight,
        priority_class: job.class.clone(),
        preempted: job.preempted,
        containers: ContainerCounts {
            min: job.bounds.min,
            max: job.bounds.max,
            now: job.now,
            target: job.target,
            beside: job.beside.count(),
        },
        share: job.share,
        share_now: share_now(model, job),
        fair_share: job.fair_share,
        epoch: job.epoch,
        incarnation: job.incarnation,
        submitted_at: times.submitted,
        admitted_at: times.admitted,
        released_at: times.released,
        first_started_at: times.first_started,
        phase_since: times.phase_since,
        ended_at: times.ended,
        age_s: times
            .ended
            .unwrap_or(now)
            .seconds_since(times.submitted)
            .max(0.0),
        submitted_ago_s: now.seconds_since(times.submitted).max(0.0),
        jct_s: job.jct_s(),
        waiting_s: job.waiting_s(now),
        resizes: job.resizes,
        restarts: job.restarts,
        attempts: job.attempts,
        resize_lost_s: seconds(job.resize_ms),
        recovery_lost_s: seconds(job.recovery_ms),
        container_s: job.container_s(now),
        step: progress.map(|p| p.step),
        steps_total: progress.map(|p| p.steps_total).filter(|total| *total > 0),
        tasks: job.tasks,
        gpu: job.gpu.as_deref().copied(),
        progress_at: progress.map(|p| p.at),
        metrics: metrics.unwrap_or_default(),
        nodes: nodes.unwrap_or_default(),
        on_hold: job.live.as_ref().is_some_and(|live| live.on_hold),
        address: address(model, id, job),
    }
}

/// The code of a job that waits for nothing but to be asked for.
pub const IDLE: &str = "idle";

/// Whether it is a service or a notebook that is to have no replica until it is asked for.
fn is_idle(model: &ReadModel, id: &JobId, job: &Job) -> bool {
    let is_stopped = job.phase == Phase::Waiting && job.live.as_ref().is_some_and(|it| !it.on_hold);
    let service = model.services.get(id).map(|it| it.target);
    let wanted = service.or_else(|| Some(model.notebooks.get(id)?.target));
    is_stopped && wanted == Some(0)
}

/// Why it is as it is; of a service that runs, what is wrong with it, too.
fn why(
    (model, room): (&ReadModel, &Room<'_>),
    id: &JobId,
    job: &Job,
    position: Option<u64>,
    now: Timestamp,
) -> String {
    let ends = job.live.as_ref().is_some_and(|it| it.cancel_requested);
    if is_idle(model, id, job) && !ends {
        return "idle: it starts when it is asked for".to_owned();
    }
    let reason = reason::of_row(room, id, job, position, now);
    let runs = job.kind == Kind::Inference && job.phase == Phase::Running;
    let service = model.services.get(id).filter(|_| runs);
    match service.and_then(|it| it.trouble(now)) {
        Some(trouble) => format!("{reason}; {trouble}"),
        None => reason,
    }
}

/// Where a gateway serves a service, or a notebook, that is not over.
fn address(model: &ReadModel, id: &JobId, job: &Job) -> Option<String> {
    let addresses = match job.kind {
        _ if job.phase.is_over() => return None,
        Kind::Notebook => model.notebooks.addresses(id),
        Kind::Inference => model.notebooks.paths(id),
        Kind::Training | Kind::Batch => return None,
    };
    addresses.into_iter().next()
}

/// The dominant share of what the last allocation gives a job, of the nodes that are there. At most all
/// of it: between the loss of a node and the next allocation it may be given more than there is.
fn share_now(model: &ReadModel, job: &Job) -> Option<f64> {
    let gets = job.live.as_ref().map(|_| job.target).filter(|n| *n > 0)?;
    let mut amounts = Amounts::new();
    job.beside
        .add_to(&mut amounts, &job.demand, u64::from(gets));
    Some(
        Share::dominant(&amounts, model.capacity())
            .as_f64()
            .min(1.0),
    )
}

fn life_row(life: &Life, now: Timestamp) -> LifeRow {
    let until = life.stopped.unwrap_or(now);
    LifeRow {
        incarnation: life.incarnation,
        epoch: life.epoch,
        containers: life.containers,
        nodes: life.nodes,
        on: life.on.clone(),
        requested_at: life.requested,
        started_at: life.started,
        stopped_at: life.stopped,
        ran_s: life
            .started
            .map_or(0.0, |started| until.seconds_since(started).max(0.0)),
        stop_reason: life.stop_reason,
        stopped_for: life.stopped_for,
        resumed_step: life.resumed_step,
    }
}
