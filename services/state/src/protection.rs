//! A job's protection from preemption: by the policy's bound per hour, and by the time that the job must run
//! first.

use dormouse_messages::Timestamp;
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::policy::Policy;

use super::job::Job;

/// A job's protection from preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    None,
    Until(Timestamp),
    /// Until run for long enough.
    UntilItRuns,
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
                let since = self.partition.as_ref().and_then(|it| it.running_since);
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
        let partition = self
            .partition
            .as_ref()
            .filter(|_| self.mode == CheckpointMode::None);
        let since = partition.and_then(|it| it.running_since);
        since.map_or(0.0, |since| {
            let safe = self.precedence.saved_at.unwrap_or(since).max(since);
            now.seconds_since(safe).max(0.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::policy::Preemption;

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
