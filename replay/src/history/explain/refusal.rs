//! Searches for changes that lift a refusal. Every listed change was tried on a fork, and admitted.
//!
//! 1. The unchanged document, which may be admitted by now.
//! 2. **Changes by the operator** ([`fix`]), one refusal after the other, with the least amounts.
//! 3. **Changes of the document** ([`lift`]), one field at a time, from the nearest value of its grid.

mod fix;
mod lift;

use std::collections::BTreeMap;

use dormouse_admission::document;
use dormouse_messages::events::{JobRefused, SubmissionReceived};
use dormouse_messages::{Event, JobId, Recorded, TenantId};
use dormouse_optimizer::Optimizer;

use super::answer::{Explanation, gets, reason, say};
use super::{Decided, Explainer};
use lift::Lift;
pub(super) use lift::verified;

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

pub fn refused(
    explainer: &Explainer,
    id: &JobId,
    tell: &mut dyn FnMut(&Explanation),
) -> Option<Explanation> {
    let known = explainer.submitted.refused.as_ref();
    let mut listed = explainer.model.jobs.refused().rev();
    let listed = listed.find(|it| it.job.as_ref() == Some(id));
    let (code, why) = match (known, listed) {
        (Some(known), _) => (&known.event.code, &known.event.reason),
        (None, Some(listed)) => (&listed.code, &listed.reason),
        (None, None) => return None,
    };
    let (at, time) = explainer.place();
    let mut answer = Explanation::of(id.to_string(), at, time, "refused");
    answer.words.push(format!("{id} was refused: {why}"));
    answer.all.push(reason("refused", format!("{code}: {why}")));
    answer.rank();
    tell(&answer);
    let decided = explainer.decided();
    let optimizer = decided.map_or_else(Optimizer::default, Decided::optimizer);
    let lift = known.and_then(|it| Lift::new(&explainer.head, optimizer, id, it));
    let Some(mut lift) = lift else {
        let words = "its document is not read here, or is none: nothing could be tried";
        answer.words.push(words.to_owned());
        return Some(answer);
    };
    if let Ok((becomes, _)) = lift.as_it_is() {
        let gets = gets(becomes);
        let words = format!("submitted again after event {at} it would be admitted, {gets}");
        answer.words.push(words);
    } else {
        lift.all(code, |correction| {
            answer.words.push(say(&correction, "be admitted"));
            answer.corrections.push(correction);
            tell(&answer);
        });
        if answer.corrections.is_empty() {
            let words =
                "no change of the kinds that are tried lifts it: its document has to be mended";
            answer.words.push(words.to_owned());
        }
    }
    answer.solves = lift.solves;
    Some(answer)
}
