//! Decides the containers of each released job on each node.
//!
//! Folds: the shared [`ClusterState`]. Appends: `allocation.decided`, `allocation.unchanged`,
//! `job.speed_fitted`.
//!
//! 1. Wait for a change since the last allocation: a release, an end, a node, a revision, the policy, an
//!    abandoned adjustment, the end of a transit, or a young job that may be resized now. While jobs are
//!    queued, an end waits briefly for the next release, so that one decision answers both.
//! 2. Wait until the last allocation is placed or refused.
//! 3. Under `objective.value: speed`, append the curves that the log lacks ([`crate::speeds`]).
//! 4. Pose the problem ([`crate::problem_builder`]) and solve it ([`crate::solve()`]).
//! 5. List the changes and the losses of partitions in place, or the reason for no change.
//!
//! Invariant: the containers of every node fit, with those in transit counted twice.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    AllocationDecided, AllocationUnchanged, Budget as RecordedBudget, JobAllocation,
    NodeContainers, Outcome, Utilization, Waiting,
};
use dormouse_messages::job::Urgency;
use dormouse_messages::{Decider, Decision, Event, JobId, Proposal, Sequence, Timestamp, Writer};
use dormouse_state::{Assignment, ClusterState, Job};

use crate::present::has_less;
use crate::problem::{Budget, DECISION_WORK, Problem, ProblemJob};
use crate::problem_builder::{
    MOST_NAMED_BYTES, freed_at, held_by_quota, leaves_jobs, problem_within,
};
use crate::recorded;
use crate::solution::{JobShare, Solution};
use crate::speeds;

/// The end of a job waits this long for a release: one append, even with three brokers that sync every write.
const RELEASE_MS: u64 = 20;

/// The log's 4 MiB message limit less a margin for basis and envelope.
const MOST_BYTES: usize = (4 << 20) - (128 << 10);

const FEW_ENTRIES: usize = 2_000;

const HELD_BYTES: usize = 1_024;

/// The optimizer and its budget.
#[derive(Debug, Clone, Copy)]
pub struct Optimizer {
    pub gap: f64,
    /// Steps of the search; an allocation lives for minutes, and a decision takes seconds.
    pub work: u64,
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            gap: 0.01,
            work: DECISION_WORK,
        }
    }
}

/// A decision with its problem and solution.
#[derive(Debug, Clone)]
pub struct Made {
    pub problem: Problem,
    pub solution: Solution,
    /// Without its basis.
    pub event: Event,
}

impl Optimizer {
    /// Returns the optimizer with a recorded budget.
    #[must_use]
    pub const fn within(budget: &RecordedBudget) -> Self {
        Self {
            gap: budget.gap,
            work: budget.work,
        }
    }

    /// Runs steps 4 and 5, even without a trigger.
    #[must_use]
    pub fn make(&self, state: &ClusterState, now: Timestamp) -> Made {
        let budget = Budget {
            gap: self.gap,
            nodes: None,
            work: self.work,
        };
        let mut most_bytes = MOST_NAMED_BYTES;
        loop {
            let made = self.make_within(state, now, budget, most_bytes);
            if message_bytes(&made.event) <= MOST_BYTES {
                return made;
            }
            most_bytes /= 8;
            if most_bytes < HELD_BYTES {
                // Running jobs change in more places than one message can name.
                let event = too_large(made.solution.clone());
                return Made { event, ..made };
            }
        }
    }

    /// Names at most `most_bytes` of the starting jobs.
    fn make_within(
        &self,
        state: &ClusterState,
        now: Timestamp,
        budget: Budget,
        most_bytes: usize,
    ) -> Made {
        let problem = problem_within(state, now, budget, most_bytes);
        let solution = crate::solve(&problem);
        let mut held = held_by_quota(state, now);
        held.truncate(most_bytes / HELD_BYTES);
        let has_less = |job: &Job| has_less(state, job);
        let others = stops(state).next().is_some() || state.jobs.values().any(has_less);
        let event = if solution.changed || others {
            decided(state, &problem, solution.clone(), held)
        } else {
            kept(solution.clone(), held)
        };
        Made {
            problem,
            solution,
            event,
        }
    }

    fn propose(&self, state: &ClusterState, now: Timestamp) -> Decision {
        let curves = speeds::to_fit(state);
        if !curves.is_empty() {
            let curve = |it| Proposal::caused_by(it, vec![state.last_trigger]);
            return Decision {
                proposals: curves.into_iter().map(curve).collect(),
                next_wake: None,
            };
        }
        let made = self.make(state, now);
        Decision {
            proposals: vec![Proposal::caused_by(made.event, causes(state))],
            next_wake: None,
        }
    }

    /// Checks that a decision fits a state at `now`, whatever its worth.
    ///
    /// # Errors
    /// The part that does not fit.
    pub fn fits(
        state: &ClusterState,
        event: &AllocationDecided,
        now: Timestamp,
    ) -> Result<(), String> {
        recorded::fits(state, event, now)
    }
}

