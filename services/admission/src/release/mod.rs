//! Releases queued jobs one by one until nothing fits.
//!
//! 1. The policy picks a tenant with a job that could run on the present nodes within quota ([`score`]). The
//!    last releaser wins ties, else the first by name. Services and notebooks precede all others, because
//!    training yields to them; only quotas hold them. Among others only the highest priority class in front
//!    counts; lower classes wait for resources that class lacks. For a preempting class, lower classes'
//!    capacity is free.
//! 2. The tenant's first job is released if it fits ([`room`]). Otherwise, with `admit: backfill`, the
//!    tenant's next job (under FIFO: any tenant's) may pass if it demands nothing that the first lacks, fits
//!    on nodes that the first cannot use, or ends before the first can start. With `admit: prefix` the tenant
//!    is blocked until the next decision; under FIFO a job without capacity blocks all.
//! 3. Shares and queues are recomputed ([`tenant_queue`]).
//!
//! Small jobs could starve a large one, so `job.released.passed_over` records the first overtaking. After
//! [`Policy::reserve_after_s`], capacity is reserved for the overtaken head; under FIFO, against later jobs
//! only. Where past use counts, nothing is reserved for a tenant above its due.
//!
//! [`Policy::reserve_after_s`]: dormouse_messages::policy::Policy

mod head;
mod room;
mod score;
mod tenant_queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use dormouse_messages::events::{JobReleased, Turn};
use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Queue;
use dormouse_messages::quantity::Resource;
use dormouse_messages::{JobId, Proposal, Timestamp};
use dormouse_state::Queues;
use dormouse_state::usage::NEUTRAL;

use room::{Fit, Room};
use tenant_queue::{Closed, Line};

pub use tenant_queue::Changes;

use crate::state::AdmissionState;

/// Releases at most `most` jobs.
#[must_use]
pub fn releases(
    state: &AdmissionState,
    changes: &Changes,
    now: Timestamp,
    most: usize,
) -> Vec<Proposal> {
    let mut release = Release::new(state, changes, now);
    let mut proposals = Vec::new();
    while proposals.len() < most
        && let Some(proposal) = release.next()
    {
        proposals.push(proposal);
    }
    proposals
}

/// Returns newly overtaken misfit heads. A head that loses to a job released in turn is no misfit. Under FIFO
/// nobody overtakes without backfill.
fn no_room(queues: &Queues, lines: &[Line<'_>], room: &Room<'_>) -> Vec<JobId> {
    if queues.cluster.policy.queue == Queue::Fifo && !queues.cluster.policy.backfills() {
        return Vec::new();
    }
    let heads = lines.iter().filter_map(Line::waiting);
    let known = |id: &JobId| queues.passed_over.contains_key(id);
    let passed =
        heads.filter(|(certain, head)| !known(&head.id) && room.fit(certain, head) == Fit::NoRoom);
    passed.map(|(_, head)| head.id.clone()).collect()
}

struct Release<'a> {
    queues: &'a Queues,
    now: Timestamp,
    lines: Vec<Line<'a>>,
    room: Room<'a>,
    last: Option<usize>,
    /// Misfits at the start, not yet recorded as overtaken.
    passed: Vec<JobId>,
    released: usize,
    held_back: bool,
}

impl<'a> Release<'a> {
    fn new(state: &'a AdmissionState, changes: &'a Changes, now: Timestamp) -> Self {
        let queues = &state.queues;
        let mut room = Room::new(queues, now);
        let mut lines = tenant_queue::lines(queues, changes, now);
        for line in &mut lines {
            line.advance(&mut room);
        }
        let due = lines.iter().filter(|line| line.factor >= NEUTRAL);
        room.reserve(due.filter_map(Line::waiting), now);
        let passed = no_room(queues, &lines, &room);
        let last = queues.last.as_ref();
        let last = last.and_then(|last| lines.iter().position(|line| line.tenant == last.as_str()));
        Self {
            queues,
            now,
            lines,
            room,
            last,
            passed,
            released: 0,
            held_back: false,
        }
    }

