//! Accounts for the time of one job's containers, per incarnation.
//!
//! | part | from | to |
//! |---|---|---|
//! | waiting | the job exists without containers | its first, or next, containers |
//! | starting | `partition.start_requested` | `partition.started` |
//! | productive | `partition.started` | a request to save or stop, or the end |
//! | stopping | that request | the container's exit |
//! | stopped | the end of an incarnation before another | the next `partition.start_requested` |
//!
//! An unsuccessful end moves the work since the last checkpoint from productive to *redone* (after a
//! resize) or *failed* (after a failure or a lost node, which move the start too). Ended tasks are never
//! redone.

use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::ids::Incarnation;
use dormouse_messages::{Amounts, JobId, Rank};
use dormouse_state::{Job, PartitionPhase};
use serde::{Deserialize, Serialize};

/// A time window in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Window {
    pub(super) fn clip(self, from: i64, to: i64) -> u128 {
        let length = to.min(self.to) - from.max(self.from);
        u128::try_from(length).unwrap_or(0)
    }
}

/// Measured use by a job with parts of GPUs, summed over containers and devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRow {
    pub job: JobId,
    /// Busy device time in microseconds.
    pub busy_us: u64,
    /// As `busy_us`, with gaps too short for another container.
    pub charged_us: u64,
    /// The threads' wait for devices in microseconds.
    pub waited_us: u64,
    pub refused: u64,
    /// Device memory at the end of each window, in MiB times the window's milliseconds.
    #[serde(default)]
    pub memory_mib_ms: u64,
}

impl GpuRow {
    /// Returns a row without use.
    #[must_use]
    pub fn new(job: &JobId) -> Self {
        Self {
            job: job.clone(),
            busy_us: 0,
            charged_us: 0,
            waited_us: 0,
            refused: 0,
            memory_mib_ms: 0,
        }
    }
}

/// The parts of a job's time, in container milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Without containers; counts the smallest partition.
    pub waiting: u128,
    pub starting: u128,
    /// Running, without a known loss.
    pub productive: u128,
    pub stopping: u128,
    /// Work since the last checkpoint, lost to a resize.
    pub redone: u128,
    /// Work since the last checkpoint, lost to a failure or a lost node.
    pub failed: u128,
    /// Between two incarnations; counts the next one.
    pub stopped: u128,
}

impl Parts {
    /// Returns the time that held resources: all but waiting and stopped.
    #[must_use]
    pub fn used(&self) -> u128 {
        self.starting + self.productive + self.stopping + self.redone + self.failed
    }

    /// Adds another job's parts.
    pub fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.starting += other.starting;
        self.productive += other.productive;
        self.stopping += other.stopping;
        self.redone += other.redone;
        self.failed += other.failed;
        self.stopped += other.stopped;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Waiting,
    Starting,
    Running,
    Stopping,
    Stopped,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from: i64,
    to: i64,
    doing: Doing,
    containers: u64,
}

/// One job's account.
#[derive(Debug, Clone, Default)]
pub struct Account {
    demand: Amounts,
    parts: Parts,
    /// The current activity: start, kind and number of containers.
    open: Option<(i64, Doing, u64)>,
    spans: Vec<Span>,
    incarnation: Option<Incarnation>,
    saved_at: Option<i64>,
    has_tasks: bool,
    how: &'static str,
    roles: Vec<Account>,
    /// Amounts that an ended job gave away before another job took its name.
    pub gave: BTreeMap<String, u64>,
}

enum Lost {
    Nothing,
    Resize,
    Failure,
}

impl Account {
    pub fn uses(&self) -> impl Iterator<Item = (&Amounts, &Parts)> {
        let all = std::iter::once(self).chain(&self.roles);
        all.map(|it| (&it.demand, &it.parts))
    }

