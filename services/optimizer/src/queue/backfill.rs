//! Backfill: who may start behind a job that cannot (policy `admit: backfill`).
//!
//! 1. What a passed job lacks is named by cause: the resources of which it would have to demand
//!    nothing for P2 to have a solution with it; of several those that are short on the nodes that its
//!    containers fit. A GPU job that the fairness bound does not admit lacks GPUs, not the
//!    processors that stand idle.
//! 2. Jobs behind it that demand something that it lacks keep off these nodes, and wait where the
//!    others do not hold their smallest partition: first in, first out always, under other queue
//!    policies once it has waited for `reserve_after_s`. Processors that a GPU job lacks are not
//!    those of nodes without GPUs.
//! 3. Those that are left are tried, in order, each held to its nodes ([`crate::instance::confine`]). Where a
//!    passed job that may not be overtaken would fit if nothing but room counted, it must still fit
//!    beside them: what it is about to get is not taken.
//!
//! The waiting job starts no later for it, but for what a decision may restart at once.

use std::collections::BTreeMap;

use dormouse_state::Gang;
use dormouse_state::fit::{Containers, NodeSet, is_in, meet, outside};

use crate::instance::confine::Confined;
use crate::instance::{Instance, State, covers, roles_of};
use crate::queue::prefix::Queue;
use crate::solve::{any, may_be_feasible};

/// Sets of nodes to which jobs are held in one decision: each is a column more in every model, and
/// with many of them the gap is seldom closed.
const MOST_SETS: usize = 4;

/// Jobs that are passed in one decision: each costs a few relaxations. Resources close the queue
/// behind a job long before, where nobody may be overtaken.
const MOST_PASSED: usize = 8;

/// A job that cannot start.
struct Head {
    job: usize,
    /// The resources that it lacks, by index.
    lacks: Vec<usize>,
    /// The nodes that hold one of its containers when they are empty.
    nodes: NodeSet,
    /// Whether those who demand what it lacks wait behind it.
    holds: bool,
    /// Whether the job would have room beside what takes part: the room is kept for it.
    fits: bool,
}

/// The jobs that were passed, and where those behind them may start.
#[derive(Default)]
pub(crate) struct Passed {
    heads: Vec<Head>,
    confined: Confined,
    /// Per job that is held to some nodes: the first passed job that it keeps away from.
    kept_off: BTreeMap<usize, usize>,
}

