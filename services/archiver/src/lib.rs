//! The archiver's decider: a fold of the archived segments. The crate is pure and does no I/O.
//!
//! Folds [`ArchiverState`]. Decides nothing yet: `log.archived` is an observation of the sealer
//! (`dormouse-archive`), which seals the next segment when the policy asks for it.

use dormouse_messages::events::{ArchiverEvent, ByWriter, LogArchived, OperatorEvent};
use dormouse_messages::policy::ArchivePolicy;
use dormouse_messages::{Decider, Decision, Fold, LogClock, Recorded, Timestamp, Writer};
use serde::{Deserialize, Serialize};

/// The archiver's decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Archiver;

impl Decider for Archiver {
    type State = ArchiverState;

    const WRITER: Writer = Writer::Archiver;

    fn decide(&self, _: &ArchiverState, _: Timestamp) -> Decision {
        Decision::default()
    }
}

/// The policy, and the newest archived segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiverState {
    pub policy: ArchivePolicy,
    pub newest: Option<LogArchived>,
    clock: LogClock,
}

impl Fold for ArchiverState {
    const NAME: &'static str = "archiver";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        self.clock.pass(recorded);
        let Some(event) = recorded.event() else {
            return;
        };
        match event.by_writer() {
            ByWriter::Operator(OperatorEvent::ClusterConfigured(event)) => {
                self.policy = event.policy.archive;
            }
            ByWriter::Archiver(ArchiverEvent::LogArchived(event)) => {
                if event.number == self.archived() + 1 {
                    self.newest = Some(event.clone());
                }
            }
            ByWriter::Operator(_)
            | ByWriter::Admission(_)
            | ByWriter::Optimizer(_)
            | ByWriter::Placer(_)
            | ByWriter::Checkpointer(_)
            | ByWriter::Node(_)
            | ByWriter::Autoscaler(_)
            | ByWriter::Gateway(_) => {}
        }
    }

    fn log_time(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }
}

impl ArchiverState {
    /// Returns the number of the newest archived segment; 0 before the first.
    #[must_use]
    pub fn archived(&self) -> u64 {
        self.newest.as_ref().map_or(0, |newest| newest.number)
    }
}
