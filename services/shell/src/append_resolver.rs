//! Appending without a fold: an agent, a gateway, the operator.
//!
//! Such a writer reads its last message once, then trusts acknowledgements. Without one:
//!
//! 1. The message is repeated with its id and fence.
//! 2. After a conflict the first own message after the fence decides: an equal id means stored, another id
//!    another writer. Non-events and a supervisor's reports are skipped. No message means a deposed leader
//!    answered: ask again. Only a log that stays behind was restored.
//! 3. A conflict without an own message is also that of a fence whose event was trimmed: the next one is 0.
//! 4. Another writer under an exclusive name is an error, unless nothing is stored yet: the other may be a
//!    dead predecessor. Operators share their name.

use dormouse_messages::Sequence;

/// Next action, answered by an input of [`AppendResolver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read the last own message: [`AppendResolver::last`].
    ReadLast,
    /// Send the message under this fence: [`AppendResolver::sent`].
    Send(Sequence),
    /// Read the first own message after this one: [`AppendResolver::found`].
    Read(Sequence),
    /// Wait; no input answers.
    Wait,
    Stored(Sequence),
    Taken {
        expected: Sequence,
        found: Sequence,
    },
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendResult {
    Stored(Sequence),
    Conflict,
    /// Stored now, later, or never.
    Doubt,
}

/// A message found under the own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub sequence: Sequence,
    pub whose: Author,
}

/// Author of a message under the own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// This attempt or an earlier one.
    Own,
    Another,
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sends,
    Reads { after: Sequence },
    Doubts { after: Sequence },
    Over(Step),
}

/// Number of stale answers in a row that prove a restored log: a deposed leader knows its state by then.
const LOST: u32 = 150;

/// The append machine of one writer.
#[derive(Debug, Clone)]
pub struct AppendResolver {
    sole: bool,
    last: Option<Sequence>,
    /// Lower bound of the last own sequence; a lower answer is stale.
    least: Sequence,
    /// The log's first event. The fence of a writer whose events are all trimmed is 0.
    first: Sequence,
    behind: u32,
    /// True once an own message is stored: no predecessor writes any more.
    begun: bool,
    phase: Phase,
    waits: bool,
}

impl AppendResolver {
    /// Creates a writer; `sole` if its name is exclusive.
    #[must_use]
    pub const fn new(sole: bool) -> Self {
        Self {
            sole,
            last: None,
            least: Sequence(0),
            first: Sequence(0),
            behind: 0,
            begun: false,
            phase: Phase::Sends,
            waits: false,
        }
    }

    /// Creates a writer whose events must directly follow `last`; otherwise [`Step::Taken`].
    #[must_use]
    pub const fn after(last: Sequence) -> Self {
        Self {
            last: Some(last),
            begun: true,
            ..Self::new(true)
        }
    }

    /// Starts the append of another event.
    pub const fn begin(&mut self) {
        self.phase = Phase::Sends;
        self.waits = false;
    }

    /// Returns the next action.
    pub const fn next_step(&mut self) -> Step {
        if self.waits {
            self.waits = false;
            return Step::Wait;
        }
        match (self.phase, self.last) {
            (Phase::Over(step), _) => step,
            (Phase::Reads { after }, _) => Step::Read(after),
            (Phase::Doubts { .. }, _) | (Phase::Sends, None) => Step::ReadLast,
            (Phase::Sends, Some(expected)) => Step::Send(expected),
        }
    }

    /// Notes the log's first event.
    pub const fn begins_at(&mut self, first: Sequence) {
        self.first = first;
    }

    /// Takes the last own message, 0 without one; `None`: no answer.
    pub fn last(&mut self, last: Option<Sequence>) {
        let Some(last) = last else {
            self.waits = true;
            return;
        };
        let known = self.last.unwrap_or(self.least);
        if last == Sequence(0) && known < self.first {
            (self.last, self.least, self.behind) = (Some(last), last, 0);
            self.phase = Phase::Sends;
            return;
        }
        let Phase::Doubts { after } = self.phase else {
            self.last = Some(last.max(self.least));
            return;
        };
        self.waits = true;
        self.behind = if last < after { self.behind + 1 } else { 0 };
        self.phase = if last > after {
            Phase::Reads { after }
        } else {
            Phase::Sends
        };
        if self.behind >= LOST {
            (self.last, self.behind) = (Some(last), 0);
        }
    }

    /// Takes the result of an attempt.
    pub fn sent(&mut self, sent: AppendResult) {
        match sent {
            AppendResult::Stored(sequence) => self.stored(sequence),
            AppendResult::Doubt => self.waits = true,
            AppendResult::Conflict => {
                let after = self.last.unwrap_or_default();
                self.phase = Phase::Reads { after };
            }
        }
    }

