//! The names of ended jobs, which stay taken for a while: other events, folders and people mean the ended
//! job by the name.
//!
//! `archive.names_kept_days` bounds them, by the log's time. A thousand jobs an hour end under 720,000 names
//! in the default of 30 days; a year's 8.8 million would be in every state of admission.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ended jobs whose names are still taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ended {
    /// Oldest first: the log's time never goes back.
    order: VecDeque<(Timestamp, JobId)>,
    /// True if completed.
    by_name: BTreeMap<JobId, bool>,
}

impl Ended {
    /// Adds a job that ends now.
    pub fn add(&mut self, job: &JobId, completed: bool, now: Timestamp) {
        if self.by_name.insert(job.clone(), completed).is_none() {
            self.order.push_back((now, job.clone()));
        }
    }

    /// Frees the names of jobs that ended `kept_ms` ago or earlier. `None` keeps all.
    pub fn forget(&mut self, kept_ms: Option<u64>, now: Timestamp) {
        let Some(kept_ms) = kept_ms else {
            return;
        };
        while let Some((at, _)) = self.order.front()
            && at.plus_ms(kept_ms) <= now
        {
            if let Some((_, job)) = self.order.pop_front() {
                self.by_name.remove(&job);
            }
        }
    }

    /// Returns whether a job completed, if its name is still taken.
    #[must_use]
    pub fn completed(&self, job: &JobId) -> Option<bool> {
        self.by_name.get(job).copied()
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True without names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Each name is written once; the index follows from the list.
impl Serialize for Ended {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let completed = |job| self.by_name.get(job).copied().unwrap_or_default();
        let all = self.order.iter();
        serializer.collect_seq(all.map(|(at, job)| (at, job, completed(job))))
    }
}

impl<'de> Deserialize<'de> for Ended {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<(Timestamp, JobId, bool)>::deserialize(deserializer)?;
        let mut ended = Self::default();
        for (at, job, completed) in all {
            ended.add(&job, completed, at);
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::{ClusterConfigured, RawEncoding, SubmissionReceived};
    use dormouse_messages::policy::Policy;
    use dormouse_messages::{Decider as _, Event};
    use dormouse_state::history::History;

    use super::*;
    use crate::{Admission, AdmissionState};

    const DAY_MS: u64 = 86_400_000;

    fn job(number: u64) -> JobId {
        format!("ads/job-{number}").parse().expect("an id")
    }

    fn after(days: u64) -> Timestamp {
        Timestamp::default().plus_ms(days * DAY_MS)
    }

    #[test]
    fn a_name_is_taken_for_its_time_and_then_free() {
        let mut ended = Ended::default();
        ended.add(&job(1), true, after(0));
        ended.add(&job(2), false, after(1));
        ended.forget(Some(30 * DAY_MS), after(29));
        assert_eq!(ended.completed(&job(1)), Some(true));
        ended.forget(Some(30 * DAY_MS), after(30));
        assert_eq!(ended.completed(&job(1)), None);
        assert_eq!(ended.completed(&job(2)), Some(false));
        ended.add(&job(1), false, after(30));
        ended.forget(Some(30 * DAY_MS), after(59));
        assert_eq!(ended.completed(&job(1)), Some(false), "a job of its own");
        assert_eq!(ended.len(), 1);
    }

    #[test]
    fn null_keeps_all_and_a_list_gives_the_same_names() {
        let mut ended = Ended::default();
        for number in 0..1_000 {
            ended.add(&job(number), number % 2 == 0, after(number));
            ended.forget(None, after(number));
        }
        assert_eq!(ended.len(), 1_000);
        let text = serde_json::to_string(&ended).expect("written");
        assert_eq!(text.matches("ads/job-7\"").count(), 1, "written once");
        let again: Ended = serde_json::from_str(&text).expect("read");
        assert_eq!(again, ended);
        ended.forget(Some(DAY_MS), after(100_000));
        assert!(ended.is_empty());
        assert_eq!(serde_json::to_string(&ended).expect("written"), "[]");
    }

    fn submitted(raw: &str, ingress_sequence: u64) -> SubmissionReceived {
        SubmissionReceived {
            ingress_sequence,
            tenant: "ads".to_owned(),
            verb: "submit".to_owned(),
            content_type: "application/json".to_owned(),
            bytes: raw.len() as u64,
            sha256: String::new(),
            raw: raw.to_owned(),
            raw_encoding: RawEncoding::Utf8,
            published_at: Timestamp::default(),
            by: None,
        }
    }

    /// Ends jobs, and submits the first one's name again `days` later, with a dependency on the second.
    fn again(kept_days: Option<u32>, jobs: u64, days: i64) -> (AdmissionState, Event) {
        let mut policy = Policy::default();
        policy.archive.names_kept_days = kept_days;
        let mut history = History::default();
        history.push(ClusterConfigured { policy });
        for number in 0..jobs {
            let job = job(number);
            let id = job.as_str();
            history.submit(id).release(id).complete(id);
        }
        history.seconds += days * 86_400;
        let raw = r#"{"name": "job-0", "command": {"start": ["x"]}, "demand": {"cpu": 1}}"#;
        history.push(submitted(raw, 7));
        let state: AdmissionState = history.fold();
        let mut proposals = Admission.decide(&state, history.now()).proposals;
        (state, proposals.remove(0).event)
    }

    #[test]
    fn a_name_is_refused_before_its_time_and_given_again_after() {
        for (kept_days, days, is_free) in [
            (Some(30), 29, false),
            (Some(30), 31, true),
            (Some(1), 2, true),
            (None, 4_000, false),
        ] {
            let (state, decided) = again(kept_days, 1, days);
            assert_eq!(state.is_taken(&job(0)), !is_free, "{kept_days:?}");
            let admitted = matches!(decided, Event::JobAdmitted(_));
            assert_eq!(admitted, is_free, "{decided:?}");
            if let Event::JobRefused(refused) = decided {
                assert_eq!(refused.code, "name_in_use");
            }
        }
    }

    #[test]
    fn the_state_of_a_thousand_jobs_of_long_ago_is_as_small_as_a_new_one() {
        let bytes = |kept_days, jobs| {
            let (state, _) = again(kept_days, jobs, 40);
            serde_json::to_string(&state.ended).expect("written").len()
        };
        assert_eq!(bytes(Some(30), 1_000), bytes(Some(30), 1));
        assert!(bytes(None, 1_000) > 20_000);
    }

    #[test]
    fn a_dependency_of_long_ago_is_unknown_with_the_reason() {
        let (state, _) = again(Some(30), 1, 31);
        let raw = r#"{"name": "next", "command": {"start": ["x"]}, "demand": {"cpu": 1}, "depends_on": ["job-0"]}"#;
        let mut next = AdmissionState {
            undecided: BTreeMap::new(),
            ..state
        };
        next.undecided
            .insert(dormouse_messages::Sequence(99), submitted(raw, 8));
        let decided = Admission.decide(&next, next.queues.cluster.now);
        let Event::JobRefused(refused) = &decided.proposals[0].event else {
            panic!("{decided:?}");
        };
        assert_eq!(refused.code, "unknown_dependency");
        assert!(refused.reason.contains("30 days ago"), "{}", refused.reason);
    }
}
