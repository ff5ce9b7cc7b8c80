//! Which queued jobs may have containers now: released one by one until nothing fits.
//!
//! 1. Of the tenants with a queued job that could run (by the nodes there are, and within its tenant's
//!    quota if nothing else of it ran), the policy names whose turn it is
//!    ([`score`]); ties go to the tenant that released last, at the start to the first by name.
//!    Services and notebooks come before all others, whatever the policy and the room: training
//!    makes room for them. Only their tenant's quota holds them.
//!    Among the others only jobs of the highest priority class that any tenant has in front are looked
//!    at; what one of them lacks, jobs of lower classes wait for, too. For one that preempts, the room
//!    that lower classes hold counts as free.
//! 2. Its first job is released if it fits ([`room`]). If the tenant's quota is used up, or if
//!    there is no room, the tenant's next job is looked at that demands nothing of what the first one lacks,
//!    or has room on nodes that the first one cannot use (policy `admit: backfill`); first in, first out this
//!    holds for all tenants. So may a job
//!    that demands it but has ended when the first one starts, by the time limits of both and of what
//!    runs: it fills the room that the first one waits for. With
//!    `admit: prefix` the tenant is passed over until the next decision; first in, first out, a job
//!    without room then holds everybody back.
//! 3. Shares and queues are reckoned again ([`line`]), and so on.
//!
//! A large job could wait without end while smaller ones take every bit of room that becomes free.
//! The first time that others go while it, at the head of its queue, does not fit is recorded in `job.released.passed_over`; [`Policy::reserve_after_s`] later room
//! is reserved for it: nothing else is released into what it needs; first in, first out nothing that
//! came later.
//!
//! [`Policy::reserve_after_s`]: dormouse_messages::policy::Policy

mod line;
mod room;
mod score;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use dormouse_messages::events::{JobAdmitted, JobReleased, Turn};
use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Queue;
use dormouse_messages::quantity::Resource;
use dormouse_messages::{JobId, Proposal, Sequence, Timestamp};
use dormouse_state::Queues;

use line::{Closed, Line};
use room::{Fit, Room};

use crate::AdmissionState;

/// What this decision has changed already.
#[derive(Debug, Default)]
pub struct Changes {
    /// Jobs that it admits and that wait for nothing, with the submission's event.
    pub admitted: Vec<(Sequence, JobAdmitted)>,
    /// Queued jobs that it cancels.
    pub cancelled: BTreeSet<JobId>,
}

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

/// The heads that do not fit as things are, and of which that was not known. One that would fit
/// in place of another that is released is not among them: it only was not its turn. First in,
/// first out nobody overtakes, unless others are filled in behind.
fn no_room(queues: &Queues, lines: &[Line<'_>], room: &Room<'_>) -> Vec<JobId> {
    if queues.policy.queue == Queue::Fifo && !queues.policy.backfills() {
        return Vec::new();
    }
    let heads = lines
        .iter()
        .filter_map(|line| Some((line, line.head.as_ref()?)));
    let known = |id: &JobId| queues.passed_over.contains_key(id);
    let passed =
        heads.filter(|(line, head)| !known(&head.id) && room.fit(line, head) == Fit::NoRoom);
    passed.map(|(_, head)| head.id.clone()).collect()
}

struct Release<'a> {
    queues: &'a Queues,
    now: Timestamp,
    lines: Vec<Line<'a>>,
    room: Room<'a>,
    /// Index of the tenant that released last.
    last: Option<usize>,
    /// Heads without room when the decision began, not yet recorded as passed over.
    passed: Vec<JobId>,
    /// Jobs released in this decision.
    released: usize,
    held_back: bool,
}

impl<'a> Release<'a> {
    fn new(state: &'a AdmissionState, changes: &'a Changes, now: Timestamp) -> Self {
        let (queues, cluster) = (&state.queues, &state.cluster);
        let mut room = Room::new((queues, cluster), now);
        let mut lines = line::lines((queues, cluster), changes, now);
        for line in &mut lines {
            line.advance(&mut room);
        }
        room.reserve(&lines, now);
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

    /// The next release, if anything fits.
    fn next(&mut self) -> Option<Proposal> {
        if let Some(urgent) = self.urgent() {
            return self.release(urgent);
        }
        while !self.held_back {
            let turn = self.turn()?;
            let line = &self.lines[turn];
            let head = line.head.as_ref()?;
            match self.room.fit(line, head) {
                Fit::Yes => return self.release(turn),
                misfit if self.queues.policy.backfills() => {
                    let lacks = self.room.lacks(line, head, misfit);
                    self.pass(turn, misfit, lacks);
                }
                Fit::NoRoom if self.queues.policy.queue == Queue::Fifo => self.held_back = true,
                misfit => self.block(turn, misfit),
            }
        }
        None
    }

    /// The head of a line does not fit: who demands nothing of what it lacks may go.
    fn pass(&mut self, turn: usize, misfit: Fit, lacks: BTreeSet<Resource>) {
        let head = self.lines[turn].head.clone();
        let class = head.as_ref().map(|head| head.class);
        let until = match misfit {
            Fit::NoRoom => head.as_ref().and_then(|head| self.room.start_of(head)),
            // Who waits for another one's room may as well be passed until then.
            Fit::Reserved => self.room.reserved_start(),
            Fit::Yes | Fit::OverQuota => None,
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
        let holds_all = self.queues.policy.queue == Queue::Fifo && misfit.concerns_others();
        for line in self.lines.iter_mut().filter(|_| holds_all) {
            line.close(&closed, &mut self.room);
        }
        // Its own limit may end before it could start: it does not fit all the same.
        let passed = head.map(|head| head.id);
        let line = &mut self.lines[turn];
        if line.head.as_ref().map(|head| &head.id) == passed.as_ref() {
            line.advance(&mut self.room);
        }
    }

    /// Nobody goes while one in front waits: the other jobs of its tenant, and where it waits for room
    /// those of lower classes.
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

    /// The first line whose head is a service or a notebook that its quota lets go.
    fn urgent(&self) -> Option<usize> {
        let goes = |line: &Line<'_>| {
            let head = line.head.as_ref();
            let head = head.filter(|head| !line.blocked && head.urgency > Urgency::Training);
            head.is_some_and(|head| self.room.fit(line, head) != Fit::OverQuota)
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
            queue: self.queues.policy.queue,
            share: line.share.as_f64(),
            demand_share: line.demand_share.as_f64(),
            weight: line.weight,
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
