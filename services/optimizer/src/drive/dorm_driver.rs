//! Admission: chooses the waiting jobs that take part such that P2 is feasible, and decides.
//!
//! 1. Running jobs take part; unschedulable jobs do not hold up the queue.
//! 2. Displaced jobs come before new ones, each in release order. All are tried, then bisected: first on the
//!    class relaxation, then on P2. Without rivals a job's share may be unreachable with whole containers; so
//!    an idle cluster tries each of the first prefixes before step 6.
//! 3. [`crate::drive::backfill`] fills in jobs behind the prefix, if the policy says so.
//! 4. If the running jobs alone are infeasible, the allocation stays.
//! 5. Services and notebooks always take part; [`crate::drive::urgent`] makes space for those below target,
//!    and for the first waiting job if its class preempts.
//! 6. If nothing runs and nobody is admitted, the head of the queue is admitted without the fairness bound.

use std::collections::BTreeMap;

use dormouse_messages::events::{Solver, StoppedBy};

use crate::drive::backfill::BlockedHeads;
use crate::drive::independent_bound::independent_bound;
use crate::drive::participants::{Admitted, Queue};
use crate::drive::preempt::{Preempted, preempt};
use crate::drive::search::{Found, gap};
use crate::drive::urgent::{self, MadeRoom, Whom};
use crate::drive::waiting::{WaitContext, blocked};
use crate::drive::work::Work;
use crate::milp::highs;
use crate::milp::type_milp::may_be_feasible;
use crate::model::candidate::Candidate;
use crate::model::cluster::{Cluster, loss_bound, runs};
use crate::model::instance::Instance;
use crate::primal::gathering::gather;
use crate::primal::in_place::keep_in_place;
use crate::primal::preferences::follow_preferences;
use crate::primal::restart_pruning::prune_restarts;
use crate::primal::role_affinity::near_workers;
use crate::primal::slots_to_jobs::{Partitions, slots_to_jobs};
use crate::problem::{Budget, Problem};
use crate::report::Draft;
use crate::solution::{Solution, WaitCode};

pub(crate) const KEPT: &str = "kept";

const PREFIXES: usize = 16;

pub(crate) fn solve(problem: &Problem) -> Solution {
    let cluster = Cluster::new(problem);
    let work = Work::new(problem.budget.work);
    let mut draft = Queue::new(problem, &cluster, &work).decide();
    draft.solver.work = work.spent();
    // Without the limit the decision might differ.
    if let Some(limit) = work.met() {
        draft.solver.stopped_by = limit;
    }
    crate::report::write(problem, &cluster, draft)
}

