//! Makes space for services, notebooks and jobs of a preempting class, at the cost of training and batch.
//!
//! P2 is solved under ever looser bounds, and the first solution is taken:
//!
//! 1. no restarts: jobs resized in place shrink;
//! 2. restarts within θ2, unfairness within θ1;
//! 3. no restarts, any unfairness;
//! 4. any restarts and unfairness;
//! 5. requeue as few jobs as necessary, in the order of [`victims`].
//!
//! A preempting class takes free capacity first, whatever θ1 says ([`in_free_room`]), then capacity of lower
//! classes. Protected jobs are neither restarted nor requeued, unless a service or notebook cannot start
//! otherwise ([`beyond_bounds`]).
//!
//! From step 3 on the decision records that bounds were lifted, and no other waiting job is admitted. If even
//! an empty cluster is too small, targets of services are cut, the last ones first.
//!
//! The bound on preemptions counts for each job: a bound of the cluster would leave the same victim each time.
//! A job too young to resize is requeued whole, and the next decision gives it the remaining capacity.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use dormouse_messages::job::Urgency;

use crate::drive::participants::{Admitted, Queue};
use crate::milp::type_milp::may_be_feasible;
use crate::model::cluster::{is_head, limits, loss_bound, runs};
use crate::model::instance::Instance;
use crate::model::room::fits;
use crate::problem::{Problem, ProblemJob};

const SLACK: f64 = 1e-9;

pub(crate) struct Whom {
    pub first: usize,
    /// Preempting classes only; services and notebooks always take part.
    pub members: Vec<usize>,
    /// `None`: all training and batch gives way.
    pub below: Option<i32>,
}

impl Whom {
    pub fn service(first: usize) -> Self {
        Self {
            first,
            members: Vec::new(),
            below: None,
        }
    }

    pub fn outranks(&self, job: &ProblemJob) -> bool {
        let lower = |below: i32| job.precedence.class < below;
        job.urgency == Urgency::Training && self.below.is_none_or(lower)
    }
}

/// A service or notebook that must be placed again counts as having none.
pub(crate) fn short(queue: &Queue<'_>) -> Option<usize> {
    let jobs = queue.problem.jobs.iter().enumerate();
    let mut urgent = jobs.filter(|(_, job)| job.urgency > Urgency::Training);
    let short = urgent.find(|(index, job)| {
        let stands = job.previous.iter().filter(|_| runs(queue.cluster, job));
        let has: u32 = stands.flat_map(|it| it.values()).sum();
        has < limits(job).0 && queue.takes_part(*index)
    });
    short.map(|(index, _)| index)
}

pub(crate) struct MadeRoom {
    pub problem: Problem,
    pub admitted: Admitted,
    pub evicted: BTreeSet<usize>,
    pub forced: bool,
    pub was_free: bool,
}

pub(crate) fn make_room(queue: &Queue<'_>, whom: &Whom) -> Option<MadeRoom> {
    let problem = held(queue, |job| {
        !whom.outranks(job) || (job.precedence.protected && job.in_place.is_none())
    });
    let made = steps(&queue.of(&problem), whom);
    match whom.below {
        None => made.or_else(|| beyond_bounds(queue, whom)),
        Some(_) => made,
    }
}

/// Returns the protected jobs if only their protection keeps a waiting job from starting.
pub(crate) fn protecting<'a>(queue: &'a Queue<'_>, whom: &'a Whom) -> Vec<&'a ProblemJob> {
    let victims = victims(queue, whom, true);
    let all: BTreeSet<usize> = victims.iter().copied().collect();
    let mut without = unbounded(queue.instance_without(&whom.members, &all));
    without.restart_bound = 0;
    let jobs = victims.iter().map(|index| &queue.problem.jobs[*index]);
    let protected: Vec<&ProblemJob> = jobs.filter(|job| job.precedence.protected).collect();
    if !protected.is_empty() && may_be_feasible(&without) {
        protected
    } else {
        Vec::new()
    }
}

fn held(queue: &Queue<'_>, stays: impl Fn(&ProblemJob) -> bool) -> Problem {
    let mut problem = queue.problem.clone();
    for job in &mut problem.jobs {
        let runs = job.urgency == Urgency::Training && runs(queue.cluster, job);
        job.adjustable &= !(runs && stays(job));
    }
    problem
}

