//! The query `job`, and the rows of the lists.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_messages::events::{StartForecast, StopReason};
use dormouse_messages::job::{Executor, JobSpec, Kind};
use dormouse_messages::policy::Value;
use dormouse_messages::roles::Part;
use dormouse_messages::speed::CurveSource;
use dormouse_messages::suggest;
use dormouse_messages::workdir::Workdir;
use dormouse_messages::{Amounts, By, Epoch, Incarnation, JobClass, JobId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::ReadModel;
use crate::forecasts;
use crate::jobs::{
    GpuUsed, IncarnationHistory, Job, Phase, Refused, Request, SavedCheckpoint, StoppedFor,
    TaskCounts, nodes_of, reason, room::Room,
};
use crate::services::health::Health;
use crate::timelines::{Metric, Timeline, Window};
use dormouse_state::{Queues, Share};

/// A row of the job list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    pub job: JobId,
    pub kind: Kind,
    pub executor: Executor,
    pub phase: Phase,
    pub reason: String,
    /// From 1, in the tenant's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand_share: Option<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    pub weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<JobClass>,
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub preempted: u32,
    pub containers: ContainerCounts,
    /// Dominant share s at the last allocation.
    pub share: f64,
    /// Dominant share of the present nodes, drained ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_now: Option<f64>,
    pub fair_share: f64,
    pub epoch: Epoch,
    pub incarnation: Incarnation,
    pub submitted_at: Timestamp,
    pub admitted_at: Timestamp,
    pub released_at: Option<Timestamp>,
    pub first_started_at: Option<Timestamp>,
    pub phase_since: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// To the end, or now.
    pub age_s: f64,
    /// To now, even after the end.
    #[serde(default)]
    pub submitted_ago_s: f64,
    /// Absent before the end.
    pub jct_s: Option<f64>,
    /// To the first start, end or now.
    pub waiting_s: f64,
    pub resizes: u32,
    pub restarts: u32,
    pub attempts: u32,
    pub resize_lost_s: f64,
    pub recovery_lost_s: f64,
    pub container_s: f64,
    pub step: Option<u64>,
    pub steps_total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUsed>,
    pub progress_at: Option<Timestamp>,
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, u32>,
    /// False while the containers of a requeued job stop.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub on_hold: bool,
    /// When it starts, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartForecast>,
    /// At a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A job's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerCounts {
    pub min: u32,
    pub max: u32,
    pub now: u32,
    pub target: u32,
    /// Role containers, part of `now` and `target` only.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub auxiliary: u32,
}

/// The query's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    pub job: JobId,
}

/// Everything known about one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDetail {
    #[serde(flatten)]
    pub row: JobRow,
    /// From the broker's acknowledgement.
    #[serde(default)]
    pub ingress_sequence: u64,
    #[serde(default)]
    pub sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<By>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<By>,
    pub demand: Amounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRow>,
    /// Dropped at the job's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSpec>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<Workdir>,
    pub checkpoint: Option<SavedCheckpoint>,
    pub incarnations: Vec<IncarnationRow>,
    pub incarnations_dropped: u32,
    pub containers_timeline: Timeline,
    /// Set if the policy prices several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The policy values the job's containers by this curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<SpeedRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Health>,
}

/// A role's containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRow {
    pub role: String,
    pub count: u32,
    pub demand: Amounts,
    pub first_rank: u32,
}

/// The cost of training on several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Fraction of speed lost.
    pub crossing: f64,
    /// True if measured; false if from `objective.crossing`.
    #[serde(default)]
    pub measured: bool,
    /// Equally fast containers on one node.
    pub works_as: f64,
}

/// The speed of a job by its number of containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedRow {
    pub source: CurveSource,
    /// Root mean square of log(measured / fitted).
    pub error: f64,
    /// The number of containers of the greatest speed, up to the job's most.
    pub fastest: u32,
    /// The speed of one more container, as a part of the present speed; absent without containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<f64>,
    pub curve: Vec<SpeedAt>,
}

/// Speeds in speeds of one container.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeedAt {
    pub containers: u32,
    pub fitted: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
}

