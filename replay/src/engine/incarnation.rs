//! An incarnation of a model job: its name, its due events, and the exits of its containers.

use dormouse_agent_core::Exit;
use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::{JobId, Timestamp};

pub(super) type IncarnationId = (JobId, Incarnation);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Due {
    Started,
    Joined(Rank),
    Removed(Rank),
    Ready(Rank),
    Left(Rank),
    Ended {
        code: i32,
        /// An outdated plan voids the event.
        plan: u64,
    },
    Saved,
    SaveFailed,
    Stopped,
    TasksEnded(Rank),
    Drained,
    Progress(u64),
}

pub(super) fn container_id(incarnation: &IncarnationId, rank: Rank) -> ContainerId {
    ContainerId {
        job: incarnation.0.clone(),
        incarnation: incarnation.1,
        rank,
    }
}

pub(super) fn incarnation_of(id: &ContainerId) -> IncarnationId {
    (id.job.clone(), id.incarnation)
}

/// Rounds up, so that nothing ends before its work is done.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a simulated time stays far below 285 years"
)]
pub(super) fn after(now: Timestamp, seconds: f64) -> Timestamp {
    Timestamp::from_micros(
        now.as_micros()
            .saturating_add((seconds * 1e6).ceil() as i64),
    )
}

pub(super) fn fenced() -> Exit {
    Exit {
        signal: Some(9),
        ..Exit::evicted("fenced".to_owned())
    }
}

pub(super) fn exited(code: i32) -> Exit {
    Exit {
        code: Some(code),
        ..Exit::default()
    }
}
