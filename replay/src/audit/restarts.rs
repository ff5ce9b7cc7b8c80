//! Checks which jobs move against the count of each decision (rule 11).
//!
//! 1. A decision restarts the listed jobs that have containers before and after, except those resized in
//!    place. The decision counts them. Without forced restarts they keep to its bound, unless the
//!    decision was forced or the policy is not `dorm`.
//! 2. The placement moves exactly these jobs, by new incarnations, except those that ended or were to be
//!    cancelled.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{AllocationDecided, PlacementDecided};
use dormouse_messages::policy::Allocation;
use dormouse_messages::{Epoch, Event, Incarnation, JobId, Recorded, Sequence};
use dormouse_state::ClusterState;

/// A job that ended or is to be cancelled.
#[derive(Debug, Clone, Copy)]
struct Gone {
    at: Sequence,
    was_in_place: bool,
}

#[derive(Debug, Clone)]
struct Pending {
    epoch: Epoch,
    at: Sequence,
    restarts: BTreeSet<JobId>,
    moved: BTreeSet<JobId>,
}

/// The jobs' incarnations and the pending decision.
#[derive(Debug, Clone, Default)]
pub struct Restarts {
    policies: Vec<(Sequence, Allocation)>,
    in_place: BTreeSet<JobId>,
    placed: BTreeMap<JobId, Incarnation>,
    /// Jobs that ended, or are to be cancelled, after the state of the last decision.
    gone: BTreeMap<JobId, Gone>,
    pending: Option<Pending>,
    restarted: u64,
}

impl Restarts {
    /// Begins at a state.
    #[must_use]
    pub fn of(state: &ClusterState) -> Self {
        let live = || state.queued.iter().chain(state.jobs.iter());
        let in_place = live().filter(|(_, job)| job.in_place);
        let placed = live().filter_map(|(id, job)| {
            let assignment = job.assignment.as_ref()?;
            Some((id.clone(), assignment.incarnation))
        });
        Self {
            policies: vec![(Sequence(0), state.policy.allocation)],
            in_place: in_place.map(|(id, _)| id.clone()).collect(),
            placed: placed.collect(),
            ..Self::default()
        }
    }

    /// Returns the number of restarts that were decided.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.restarted
    }

    /// Reads the next event of the log; returns the violations.
    pub fn read(&mut self, recorded: &Recorded) -> Vec<String> {
        match recorded.event() {
            Some(Event::ClusterConfigured(event)) => {
                let policy = (recorded.sequence, event.policy.allocation);
                self.policies.push(policy);
            }
            Some(Event::JobAdmitted(event)) if event.spec.is_in_place() => {
                self.in_place.insert(event.job.clone());
            }
            Some(Event::JobCancelRequested(event)) => self.goes(&event.job, recorded.sequence),
            Some(Event::JobCompleted(event)) => self.ends(&event.job, recorded.sequence),
            Some(Event::JobFailed(event)) => self.ends(&event.job, recorded.sequence),
            Some(Event::JobCancelled(event)) => self.ends(&event.job, recorded.sequence),
            Some(Event::AllocationDecided(event)) => return self.decided(event, recorded.sequence),
            Some(Event::PlacementRefused(_)) => self.pending = None,
            Some(Event::PlacementDecided(event)) => return self.placed(event),
            _ => {}
        }
        Vec::new()
    }

    fn goes(&mut self, job: &JobId, at: Sequence) {
        let was_in_place = self.in_place.contains(job);
        self.gone
            .entry(job.clone())
            .or_insert(Gone { at, was_in_place });
    }

    fn ends(&mut self, job: &JobId, at: Sequence) {
        self.goes(job, at);
        self.placed.remove(job);
        self.in_place.remove(job);
    }

    fn is_in_place(&self, job: &JobId) -> bool {
        let gone = self.gone.get(job);
        self.in_place.contains(job) || gone.is_some_and(|gone| gone.was_in_place)
    }

    /// Rule 1.
    fn decided(&mut self, event: &AllocationDecided, at: Sequence) -> Vec<String> {
        let asof = event.basis.as_ref().map_or(at, |basis| basis.asof);
        let mut policies = self.policies.iter().rev();
        let policy = policies.find(|(from, _)| *from <= asof);
        let is_bound = policy.is_none_or(|(_, it)| *it == Allocation::Dorm);
        let listed = event.jobs.iter();
        let listed = listed.filter(|it| it.containers > 0 && !it.new);
        self.gone.retain(|_, gone| gone.at > asof);
        let restarts = listed.filter(|it| !self.is_in_place(&it.job));
        let restarts: BTreeSet<JobId> = restarts.map(|it| it.job.clone()).collect();
        let outcome = &event.outcome;
        let (epoch, adjusted) = (event.epoch, outcome.adjusted_jobs);
        let counted = u64::from(adjusted) + u64::from(outcome.forced_jobs);
        let mut wrong = Vec::new();
        if restarts.len() as u64 != counted {
            wrong.push(format!(
                "epoch {epoch} restarts {} jobs and counts {counted}",
                restarts.len()
            ));
        }
        if is_bound && !outcome.forced && adjusted > outcome.adjustment_bound {
            wrong.push(format!(
                "epoch {epoch} restarts {adjusted} jobs of at most {}",
                outcome.adjustment_bound
            ));
        }
        self.restarted += restarts.len() as u64;
        self.pending = Some(Pending {
            epoch,
            at,
            restarts,
            moved: BTreeSet::new(),
        });
        wrong
    }

    /// Rule 2. All parts of a placement but the last name the previous epoch. A placement from before
    /// the allocation retries a gang.
    fn placed(&mut self, event: &PlacementDecided) -> Vec<String> {
        let asof = event.basis.as_ref().map(|basis| basis.asof);
        let places = |it: &Pending| event.epoch <= it.epoch && asof.is_none_or(|of| of >= it.at);
        let mut pending = self.pending.take_if(|it| places(it));
        let mut wrong = Vec::new();
        let created = event.create.iter();
        let created: BTreeMap<&JobId, Incarnation> =
            created.map(|it| (&it.job, it.incarnation)).collect();
        for (job, incarnation) in &created {
            let before = self.placed.insert((*job).clone(), *incarnation);
            let moved = before.is_some_and(|before| before != *incarnation);
            if let Some(pending) = pending.as_mut().filter(|_| moved)
                && !self.in_place.contains(*job)
            {
                let (job, epoch) = ((*job).clone(), pending.epoch);
                if !pending.restarts.contains(&job) {
                    wrong.push(format!(
                        "{job} has new places, which epoch {epoch} did not count"
                    ));
                }
                pending.moved.insert(job);
            }
        }
        let removed = event.remove.iter().map(|it| &it.job);
        for job in removed.filter(|job| !created.contains_key(job) && !self.in_place.contains(job))
        {
            self.placed.remove(job);
        }
        match pending {
            Some(pending) if event.epoch == pending.epoch => {
                let Pending {
                    epoch,
                    restarts,
                    moved,
                    ..
                } = pending;
                let mut kept = restarts.difference(&moved);
                if let Some(job) = kept.find(|job| !self.gone.contains_key(*job)) {
                    wrong.push(format!(
                        "{job} keeps its places, which epoch {epoch} counted"
                    ));
                }
            }
            pending => self.pending = self.pending.take().or(pending),
        }
        wrong
    }
}