/// One incarnation of a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncarnationRow {
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub containers: u32,
    pub nodes: u32,
    /// These nodes hold the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NodeId>,
    pub requested_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub stopped_at: Option<Timestamp>,
    /// To now, while running.
    pub ran_s: f64,
    /// Absent while running, or for the job's end.
    pub stop_reason: Option<StopReason>,
    /// Absent for a resize or move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_for: Option<StoppedFor>,
    /// Absent on a first start.
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
                suggest::hint(meant(model, &query.job).map(JobId::as_str))
            ),
        }));
    };
    let place = places(&model.queues).get(&query.job).copied();
    // An ended job's timeline stops at its end.
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
    let request = job.request(&query.job, model.state());
    let request = request.map(Cow::into_owned).unwrap_or_default();
    let spec = job.live.as_ref().and_then(|live| live.spec.get());
    Ok(JobDetail {
        spread: spread(model, &row),
        speed: speed(model, &query.job),
        service: model.services.get(&query.job).map(|it| it.health(now)),
        row,
        ingress_sequence: job.ingress_sequence,
        sha256: job.sha256.clone(),
        submitted_by: job.submitted_by.clone(),
        cancelled_by: job.cancelled_by.clone(),
        roles: roles(&request),
        demand: request.demand.clone(),
        spec: spec.map(Cow::into_owned),
        command: job.command.clone(),
        workdir: job.workdir.as_deref().cloned(),
        checkpoint: job.checkpoint.as_deref().cloned(),
        incarnations: job
            .incarnations
            .iter()
            .map(|it| incarnation_row(it, now))
            .collect(),
        incarnations_dropped: job.incarnations_dropped,
        containers_timeline,
    })
}

/// Tenants ask here, too, so only their own jobs are suggested.
fn meant<'a>(model: &'a ReadModel, id: &JobId) -> Option<&'a JobId> {
    let known = model.jobs.live().chain(model.jobs.ended());
    let own = known.map(|(id, _)| id);
    let own: Vec<&JobId> = own.filter(|it| it.tenant() == id.tenant()).collect();
    let near = suggest::nearest(id.name(), own.iter().map(|it| it.name()))?;
    own.into_iter().find(|it| it.name() == near)
}

fn roles(request: &Request) -> Vec<RoleRow> {
    let parts = request.auxiliary.parts().iter().enumerate();
    let row = |(index, part): (usize, &Part)| RoleRow {
        role: part.role.clone(),
        count: part.count,
        demand: part.demand.clone(),
        first_rank: request.auxiliary.ranks(index).start,
    };
    parts.map(row).collect()
}

fn spread(model: &ReadModel, row: &JobRow) -> Option<Spread> {
    let objective = &model.cluster.policy.objective;
    let speed = model.state().speeds.job(&row.job);
    let fitted = speed.and_then(|it| it.fitted.as_ref());
    let fitted = fitted.filter(|_| objective.value == Value::Speed);
    let measured = fitted.and_then(|it| it.crossing);
    let crossing = measured.unwrap_or(objective.crossing);
    let crosses = row.nodes.len() > 1 && row.kind == Kind::Training && crossing > 0.0;
    let containers: u32 = row.nodes.values().sum();
    crosses.then(|| Spread {
        crossing,
        measured: measured.is_some(),
        works_as: f64::from(containers) * (1.0 - crossing),
    })
}

