//! Backfill: who may start behind a job that cannot (policy `admit: backfill`).
//!
//! 1. What a passed job lacks is named by cause: the resources of which it would have to demand
//!    nothing for P2 to have a solution with it; of several those that are short. A GPU job that the
//!    fairness bound does not admit lacks GPUs, not the processors that stand idle.
//! 2. Jobs behind it that demand something that it lacks wait: first in, first out they are never
//!    let by, under other queue policies only while it has not waited for `reserve_after_s`.
//! 3. The others are tried, in order. Where a passed job that may not be overtaken would fit if
//!    nothing but room counted, it must still fit beside them: what it is about to get is not taken.
//!
//! The waiting job starts no later for it, but for what a decision may restart at once.

use super::admit::Queue;
use super::instance::{Instance, State, covers};
use super::pipeline::may_be_feasible;

/// Jobs that are passed in one decision: each costs a few relaxations. Resources close the queue
/// behind a job long before, where nobody may be overtaken.
const MOST_PASSED: usize = 8;

/// A job that cannot start.
struct Head {
    job: usize,
    /// The resources that it lacks, by index.
    lacks: Vec<usize>,
    /// Whether those who demand what it lacks wait behind it.
    holds: bool,
    /// Whether it would have room beside what takes part: that is kept for it.
    fits: bool,
}

/// The jobs that were passed.
#[derive(Default)]
pub(crate) struct Passed(Vec<Head>);

impl Passed {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_PASSED
    }

    /// The jobs, in order.
    pub fn heads(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|head| head.job)
    }

    /// Notes that `job` cannot start beside `members`; what it lacks is asked where others wait
    /// behind it.
    pub fn note(&mut self, queue: &Queue<'_>, members: &[usize], job: usize, is_asked: bool) {
        let holds = !queue.problem.jobs[job].may_be_overtaken;
        let mut head = Head {
            job,
            lacks: Vec::new(),
            holds,
            fits: false,
        };
        if is_asked && holds {
            head.lacks = lacks(queue, members, job);
            head.fits = has_room(queue, members, &[job]);
        }
        self.0.push(head);
    }

    /// Whether a job behind those that were passed is tried.
    pub fn may_try(&self, queue: &Queue<'_>, job: usize) -> bool {
        let known = |head: &Head| {
            // One that demands the same, and no less of it, cannot start either.
            let (head, job) = (&queue.problem.jobs[head.job], &queue.problem.jobs[job]);
            head.container_type() == job.container_type()
                && head.min <= job.min
                && head.weight == job.weight
        };
        self.holder(queue, job).is_none() && !self.0.iter().any(known)
    }

    /// The first passed job behind which `job` waits.
    pub fn holder(&self, queue: &Queue<'_>, job: usize) -> Option<usize> {
        let demand = queue.cluster.demand(&queue.problem.jobs[job])?;
        let wants = |resource: &usize| demand.get(*resource).is_some_and(|amount| *amount > 0);
        let mut heads = self.0.iter();
        // Who may be on none of its nodes takes nothing from it.
        let meets = |head: &Head| {
            let jobs = &queue.problem.jobs;
            queue.cluster.columns.meet(&jobs[head.job], &jobs[job])
        };
        let head = heads.find(|head| head.holds && head.lacks.iter().any(wants) && meets(head))?;
        Some(head.job)
    }

    /// Whether the passed jobs that would have room still have it beside `members`.
    pub fn leave_room(&self, queue: &Queue<'_>, members: &[usize]) -> bool {
        let kept = self.0.iter().filter(|head| head.holds && head.fits);
        let kept: Vec<usize> = kept.map(|head| head.job).collect();
        kept.is_empty() || has_room(queue, members, &kept)
    }
}

/// Whether there is room for `heads` beside `members`, whatever the bounds say.
fn has_room(queue: &Queue<'_>, members: &[usize], heads: &[usize]) -> bool {
    let mut instance = queue.instance(&[members, heads].concat());
    instance.loss_bound = f64::INFINITY;
    instance.restart_bound = u32::MAX;
    may_be_feasible(&instance)
}

/// The resources without whose demand `job` could start beside `members`; all that it demands where
/// there is none.
fn lacks(queue: &Queue<'_>, members: &[usize], job: usize) -> Vec<usize> {
    let instance = queue.instance(&[members, &[job]].concat());
    // A cheap answer counts where it tells the job that cannot start from one that could.
    let is_told = !may_be_feasible(&instance);
    let could = |instance: &Instance| {
        may_be_feasible(instance) && (is_told || queue.search(instance).is_some())
    };
    let demand = queue.cluster.demand(&queue.problem.jobs[job]);
    let demand = demand.unwrap_or_default();
    let resources = queue.cluster.totals.len().min(demand.len());
    let demanded: Vec<usize> = (0..resources).filter(|k| demand[*k] > 0).collect();
    if demanded.len() == 1 {
        return demanded;
    }
    let without = |resource: &&usize| {
        let asked = instance.without_demand((queue.problem, queue.cluster), job, **resource);
        asked.is_some_and(|instance| could(&instance))
    };
    let causes: Vec<usize> = demanded.iter().filter(without).copied().collect();
    let causes = match causes.is_empty() {
        true => demanded,
        false => causes,
    };
    // Of several causes those that are short: processors of a GPU's node are a cause, too, where
    // others stand idle elsewhere.
    let free = free(&instance, job);
    let min = u64::from(queue.problem.jobs[job].min.max(1));
    let is_short = |k: &&usize| free[**k] < demand[**k].saturating_mul(min);
    let short: Vec<usize> = causes.iter().filter(is_short).copied().collect();
    match short.is_empty() {
        true => causes,
        false => short,
    }
}

/// What is free of each resource beside what runs and the minima of what is let in.
fn free(instance: &Instance, except: usize) -> Vec<u64> {
    let rooms = instance.free_rooms(&vec![false; instance.jobs.len()]);
    let mut free = vec![0_u64; instance.totals.len()];
    let own = instance.jobs.iter().find(|job| job.index == except);
    let asked = own.map_or(&[][..], |job| {
        &instance.types[job.ty].demand[instance.counted..]
    });
    let rooms = rooms.into_iter();
    for room in rooms.filter(|room| covers(asked, &room[instance.counted..])) {
        for (free, amount) in free.iter_mut().zip(room) {
            *free += amount;
        }
    }
    let fresh = instance.jobs.iter();
    for job in fresh.filter(|job| job.state == State::Free && job.index != except) {
        for (free, amount) in free.iter_mut().zip(&instance.types[job.ty].demand) {
            *free = free.saturating_sub(amount * u64::from(job.min));
        }
    }
    free
}
