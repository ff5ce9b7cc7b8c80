//! The allocations that waiting jobs need.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::SlurmRequested;
use dormouse_messages::needs::Labels;
use dormouse_messages::{Amounts, JobId, Proposal, QueueId, Sequence};
use dormouse_state::fit::{Containers, unplaced};
use dormouse_state::{ClusterState, FreeNode, FreeNodes, Gang, Job, SlurmPhase, SlurmQueueState};

/// Jobs named by a request: enough for people.
const JOBS_NAMED: usize = 4;

/// Waiting jobs looked at, so that a long queue of jobs does not make each event expensive.
const JOBS_READ: usize = 1_000;

/// The waiting jobs' demand on each queue.
pub struct Demand<'a> {
    state: &'a ClusterState,
    wishes: BTreeMap<&'a QueueId, Wish<'a>>,
    /// Queues that could hold a waiting job, with or without another allocation.
    wanted: BTreeSet<&'a QueueId>,
}

#[derive(Default)]
struct Wish<'a> {
    allocations: u32,
    jobs: Vec<(&'a JobId, Sequence)>,
}

/// A queue that may ask for allocations.
struct Open<'a, 'b> {
    name: &'a QueueId,
    queue: &'a SlurmQueueState,
    labels: &'b Labels,
    /// Allocations that the queue may still ask for.
    room: u32,
    pending: u32,
}

/// Labels of the queues' nodes, in the order of the queues.
type AllLabels = Vec<Labels>;

fn labels(state: &ClusterState) -> AllLabels {
    let queues = state.slurm.iter();
    queues
        .map(|(name, queue)| queue.settings.node_labels(name))
        .collect()
}

static NO_TAINTS: BTreeSet<String> = BTreeSet::new();

fn nodes<'a>(
    capacity: &Amounts,
    labels: &'a Labels,
    count: u32,
) -> impl Iterator<Item = FreeNode<'a>> + use<'a> {
    let node = FreeNode::empty(capacity, std::iter::empty(), (labels, &NO_TAINTS));
    std::iter::repeat_n(node, count as usize)
}

impl<'a> Demand<'a> {
    /// Computes the demand of a state.
    #[must_use]
    pub fn of(state: &'a ClusterState) -> Self {
        let mut demand = Self {
            state,
            wishes: BTreeMap::new(),
            wanted: BTreeSet::new(),
        };
        let labels = labels(state);
        let mut open = Vec::new();
        let mut free = FreeNodes::left_by(state, |_, _| u64::MAX);
        for ((name, queue), labels) in state.slurm.iter().zip(&labels) {
            let held = u32::try_from(queue.allocations.len()).unwrap_or(u32::MAX);
            let mut pending = 0;
            for allocation in queue.allocations.values().filter(|it| !it.released) {
                pending += u32::from(allocation.is_pending());
                if allocation.phase != SlurmPhase::Ended {
                    let names = allocation.node_names(name);
                    let absent = names.filter(|node| state.nodes.get(node).is_none());
                    let absent = u32::try_from(absent.count()).unwrap_or(u32::MAX);
                    free.extend(nodes(&queue.settings.node, labels, absent));
                }
            }
            if queue.paused().is_none() {
                open.push(Open {
                    name,
                    queue,
                    labels,
                    room: queue.settings.most.saturating_sub(held),
                    pending,
                });
            }
        }
        for (id, job) in waiting(state) {
            demand.place((id, job), &mut free, &mut open);
        }
        for (id, job) in growing(state) {
            demand.grow((id, job), &mut free, &mut open);
        }
        demand
    }

    fn place<'b>(
        &mut self,
        (id, job): (&'a JobId, &'a Job),
        free: &mut FreeNodes<'b>,
        open: &mut [Open<'a, 'b>],
    ) {
        let gang = Gang::of(&self.state.nodes, job);
        for queue in open.iter() {
            if queue.could_hold(&gang) {
                self.wanted.insert(queue.name);
            }
        }
        if free.place(&gang, &None) {
            return;
        }
        for queue in open {
            if let Some(count) = queue.needed(free, &gang) {
                queue.take(free, count);
                free.place(&gang, &None);
                self.wish(queue.name, count, (id, job.admitted));
                return;
            }
        }
    }

    /// Adds single containers, up to the most that the job can use.
    fn grow<'b>(
        &mut self,
        (id, job): (&'a JobId, &'a Job),
        free: &mut FreeNodes<'b>,
        open: &mut [Open<'a, 'b>],
    ) {
        let of_type = job.container_type();
        let one = Gang(vec![Containers {
            gpu_parts: self.state.nodes.gpu_parts(&of_type),
            of_type,
            count: 1,
        }]);
        let has = match job.workers() {
            0 => job.containers.start(),
            workers => workers,
        };
        for _ in has..job.containers.max {
            if free.place(&one, &None) {
                continue;
            }
            let open = open.iter_mut().filter(|it| it.queue.settings.grow);
            let mut open = open.filter(|it| it.backlog_left() > 0);
            let Some(queue) = open.find(|it| it.needed(free, &one) == Some(1)) else {
                return;
            };
            queue.take(free, 1);
            free.place(&one, &None);
            self.wish(queue.name, 1, (id, job.admitted));
        }
    }

    fn wish(&mut self, queue: &'a QueueId, allocations: u32, job: (&'a JobId, Sequence)) {
        let wish = self.wishes.entry(queue).or_default();
        wish.allocations += allocations;
        if wish.jobs.len() < JOBS_NAMED && !wish.jobs.contains(&job) {
            wish.jobs.push(job);
        }
    }

    /// Reports whether a waiting job could run on the queue's nodes.
    #[must_use]
    pub fn wants(&self, queue: &QueueId) -> bool {
        self.wanted.contains(queue)
    }

    /// Returns the requests.
    #[must_use]
    pub fn requests(&self) -> Vec<Proposal> {
        let mut requests = Vec::new();
        for (name, wish) in &self.wishes {
            let Some(queue) = self.state.slurm.get(name) else {
                continue;
            };
            let mut taken = Vec::new();
            for nth in 1..=u64::from(wish.allocations) {
                let Some(slot) = queue.free_slot(&taken) else {
                    break;
                };
                taken.push(slot);
                let request = SlurmRequested {
                    queue: (*name).clone(),
                    number: queue.last_number + nth,
                    slot,
                    nodes: queue.settings.nodes,
                    jobs: wish.jobs.iter().map(|(id, _)| (*id).clone()).collect(),
                    basis: None,
                };
                let causes = wish.jobs.iter().map(|(_, admitted)| *admitted);
                requests.push(Proposal::caused_by(request, causes.collect()));
            }
        }
        requests
    }
}