/// Points at 1, 2, 4 and so on, at the present and the fastest number, and where the job was measured.
fn speed(model: &ReadModel, id: &JobId) -> Option<SpeedRow> {
    let state = model.state();
    let job = state.job(id)?;
    let fitted = state.speeds.job(id)?.fitted.as_ref()?;
    let (curve, most, now) = (fitted.curve, job.containers.max, job.workers());
    let fastest = fitted.fastest(most);
    let mut counts: BTreeSet<u32> = (0..32).map(|power| 1 << power).collect();
    counts.extend([fastest, now, most]);
    counts.retain(|count| (1..=most).contains(count));
    let measured: BTreeMap<u32, f64> = fitted
        .points
        .iter()
        .map(|point| (point.containers, curve.step_s(1) / point.step_s))
        .collect();
    if fitted.source != CurveSource::Document {
        counts.extend(measured.keys());
    }
    let at = |containers: u32| SpeedAt {
        containers,
        fitted: fitted.useful(containers),
        measured: measured.get(&containers).copied(),
    };
    Some(SpeedRow {
        source: fitted.source,
        error: fitted.error,
        fastest,
        further: fitted.further(now),
        curve: counts.into_iter().map(at).collect(),
    })
}

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
    let age_s = times.ended.unwrap_or(now).seconds_since(times.submitted);
    let progress = job.progress.as_deref();
    let metrics = progress.map(|p| p.metrics.iter().cloned().collect());
    let present = model.state().job(id);
    let request = job.request(id, model.state());
    let request = request.map(Cow::into_owned).unwrap_or_default();
    JobRow {
        job: id.clone(),
        kind: job.kind,
        executor: job.executor,
        phase: job.phase,
        reason: why((model, room), id, job, position, now),
        position,
        tenant_share: tenant.map(|tenant| model.queues.share(tenant).as_f64()),
        demand_share: tenant.map(|tenant| model.queues.demand_share(tenant).as_f64()),
        code: if is_idle(model, id, job) {
            IDLE.to_owned()
        } else {
            job.code.clone()
        },
        weight: request.weight,
        share_now: share_now(model, &request, job),
        preempted: job.preempted,
        containers: ContainerCounts {
            min: request.bounds.min,
            max: request.bounds.max,
            now: job.now,
            target: job.target,
            auxiliary: request.auxiliary.count(),
        },
        share: job.share,
        fair_share: job.fair_share,
        epoch: job.epoch,
        incarnation: job.incarnation(),
        submitted_at: times.submitted,
        admitted_at: times.admitted,
        released_at: times.released,
        first_started_at: times.first_started,
        phase_since: times.phase_since,
        ended_at: times.ended,
        age_s: age_s.max(0.0),
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
        tasks: request.tasks,
        priority_class: request.class,
        gpu: job.gpu.as_deref().copied(),
        progress_at: progress.map(|p| p.at),
        metrics: metrics.unwrap_or_default(),
        nodes: present.map_or_else(BTreeMap::new, |present| nodes_of(id, present)),
        on_hold: present.is_some_and(|it| it.on_hold && !it.requeued),
        start: model.forecasts.of(id).cloned(),
        address: address(model, id, job),
    }
}

/// The code of a job that starts on demand.
pub const IDLE: &str = "idle";

/// True without replicas until a request.
fn is_idle(model: &ReadModel, id: &JobId, job: &Job) -> bool {
    let is_stopped =
        job.phase == Phase::Waiting && model.state().job(id).is_some_and(|it| !it.on_hold);
    let service = model.services.get(id).map(|it| it.target);
    let wanted = service.or_else(|| Some(model.notebooks.get(id)?.target));
    is_stopped && wanted == Some(0)
}

fn why(
    (model, room): (&ReadModel, &Room<'_>),
    id: &JobId,
    job: &Job,
    position: Option<u64>,
    now: Timestamp,
) -> String {
    let ends = model.queues.is_cancelled(id);
    if is_idle(model, id, job) && !ends {
        return "idle: it starts when it is asked for".to_owned();
    }
    let reason = reason::of_row(room, id, job, position, now);
    let runs = job.kind == Kind::Inference && job.phase == Phase::Running;
    let service = model.services.get(id).filter(|_| runs);
    let start = model.forecasts.of(id).map(|it| forecasts::words(it, now));
    match service.and_then(|it| it.trouble(now)).or(start) {
        Some(more) => format!("{reason}; {more}"),
        None => reason,
    }
}

fn address(model: &ReadModel, id: &JobId, job: &Job) -> Option<String> {
    let addresses = match job.kind {
        _ if job.phase.is_over() => return None,
        Kind::Notebook => model.notebooks.addresses(id),
        Kind::Inference => model.notebooks.paths(id),
        Kind::Training | Kind::Batch => return None,
    };
    addresses.into_iter().next()
}

/// At most 1, also after the loss of a node.
fn share_now(model: &ReadModel, request: &Request, job: &Job) -> Option<f64> {
    let gets = job.live.as_ref().map(|_| job.target).filter(|n| *n > 0)?;
    let share = Share::dominant(&request.amounts(gets), model.capacity());
    Some(share.as_f64().min(1.0))
}

fn incarnation_row(of: &IncarnationHistory, now: Timestamp) -> IncarnationRow {
    let until = of.stopped.unwrap_or(now);
    IncarnationRow {
        incarnation: of.incarnation,
        epoch: of.epoch,
        containers: of.containers,
        nodes: of.nodes,
        on: of.on.clone(),
        requested_at: of.requested,
        started_at: of.started,
        stopped_at: of.stopped,
        ran_s: of
            .started
            .map_or(0.0, |started| until.seconds_since(started).max(0.0)),
        stop_reason: of.stop_reason,
        stopped_for: of.stopped_for,
        resumed_step: of.resumed_step,
    }
}