impl Queue<'_> {
    /// If nobody had to give way, waiting jobs are admitted as usual.
    fn serve(&self, short: usize) -> Option<Draft> {
        let whom = Whom::service(short);
        let made = urgent::make_room(self, &whom)?;
        if !self.waiting.is_empty() && self.takes_nothing(&made) {
            let mut blocked_heads = BlockedHeads::default();
            let admitted = self.admitted(&mut blocked_heads);
            if admitted.as_ref().is_some_and(|it| !it.members.is_empty()) {
                return Some(self.usual(admitted, &blocked_heads));
            }
        }
        Some(self.made(&whom, made))
    }

    fn takes_nothing(&self, made: &MadeRoom) -> bool {
        let Admitted {
            instance, found, ..
        } = &made.admitted;
        let mut counts = instance.jobs.iter().zip(&found.candidate.counts);
        let all = counts.all(|(job, count)| {
            let previous = self.problem.jobs[job.index].previous.iter().flatten();
            let had: u32 = previous.map(|(_, count)| count).sum();
            job.base() + count >= had
        });
        all && !made.forced && made.evicted.is_empty()
    }

    fn made(&self, whom: &Whom, made: MadeRoom) -> Draft {
        let MadeRoom {
            problem,
            mut admitted,
            evicted,
            forced,
            was_free,
        } = made;
        let mut partitions = slots_to_jobs(
            self.problem,
            self.cluster,
            &admitted.instance,
            &mut admitted.found.candidate,
        );
        keep_in_place(
            &admitted.instance,
            &mut admitted.found.candidate,
            &mut partitions,
        );
        let Admitted {
            instance, found, ..
        } = &mut admitted;
        let held = self.of(&problem);
        held.exchange_places(instance, &mut found.candidate, &mut partitions);
        let mut draft = self.write(admitted, &BlockedHeads::default(), partitions);
        draft.forced = forced;
        draft.made_room_for = Some(whom.first).filter(|_| !was_free);
        let first = &self.problem.jobs[whom.first].job;
        for job in evicted {
            let reason = format!("makes room for {first}; it goes on when there is room again");
            draft.waiting.insert(job, (WaitCode::Preempted, reason));
        }
        draft
    }

    fn decide(&self) -> Draft {
        if let Some(short) = urgent::short(self) {
            if let Some(draft) = self.serve(short) {
                return draft;
            }
            let cut = urgent::cut_targets(self);
            if !cut.is_empty() {
                return self.decide_with(&cut);
            }
        }
        self.decide_rest()
    }

    fn decide_rest(&self) -> Draft {
        let mut blocked_heads = BlockedHeads::default();
        let admitted = self.admitted(&mut blocked_heads);
        let members = admitted.as_ref().map_or(&[][..], |it| &it.members);
        match preempt(self, members) {
            Preempted::Nobody => self.usual(admitted, &blocked_heads),
            Preempted::Room(whom, made) => self.made(&whom, *made),
            Preempted::Protected(job, reason) => {
                let mut draft = self.usual(admitted, &blocked_heads);
                let why = (WaitCode::PreemptionBound, reason);
                draft.waiting.insert(job, why);
                draft
            }
        }
    }

    fn usual(&self, admitted: Option<Admitted>, blocked_heads: &BlockedHeads) -> Draft {
        let Some(mut admitted) = admitted else {
            return self.keep();
        };
        let candidate = &mut admitted.found.candidate;
        let mut partitions =
            slots_to_jobs(self.problem, self.cluster, &admitted.instance, candidate);
        let objective = candidate.objective(&admitted.instance);
        let bound = admitted.found.bound.max(objective);
        let (proven, allowed) = revertible(objective, bound, &self.problem.budget);
        prune_restarts(
            &admitted.instance,
            candidate,
            &mut partitions,
            proven,
            allowed,
        );
        keep_in_place(&admitted.instance, candidate, &mut partitions);
        self.exchange_places(&admitted.instance, candidate, &mut partitions);
        self.write(admitted, blocked_heads, partitions)
    }

    fn exchange_places(
        &self,
        instance: &Instance,
        candidate: &mut Candidate,
        partitions: &mut Partitions,
    ) {
        gather(self.problem, instance, candidate, partitions);
        near_workers(instance, candidate, partitions);
        follow_preferences(self.problem, self.cluster, instance, candidate, partitions);
    }

    fn decide_with(&self, cut: &[(usize, u32)]) -> Draft {
        let mut problem = self.problem.clone();
        for (index, target) in cut.iter().filter(|(_, target)| *target > 0) {
            let job = &mut problem.jobs[*index];
            (job.min, job.max) = (*target, *target);
        }
        let mut queue = Queue::new(&problem, self.cluster, self.work);
        for (index, _) in cut.iter().filter(|(_, target)| *target == 0) {
            queue.running.retain(|job| job != index);
            let reason =
                "the services before it fill the cluster; add nodes, or lower their replicas";
            let why = (WaitCode::Resources, reason.to_owned());
            queue.unschedulable.insert(*index, why);
        }
        match urgent::short(&queue) {
            Some(short) => queue.serve(short).unwrap_or_else(|| queue.keep()),
            None => queue.decide_rest(),
        }
    }

    fn admitted(&self, blocked_heads: &mut BlockedHeads) -> Option<Admitted> {
        let mut rest = self.waiting.clone();
        let mut admitted = self.longest(&[], &rest, blocked_heads);
        loop {
            let members = admitted.as_ref().map_or(&[][..], |it| &it.members);
            let taken = rest.iter().filter(|job| members.contains(job)).count();
            let Some(head) = rest.get(taken).copied() else {
                return admitted;
            };
            let ends = admitted.as_ref().is_none_or(|it| it.unbounded);
            if ends || !self.problem.policy.backfills() || blocked_heads.is_full() {
                return admitted;
            }
            let behind = rest.split_off(taken + 1);
            blocked_heads.note(self, members, head, !behind.is_empty());
            rest = behind;
            rest.retain(|job| blocked_heads.lets_try(self, *job));
            if let Some(more) = self.longest(members, &rest, blocked_heads) {
                admitted = Some(more);
            }
        }
    }

    fn write(
        &self,
        admitted: Admitted,
        blocked_heads: &BlockedHeads,
        partitions: Partitions,
    ) -> Draft {
        let Admitted {
            members,
            instance,
            found,
            unbounded,
        } = admitted;
        let mut draft = Draft::empty(self.problem, "p2");
        for (job, nodes) in instance.jobs.iter().zip(partitions) {
            let placed = &mut draft.placed[job.index];
            *placed = nodes;
            for (node, count) in &job.fixed {
                *placed.entry(*node).or_insert(0) += count;
            }
        }
        draft.loss_bound = loss_bound(self.problem, self.cluster);
        draft.adjustment_bound = instance.restart_bound;
        draft.unbounded = unbounded;
        draft.solver = report(&instance, &found);
        draft.waiting = self.waiting(&members, blocked_heads, false);
        draft
    }

    /// Services and notebooks keep waiting, too.
    fn keep(&self) -> Draft {
        let mut draft = Draft::empty(self.problem, "p2");
        let running = self.running.iter();
        for index in running.flat_map(|job| std::iter::once(*job).chain(self.problem.roles(*job))) {
            let job = &self.problem.jobs[index];
            let previous = job.previous.as_ref().filter(|_| runs(self.cluster, job));
            let located = previous.and_then(|previous| self.cluster.locate(previous));
            draft.placed[index] = located.unwrap_or_default().into_iter().collect();
        }
        let instance = self.instance(&[]);
        let mut incumbent = Candidate::incumbent(&instance);
        for (count, job) in incumbent.counts.iter_mut().zip(&instance.jobs) {
            let placed: u32 = draft.placed[job.index].values().sum();
            *count = placed.saturating_sub(job.base());
        }
        let objective = incumbent.objective(&instance);
        draft.loss_bound = loss_bound(self.problem, self.cluster);
        draft.adjustment_bound = instance.restart_bound;
        let (status, bound) = match self.running.is_empty() {
            true => ("optimal", objective),
            false if self.work.has_left_open() => {
                ("unknown", independent_bound(&instance).0.max(objective))
            }
            false => ("infeasible", objective),
        };
        draft.solver = Solver {
            status: status.to_owned(),
            objective,
            bound,
            gap: gap(objective, bound),
            stopped_by: StoppedBy::Stages,
            stage: KEPT.to_owned(),
            ..draft.solver
        };
        draft.waiting = self.waiting(&[], &BlockedHeads::default(), true);
        draft
    }

    /// Without blocked heads it falls back to the running jobs alone.
    fn longest(
        &self,
        taken: &[usize],
        rest: &[usize],
        blocked_heads: &BlockedHeads,
    ) -> Option<Admitted> {
        let attempt = |count: usize| self.attempt(taken, &rest[..count], blocked_heads);
        let all = rest.len();
        if all > 0
            && let Some(admitted) = attempt(all)
        {
            return Some(admitted);
        }
        let relaxed = bisect(0, all, |count| {
            let members = [taken, &rest[..count]].concat();
            may_be_feasible(&self.within(&members, blocked_heads.confined())).then_some(())
        });
        let mut high = relaxed.map_or(0, |(count, ())| count + 1);
        if let Some(count) = high
            .checked_sub(1)
            .filter(|count| *count > 0 && *count < all)
        {
            if let Some(admitted) = attempt(count) {
                return Some(admitted);
            }
            high = count;
        }
        let found = bisect(0, high.min(all), attempt).map(|(_, admitted)| admitted);
        if found.is_some() || !blocked_heads.is_empty() {
            return found;
        }
        if !self.running.is_empty() {
            return attempt(0);
        }
        let mut prefixes = (1..=all.min(PREFIXES)).rev();
        let any = prefixes.find_map(|count| {
            let instance = self.instance(&rest[..count]);
            may_be_feasible(&instance).then(|| attempt(count)).flatten()
        });
        any.or_else(|| self.head())
    }

    fn attempt(
        &self,
        taken: &[usize],
        more: &[usize],
        blocked_heads: &BlockedHeads,
    ) -> Option<Admitted> {
        let members = [taken, more].concat();
        let instance = self.within(&members, blocked_heads.confined());
        if instance.jobs.is_empty() || !blocked_heads.leave_room(self, &members) {
            return None;
        }
        let found = self.search(&instance)?;
        Some(Admitted {
            members,
            instance,
            found,
            unbounded: false,
        })
    }

    fn head(&self) -> Option<Admitted> {
        let head = self.waiting.first().filter(|_| self.running.is_empty())?;
        let mut instance = self.instance(&[*head]);
        instance.loss_bound = f64::INFINITY;
        let found = self.search(&instance)?;
        Some(Admitted {
            members: vec![*head],
            instance,
            found,
            unbounded: true,
        })
    }

    fn waiting(
        &self,
        members: &[usize],
        blocked_heads: &BlockedHeads,
        is_kept: bool,
    ) -> BTreeMap<usize, (WaitCode, String)> {
        let mut waiting = self.unschedulable.clone();
        let running = self.running.iter();
        let without = running.filter(|job| !runs(self.cluster, &self.problem.jobs[**job]));
        if members.is_empty() && is_kept {
            for index in without {
                let reason = "no room could be made for it; it starts when a job ends".to_owned();
                waiting.insert(*index, (WaitCode::Resources, reason));
            }
        }
        let context = WaitContext {
            problem: self.problem,
            cluster: self.cluster,
            open: self.work.has_left_open(),
        };
        let mut first = None;
        for index in self.waiting.iter().filter(|job| !members.contains(job)) {
            let behind = match first {
                None => None,
                Some(_) if blocked_heads.heads().any(|head| head == *index) => None,
                Some(first) => Some(blocked_heads.holder(self, *index).unwrap_or(first)),
            };
            let why = match (behind, blocked_heads.keeps_off(*index)) {
                (None, None) => {
                    let with = [members, &[*index]].concat();
                    blocked(
                        &context,
                        &self.within(&with, blocked_heads.confined()),
                        *index,
                    )
                }
                (None, Some(head)) => {
                    let head = &self.problem.jobs[head].job;
                    let reason = format!(
                        "waits behind {head}, which was released before it; on other nodes than {head} needs it cannot start now"
                    );
                    (WaitCode::Behind, reason)
                }
                (Some(head), _) => {
                    let head = &self.problem.jobs[head].job;
                    let reason = format!("waits behind {head}, which was released before it");
                    (WaitCode::Behind, reason)
                }
            };
            first.get_or_insert(*index);
            waiting.insert(*index, why);
        }
        waiting
    }
}