    /// Takes the first own message after the sequence.
    pub fn found(&mut self, found: Option<Found>) {
        let expected = self.last.unwrap_or_default();
        match (found, self.phase) {
            (Some(Found { sequence, whose }), _) => match whose {
                Author::Own => self.stored(sequence),
                Author::Nobody => self.phase = Phase::Reads { after: sequence },
                Author::Another if self.sole && self.begun => {
                    let found = sequence;
                    self.phase = Phase::Over(Step::Taken { expected, found });
                }
                Author::Another => {
                    (self.last, self.least) = (None, sequence);
                    self.phase = Phase::Sends;
                }
            },
            // The skipped messages explain the conflict.
            (None, Phase::Reads { after }) if after > expected => {
                self.last = Some(after);
                self.phase = Phase::Sends;
            }
            (None, _) => self.phase = Phase::Doubts { after: expected },
        }
    }

    /// Notes a missing answer.
    pub const fn unread(&mut self) {
        self.phase = Phase::Sends;
        self.waits = true;
    }

    const fn stored(&mut self, sequence: Sequence) {
        self.last = Some(sequence);
        self.begun = true;
        self.phase = Phase::Over(Step::Stored(sequence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sole: bool, answer: AppendResult) -> AppendResolver {
        let mut settle = AppendResolver::new(sole);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(7)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(answer);
        settle
    }

    fn found(sequence: u64, whose: Author) -> Option<Found> {
        let sequence = Sequence(sequence);
        Some(Found { sequence, whose })
    }

    #[test]
    fn what_is_not_answered_is_sent_again_under_the_same_fence() {
        let mut settle = sent(true, AppendResult::Doubt);
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(AppendResult::Stored(Sequence(9)));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(9)));
        settle.begin();
        assert_eq!(settle.next_step(), Step::Send(Sequence(9)));
    }

    #[test]
    fn a_refusal_by_the_fence_may_be_its_own_doing() {
        let mut settle = sent(true, AppendResult::Conflict);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(found(8, Author::Nobody));
        assert_eq!(settle.next_step(), Step::Read(Sequence(8)));
        settle.found(found(9, Author::Own));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(9)));
    }

    #[test]
    fn a_second_writer_of_a_sole_name_is_an_error_of_a_shared_one_not() {
        let mut settle = sent(true, AppendResult::Stored(Sequence(8)));
        settle.begin();
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
        settle.sent(AppendResult::Conflict);
        settle.found(found(9, Author::Another));
        let (expected, found_at) = (Sequence(8), Sequence(9));
        let taken = Step::Taken {
            expected,
            found: found_at,
        };
        assert_eq!(settle.next_step(), taken);
        let mut settle = sent(false, AppendResult::Conflict);
        settle.found(found(8, Author::Another));
        assert_eq!(settle.next_step(), Step::ReadLast);
    }

    #[test]
    fn what_a_killed_one_had_in_flight_is_no_second_writers() {
        let mut settle = sent(true, AppendResult::Conflict);
        settle.found(found(8, Author::Another));
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
    }

    #[test]
    fn a_leader_that_is_behind_makes_no_double() {
        let mut settle = sent(true, AppendResult::Conflict);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(None);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(None);
        settle.last(Some(Sequence(7)));
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(AppendResult::Conflict);
        settle.found(found(8, Author::Own));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(8)));
    }

    #[test]
    fn a_fence_never_goes_back() {
        let mut settle = sent(false, AppendResult::Conflict);
        settle.found(found(9, Author::Another));
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(9)));
        // A supervisor's report caused the conflict.
        let mut settle = sent(true, AppendResult::Conflict);
        settle.found(found(8, Author::Nobody));
        settle.found(None);
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
    }

    #[test]
    fn a_log_that_stays_behind_was_restored() {
        let mut settle = sent(true, AppendResult::Conflict);
        for _ in 0..LOST {
            settle.found(None);
            settle.last(Some(Sequence(3)));
            assert_eq!(settle.next_step(), Step::Wait);
            settle.sent(AppendResult::Conflict);
        }
        settle.unread();
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(3)));
    }

    #[test]
    fn a_fence_that_was_trimmed_is_none() {
        let mut settle = sent(true, AppendResult::Stored(Sequence(8)));
        settle.begin();
        settle.sent(AppendResult::Conflict);
        settle.found(None);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.begins_at(Sequence(9));
        settle.last(Some(Sequence(0)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(0)));
        settle.sent(AppendResult::Stored(Sequence(12)));
        settle.begin();
        assert_eq!(settle.next_step(), Step::Send(Sequence(12)));
        // A lagging leader does not trim present events.
        settle.sent(AppendResult::Conflict);
        settle.found(None);
        settle.last(Some(Sequence(0)));
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(12)));
    }

    #[test]
    fn a_question_that_nobody_answers_is_asked_again() {
        let mut settle = AppendResolver::new(true);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(None);
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::ReadLast);
        let mut settle = sent(true, AppendResult::Conflict);
        settle.unread();
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
    }
}
