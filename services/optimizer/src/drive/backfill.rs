//! Backfill: starts jobs behind a blocked head (policy `admit: backfill`).
//!
//! 1. Find the resources that the head lacks: those without whose demand P2 would be feasible; of several,
//!    those short on its eligible nodes.
//! 2. Later jobs that demand a lacked resource avoid the head's nodes, and wait if the other nodes cannot
//!    hold them: always under first in, first out, else once the head has waited `reserve_after_s`.
//! 3. Try the remaining jobs in order, each confined to its nodes ([`crate::model::eligibility`]). A head that
//!    would fit by capacity alone must still fit.
//!
//! Backfill never delays a blocked head, except by using up restarts.

use std::collections::BTreeMap;

use dormouse_state::Gang;
use dormouse_state::fit::{Containers, NodeSet, is_in, meet, outside};

use crate::drive::ladder::any;
use crate::drive::participants::Queue;
use crate::milp::type_milp::may_be_feasible;
use crate::model::cluster::roles_of;
use crate::model::eligibility::Confined;
use crate::model::instance::{Instance, State};
use crate::model::room::covers;

/// Each set of confining nodes adds a column to every model and keeps the gap open.
const MOST_SETS: usize = 4;

/// Each blocked head costs a few relaxations.
const MOST_HEADS: usize = 8;

struct Head {
    job: usize,
    lacks: Vec<usize>,
    nodes: NodeSet,
    /// Later jobs that demand a lacked resource wait.
    holds: bool,
    /// Capacity alone suffices, so it is reserved.
    fits: bool,
}

#[derive(Default)]
pub(crate) struct BlockedHeads {
    heads: Vec<Head>,
    confined: Confined,
    kept_off: BTreeMap<usize, usize>,
}

impl BlockedHeads {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.heads.len() >= MOST_HEADS
    }

    pub fn heads(&self) -> impl Iterator<Item = usize> {
        self.heads.iter().map(|head| head.job)
    }

    pub const fn confined(&self) -> &Confined {
        &self.confined
    }

    pub fn keeps_off(&self, job: usize) -> Option<usize> {
        self.kept_off.get(&job).copied()
    }

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
            // Next to the room that is kept already: together it must be possible.
            let kept = self.kept().chain([job]).collect::<Vec<_>>();
            let together = self.unbounded(queue, members, &kept);
            head.fits = any(&together, &queue.problem.budget, queue.work) != Some(false);
        }
        self.heads.push(head);
    }

    /// Reports whether to try a job, and records its confinement.
    pub fn lets_try(&mut self, queue: &Queue<'_>, job: usize) -> bool {
        let known = |head: &Head| {
            if queue.problem.roles(head.job).next().is_some() {
                return false;
            }
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

    pub fn holder(&self, queue: &Queue<'_>, job: usize) -> Option<usize> {
        self.left(queue, job).err()
    }

    /// Returns the nodes that heads leave to `job`, and the first head that competes with it. The error is
    /// the head behind which it waits.
    fn left(&self, queue: &Queue<'_>, job: usize) -> Result<Option<(usize, NodeSet)>, usize> {
        let posed = &queue.problem.jobs[job];
        let Some(demand) = queue.cluster.demand(posed) else {
            return Ok(None);
        };
        let roles = roles_of(queue.problem, job).into_iter();
        let auxiliary = roles.filter_map(|role| queue.cluster.demand(role));
        let auxiliary: Vec<Vec<u64>> = auxiliary.collect();
        let wants = |resource: &usize| {
            let mut all = std::iter::once(&demand).chain(&auxiliary);
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

    /// True if heads with reserved capacity still fit next to `members`.
    pub fn leave_room(&self, queue: &Queue<'_>, members: &[usize]) -> bool {
        let kept: Vec<usize> = self.kept().collect();
        kept.is_empty() || may_be_feasible(&self.unbounded(queue, members, &kept))
    }

    /// Returns the blocked heads with kept room.
    fn kept(&self) -> impl Iterator<Item = usize> {
        let kept = self.heads.iter().filter(|head| head.holds && head.fits);
        kept.map(|head| head.job)
    }

    fn unbounded(&self, queue: &Queue<'_>, members: &[usize], heads: &[usize]) -> Instance {
        let mut instance = queue.within(&[members, heads].concat(), &self.confined);
        instance.loss_bound = f64::INFINITY;
        instance.restart_bound = u32::MAX;
        instance
    }

    /// Returns all demanded resources if no single one is to blame.
    fn lacks(&self, queue: &Queue<'_>, members: &[usize], head: &Head) -> Vec<usize> {
        let job = head.job;
        let instance = queue.within(&[members, &[job]].concat(), &self.confined);
        // The cheap test suffices if it tells the blocked job from one that could start.
        let is_told = !may_be_feasible(&instance);
        let could = |instance: &Instance| {
            may_be_feasible(instance) && (is_told || queue.search(instance).is_some())
        };
        let demand = queue.cluster.demand(&queue.problem.jobs[job]);
        let mut demand = demand.unwrap_or_default();
        let min = u64::from(queue.problem.jobs[job].min.max(1));
        // Only total demand and shortage matter here.
        for role in roles_of(queue.problem, job) {
            let auxiliary = queue.cluster.demand(role).unwrap_or_default();
            for (amount, auxiliary) in demand.iter_mut().zip(auxiliary) {
                *amount += (auxiliary * u64::from(role.min)).div_ceil(min);
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
        let causes = if causes.is_empty() { demanded } else { causes };
        let roles: Vec<usize> = queue.problem.roles(job).collect();
        let free = free(&instance, head, &roles);
        let is_short = |k: &&usize| free[**k] < demand[**k].saturating_mul(min);
        let short: Vec<usize> = causes.iter().filter(is_short).copied().collect();
        if short.is_empty() { causes } else { short }
    }
}

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

fn nodes(queue: &Queue<'_>, job: usize) -> NodeSet {
    queue.empty.eligible(&gang(queue, job))
}

/// Returns the free amounts on the head's nodes, less running jobs and the minima of admitted ones.
fn free(instance: &Instance, head: &Head, roles: &[usize]) -> Vec<u64> {
    let rooms = instance.free_rooms(&vec![false; instance.jobs.len()]);
    let mut free = vec![0_u64; instance.totals.len()];
    let rooms = rooms.into_iter().zip(0..);
    for (room, _) in rooms.filter(|(_, index)| is_in(&head.nodes, *index)) {
        for (free, amount) in free.iter_mut().zip(room) {
            *free += amount;
        }
    }
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
