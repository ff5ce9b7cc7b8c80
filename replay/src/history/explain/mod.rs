//! Explains a job, a tenant, a node or a decision from the log.
//!
//! A job raises three questions: could it have more (P2 with relaxed constraints:
//! [`dormouse_optimizer::conflict`]), was it chosen, was it released? A tenant sees only its own names;
//! [`seen_by`] checks the answer.
//!
//! - `explainer`, `submitted`: the reading of a log.
//! - `job`, `others`: explanations of jobs; of tenants, nodes and decisions.
//! - `against`, `room`: reasons for a shortage; holders of the missing resources.
//! - `alternatives`, `resizes`: alternatives of a decision; a job's past resizes.
//! - `search`, `grids`, `changes`: the least changes, decided by the real services on forks.
//! - `refusal`: changes that lift a refusal; `answer`: the answer's types.

mod against;
mod alternatives;
mod answer;
mod changes;
mod explainer;
mod grids;
mod job;
mod others;
mod refusal;
mod resizes;
mod room;
mod search;
mod slurm;
mod submitted;

use dormouse_messages::Event;

pub use answer::*;
pub use changes::{Candidate, Change};
pub use explainer::{ExplainError, Explainer, SOLVES, Subject};
pub(crate) use others::restarts;

use super::redact::seen_by;

impl Explainer {
    /// Returns the explanation.
    ///
    /// # Errors
    /// The subject is not on the log.
    pub fn explain(self) -> Result<Explanation, ExplainError> {
        self.explain_step_by_step(|_| {})
    }

    /// As [`Self::explain`], and passes partial answers to `tell`: once the reason is known, and after
    /// each proven change.
    ///
    /// # Errors
    /// The subject is not on the log.
    pub fn explain_step_by_step(
        mut self,
        mut tell: impl FnMut(&Explanation),
    ) -> Result<Explanation, ExplainError> {
        self.model = std::mem::take(&mut self.reading).finish();
        self.head = self.before.clone();
        for recorded in &self.tail {
            self.head.read(recorded);
        }
        if let Some(decided) = &mut self.decided {
            decided.before = std::mem::take(&mut self.before);
            if let Some(basis) = decided.recorded.event().and_then(Event::basis) {
                decided.before.now = basis.now;
            }
        }
        let viewer = self.viewer.as_ref();
        let mut told = |so_far: &Explanation| match viewer {
            None => tell(so_far),
            Some(_) => {
                let _ = seen_by(so_far.clone(), viewer).map(|seen| tell(&seen));
            }
        };
        let answer = match self.subject.clone() {
            Subject::Job(job) => job::explain(&self, &job, &mut told),
            Subject::Tenant(tenant) => others::tenant(&self, &tenant),
            Subject::Node(node) => others::node(&self, &node),
            Subject::Epoch(epoch) => others::epoch(&self, epoch, &mut told),
        }?;
        Ok(seen_by(answer, viewer)?)
    }
}