impl Decider for Optimizer {
    type State = ClusterState;

    const WRITER: Writer = Writer::Optimizer;
    const SLOW: bool = true;

    fn is_due(&self, state: &ClusterState) -> bool {
        is_placed(state) && (is_triggered(state) || freed_at(state).is_some())
    }

    fn put_off_until(&self, state: &ClusterState) -> Option<Timestamp> {
        let (at, since) = state.ended?;
        let waits = |job: &Job| job.assignment.is_none();
        let is_next = at == state.last_trigger && !state.jobs.values().any(waits);
        let may_come = is_next && state.queued.values().any(|job| !job.on_hold);
        may_come.then(|| since.plus_ms(RELEASE_MS))
    }

    fn decide(&self, state: &ClusterState, now: Timestamp) -> Decision {
        let freed_at = freed_at(state);
        let is_due = is_triggered(state) || freed_at.is_some_and(|freed| freed <= now);
        if !is_due || !is_placed(state) {
            return Decision {
                next_wake: freed_at.filter(|_| is_placed(state)),
                ..Decision::default()
            };
        }
        self.propose(state, now)
    }

    fn decide_within(
        &self,
        state: &ClusterState,
        now: Timestamp,
        budget: Option<RecordedBudget>,
    ) -> Decision {
        budget
            .map_or(*self, |budget| Self::within(&budget))
            .decide(state, now)
    }

    fn decide_again(
        &self,
        state: &ClusterState,
        now: Timestamp,
        budget: Option<RecordedBudget>,
    ) -> Decision {
        if is_placed(state) {
            budget
                .map_or(*self, |budget| Self::within(&budget))
                .propose(state, now)
        } else {
            Decision::default()
        }
    }

    fn still_valid(&self, state: &ClusterState, decision: &Decision) -> bool {
        decision
            .proposals
            .iter()
            .all(|proposal| match &proposal.event {
                Event::AllocationDecided(event) => names_only_what_is(state, event),
                _ => true,
            })
    }

    fn budget(&self) -> Option<RecordedBudget> {
        Some(RecordedBudget {
            gap: self.gap,
            work: self.work,
        })
    }

    fn verify(
        &self,
        _: &ClusterState,
        recorded: &Event,
        again: Option<&Event>,
    ) -> Result<(), String> {
        if again == Some(recorded) {
            Ok(())
        } else {
            Err("the same basis gives another allocation".to_owned())
        }
    }
}

fn is_triggered(state: &ClusterState) -> bool {
    let anything = !state.jobs.is_empty() || state.allocation.epoch.0 > 0;
    (state.last_trigger > state.decided_asof && anything) || leaves_jobs(state)
}

fn is_placed(state: &ClusterState) -> bool {
    state.placed_epoch >= state.allocation.epoch
}

fn causes(state: &ClusterState) -> Vec<Sequence> {
    let released = state.jobs.values().filter_map(|job| job.released);
    let mut causes: Vec<Sequence> = released.filter(|seq| *seq > state.decided_asof).collect();
    causes.sort_unstable();
    // As many links as a person follows; the decision lists all jobs anyway.
    causes.truncate(16);
    if !causes.contains(&state.last_trigger) {
        causes.push(state.last_trigger);
    }
    causes
}

fn names_only_what_is(state: &ClusterState, event: &AllocationDecided) -> bool {
    let live = |allocated: &JobAllocation| {
        let job = state.jobs.get(&allocated.job);
        job.is_some_and(|job| job.cancel_requested.is_none())
    };
    let is_up = |at: &NodeContainers| {
        let node = state.nodes.get(&at.node);
        node.is_some_and(|node| node.phase == dormouse_state::NodePhase::Up)
    };
    event.epoch == state.allocation.epoch.next()
        && event.jobs.iter().all(live)
        && event.jobs.iter().flat_map(|job| &job.nodes).all(is_up)
}

