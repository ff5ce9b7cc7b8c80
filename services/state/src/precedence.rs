//! A job's priority class and preemptions. A preemption stops a job for another one: fewer containers after a
//! restart, or back to the queue. The bound holds per job, because a cluster-wide bound could hit one job
//! every time; θ2 bounds concurrent restarts.

use std::collections::VecDeque;

use dormouse_messages::classes::MAX_PREEMPTIONS_PER_HOUR;
use dormouse_messages::job::{CheckpointMode, JobSpec};
use dormouse_messages::policy::Policy;
use dormouse_messages::{JobClass, Timestamp};
use serde::{Deserialize, Serialize};

use super::job::Job;

const PERIOD_MS: u64 = 3_600_000;

/// A job's class and preemptions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precedence {
    pub class: Option<JobClass>,
    /// Oldest first.
    preempted: VecDeque<Timestamp>,
    saved_at: Option<Timestamp>,
}

/// A job's protection from preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    None,
    Until(Timestamp),
    /// Until run for long enough.
    UntilItRuns,
}

impl Precedence {
    /// Returns the precedence at admission.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            class: spec.priority_class.clone(),
            ..Self::default()
        }
    }

    /// Returns the class's value, or 0.
    #[must_use]
    pub fn value(&self) -> i32 {
        self.class.as_ref().map_or(0, |class| class.value)
    }

    /// Reports whether jobs of lower classes give way.
    #[must_use]
    pub fn preempts(&self) -> bool {
        self.class.as_ref().is_some_and(|class| class.preempts)
    }

    pub(crate) fn preempted(&mut self, at: Timestamp) {
        self.preempted.push_back(at);
        while self.preempted.len() > MAX_PREEMPTIONS_PER_HOUR as usize {
            self.preempted.pop_front();
        }
    }

    pub(crate) fn saved(&mut self, at: Timestamp) {
        self.saved_at = Some(at);
    }

    /// Counts the last hour's preemptions.
    #[must_use]
    pub fn preemptions(&self, now: Timestamp) -> usize {
        let within = |at: &&Timestamp| now.ms_since(**at) < PERIOD_MS;
        self.preempted.iter().rev().take_while(within).count()
    }

    /// Returns when fewer than `most` lie within the hour; `None`: never.
    fn spent_until(&self, most: u32) -> Option<Timestamp> {
        let most = most as usize;
        match most {
            0 => None,
            _ => {
                let nth = self.preempted.len().checked_sub(most)?;
                Some(self.preempted[nth].plus_ms(PERIOD_MS))
            }
        }
    }
}

impl Job {
    /// Returns the protection by the policy's bound.
    #[must_use]
    pub fn protection(&self, policy: &Policy, now: Timestamp) -> Protection {
        let bound = policy.preemption;
        if bound.max_per_hour == Some(0) {
            return Protection::UntilItRuns;
        }
        let spent = bound.max_per_hour;
        let spent = spent.and_then(|most| self.precedence.spent_until(most));
        let ran = match bound.min_run_s.filter(|min_run_s| *min_run_s > 0) {
            None => None,
            Some(_) if self.in_transit() => return Protection::UntilItRuns,
            Some(min_run_s) => {
                let since = self.life.as_ref().and_then(|life| life.running_since);
                let Some(since) = since else {
                    return Protection::UntilItRuns;
                };
                Some(since.plus_ms(u64::from(min_run_s) * 1000))
            }
        };
        match spent.max(ran).filter(|until| now < *until) {
            None => Protection::None,
            Some(until) => Protection::Until(until),
        }
    }

    /// Returns the seconds of work lost by a requeue; 0 if the job saves first.
    #[must_use]
    pub fn at_risk_s(&self, now: Timestamp) -> f64 {
        let life = self
            .life
            .as_ref()
            .filter(|_| self.mode == CheckpointMode::None);
        let since = life.and_then(|life| life.running_since);
        since.map_or(0.0, |since| {
            let safe = self.precedence.saved_at.unwrap_or(since).max(since);
            now.seconds_since(safe).max(0.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::classes::Preemption;

    use super::*;
    use crate::history::spec;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default().plus_ms(seconds * 1000)
    }

    fn job(preempted: &[u64]) -> Job {
        let id = "ads/lr".parse().expect("an id");
        let mut job = Job::admitted(&spec(&id), Default::default(), at(0));
        for seconds in preempted {
            job.precedence.preempted(at(*seconds));
        }
        job
    }

    fn bound(max_per_hour: Option<u32>, min_run_s: Option<u32>) -> Policy {
        Policy {
            preemption: Preemption {
                max_per_hour,
                min_run_s,
            },
            ..Policy::default()
        }
    }

    #[test]
    fn without_a_bound_nobody_is_protected() {
        let job = job(&[1, 2, 3]);
        assert_eq!(job.protection(&Policy::default(), at(4)), Protection::None);
        assert_eq!(
            job.protection(&bound(None, Some(0)), at(4)),
            Protection::None
        );
    }

    #[test]
    fn a_job_that_was_preempted_often_enough_is_left_alone_until_the_hour_is_over() {
        let job = job(&[0, 1_000, 2_000]);
        let protection = |most, now| job.protection(&bound(Some(most), None), at(now));
        assert_eq!(protection(4, 2_001), Protection::None);
        assert_eq!(protection(3, 2_001), Protection::Until(at(3_600)));
        assert_eq!(protection(3, 3_600), Protection::None);
        assert_eq!(protection(2, 2_001), Protection::Until(at(4_600)));
        assert_eq!(protection(1, 3_600), Protection::Until(at(5_600)));
        assert_eq!(protection(0, 9_999), Protection::UntilItRuns);
        assert_eq!(job.precedence.preemptions(at(2_001)), 3);
        assert_eq!(job.precedence.preemptions(at(4_600)), 1);
    }

    #[test]
    fn a_job_that_does_not_run_has_not_run_long_enough() {
        let protection = job(&[]).protection(&bound(None, Some(60)), at(100));
        assert_eq!(protection, Protection::UntilItRuns);
    }
}