pub(crate) fn in_free_room(queue: &Queue<'_>, whom: &Whom) -> Option<MadeRoom> {
    let problem = held(queue, |_| true);
    let queue = queue.of(&problem);
    let mut instance = unbounded(queue.instance(&whom.members));
    instance.restart_bound = 0;
    let admitted = solved(&queue, whom, instance)?;
    let loss = admitted.found.candidate.loss(&admitted.instance);
    Some(MadeRoom {
        forced: loss > loss_bound(&problem, queue.cluster) + SLACK,
        admitted,
        evicted: BTreeSet::new(),
        was_free: true,
        problem: problem.clone(),
    })
}

fn steps(queue: &Queue<'_>, whom: &Whom) -> Option<MadeRoom> {
    let whole = queue.instance(&whom.members);
    let within = |instance: Instance, forced| {
        Some(MadeRoom {
            admitted: solved(queue, whom, instance)?,
            evicted: BTreeSet::new(),
            forced,
            was_free: false,
            problem: queue.problem.clone(),
        })
    };
    let in_place = |mut instance: Instance| {
        instance.restart_bound = 0;
        instance
    };
    within(in_place(whole.clone()), false)
        .or_else(|| within(whole.clone(), false))
        .or_else(|| within(in_place(unbounded(whole.clone())), true))
        .or_else(|| within(unbounded(whole), true))
        .or_else(|| evict(queue, whom, &victims(queue, whom, false)))
}

/// Repeats steps 4 and 5 without protection: a service has promised latency.
fn beyond_bounds(queue: &Queue<'_>, whom: &Whom) -> Option<MadeRoom> {
    let mut jobs = queue.problem.jobs.iter();
    if !jobs.any(|job| job.precedence.protected && runs(queue.cluster, job)) {
        return None;
    }
    let admitted = solved(queue, whom, unbounded(queue.instance(&whom.members)));
    let restarted = admitted.map(|admitted| MadeRoom {
        admitted,
        evicted: BTreeSet::new(),
        forced: true,
        was_free: false,
        problem: queue.problem.clone(),
    });
    restarted.or_else(|| evict(queue, whom, &victims(queue, whom, true)))
}

fn unbounded(mut instance: Instance) -> Instance {
    instance.restart_bound = u32::MAX;
    instance.loss_bound = f64::INFINITY;
    instance
}

fn solved(queue: &Queue<'_>, whom: &Whom, instance: Instance) -> Option<Admitted> {
    if !may_be_feasible(&instance) {
        return None;
    }
    let found = queue.search(&instance)?;
    Some(Admitted {
        members: whom.members.clone(),
        instance,
        found,
        unbounded: false,
    })
}

fn evict(queue: &Queue<'_>, whom: &Whom, victims: &[usize]) -> Option<MadeRoom> {
    let without = |count: usize| {
        let evicted: BTreeSet<usize> = victims.iter().take(count).copied().collect();
        let instance = unbounded(queue.instance_without(&whom.members, &evicted));
        (evicted, instance)
    };
    let (mut low, mut high) = (0, victims.len());
    if !may_be_feasible(&without(high).1) {
        return None;
    }
    while high > low + 1 {
        let middle = low.midpoint(high);
        if may_be_feasible(&without(middle).1) {
            high = middle
        } else {
            low = middle
        }
    }
    // The relaxation may be too optimistic.
    for count in high..=victims.len() {
        let (mut evicted, instance) = without(count);
        if let Some(admitted) = solved(queue, whom, instance) {
            spare(queue, whom, &mut evicted, &victims[..count]);
            let again = unbounded(queue.instance_without(&whom.members, &evicted));
            let admitted = solved(queue, whom, again).unwrap_or(admitted);
            return Some(MadeRoom {
                admitted,
                evicted,
                forced: true,
                was_free: false,
                problem: queue.problem.clone(),
            });
        }
    }
    None
}

/// Small early victims may turn out unnecessary.
fn spare(queue: &Queue<'_>, whom: &Whom, evicted: &mut BTreeSet<usize>, victims: &[usize]) {
    for victim in victims.iter().rev().skip(1) {
        let mut fewer = evicted.clone();
        fewer.remove(victim);
        let instance = unbounded(queue.instance_without(&whom.members, &fewer));
        if solved(queue, whom, instance).is_some() {
            *evicted = fewer;
        }
    }
}

