//! A job's priority class and preemptions. A preemption stops a job for another one: fewer containers after a
//! restart, or back to the queue. The bound holds per job, because a cluster-wide bound could hit one job
//! every time; θ2 bounds concurrent restarts.

use std::collections::VecDeque;

use dormouse_messages::job::JobSpec;
use dormouse_messages::policy::MAX_PREEMPTIONS_PER_HOUR;
use dormouse_messages::{JobClass, Timestamp};
use serde::{Deserialize, Serialize};

const PERIOD_MS: u64 = 3_600_000;

/// A job's class and preemptions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precedence {
    pub class: Option<JobClass>,
    /// Oldest first.
    preempted: VecDeque<Timestamp>,
    pub(crate) saved_at: Option<Timestamp>,
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
    pub(crate) fn spent_until(&self, most: u32) -> Option<Timestamp> {
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
