//! One tenant's queue within a decision, with the decision's own admissions, cancellations and releases.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::btree_set;
use std::iter::Peekable;

use dormouse_messages::events::JobAdmitted;
use dormouse_messages::needs::ContainerType;
use dormouse_messages::quantity::Resource;
use dormouse_messages::{Amounts, AuxiliaryRoles, JobId, Sequence, Timestamp};
use dormouse_state::fit::{NodeSet, outside};
use dormouse_state::queues::{LOOKAHEAD, Order};
use dormouse_state::usage::NEUTRAL;
use dormouse_state::{Gang, QueueJob, Queues, Share, Stand, TenantQueue, Waits};

use super::head::{Certain, Head, Passing, demanded};
use super::room::Room;

/// Every decision in a full cluster pays for this search behind a misfit.
const BACKFILL_LOOKAHEAD: usize = 100;

/// This decision's changes so far.
#[derive(Debug, Default)]
pub struct Changes {
    /// Without dependencies, with the submission's event.
    pub admitted: Vec<(Sequence, JobAdmitted)>,
    pub cancelled: BTreeSet<JobId>,
}

/// Resources that an earlier job lacks on its eligible nodes. Later jobs that demand any of them stay off
/// these nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    pub lacks: BTreeSet<Resource>,
    pub nodes: NodeSet,
    /// The job's start, if known. Jobs that end by then may pass.
    pub until: Option<Timestamp>,
    /// Only jobs below this class wait.
    pub below: Option<i32>,
}

impl Closed {
    fn holds(&self, job: &Passing<'_>, now: Timestamp) -> bool {
        self.below.is_none_or(|class| job.class < class)
            && demanded(job.demand, job.auxiliary).any(|it| self.lacks.contains(it))
            && !job.ends_by(self.until, now)
    }
}

/// A tenant's queue.
pub struct Line<'a> {
    pub tenant: &'a str,
    pub weight: u32,
    /// Factor of the weight by past use, in thousandths.
    pub factor: u64,
    /// With this decision's releases.
    pub runs: Amounts,
    pub certain: Certain,
    pub queued: Amounts,
    pub count: u64,
    pub waits: Waits,
    pub credited: Waits,
    pub credited_count: u64,
    pub head: Option<Head>,
    /// Until the next decision.
    pub blocked: bool,
    closed: Vec<Closed>,
    /// Left to examine behind a misfit.
    lookahead: usize,
    pub share: Share,
    pub demand_share: Share,
    queues: &'a Queues,
    now: Timestamp,
    stored: Peekable<btree_set::Iter<'a, (Order, JobId)>>,
    fresh: Vec<(Order, Head)>,
    cancelled: &'a BTreeSet<JobId>,
}

/// Returns all non-empty queues, by name.
pub fn lines<'a>(queues: &'a Queues, changes: &'a Changes, now: Timestamp) -> Vec<Line<'a>> {
    let queued = queues.tenants.iter();
    let queued = queued.filter(|(_, queue)| !queue.order.is_empty());
    let fresh = changes.admitted.iter();
    let fresh = fresh.map(|(_, event)| event.job.tenant());
    let names = queued.map(|(name, _)| name.as_str()).chain(fresh);
    let names: BTreeSet<&str> = names.collect();
    let standings = queues.cluster.standings(now);
    let line = |name| {
        let queue = queues.tenants.get(name).unwrap_or_else(empty);
        let mut line = Line::of(queues, name, queue, (changes, now));
        line.factor = standings.factor(name);
        line
    };
    let mut lines: Vec<Line<'a>> = names.into_iter().map(line).collect();
    for (index, (cause, event)) in (1..).zip(&changes.admitted) {
        let line = lines.iter_mut().find(|l| l.tenant == event.job.tenant());
        let Some(line) = line else { continue };
        let arrival = Sequence(queues.cluster.sequence.0 + index);
        let auxiliary = AuxiliaryRoles::of(&event.spec);
        let start = event.spec.containers.start();
        let needs = auxiliary.partition(&event.spec.demand, start);
        line.queued.add(&needs, 1);
        line.count += 1;
        line.waits.join(now);
        line.credited.join(now);
        line.credited_count += 1;
        let class = event.spec.priority_class.as_ref();
        let worker = ContainerType {
            demand: event.spec.demand.clone(),
            needs: event.spec.needs(),
        };
        let head = Head {
            id: event.job.clone(),
            demand: event.spec.demand.clone(),
            gang: Gang::new(&queues.cluster.nodes, worker, &auxiliary, start),
            open: None,
            workers: start,
            auxiliary,
            needs,
            urgency: event.spec.kind.urgency(),
            class: class.map_or(0, |class| class.value),
            preempts: class.is_some_and(|class| class.preempts),
            cause: *cause,
            arrival,
            since: now,
            credited: now,
            limit_ms: event.spec.time_limit_s.map(|it| u64::from(it) * 1000),
        };
        let order = (
            Reverse(event.spec.kind.urgency()),
            Reverse(head.class),
            Reverse(event.spec.priority),
            arrival,
        );
        line.fresh.push((order, head));
    }
    for line in &mut lines {
        // In reverse, for popping.
        line.fresh.sort_by_key(|(order, _)| Reverse(*order));
        line.measure();
    }
    lines
}