    pub fn how(&self) -> &'static str {
        self.how
    }

    pub fn held(&self) -> Amounts {
        let mut held = Amounts::new();
        for it in std::iter::once(self).chain(&self.roles) {
            held.add(&it.demand, it.held_of_one());
        }
        held
    }

    fn held_of_one(&self) -> u64 {
        match self.open {
            Some((_, Doing::Starting | Doing::Running | Doing::Stopping, containers)) => containers,
            _ => 0,
        }
    }

    pub fn follow(&mut self, job: &Job, window: Window, now: i64) {
        let parts = job.auxiliary.parts();
        self.roles.resize_with(parts.len(), Self::default);
        for (index, role) in self.roles.iter_mut().enumerate() {
            role.follow_part(job, Some(index), window, now);
        }
        self.follow_part(job, None, window, now);
    }

    fn follow_part(&mut self, job: &Job, part: Option<usize>, window: Window, now: i64) {
        let role = part.and_then(|part| job.auxiliary.parts().get(part));
        if self.demand.is_empty() {
            self.demand = role.map_or(&job.demand, |role| &role.demand).clone();
        }
        self.has_tasks = job.tasks.is_some();
        let (doing, containers) = doing(job, part);
        let incarnation = job.partition.as_ref().map(|it| it.incarnation);
        if incarnation.is_some() && incarnation != self.incarnation {
            self.close(window, now);
            self.settle(&Lost::Nothing, window);
            self.incarnation = incarnation;
        }
        if self
            .open
            .is_some_and(|(_, was, had)| (was, had) == (doing, containers))
        {
            return;
        }
        self.close(window, now);
        self.open = Some((now, doing, containers));
    }

    pub fn saved(&mut self, incarnation: Incarnation, now: i64) {
        if self.incarnation == Some(incarnation) {
            self.saved_at = Some(now);
        }
        let roles = self.roles.iter_mut();
        roles.for_each(|role| role.saved(incarnation, now));
    }

    pub fn incarnation_ended(&mut self, reason: StopReason, window: Window, now: i64) {
        self.close(window, now);
        let lost = match reason {
            _ if self.has_tasks => Lost::Nothing,
            StopReason::Adjusted => Lost::Resize,
            StopReason::Failed | StopReason::GaveUp | StopReason::NodeLost => Lost::Failure,
            StopReason::Cancelled | StopReason::Completed | StopReason::TimeLimit => Lost::Nothing,
        };
        self.settle(&lost, window);
        let roles = self.roles.iter_mut();
        roles.for_each(|role| role.incarnation_ended(reason, window, now));
    }

    pub fn end(&mut self, how: &'static str, window: Window, now: i64) {
        self.close(window, now);
        let lost = match how {
            "failed" if !self.has_tasks => Lost::Failure,
            _ => Lost::Nothing,
        };
        self.settle(&lost, window);
        self.how = how;
        let roles = self.roles.iter_mut();
        roles.for_each(|role| role.end(how, window, now));
    }

    pub fn cut(&mut self, window: Window, now: i64) {
        self.close(window, now);
        self.settle(&Lost::Nothing, window);
        let roles = self.roles.iter_mut();
        roles.for_each(|role| role.cut(window, now));
    }

    fn close(&mut self, window: Window, now: i64) {
        let Some((from, doing, containers)) = self.open.take() else {
            return;
        };
        let span = Span {
            from,
            to: now,
            doing,
            containers,
        };
        match doing {
            Doing::Waiting => self.parts.waiting += span.amount(window),
            Doing::Stopped => self.parts.stopped += span.amount(window),
            Doing::Starting | Doing::Running | Doing::Stopping => self.spans.push(span),
        }
    }

    fn settle(&mut self, lost: &Lost, window: Window) {
        let saved_at = self.saved_at.take();
        for span in std::mem::take(&mut self.spans) {
            match span.doing {
                Doing::Starting if matches!(lost, Lost::Failure) && saved_at.is_none() => {
                    self.parts.failed += span.amount(window);
                }
                Doing::Starting => self.parts.starting += span.amount(window),
                Doing::Stopping => self.parts.stopping += span.amount(window),
                Doing::Running => {
                    let cut = saved_at.unwrap_or(i64::MIN).clamp(span.from, span.to);
                    let kept = Span { to: cut, ..span };
                    let since = Span { from: cut, ..span };
                    self.parts.productive += kept.amount(window);
                    let part = match lost {
                        Lost::Nothing => &mut self.parts.productive,
                        Lost::Resize => &mut self.parts.redone,
                        Lost::Failure => &mut self.parts.failed,
                    };
                    *part += since.amount(window);
                }
                Doing::Waiting | Doing::Stopped => {}
            }
        }
        self.incarnation = None;
    }
}

impl Span {
    fn amount(&self, window: Window) -> u128 {
        window.clip(self.from, self.to) * u128::from(self.containers)
    }
}

fn doing(job: &Job, part: Option<usize>) -> (Doing, u64) {
    let is_of = |rank: Rank| job.auxiliary.index_at(rank) == part;
    if let Some(partition) = &job.partition {
        let of = partition
            .containers
            .iter()
            .filter(|(rank, _)| is_of(**rank));
        let held = of.filter(|(_, it)| it.holds_room()).count() as u64;
        let doing = match partition.phase {
            PartitionPhase::Starting => Doing::Starting,
            PartitionPhase::Running => Doing::Running,
            PartitionPhase::Saving { .. } | PartitionPhase::Stopping { .. } => Doing::Stopping,
        };
        return (doing, held);
    }
    match &job.assignment {
        Some(next) if job.last_stop.is_some() => {
            let ranks = next.places.keys();
            let of = ranks.filter(|rank| is_of(**rank));
            (Doing::Stopped, of.count() as u64)
        }
        _ => {
            let role = part.and_then(|part| job.auxiliary.parts().get(part));
            let least = role.map_or(job.containers.min, |role| role.count);
            (Doing::Waiting, u64::from(least))
        }
    }
}