/// Largest count in `low + 1 .. high` for which the monotone `test` holds.
fn bisect<T>(low: usize, high: usize, test: impl Fn(usize) -> Option<T>) -> Option<(usize, T)> {
    let (mut low, mut high, mut best) = (low, high, None);
    while high > low + 1 {
        let middle = low.midpoint(high);
        match test(middle) {
            Some(found) => (low, best) = (middle, Some((middle, found))),
            None => high = middle,
        }
    }
    best
}

fn revertible(objective: f64, bound: f64, budget: &Budget) -> (f64, f64) {
    let proven = bound - objective;
    (
        proven,
        (budget.gap * bound.abs() - proven).clamp(0.0, f64::INFINITY),
    )
}

fn finder(stage: &str) -> (&'static str, String) {
    let own = env!("CARGO_PKG_VERSION").to_owned();
    match stage {
        "classes" | "exact" => ("highs", highs::version()),
        "alone" | "in_place" => ("direct", own),
        _ => ("lagrangian", own),
    }
}

fn report(instance: &Instance, found: &Found) -> Solver {
    let objective = found.candidate.objective(instance);
    let bound = found.bound.max(objective);
    let (name, version) = finder(found.stage);
    Solver {
        name: name.to_owned(),
        version,
        status: if found.proven == StoppedBy::Optimal {
            "optimal"
        } else {
            "feasible"
        }
        .to_owned(),
        objective,
        bound,
        gap: gap(objective, bound),
        work: 0,
        stopped_by: found.proven,
        stage: found.stage.to_owned(),
    }
}