fn empty<'a>() -> &'a TenantQueue {
    static EMPTY: std::sync::OnceLock<TenantQueue> = std::sync::OnceLock::new();
    EMPTY.get_or_init(TenantQueue::default)
}

impl<'a> Line<'a> {
    fn of(
        queues: &'a Queues,
        tenant: &'a str,
        queue: &'a TenantQueue,
        (changes, now): (&'a Changes, Timestamp),
    ) -> Self {
        let mut line = Self {
            tenant,
            weight: queues.weight(tenant),
            factor: NEUTRAL,
            runs: queue.runs.amounts(),
            certain: Certain {
                amounts: queue.certain(&queues.cluster.policy).amounts(),
                containers: queue.certain_containers(&queues.cluster.policy),
                allowance: queues.allowance(tenant, now),
            },
            queued: queue.queued.amounts(),
            count: queue.order.len() as u64,
            waits: queue.waits.clone(),
            credited: queue.credited.clone(),
            credited_count: queue.credited.queued,
            head: None,
            blocked: false,
            closed: Vec::new(),
            lookahead: BACKFILL_LOOKAHEAD,
            share: Share::ZERO,
            demand_share: Share::ZERO,
            queues,
            now,
            stored: queue.order.iter().peekable(),
            fresh: Vec::new(),
            cancelled: &changes.cancelled,
        };
        for id in changes.cancelled.iter().filter(|id| id.tenant() == tenant) {
            let queued = |job: &&QueueJob| matches!(job.stand, Stand::Queued { .. });
            if let Some(job) = queues.jobs.get(id).filter(queued) {
                line.queued.subtract(&job.smallest(), 1);
                line.count = line.count.saturating_sub(1);
            }
        }
        line
    }

    fn measure(&mut self) {
        self.share = Share::dominant(&self.runs, &self.queues.total);
        self.demand_share = Share::dominant(&self.queued, &self.queues.total);
    }

    /// Reports whether past use counts.
    pub fn is_remembered(&self) -> bool {
        self.queues.cluster.usage.is_on()
    }

    /// Returns the weight times the factor of past use.
    pub fn counted_weight(&self) -> u64 {
        u64::from(self.weight) * self.factor
    }

    /// Returns the beginning of the budget's next period, if the budget holds the first job.
    pub fn renewed_at(&self) -> Option<Timestamp> {
        let head = self.head.as_ref()?;
        self.certain.over_budget(head)?;
        self.certain.allowance.as_ref()?.until()
    }

    /// Returns the first job next to the tenant's use.
    pub fn waiting(&self) -> Option<(&Certain, &Head)> {
        Some((&self.certain, self.head.as_ref()?))
    }

    /// Finds the first job that could run.
    pub fn advance(&mut self, room: &mut Room<'_>) {
        self.head = None;
        for _ in 0..LOOKAHEAD {
            let head = match self.pop(room) {
                None => return,
                Some(Some(head)) => head,
                Some(None) => {
                    self.lookahead = self.lookahead.saturating_sub(1);
                    match self.lookahead {
                        0 => return,
                        _ => continue,
                    }
                }
            };
            let one = (&head.demand, &head.auxiliary);
            let above = self
                .queues
                .cluster
                .tenants
                .above(self.tenant, one, head.workers);
            let never = self.queues.never_within(&head.id);
            if above.is_none() && never.is_none() && room.could_run(&head) {
                self.head = Some(head);
                return;
            }
        }
    }

    /// Closes nodes for missing resources. A head without other nodes is skipped.
    pub fn close(&mut self, closed: &Closed, room: &mut Room<'_>) {
        if !self.closed.contains(closed) {
            self.closed.push(closed.clone());
        }
        if let Some(mut head) = self.head.take() {
            let open = self.open(&head.passing(), || head.gang.clone(), room);
            match open {
                Some(open) => {
                    head.open = open;
                    self.head = Some(head);
                }
                None => self.advance(room),
            }
        }
    }

    /// Returns the open nodes; `None` if they cannot hold the job.
    fn open(
        &self,
        job: &Passing<'_>,
        gang: impl FnOnce() -> Gang,
        room: &Room<'_>,
    ) -> Option<NodeSet> {
        let mut open = None;
        for closed in self.closed.iter().filter(|it| it.holds(job, self.now)) {
            closed.nodes.as_ref()?;
            open = outside(&open, &closed.nodes);
        }
        if open.is_none() || room.holds(&gang(), &open) {
            Some(open)
        } else {
            None
        }
    }

    /// Pops the next job; `Some(None)` if held by earlier jobs. Long queues are scanned often, so held jobs
    /// are not copied.
    fn pop(&mut self, room: &Room<'_>) -> Option<Option<Head>> {
        let queues = self.queues;
        let stored_first = match (self.stored.peek(), self.fresh.last()) {
            (Some((stored, _)), Some((fresh, _))) => stored < fresh,
            (stored, _) => stored.is_some(),
        };
        if !stored_first {
            let (_, mut head) = self.fresh.pop()?;
            let open = self.open(&head.passing(), || head.gang.clone(), room);
            return Some(open.map(|open| {
                head.open = open;
                head
            }));
        }
        let cancelled = self.cancelled;
        let (_, id) = self
            .stored
            .by_ref()
            .find(|(_, id)| !cancelled.contains(id))?;
        let job = queues.jobs.get(id)?;
        let gang = || gang_of(queues, (id, job), self.now);
        let open = self.open(&Passing::of(job, queues.left_ms(id)), gang, room);
        Some(open.map(|open| head_of(queues, (id, job), gang(), open)))
    }

    /// Moves the head to running.
    pub fn take(&mut self, room: &mut Room<'_>, now: Timestamp) -> Option<Head> {
        let head = self.head.take()?;
        self.runs.add(&head.needs, 1);
        self.certain.amounts.add(&head.needs, 1);
        self.certain.containers += head.containers();
        if let Some(allowance) = &mut self.certain.allowance {
            allowance.take(&head.needs, head.limit_ms);
        }
        self.queued.subtract(&head.needs, 1);
        self.count = self.count.saturating_sub(1);
        if head.credited <= now {
            self.credited_count = self.credited_count.saturating_sub(1)
        } else {
            self.credited.arrived += 1
        }
        room.take(&head);
        self.measure();
        self.advance(room);
        Some(head)
    }
}

fn gang_of(queues: &Queues, (id, job): (&JobId, &QueueJob), now: Timestamp) -> Gang {
    let known = queues.cluster.job(id);
    let worker = ContainerType {
        demand: job.demand.clone(),
        needs: known
            .map(|job| queues.cluster.needs_at(id, job, now))
            .unwrap_or_default(),
    };
    Gang::new(
        &queues.cluster.nodes,
        worker,
        known.map_or(&job.auxiliary, |job| &job.auxiliary),
        job.containers.start(),
    )
}

fn head_of(queues: &Queues, (id, job): (&JobId, &QueueJob), gang: Gang, open: NodeSet) -> Head {
    let (since, credited) = match job.stand {
        Stand::Queued { since, credited } => (since, credited),
        _ => Default::default(),
    };
    Head {
        id: id.clone(),
        demand: job.demand.clone(),
        workers: job.containers.start(),
        auxiliary: job.auxiliary.clone(),
        needs: job.smallest(),
        gang,
        open,
        urgency: job.urgency,
        class: job.class,
        preempts: job.preempts,
        cause: job.admitted,
        arrival: job.admitted,
        since,
        credited,
        limit_ms: queues.left_ms(id),
    }
}
