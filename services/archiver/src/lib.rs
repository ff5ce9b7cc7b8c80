//! The archiver's decider: a fold of the archived segments, and the decision to trim the log. The crate is pure
//! and does no I/O.
//!
//! `log.archived` is an observation of the sealer (`dormouse-archive`), which seals the next segment when the
//! policy asks for it. The decider says which events the broker no longer needs (`log.trimmed`), and the sealer
//! removes them.
//!
//! `log.filled` is an observation, too: how much of its room the log takes ([`fill`]). While the log is filling,
//! archived events go at once, however long the policy keeps them.

use std::collections::VecDeque;

use dormouse_messages::events::{
    ArchiverEvent, ByWriter, Fill, LogArchived, LogTrimmed, OperatorEvent,
};
use dormouse_messages::policy::ArchivePolicy;
use dormouse_messages::{
    Decider, Decision, Fold, LogClock, Proposal, Recorded, Sequence, Timestamp, Writer,
};
use serde::{Deserialize, Serialize};

const HOUR_MS: u64 = 3_600_000;

/// Segments whose states stay reachable: a process may be starting from the states before the newest.
const STATES_KEPT: usize = 2;

/// Leaves time to archive: a day's growth of a log that is kept for a week, about.
const FILLING_PERCENT: u64 = 70;

/// The rest is a reserve for the events of running jobs.
const FULL_PERCENT: u64 = 85;

/// A level ends so far below its bound, so that it does not come and go.
const SLACK_PERCENT: u64 = 5;

/// Returns how full a log is that was `before`.
#[must_use]
pub fn fill(before: Fill, percent: u64) -> Fill {
    let reached = |fill: Fill, bound: u64| {
        let slack = if before >= fill { SLACK_PERCENT } else { 0 };
        percent >= bound - slack
    };
    if reached(Fill::Full, FULL_PERCENT) {
        Fill::Full
    } else if reached(Fill::Filling, FILLING_PERCENT) {
        Fill::Filling
    } else {
        Fill::Roomy
    }
}

/// The archiver's decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Archiver;

impl Decider for Archiver {
    type State = ArchiverState;

    const WRITER: Writer = Writer::Archiver;

    fn decide(&self, state: &ArchiverState, now: Timestamp) -> Decision {
        let due = |segment: &&Segment| state.due_at(segment).is_some_and(|at| at <= now);
        let proposals = state.behind_states().take_while(due).last().map(|segment| {
            let event = LogTrimmed {
                first: segment.archived.last.next(),
                number: segment.archived.number,
                manifest: segment.archived.manifest.clone(),
                basis: None,
            };
            Proposal::new(event, state.cause(segment))
        });
        let later = state.behind_states().find(|segment| !due(segment));
        Decision {
            proposals: proposals.into_iter().collect(),
            next_wake: later.and_then(|segment| state.due_at(segment)),
        }
    }
}

/// The policy, the archived segments that the broker still holds, and the log's first event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiverState {
    pub policy: ArchivePolicy,
    pub newest: Option<LogArchived>,
    pub trimmed: Option<LogTrimmed>,
    filled: Option<(Sequence, Fill)>,
    /// In order, without those that are trimmed.
    segments: VecDeque<Segment>,
    clock: LogClock,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Segment {
    archived: LogArchived,
    /// The event that says so.
    sequence: Sequence,
}