/// Orders running jobs by who goes first: unprotected, lowest class, with a checkpoint, least lost work,
/// largest share for its weight, youngest.
fn victims(queue: &Queue<'_>, whom: &Whom, protected: bool) -> Vec<usize> {
    let jobs = queue.problem.jobs.iter().enumerate();
    let victims = jobs.filter(|(index, job)| {
        whom.outranks(job)
            && is_head(job)
            && runs(queue.cluster, job)
            && queue.takes_part(*index)
            && (protected || !job.precedence.protected)
    });
    let lost = victims.map(|(index, job)| (Loss::of(queue, job), index));
    let mut victims: Vec<(Loss, usize)> = lost.collect();
    // Youngest first, kept by the stable sort.
    victims.reverse();
    victims.sort_by(|(left, one), (right, other)| {
        let (one, other) = (&queue.problem.jobs[*one], &queue.problem.jobs[*other]);
        let key = |job: &ProblemJob| {
            let precedence = &job.precedence;
            (precedence.protected, precedence.class, !job.has_checkpoint)
        };
        key(one).cmp(&key(other)).then_with(|| left.compare(right))
    });
    victims.into_iter().map(|(_, index)| index).collect()
}

struct Loss {
    /// Work in seconds of the whole cluster, summed over the resources.
    work: f64,
    weighted_share: f64,
}

impl Loss {
    fn of(queue: &Queue<'_>, job: &ProblemJob) -> Self {
        let demand = queue.cluster.demand(job).unwrap_or_default();
        let totals = &queue.cluster.totals;
        let parts = demand.iter().zip(totals);
        let parts = parts.map(|(demand, total)| *demand as f64 / *total as f64);
        let (sum, dominant) = parts.fold((0.0, 0.0_f64), |(sum, most), part| {
            (sum + part, most.max(part))
        });
        let count: u32 = job.previous.iter().flat_map(|it| it.values()).sum();
        Self {
            work: job.precedence.at_risk_s * sum * f64::from(count),
            weighted_share: dominant * f64::from(count) / f64::from(job.weight.max(1)),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let work = self.work.total_cmp(&other.work);
        work.then_with(|| other.weighted_share.total_cmp(&self.weighted_share))
    }
}

/// Returns targets cut to what the cluster could hold without training and batch. Containers on nodes that take no
/// new ones stay there.
pub(crate) fn cut_targets(queue: &Queue<'_>) -> Vec<(usize, u32)> {
    let mut rooms = queue.cluster.rooms.clone();
    let mut cut = Vec::new();
    for (index, job) in queue.problem.jobs.iter().enumerate() {
        let Some(demand) = queue.cluster.demand(job) else {
            continue;
        };
        if job.urgency == Urgency::Training {
            continue;
        }
        let target = u64::from(limits(job).0);
        let mut left = target.saturating_sub(stay(queue, job, &demand, &mut rooms));
        for room in &mut rooms {
            let count = fits(&demand, room).min(left);
            left -= count;
            for (room, amount) in room.iter_mut().zip(&demand) {
                *room -= amount * count;
            }
        }
        if left > 0 {
            cut.push((index, u32::try_from(target - left).unwrap_or(u32::MAX)));
        }
    }
    cut
}

/// Counts a running job's containers on open nodes that it could not start on, and takes their capacity.
fn stay(queue: &Queue<'_>, job: &ProblemJob, demand: &[u64], rooms: &mut [Vec<u64>]) -> u64 {
    let cluster = queue.cluster;
    let previous = job.previous.iter().filter(|_| runs(cluster, job));
    let located = previous.filter_map(|previous| cluster.locate(previous));
    let mut all = 0;
    for (node, count) in located.flatten() {
        if cluster.closed[node] || cluster.columns.allows(job, node) {
            continue;
        }
        all += u64::from(count);
        let counted = cluster.columns.counted();
        for (room, amount) in rooms[node].iter_mut().zip(&demand[..counted]) {
            *room = room.saturating_sub(amount * u64::from(count));
        }
    }
    all
}
