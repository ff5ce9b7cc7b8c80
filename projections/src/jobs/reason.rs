//! The REASON column, written on demand to keep folding cheap.

use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::sanitize::{containers, listed};
use dormouse_messages::{JobId, Timestamp};

use super::room::Room;
use super::turn;
use super::{Exit, Job, Live, Phase, Transit, nodes_of};
use dormouse_state::{ClusterState, ContainerPhase};

const NAMED_NODES: usize = 4;

/// The optimizer's code for lacking resources.
const SHORT: &str = "resources";

/// Returns the reason for a job's phase. `waits` comes from [`super::turn`] or [`super::room`], as in
/// [`of_row`].
#[must_use]
pub fn reason(
    (id, job): (&JobId, &Job),
    state: &ClusterState,
    now: Timestamp,
    waits: Option<&str>,
) -> String {
    let present = state.job(id);
    let text = match (&job.live, job.phase) {
        (Some(live), phase) => live_reason((id, job, present), live, phase, now, waits),
        (None, Phase::Cancelled) if job.note.is_empty() => "cancelled by its tenant".to_owned(),
        (None, _) => job.note.clone(),
    };
    match present {
        Some(it) if it.cancel_requested.is_some() && job.phase != Phase::Stopping => {
            format!("cancellation requested; {text}")
        }
        Some(it) if it.requeued => format!("requeued: {text}"),
        Some(it) if it.over_budget => match job.phase {
            Phase::Waiting => "stopped: its tenant's budget is used".to_owned(),
            _ => format!("stops, because its tenant's budget is used: {text}"),
        },
        Some(it) if it.on_hold => match job.phase {
            Phase::Queued | Phase::Waiting => "on hold, until its tenant lets it go".to_owned(),
            _ => format!("on hold: {text}"),
        },
        _ => text,
    }
}

/// Returns the reason for a job; `position` is its place in its tenant's queue, from 1.
#[must_use]
pub fn of_row(
    room: &Room<'_>,
    id: &JobId,
    job: &Job,
    position: Option<u64>,
    now: Timestamp,
) -> String {
    let waits = match job.phase {
        Phase::Queued => Some(turn::queued(room, id, position, now)),
        // The explanation repeats the optimizer in full.
        Phase::Waiting if job.code == SHORT => room.words(id, now),
        _ => None,
    };
    reason((id, job), &room.queues().cluster, now, waits.as_deref())
}

fn live_reason(
    (id, job, present): (&JobId, &Job, Option<&dormouse_state::Job>),
    live: &Live,
    phase: Phase,
    now: Timestamp,
    waits: Option<&str>,
) -> String {
    match phase {
        Phase::Queued => waits.unwrap_or("queued for release").to_owned(),
        Phase::Waiting if job.note.is_empty() => after_stop(job, live).unwrap_or_else(|| {
            "released; the next allocation decides whether it has room".to_owned()
        }),
        Phase::Waiting => {
            let waits = waits.unwrap_or(&job.note);
            match after_stop(job, live) {
                Some(stopped) => format!("{stopped}; {waits}"),
                None => waits.to_owned(),
            }
        }
        Phase::Placed => match after_stop(job, live) {
            Some(stopped) => format!("{stopped}; starts when its room is free"),
            None => placed(id, job, present),
        },
        Phase::Starting => {
            let last = job.incarnations.last().map(|it| it.containers);
            let all = last.filter(|all| *all > 0).unwrap_or(job.target);
            let starting = format!("starting {} of {}", seen(present).min(all), containers(all));
            match (&live.transit, &live.exit, &live.unready) {
                (None, Some(exit), _) => format!("{}; {starting} again", exit_text(exit)),
                (_, _, Some(why)) => format!("{starting}; the one before: {why}"),
                _ => format!("{}{starting}", doing(job, live)),
            }
        }
        Phase::Running => running(job, live, now),
        Phase::Checkpointing => match &live.transit {
            Some(Transit {
                save_failed: Some(why),
                ..
            }) => format!("{}saving failed: {why}", doing(job, live)),
            Some(Transit {
                saved_step: Some(step),
                ..
            }) => format!("{}saved at step {step}", doing(job, live)),
            _ => format!("{}saving", doing(job, live)),
        },
        Phase::Stopping => format!("{}stopping", doing(job, live)),
        Phase::Completed | Phase::Failed | Phase::Cancelled => job.note.clone(),
    }
}

