//! The submissions of a job's tenant that are not decided yet, and the refusal of the job.

use std::collections::BTreeMap;

use dormouse_admission::document;
use dormouse_messages::events::{JobRefused, SubmissionReceived};
use dormouse_messages::{Event, JobId, Recorded, TenantId};

const MOST_OPEN: usize = 10_000;

/// A refused submission.
#[derive(Debug, Clone)]
pub struct Refused {
    pub submission: SubmissionReceived,
    pub event: JobRefused,
}

impl Refused {
    /// True if the refusal concerns `job`; some refusals precede the job's name.
    #[must_use]
    pub fn is_of(&self, job: &JobId) -> bool {
        let tenant = self.event.tenant.as_ref().map(TenantId::as_str);
        match &self.event.job {
            Some(named) => named == job,
            None => {
                let said = document(&self.submission);
                let name = said.as_ref().and_then(|it| it["name"].as_str());
                tenant == Some(job.tenant()) && name == Some(job.name())
            }
        }
    }
}

/// The undecided submissions of a job's tenant.
#[derive(Debug, Default)]
pub struct Submitted {
    open: BTreeMap<u64, SubmissionReceived>,
    pub refused: Option<Refused>,
}

impl Submitted {
    pub fn read(&mut self, job: &JobId, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::SubmissionReceived(event))
                if event.tenant == job.tenant() && event.verb == "submit" =>
            {
                self.open.insert(event.ingress_sequence, (**event).clone());
                if self.open.len() > MOST_OPEN {
                    self.open.pop_first();
                }
            }
            Some(Event::JobAdmitted(event)) => {
                self.open.remove(&event.ingress_sequence);
            }
            Some(Event::JobRefused(event)) => {
                let submission = self.open.remove(&event.ingress_sequence);
                let refused = submission.map(|submission| Refused {
                    submission,
                    event: (**event).clone(),
                });
                let own = refused.filter(|it| it.is_of(job));
                self.refused = own.or(self.refused.take());
            }
            _ => {}
        }
    }
}