impl Passed {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.heads.len() >= MOST_PASSED
    }

    /// The jobs, in order.
    pub fn heads(&self) -> impl Iterator<Item = usize> {
        self.heads.iter().map(|head| head.job)
    }

    /// Where `members` may start.
    pub fn confined(&self, members: impl Iterator<Item = usize>) -> Confined {
        self.confined.of(members)
    }

    /// The first passed job whose nodes a job keeps off.
    pub fn keeps_off(&self, job: usize) -> Option<usize> {
        self.kept_off.get(&job).copied()
    }

    /// Notes that `job` cannot start beside `members`; what it lacks is asked where others wait
    /// behind it.
    pub fn note(&mut self, queue: &Queue<'_>, members: &[usize], job: usize, is_asked: bool) {
        let holds = !queue.problem.jobs[job].may_be_overtaken;
        let mut head = Head {
            job,
            lacks: Vec::new(),
            nodes: None,
            holds,
            fits: false,
        };
        if is_asked && holds {
            head.nodes = nodes(queue, job);
            head.lacks = self.lacks(queue, members, &head);
            let beside = self.unbounded(queue, members, &[job]);
            // Room is kept only for a job that could start in it.
            head.fits = any(&beside, &queue.problem.budget, queue.deadline) != Some(false);
        }
        self.heads.push(head);
    }

    /// Whether a job behind those that were passed is tried; where it may start is noted then.
    pub fn lets_try(&mut self, queue: &Queue<'_>, job: usize) -> bool {
        let known = |head: &Head| {
            if queue.problem.roles(head.job).next().is_some() {
                return false;
            }
            // One that demands the same, and no less of it, cannot start either.
            let (head, job) = (&queue.problem.jobs[head.job], &queue.problem.jobs[job]);
            head.container_type() == job.container_type()
                && head.min <= job.min
                && head.weight == job.weight
        };
        if self.heads.iter().any(known) {
            return false;
        }
        let Ok(left) = self.left(queue, job) else {
            return false;
        };
        if let Some((head, Some(nodes))) = left {
            if self.confined.would_exceed(&nodes, MOST_SETS) {
                return false;
            }
            for index in queue.problem.roles(job).chain([job]) {
                self.confined.hold(index, &nodes);
            }
            self.kept_off.entry(job).or_insert(head);
        }
        true
    }

    /// The first passed job behind which `job` waits.
    pub fn holder(&self, queue: &Queue<'_>, job: usize) -> Option<usize> {
        self.left(queue, job).err()
    }

    /// The nodes that no passed job can use which lacks what `job` demands, with the first of these jobs;
    /// nothing where there is no such job. An error is the one behind which it waits.
    fn left(&self, queue: &Queue<'_>, job: usize) -> Result<Option<(usize, NodeSet)>, usize> {
        let posed = &queue.problem.jobs[job];
        let Some(demand) = queue.cluster.demand(posed) else {
            return Ok(None);
        };
        let roles = roles_of(queue.problem, job).into_iter();
        let beside = roles.filter_map(|role| queue.cluster.demand(role));
        let beside: Vec<Vec<u64>> = beside.collect();
        let wants = |resource: &usize| {
            let mut all = std::iter::once(&demand).chain(&beside);
            all.any(|demand| demand.get(*resource).is_some_and(|amount| *amount > 0))
        };
        let gang = gang(queue, job);
        let own = queue.empty.eligible(&gang);
        let (mut first, mut left) = (None, None);
        for head in self.heads.iter().filter(|head| head.holds) {
            if !meet(&own, &head.nodes) || !head.lacks.iter().any(wants) {
                continue;
            }
            let first = *first.get_or_insert(head.job);
            left = outside(&left, &head.nodes);
            if !queue.empty.fits(&gang, &left) {
                return Err(first);
            }
        }
        Ok(first.map(|head| (head, left)))
    }

    /// Whether the passed jobs that would have room still have it beside `members`.
    pub fn leave_room(&self, queue: &Queue<'_>, members: &[usize]) -> bool {
        let kept = self.heads.iter().filter(|head| head.holds && head.fits);
        let kept: Vec<usize> = kept.map(|head| head.job).collect();
        kept.is_empty() || may_be_feasible(&self.unbounded(queue, members, &kept))
    }

    /// The instance with `members` and `heads`, without the bounds on fairness and restarts.
    fn unbounded(&self, queue: &Queue<'_>, members: &[usize], heads: &[usize]) -> Instance {
        let mut instance = queue.within(&[members, heads].concat(), self);
        instance.loss_bound = f64::INFINITY;
        instance.restart_bound = u32::MAX;
        instance
    }

    /// The resources without whose demand `head` could start beside `members`; all that it demands
    /// where there is none.
    fn lacks(&self, queue: &Queue<'_>, members: &[usize], head: &Head) -> Vec<usize> {
        let job = head.job;
        let instance = queue.within(&[members, &[job]].concat(), self);
        // A cheap answer counts where it tells the job that cannot start from one that could.
        let is_told = !may_be_feasible(&instance);
        let could = |instance: &Instance| {
            may_be_feasible(instance) && (is_told || queue.search(instance).is_some())
        };
        let demand = queue.cluster.demand(&queue.problem.jobs[job]);
        let mut demand = demand.unwrap_or_default();
        let min = u64::from(queue.problem.jobs[job].min.max(1));
        // As if each worker had its part of the roles: what is demanded counts, and whether there is so
        // much of it.
        for role in roles_of(queue.problem, job) {
            let beside = queue.cluster.demand(role).unwrap_or_default();
            for (amount, beside) in demand.iter_mut().zip(beside) {
                *amount += (beside * u64::from(role.min)).div_ceil(min);
            }
        }
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
        // Of several causes those that are short.
        let roles: Vec<usize> = queue.problem.roles(job).collect();
        let free = free(&instance, head, &roles);
        let is_short = |k: &&usize| free[**k] < demand[**k].saturating_mul(min);
        let short: Vec<usize> = causes.iter().filter(is_short).copied().collect();
        match short.is_empty() {
            true => causes,
            false => short,
        }
    }
}

/// What a job starts together.
fn gang(queue: &Queue<'_>, job: usize) -> Gang {
    let roles = queue.problem.roles(job);
    let all = roles.chain([job]).map(|index| {
        let posed = &queue.problem.jobs[index];
        Containers {
            of_type: posed.container_type(),
            gpu_parts: posed.gpu_parts,
            count: u64::from(posed.min.max(1)),
        }
    });
    Gang(all.collect())
}

/// The nodes that hold a container of `job`, or of one of its roles, when they are empty.
fn nodes(queue: &Queue<'_>, job: usize) -> NodeSet {
    queue.empty.eligible(&gang(queue, job))
}

/// What is free of each resource on the nodes of `head`, beside what runs and the minima of what is
/// let in.
fn free(instance: &Instance, head: &Head, roles: &[usize]) -> Vec<u64> {
    let rooms = instance.free_rooms(&vec![false; instance.jobs.len()]);
    let mut free = vec![0_u64; instance.totals.len()];
    let rooms = rooms.into_iter().zip(0..);
    for (room, _) in rooms.filter(|(_, index)| is_in(&head.nodes, *index)) {
        for (free, amount) in free.iter_mut().zip(room) {
            *free += amount;
        }
    }
    // Who is held to other nodes takes nothing there.
    let may_be_there = |ty: usize| {
        let asked = &instance.types[ty].demand[instance.counted..];
        let mut theirs = instance.rooms.iter().zip(0..);
        theirs.any(|(room, index)| {
            is_in(&head.nodes, index) && covers(asked, &room[instance.counted..])
        })
    };
    let fresh = instance.jobs.iter();
    let is_other = |index: usize| index != head.job && !roles.contains(&index);
    let fresh = fresh.filter(|job| job.state == State::Free && is_other(job.index));
    for job in fresh.filter(|job| may_be_there(job.ty)) {
        for (free, amount) in free.iter_mut().zip(&instance.types[job.ty].demand) {
            *free = free.saturating_sub(amount * u64::from(job.min));
        }
    }
    free
}
