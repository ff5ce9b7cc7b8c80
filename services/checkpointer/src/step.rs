//! The due step of one job, by the phase of its incarnation.

use dormouse_messages::events::{JobCancelled, JobFailed, PartitionStartRequested, StopReason};
use dormouse_messages::job::Success;
use dormouse_messages::{JobId, Proposal, Sequence, Timestamp};
use dormouse_state::{ClusterState, Job, PartitionPhase, Stop};

use crate::incarnation::{Act, Step, completed, earliest};
use crate::room::Room;
use crate::{elastic, limits, tasks};

/// Returns the due step.
pub fn step(
    start_timeout_s: u32,
    state: &ClusterState,
    (id, job): (&JobId, &Job),
    now: Timestamp,
    room: &mut Room<'_>,
) -> Step {
    let Some(partition) = &job.partition else {
        return between_partitions(id, job, now, room);
    };
    let act = Act {
        state,
        id,
        job,
        partition,
        start_timeout_s,
    };
    if let Some(step) = act.limited(now) {
        return step;
    }
    let limit = act.next_limit();
    match phased(&act, now, room) {
        Step::Wait(until) => Step::Wait(earliest(until, limit)),
        step => step,
    }
}

fn phased(act: &Act<'_>, now: Timestamp, room: &mut Room<'_>) -> Step {
    if let PartitionPhase::Stopping {
        reason,
        requested,
        whole,
    } = &act.partition.phase
    {
        return act.stopping(*reason, *requested, *whole);
    }
    if let PartitionPhase::Saving { .. } = &act.partition.phase {
        return act.saving(now);
    }
    if let Some(members) = &act.partition.members {
        return elastic::step(act, members, now, room);
    }
    match act.ended() {
        Some(ended) => ended,
        None => act.living(now),
    }
}

/// Between incarnations the job ends, waits or starts.
fn between_partitions(id: &JobId, job: &Job, now: Timestamp, room: &mut Room<'_>) -> Step {
    if let Some(ended) = ended_between_partitions(id, job) {
        return ended;
    }
    let waits_until = job.limits.waits_until().filter(|_| !job.ever_started());
    if let Some(step) = waits_until.and_then(|until| limits::waited(id, job, until, now)) {
        return step;
    }
    match start_between_partitions(id, job, now, room) {
        Step::Wait(until) => Step::Wait(earliest(until, waits_until)),
        step => step,
    }
}

fn start_between_partitions(id: &JobId, job: &Job, now: Timestamp, room: &mut Room<'_>) -> Step {
    let Some(assignment) = job
        .waits_to_start()
        .filter(|assignment| !assignment.displaced)
    else {
        return Step::Wait(None);
    };
    if let Some(not_before) = retry_at(job)
        && now < not_before
    {
        return Step::Wait(Some(not_before));
    }
    if !room.take(job, assignment) {
        return Step::Wait(None);
    }
    let event = PartitionStartRequested {
        job: id.clone(),
        epoch: assignment.epoch,
        incarnation: assignment.incarnation,
        containers: assignment.containers(),
        resumed_from: job
            .checkpoint
            .as_ref()
            .map(|checkpoint| checkpoint.uri.clone()),
        basis: None,
    };
    let stopped = job.last_stop.iter().map(|stop| stop.sequence);
    let causes = std::iter::once(assignment.placed).chain(stopped).collect();
    Proposal::caused_by(event, causes).into()
}

fn ended_between_partitions(id: &JobId, job: &Job) -> Option<Step> {
    let stop = job.last_stop.as_ref();
    let over = job.tasks.as_ref().and_then(tasks::over);
    let reason = over.or(stop.map(|stop| stop.reason));
    if reason == Some(StopReason::Completed) {
        let stop = stop.map_or(Sequence(0), |stop| stop.sequence);
        let how = match &job.tasks {
            Some(tasks) => format!("all {} tasks completed", tasks.count),
            None if job.success == Success::All && !job.in_place => {
                "every container that counts succeeded".to_owned()
            }
            None => "the coordinator succeeded".to_owned(),
        };
        return Some(completed(id, job, &how, stop));
    }
    if reason == Some(StopReason::TimeLimit) {
        return Some(limits::over(id, job));
    }
    if reason == Some(StopReason::GaveUp) {
        let event = JobFailed {
            job: id.clone(),
            reason: gave_up(id, job),
            attempts: job.attempts,
            basis: None,
        };
        let stop = stop.map_or(Sequence(0), |stop| stop.sequence);
        return Some(Proposal::new(event, stop).into());
    }
    let requested = job.cancel_requested?;
    let event = JobCancelled {
        job: id.clone(),
        reason: "cancelled on request".to_owned(),
        attempts: job.attempts,
        code: None,
        ingress_sequence: None,
        by: None,
        basis: None,
    };
    Some(Proposal::new(event, requested).into())
}

fn gave_up(id: &JobId, job: &Job) -> String {
    if let Some(why) = job
        .tasks
        .as_ref()
        .and_then(|set| tasks::why_failed(id, set))
    {
        return why;
    }
    let why = job.last_stop.as_ref().and_then(|stop| stop.why.as_deref());
    let attempts = match job.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let why = why.unwrap_or("the gang did not start in time");
    if job.last_stop.as_ref().is_some_and(|stop| stop.ran) {
        format!("{why}, after {attempts}; see `dormouse job logs {id}`")
    } else {
        format!("{why}, after {attempts}")
    }
}

/// Waits 1, 2, 4, … at most 60 s, so a job that dies at once does not flood the log.
fn retry_at(job: &Job) -> Option<Timestamp> {
    let stop: &Stop = job
        .last_stop
        .as_ref()
        .filter(|stop| stop.reason == StopReason::Failed)?;
    let failures = job
        .attempts
        .max(job.start_faults.incarnations)
        .checked_sub(1)?;
    let wait_s = 1_u64
        .checked_shl(failures)
        .map_or(60, |wait_s| wait_s.min(60));
    Some(stop.at.plus_ms(wait_s * 1000))
}
