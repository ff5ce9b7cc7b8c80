//! Checks preemptions against the policy's bound and the classes (rule 8), as of each decision's basis.
//!
//! 1. Services, notebooks and jobs of a preempting class preempt training and batch jobs of a lower
//!    class. Two jobs never preempt each other.
//! 2. A job is preempted (restarted with fewer containers, or requeued) at most
//!    `preemption.max_per_hour` times an hour, and only after `preemption.min_run_s`. Services and
//!    notebooks are exempt if `forced`.
//! 3. A job that preempts by its class gets containers.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::AllocationDecided;
use dormouse_messages::job::Urgency;
use dormouse_messages::policy::Preemption;
use dormouse_messages::{Event, Fact, JobId, Sequence, Timestamp};

const HOUR_MS: u64 = 3_600_000;

#[derive(Debug, Clone, Default)]
struct Known {
    urgency: Urgency,
    class: i32,
    preempts: bool,
    in_place: bool,
    /// Start of the running incarnation.
    runs: Option<(Sequence, Timestamp)>,
    /// End of the last incarnation, and its start.
    ran: Option<(Sequence, Timestamp)>,
    preempted: Vec<Timestamp>,
}

/// The jobs, the policies and the preemptions so far.
#[derive(Debug, Clone, Default)]
pub struct Preemptions {
    jobs: BTreeMap<JobId, Known>,
    policies: Vec<(Sequence, Preemption)>,
    pairs: BTreeSet<(JobId, JobId)>,
    /// The number of preempted jobs: for services and notebooks, for classes, and by force.
    counts: [u64; 3],
}

impl Preemptions {
    pub fn read(&mut self, fact: &Fact<'_>) -> Vec<String> {
        let (at, now) = (fact.sequence, fact.at);
        match fact.event() {
            Some(Event::ClusterConfigured(event)) => {
                self.policies.push((at, event.policy.preemption));
            }
            Some(Event::JobAdmitted(event)) => {
                let class = event.spec.priority_class.as_ref();
                let known = Known {
                    urgency: event.spec.kind.urgency(),
                    class: class.map_or(0, |class| class.value),
                    preempts: class.is_some_and(|class| class.preempts),
                    in_place: event.spec.is_in_place(),
                    ..Known::default()
                };
                if self.jobs.insert(event.job.clone(), known).is_some() {
                    // Another job of the name.
                    let job = &event.job;
                    self.pairs.retain(|(one, other)| one != job && other != job);
                }
            }
            Some(Event::PartitionStarted(event)) => self.runs(&event.job, Some((at, now))),
            Some(Event::PartitionStopped(event)) => self.stopped(&event.job, at),
            Some(Event::AllocationDecided(event)) => return self.decided(event, now),
            _ => {}
        }
        Vec::new()
    }

    #[must_use]
    pub const fn counts(&self) -> [u64; 3] {
        self.counts
    }

    fn stopped(&mut self, job: &JobId, at: Sequence) {
        if let Some(known) = self.jobs.get_mut(job) {
            let since = known.runs.take();
            known.ran = since.map(|(_, since)| (at, since));
        }
    }

    fn runs(&mut self, job: &JobId, since: Option<(Sequence, Timestamp)>) {
        if let Some(known) = self.jobs.get_mut(job) {
            known.runs = since;
        }
    }

    fn decided(&mut self, event: &AllocationDecided, now: Timestamp) -> Vec<String> {
        let basis = event.basis.as_ref();
        let (asof, now) = basis.map_or((Sequence(u64::MAX), now), |it| (it.asof, it.now));
        let mut policies = self.policies.iter().rev();
        let bound = policies.find(|(from, _)| *from <= asof);
        let bound = bound.map(|(_, bound)| *bound).unwrap_or_default();
        let mut wrong = Vec::new();
        for given in &event.jobs {
            let (job, Some(to)) = (&given.job, &given.made_for) else {
                continue;
            };
            let Some(whom) = self.jobs.get(to).cloned() else {
                wrong.push(format!("{job} makes room for {to}, which is not there"));
                continue;
            };
            let Some(known) = self.jobs.get_mut(job) else {
                continue;
            };
            let by_class = whom.urgency == Urgency::Training;
            let outranked = whom.preempts && whom.class > known.class;
            if known.urgency > Urgency::Training || (by_class && !outranked) {
                wrong.push(format!("{job} makes room for {to}, which is not above it"));
            }
            if self.pairs.contains(&(to.clone(), job.clone())) {
                wrong.push(format!("{job} and {to} make room for one another"));
            }
            self.pairs.insert((job.clone(), to.clone()));
            let gets = |id: &JobId| {
                event
                    .jobs
                    .iter()
                    .any(|it| it.job == *id && it.containers > 0)
            };
            if by_class && !gets(to) {
                wrong.push(format!("{job} makes room for {to}, which gets none"));
            }
            if given.containers > 0 && known.in_place {
                continue;
            }
            let forced = event.outcome.forced && !by_class;
            let over = known.bound_broken(bound, asof, now);
            self.counts[usize::from(by_class)] += 1;
            self.counts[2] += u64::from(over.is_some() && forced);
            known.preempted.push(now);
            if let Some(over) = over.filter(|_| !forced) {
                wrong.push(format!("{job} is preempted for {to} although {over}"));
            }
        }
        wrong
    }
}

impl Known {
    fn bound_broken(&self, bound: Preemption, asof: Sequence, now: Timestamp) -> Option<String> {
        let lately = |at: &&Timestamp| now.ms_since(**at) < HOUR_MS;
        let lately = self.preempted.iter().filter(lately).count();
        if bound
            .max_per_hour
            .is_some_and(|most| lately >= most as usize)
        {
            return Some(format!("it was {lately} times within the hour"));
        }
        let min_run_s = bound.min_run_s.filter(|min_run_s| *min_run_s > 0)?;
        // An incarnation that stopped after the decision's prefix still ran for the decision.
        let ran = self.ran.filter(|(stopped, _)| *stopped > asof);
        let ran = ran.map(|(_, since)| (asof, since));
        match self.runs.or(ran) {
            // The running incarnation started after the decision's prefix.
            Some((from, _)) if from > asof => None,
            Some((_, since)) if now.ms_since(since) >= u64::from(min_run_s) * 1000 => None,
            Some((_, since)) => Some(format!("it has run for {} ms", now.ms_since(since))),
            None => Some("it does not run".to_owned()),
        }
    }
}