    fn next(&mut self) -> Option<Proposal> {
        if let Some(urgent) = self.urgent() {
            return self.release(urgent);
        }
        while !self.held_back {
            let turn = self.turn()?;
            let line = &self.lines[turn];
            let head = line.head.as_ref()?;
            match self.room.fit(&line.certain, head) {
                Fit::Yes => return self.release(turn),
                misfit if self.queues.cluster.policy.backfills() => {
                    let lacks = self.room.lacks(&line.certain, head, misfit);
                    self.pass(turn, misfit, lacks);
                }
                Fit::NoRoom if self.queues.cluster.policy.queue == Queue::Fifo => {
                    self.held_back = true
                }
                misfit => self.block(turn, misfit),
            }
        }
        None
    }

    /// Lets jobs pass that demand nothing that the head lacks.
    fn pass(&mut self, turn: usize, misfit: Fit, lacks: BTreeSet<Resource>) {
        let head = self.lines[turn].head.clone();
        let class = head.as_ref().map(|head| head.class);
        let until = match misfit {
            Fit::NoRoom => head.as_ref().and_then(|head| self.room.start_of(head)),
            // The reserved job's start bounds this one's.
            Fit::Reserved => self.room.reserved_start(),
            Fit::OverQuota => self.lines[turn].renewed_at(),
            Fit::Yes => None,
        };
        let nodes = match (&head, misfit) {
            (Some(head), Fit::NoRoom | Fit::Reserved) => self.room.nodes_of(head),
            _ => None,
        };
        let closed = Closed {
            lacks,
            nodes,
            until,
            below: None,
        };
        self.lines[turn].close(&closed, &mut self.room);
        if misfit.concerns_others() {
            let outranks = Closed {
                until: None,
                below: class,
                ..closed.clone()
            };
            for line in &mut self.lines {
                line.close(&outranks, &mut self.room);
            }
        }
        let holds_all = self.queues.cluster.policy.queue == Queue::Fifo && misfit.concerns_others();
        for line in self.lines.iter_mut().filter(|_| holds_all) {
            line.close(&closed, &mut self.room);
        }
        // The head's own limit may end before its start.
        let passed = head.map(|head| head.id);
        let line = &mut self.lines[turn];
        if line.head.as_ref().map(|head| &head.id) == passed.as_ref() {
            line.advance(&mut self.room);
        }
    }

    /// Blocks the queue, and lower classes if capacity is short.
    fn block(&mut self, turn: usize, misfit: Fit) {
        let class = self.lines[turn].head.as_ref().map(|head| head.class);
        self.lines[turn].blocked = true;
        let class = class.filter(|_| misfit.concerns_others());
        for line in &mut self.lines {
            let lower = line
                .head
                .as_ref()
                .is_some_and(|head| Some(head.class) < class);
            line.blocked |= lower;
        }
    }

    /// Returns the first queue with a service or notebook in front, within quota.
    fn urgent(&self) -> Option<usize> {
        let goes = |line: &Line<'_>| {
            let head = line.head.as_ref();
            let head = head.filter(|head| !line.blocked && head.urgency > Urgency::Training);
            head.is_some_and(|head| self.room.fit(&line.certain, head) != Fit::OverQuota)
        };
        self.lines.iter().position(goes)
    }

    fn turn(&self) -> Option<usize> {
        score::turn(self.queues, &self.lines, self.last, self.released, self.now)
    }

    fn release(&mut self, turn: usize) -> Option<Proposal> {
        let line = &mut self.lines[turn];
        let since = line.head.as_ref()?.since;
        let about = Turn {
            queue: self.queues.cluster.policy.queue,
            share: line.share.as_f64(),
            demand_share: line.demand_share.as_f64(),
            weight: line.weight,
            factor: line.is_remembered().then_some(line.factor),
            queued: line.count,
            waited_ms: self.now.ms_since(since),
        };
        let head = line.take(&mut self.room, self.now)?;
        self.last = Some(turn);
        self.released += 1;
        let event = JobReleased {
            turn: Some(about),
            passed_over: std::mem::take(&mut self.passed),
            job: head.id,
            basis: None,
        };
        Some(Proposal::new(event, head.cause))
    }
}