fn decided(
    state: &ClusterState,
    problem: &Problem,
    solution: Solution,
    held: Vec<Waiting>,
) -> Event {
    let mut jobs = Vec::new();
    let has_less = |job: &JobId| state.jobs.get(job).is_some_and(|job| has_less(state, job));
    let shares: BTreeMap<&JobId, &JobShare> =
        solution.jobs.iter().map(|it| (&it.job, it)).collect();
    for (index, job) in problem.heads() {
        let Some(share) = shares.get(&job.job) else {
            continue;
        };
        let roles = problem.roles(index).map(|role| &problem.jobs[role]);
        let roles = roles.filter_map(|role| Some((role, *shares.get(&role.job)?)));
        let parts: Vec<(&ProblemJob, &JobShare)> =
            std::iter::once((job, *share)).chain(roles).collect();
        let changes = parts.iter().any(|(job, share)| is_changed(job, share));
        if !changes && !has_less(&share.job) {
            continue;
        }
        let nodes = parts.iter().flat_map(|(job, share)| {
            let role = job.role.as_ref().map(|role| role.name.as_str());
            NodeContainers::of(role, &share.nodes)
        });
        let nodes: Vec<NodeContainers> = nodes.collect();
        let containers = nodes.iter().map(|it| it.containers).sum();
        let old = state
            .jobs
            .get(&share.job)
            .and_then(|job| job.assignment.as_ref());
        // If nothing else changes, lost containers are not replaced.
        let died = old.filter(|_| !changes).map_or(0, |old| old.lost);
        let had = old.map_or(0, Assignment::containers) + died;
        jobs.push(JobAllocation {
            job: share.job.clone(),
            containers,
            nodes,
            previous: had,
            new: old.is_none(),
            share: share.share,
            fair_share: share.fair_share,
            made_for: made_for(problem, &solution, job).filter(|_| changes && containers < had),
        });
    }
    for (id, old) in stops(state) {
        jobs.push(JobAllocation {
            job: id.clone(),
            containers: 0,
            nodes: Vec::new(),
            previous: old.containers(),
            new: false,
            share: 0.0,
            fair_share: 0.0,
            made_for: None,
        });
    }
    Event::from(AllocationDecided {
        epoch: state.allocation.epoch.next(),
        jobs,
        outcome: outcome(&solution, held),
        basis: None,
    })
}

/// Returns the job for which `job` shrinks. A displaced job never gives: it waits itself.
fn made_for(problem: &Problem, solution: &Solution, job: &ProblemJob) -> Option<JobId> {
    let whom = solution.made_room_for.as_ref()?;
    let whom = problem.jobs.iter().find(|job| job.job == *whom)?;
    let outranked = whom.precedence.class > job.precedence.class;
    let below = whom.urgency > Urgency::Training || outranked;
    let gives = job.urgency == Urgency::Training && !job.displaced && below;
    gives.then(|| whom.job.clone())
}

fn stops(state: &ClusterState) -> impl Iterator<Item = (&JobId, &Assignment)> {
    let stops = state
        .jobs
        .iter()
        .filter(|(_, job)| job.gives_up() && job.cancel_requested.is_none());
    stops.filter_map(|(id, job)| Some((id, job.assignment.as_ref()?)))
}

fn is_changed(job: &ProblemJob, share: &JobShare) -> bool {
    match &job.previous {
        None => true,
        Some(previous) => job.displaced || *previous != share.nodes,
    }
}

/// Returns the size as JSON, which is longer than the log's form; 0 if small.
fn message_bytes(event: &Event) -> usize {
    let entries = match event {
        Event::AllocationDecided(it) => {
            let nodes: usize = it.jobs.iter().map(|job| job.nodes.len()).sum();
            it.jobs.len() + nodes + it.outcome.waiting.len()
        }
        Event::AllocationUnchanged(it) => it.outcome.waiting.len(),
        _ => 0,
    };
    if entries > FEW_ENTRIES {
        serde_json::to_vec(event).map_or(0, |bytes| bytes.len())
    } else {
        0
    }
}

fn too_large(solution: Solution) -> Event {
    let mut outcome = outcome(&solution, Vec::new());
    outcome.waiting.clear();
    Event::from(AllocationUnchanged {
        reason: "more would change than one message of the log can name (4 MiB); drain or fence fewer nodes at once, or lower theta2".to_owned(),
        outcome,
        basis: None,
    })
}

fn kept(solution: Solution, held: Vec<Waiting>) -> Event {
    let outcome = outcome(&solution, held);
    let reason = match outcome.waiting.first() {
        Some(first) => format!("nothing can change: {} waits: {}", first.job, first.reason),
        None if solution.jobs.is_empty() => "no job is released".to_owned(),
        None => "no change within the bounds is worth its restarts".to_owned(),
    };
    Event::from(AllocationUnchanged {
        reason,
        outcome,
        basis: None,
    })
}

fn outcome(solution: &Solution, held: Vec<Waiting>) -> Outcome {
    let waiting = solution.waiting.iter().map(|waiting| Waiting {
        job: waiting.job.clone(),
        code: waiting.code.as_str().to_owned(),
        reason: waiting.reason.clone(),
    });
    let resources = solution.utilization.resources.iter();
    Outcome {
        waiting: waiting.chain(held).collect(),
        utilization: Utilization {
            resources: resources
                .map(|(name, value)| (name.name().to_owned(), *value))
                .collect(),
            total: solution.utilization.total,
        },
        fairness_loss: solution.fairness_loss,
        fairness_loss_all: solution.fairness_loss_all,
        fairness_loss_bound: solution.fairness_loss_bound,
        adjusted_jobs: solution.adjusted_jobs,
        adjustment_bound: solution.adjustment_bound,
        forced_jobs: solution.forced_jobs,
        unbounded: solution.unbounded,
        forced: solution.forced,
        solver: solution.solver.clone(),
    }
}
