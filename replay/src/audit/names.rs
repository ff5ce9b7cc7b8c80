//! The names of ended jobs (rule 12). A name is free again `archive.names_kept_days` after its job's end, by
//! the log's time and the policy of then.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::policy::ArchivePolicy;
use dormouse_messages::{Event, Fact, JobId, Timestamp};

/// The names that are still taken by ended jobs.
#[derive(Debug, Clone, Default)]
pub struct Names {
    now: Timestamp,
    policy: ArchivePolicy,
    /// Oldest first.
    order: VecDeque<(Timestamp, JobId)>,
    ended: BTreeMap<JobId, Timestamp>,
}

impl Names {
    /// Frees the names whose time is over. A later policy with more days takes none of them back: a decision
    /// of before may already be under way.
    pub fn read(&mut self, fact: &Fact<'_>) {
        self.now = fact.at;
        if let Some(Event::ClusterConfigured(event)) = fact.event() {
            self.policy = event.policy.archive;
        }
        let Some(kept_ms) = self.policy.names_kept_ms() else {
            return;
        };
        while let Some((at, _)) = self.order.front()
            && at.plus_ms(kept_ms) <= self.now
        {
            if let Some((_, job)) = self.order.pop_front() {
                self.ended.remove(&job);
            }
        }
    }

    pub fn end(&mut self, job: &JobId) {
        if self.ended.insert(job.clone(), self.now).is_none() {
            self.order.push_back((self.now, job.clone()));
        }
    }

    pub fn has_ended(&self, job: &JobId) -> bool {
        self.ended.contains_key(job)
    }

    /// Returns the violation of a job that is admitted now.
    pub fn too_early(&self, job: &JobId) -> Option<String> {
        let at = self.ended.get(job)?;
        let days = self.policy.names_kept_days;
        let kept = days.map_or("without end".to_owned(), |days| format!("for {days} days"));
        let since = self.now.seconds_since(*at);
        Some(format!(
            "{job} is admitted {since:.0} s after a job of the name has ended; names are kept {kept}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::ClusterConfigured;
    use dormouse_messages::policy::Policy;
    use dormouse_state::history::History;

    use crate::Audit;

    const DAY_S: i64 = 86_400;

    /// Returns the violations where a job of an ended job's name is admitted `after_s` its end.
    fn reused(kept_days: Option<u32>, after_s: i64) -> Vec<String> {
        let mut policy = Policy::default();
        policy.archive.names_kept_days = kept_days;
        let mut history = History::default();
        history.push(ClusterConfigured { policy });
        history
            .submit("ads/lr")
            .release("ads/lr")
            .complete("ads/lr");
        history.seconds += after_s;
        history
            .submit("ads/lr")
            .release("ads/lr")
            .complete("ads/lr");
        let mut audit = Audit::default();
        history.log.iter().for_each(|recorded| audit.read(recorded));
        let violations = audit.violations().iter();
        violations.map(|it| it.what.clone()).collect()
    }

    #[test]
    fn a_name_may_be_taken_again_after_its_time_and_not_before() {
        assert_eq!(reused(Some(30), 30 * DAY_S), Vec::<String>::new());
        assert_eq!(reused(Some(1), DAY_S), Vec::<String>::new());
        let early = reused(Some(30), 29 * DAY_S);
        assert!(early[0].contains("kept for 30 days"), "{early:?}");
        let never = reused(None, 4_000 * DAY_S);
        assert!(never[0].contains("kept without end"), "{never:?}");
        let twice = reused(Some(30), 0);
        assert!(twice[0].contains("admitted 2 s after"), "{twice:?}");
    }
}