impl<'b> Open<'_, 'b> {
    const fn backlog_left(&self) -> u32 {
        self.queue.settings.backlog.saturating_sub(self.pending)
    }

    fn new_nodes(&self, allocations: u32) -> impl Iterator<Item = FreeNode<'b>> + use<'b> {
        let settings = &self.queue.settings;
        let count = settings.nodes.saturating_mul(allocations);
        nodes(&settings.node, self.labels, count)
    }

    /// Reports whether all allocations of the queue together could hold the gang.
    fn could_hold(&self, gang: &Gang) -> bool {
        let all = self.new_nodes(self.queue.settings.most).collect();
        FreeNodes::new(all).fits(gang, &None)
    }

    /// Returns the fewest new allocations that fit the gang, within the queue's bounds.
    fn needed(&self, free: &FreeNodes<'b>, gang: &Gang) -> Option<u32> {
        // One gang may exceed the backlog: half of its allocations would only wait for the others.
        let most = if self.pending == 0 {
            self.room
        } else {
            self.room.min(self.backlog_left())
        };
        (1..=most).find(|count| {
            let mut with = free.clone();
            with.extend(self.new_nodes(*count));
            with.fits(gang, &None)
        })
    }

    fn take(&mut self, free: &mut FreeNodes<'b>, allocations: u32) {
        free.extend(self.new_nodes(allocations));
        self.room = self.room.saturating_sub(allocations);
        self.pending = self.pending.saturating_add(allocations);
    }
}

/// Returns the jobs that wait for capacity, oldest first.
fn waiting(state: &ClusterState) -> Vec<(&JobId, &Job)> {
    let is_live = |id: &JobId| state.job(id).is_some();
    let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
    for (id, job) in state.jobs.iter().filter(|(_, job)| !unplaced(job)) {
        let used = used.entry(id.tenant()).or_default();
        job.auxiliary
            .add_to(used, &job.demand, u64::from(placed(job)));
    }
    let waits = |(id, job): &(&JobId, &Job)| {
        let is_wanted = job.cancel_requested.is_none() && !job.stands_down();
        let in_budget = job.released.is_some() || !state.budgets.holds(id.tenant());
        is_wanted && in_budget && unplaced(job) && !job.depends_on.iter().any(is_live) && {
            let tenant = id.tenant();
            let bounds = (&job.demand, &job.auxiliary);
            let start = job.containers.start();
            let mut together = used.get(tenant).cloned().unwrap_or_default();
            let smallest = job.auxiliary.partition(&job.demand, start);
            together.add(&smallest, 1);
            let quota = state.tenants.quota(tenant);
            let is_over = quota.is_some_and(|quota| quota.exceeded_by(&together).is_some());
            !is_over && state.tenants.above(tenant, bounds, start).is_none()
        }
    };
    let mut jobs: Vec<_> = state.live().filter(waits).collect();
    jobs.sort_by_key(|(_, job)| job.admitted);
    jobs.truncate(JOBS_READ);
    jobs
}

fn placed(job: &Job) -> u32 {
    job.assignment.as_ref().map_or(0, |it| it.containers())
}

/// Returns the jobs that could use more, oldest first, if a queue asks for them.
fn growing(state: &ClusterState) -> Vec<(&JobId, &Job)> {
    if !state.slurm.iter().any(|(_, queue)| queue.settings.grow) {
        return Vec::new();
    }
    let grows = |(_, job): &(&JobId, &Job)| {
        let is_wanted = job.cancel_requested.is_none() && !job.stands_down();
        is_wanted && !job.is_served() && job.is_adjustable() && job.workers() < job.containers.max
    };
    let mut jobs: Vec<_> = state.jobs.iter().filter(grows).collect();
    jobs.sort_by_key(|(_, job)| job.admitted);
    jobs.truncate(JOBS_READ);
    jobs
}