impl Fold for ArchiverState {
    const NAME: &'static str = "archiver";
    const VERSION: u32 = 3;

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
                    self.segments.push_back(Segment {
                        archived: event.clone(),
                        sequence: recorded.sequence,
                    });
                }
            }
            ByWriter::Archiver(ArchiverEvent::LogTrimmed(event)) => {
                let is_gone = |segment: &mut Segment| segment.archived.number <= event.number;
                while self.segments.pop_front_if(is_gone).is_some() {}
                self.trimmed = Some(LogTrimmed {
                    basis: None,
                    ..event.clone()
                });
            }
            ByWriter::Archiver(ArchiverEvent::LogFilled(event)) => {
                self.filled = Some((recorded.sequence, event.fill));
            }
            ByWriter::Operator(_)
            | ByWriter::Admission(_)
            | ByWriter::Optimizer(_)
            | ByWriter::Placer(_)
            | ByWriter::Checkpointer(_)
            | ByWriter::Node(_)
            | ByWriter::Autoscaler(_)
            | ByWriter::Gateway(_)
            | ByWriter::Slurm(_) => {}
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

    /// Returns how full the log is.
    #[must_use]
    pub fn fill(&self) -> Fill {
        self.filled.map_or(Fill::Roomy, |(_, fill)| fill)
    }

    /// Returns the first event that stays on the broker until a newer segment is archived.
    #[must_use]
    pub fn held_from(&self) -> Sequence {
        let trimmed = self.trimmed.as_ref().map(|it| it.first);
        let behind = self.behind_states().last();
        let behind = behind.map(|it| it.archived.last.next());
        behind.or(trimmed).unwrap_or(Sequence(1))
    }

    /// Returns the segments that end before the states that stay, oldest first.
    fn behind_states(&self) -> impl Iterator<Item = &Segment> {
        let kept = self.segments.iter().rev().nth(STATES_KEPT - 1);
        let asof = kept.map_or(Sequence(0), |kept| kept.archived.asof);
        let segments = self.segments.iter();
        segments.take_while(move |segment| segment.archived.last <= asof)
    }

    fn due_at(&self, segment: &Segment) -> Option<Timestamp> {
        let kept_ms = u64::from(self.policy.keep_hours?) * HOUR_MS;
        let kept_ms = if self.fill() == Fill::Roomy {
            kept_ms
        } else {
            0
        };
        Some(segment.archived.ended.plus_ms(kept_ms))
    }

    fn cause(&self, segment: &Segment) -> Sequence {
        let filled = self.filled.filter(|(_, fill)| *fill > Fill::Roomy);
        filled.map_or(segment.sequence, |(at, _)| at.max(segment.sequence))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::{ClusterConfigured, LogBound, LogFilled};
    use dormouse_messages::policy::Policy;
    use dormouse_messages::{Envelope, Event};

    use super::*;

    fn at(hours: u64) -> Timestamp {
        Timestamp::default().plus_ms(hours * HOUR_MS)
    }

    struct Log {
        state: ArchiverState,
        sequence: Sequence,
    }

    impl Log {
        fn keeping(hours: Option<u32>) -> Self {
            let mut log = Self {
                state: ArchiverState::default(),
                sequence: Sequence(0),
            };
            let mut policy = Policy::default();
            policy.archive.keep_hours = hours;
            let configured = ClusterConfigured { policy };
            log.happen(Writer::Operator, Event::from(configured), at(0));
            log
        }

        fn happen(&mut self, writer: Writer, event: Event, time: Timestamp) {
            self.sequence = self.sequence.next();
            let id = format!("e-{}", self.sequence);
            self.state.evolve(&Recorded {
                sequence: self.sequence,
                stored_at: time,
                writer,
                envelope: Envelope::new(id, writer, time, None, event),
            });
        }

        /// Segment `number` has a hundred events of the hour that ends then; its states are those before the
        /// last ten.
        fn archive(&mut self, number: u64) {
            let archived = LogArchived {
                number,
                first: Sequence(number * 100 - 99),
                last: Sequence(number * 100),
                asof: Sequence(number * 100 - 10),
                ended: at(number),
                bytes: 1,
                manifest: format!("digest {number}"),
                place: "/archive".to_owned(),
                findings: 0,
            };
            self.happen(Writer::Archiver, Event::from(archived), at(number));
        }

        fn fill(&mut self, fill: Fill, hours: u64) {
            let filled = LogFilled {
                fill,
                bytes: 7,
                most_bytes: 10,
                bound: LogBound::Stream,
            };
            self.happen(Writer::Archiver, Event::from(filled), at(hours));
        }

        fn decide(&mut self, now: Timestamp) -> (Option<LogTrimmed>, Option<Timestamp>) {
            let decision = Archiver.decide(&self.state, now);
            let event = decision.proposals.into_iter().next().map(|it| it.event);
            let trimmed = event.map(|event| {
                self.happen(Writer::Archiver, event.clone(), now);
                match event {
                    Event::LogTrimmed(event) => *event,
                    other => panic!("{other:?}"),
                }
            });
            (trimmed, decision.next_wake)
        }
    }

    #[test]
    fn a_segment_goes_after_its_time_and_behind_two_newer_states() {
        let mut log = Log::keeping(Some(5));
        for number in 1..=2 {
            log.archive(number);
        }
        // The states after event 90 are the older ones that stay: they need the events from 91 on.
        assert_eq!(log.decide(at(100)), (None, None));
        log.archive(3);
        assert_eq!(log.decide(at(5)), (None, Some(at(6))));
        let (trimmed, wake) = log.decide(at(6));
        let trimmed = trimmed.expect("due");
        assert_eq!((trimmed.first, trimmed.number), (Sequence(101), 1));
        assert_eq!((trimmed.manifest.as_str(), wake), ("digest 1", None));
        // Said once.
        assert_eq!(log.decide(at(100)), (None, None));
        for number in 4..=7 {
            log.archive(number);
        }
        let (trimmed, wake) = log.decide(at(8));
        assert_eq!(trimmed.map(|it| it.number), Some(3));
        assert_eq!(wake, Some(at(9)));
    }

    #[test]
    fn without_a_time_every_event_stays() {
        let mut log = Log::keeping(None);
        (1..=9).for_each(|number| log.archive(number));
        assert_eq!(log.decide(at(100_000)), (None, None));
    }

    #[test]
    fn a_filling_log_keeps_only_what_new_states_need() {
        for (keep_hours, expected) in [(Some(1_000), Some(3)), (None, None)] {
            let mut log = Log::keeping(keep_hours);
            (1..=5).for_each(|number| log.archive(number));
            assert_eq!(log.decide(at(6)).0, None);
            log.fill(Fill::Filling, 6);
            let filled = log.sequence;
            let cause = Archiver.decide(&log.state, at(6)).proposals;
            assert!(cause.iter().all(|it| it.causes == [filled]));
            let (trimmed, wake) = log.decide(at(6));
            assert_eq!((trimmed.map(|it| it.number), wake), (expected, None));
            assert_eq!(log.state.held_from(), Sequence(301));
            log.archive(6);
            log.fill(Fill::Roomy, 7);
            assert_eq!(log.decide(at(8)).0, None, "it has room again");
        }
    }

    #[test]
    fn a_level_ends_below_where_it_began() {
        let mut level = Fill::Roomy;
        let levels = [69, 70, 66, 85, 81, 79, 64, 90, 10].map(|percent| {
            level = fill(level, percent);
            level
        });
        use Fill::{Filling, Full, Roomy};
        let expected = [
            Roomy, Filling, Filling, Full, Full, Filling, Roomy, Full, Roomy,
        ];
        assert_eq!(levels, expected);
    }

    #[test]
    fn a_segment_is_counted_once_and_in_order() {
        let mut log = Log::keeping(Some(1));
        for number in [1, 3, 1, 2, 2] {
            log.archive(number);
        }
        assert_eq!(log.state.archived(), 2);
        assert_eq!(log.state.segments.len(), 2);
    }
}