fn placed(id: &JobId, job: &Job, present: Option<&dormouse_state::Job>) -> String {
    let nodes = present.map_or_else(BTreeMap::new, |present| nodes_of(id, present));
    if nodes.is_empty() {
        return format!(
            "gets {} in epoch {}; the placement comes next",
            containers(job.target),
            job.epoch
        );
    }
    let nodes = nodes.iter();
    let nodes = nodes.map(|(name, count)| format!("{name} ({count})"));
    let nodes = listed(nodes, NAMED_NODES);
    format!("placed on {nodes}; starts when its room is free")
}

/// Counts the containers reported running.
fn seen(present: Option<&dormouse_state::Job>) -> u32 {
    let partition = present.and_then(|job| job.partition.as_ref());
    let containers = partition.into_iter().flat_map(|it| it.containers.values());
    let running = containers.filter(|it| it.phase == ContainerPhase::Started);
    u32::try_from(running.count()).unwrap_or(u32::MAX)
}

fn running(job: &Job, live: &Live, now: Timestamp) -> String {
    let since = job.incarnations.last().and_then(|it| it.started);
    let since = clock(since.unwrap_or(job.times.phase_since), now);
    let more = match (&live.exit, job.target) {
        (Some(exit), _) => format!("; {}", exit_text(exit)),
        (None, target) if target != job.now => {
            format!("; to be resized {} → {target}", job.now)
        }
        (None, _) if job.resizes > 0 => {
            let times = match job.resizes {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            format!("; resized {times}")
        }
        _ => String::new(),
    };
    format!("running since {since}{more}")
}

fn doing(job: &Job, live: &Live) -> String {
    let Some(transit) = &live.transit else {
        return String::new();
    };
    match transit.cause {
        StopReason::Adjusted if transit.from == job.target => "moving: ".to_owned(),
        StopReason::Adjusted => format!("resizing {} → {}: ", transit.from, job.target),
        StopReason::Cancelled => "cancelled by its tenant: ".to_owned(),
        StopReason::Failed | StopReason::GaveUp => match &live.exit {
            Some(exit) => format!("{}: ", exit_text(exit)),
            None => "a container failed: ".to_owned(),
        },
        StopReason::NodeLost => "a node was lost: ".to_owned(),
        StopReason::TimeLimit => "its time is over: ".to_owned(),
        StopReason::Completed => "its coordinator succeeded: ".to_owned(),
    }
}

fn after_stop(job: &Job, live: &Live) -> Option<String> {
    live.transit.as_ref()?;
    Some(format!("{}stopped", doing(job, live)))
}

/// Describes the present incarnation's abnormal exit or unready replica.
#[must_use]
pub fn failed_container(job: &Job) -> Option<String> {
    let live = job.live.as_ref()?;
    let unready = || live.unready.as_ref().map(|why| format!("a replica: {why}"));
    live.exit.as_ref().map(exit_text).or_else(unready)
}

fn exit_text(exit: &Exit) -> String {
    let how = how(
        exit.out_of_memory,
        exit.signal,
        exit.exit_code,
        exit.reason.as_deref(),
    );
    format!("container {} on {}: {how}", exit.rank, exit.node)
}

pub(crate) fn how(
    out_of_memory: bool,
    signal: Option<i32>,
    exit_code: Option<i32>,
    reason: Option<&str>,
) -> String {
    match (out_of_memory, signal, exit_code, reason) {
        (true, ..) => "ran out of memory".to_owned(),
        (_, _, _, Some(reason)) => reason.to_owned(),
        (_, Some(signal), ..) => format!("was killed by signal {signal}"),
        (_, _, Some(code), _) => format!("exited with {code}"),
        _ => "could not start".to_owned(),
    }
}

/// Omits today's date.
fn clock(time: Timestamp, now: Timestamp) -> String {
    let (text, today) = (time.to_words(), now.to_words());
    match (text.split_once(' '), today.split_once(' ')) {
        (Some((date, clock)), Some((today, _))) if date == today => clock.to_owned(),
        _ => text,
    }
}
