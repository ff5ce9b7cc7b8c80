//! Appending for a writer that folds nothing: an agent, a gateway, the operator's command line.
//!
//! The shell fences with its folded state. A writer without one reads its last own message once
//! and then trusts its acknowledgements; what was never acknowledged is settled like this:
//!
//! 1. A message is sent again, with the same id and the same fence, until it is answered.
//! 2. A refusal by the fence is ambiguous: the first sending may have been stored. A message
//!    stored under the fence `expected` is by construction the first own one after `expected`,
//!    so one read tells: the same id, it was stored; another id, someone else wrote. What nobody of the
//!    name wrote (bytes that are no event, a keeper's word) is passed. Where nothing is found, a leader
//!    has answered that does not know yet that there is another one: nothing follows from that, and the
//!    question is asked again. Only a log that stays behind has been lost and restored.
//! 3. For an agent or a gateway someone else is a second one of the same name: an error. But before
//!    anything of its own is stored it may be one that was killed, whose last message was in flight: the
//!    new fence is taken. The operators' command lines share their name, and always do.
//!
//! It leaves to its driver: the id, which names the fence, and how long it waits between two attempts.

use dormouse_messages::Sequence;

/// What is to be done next. [`Settle`] names the input that answers each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask the log's leader for the last own message: [`Settle::last`].
    ReadLast,
    /// Send the message under this fence, the same one under the same fence: [`Settle::sent`].
    Send(Sequence),
    /// Ask for the first own message after this one: [`Settle::found`].
    Read(Sequence),
    /// Wait a moment; nothing answers it.
    Wait,
    /// It is stored.
    Stored(Sequence),
    /// Someone else writes under this name.
    Taken {
        /// The last own message as it was known.
        expected: Sequence,
        /// What was found after it.
        found: Sequence,
    },
}

/// What became of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is stored there.
    Stored(Sequence),
    /// The fence.
    Conflict,
    /// Perhaps stored, perhaps not, perhaps later.
    Doubt,
}

/// A message that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub sequence: Sequence,
    /// Whose it is.
    pub whose: Whose,
}

/// Who wrote a message under the own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// It is the one that was sent.
    Own,
    /// Another writer of the name.
    Anothers,
    /// Nobody of the name.
    Nobodys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sends,
    Reads {
        after: Sequence,
    },
    /// Nothing was found after it, though the fence did not hold.
    Doubts {
        after: Sequence,
    },
    Over(Step),
}

/// Attempts, each a wait later, after which a log that answers less than it did has been restored: a
/// leader that is none any more knows it by then.
const LOST: u32 = 150;

/// The machine of one writer.
#[derive(Debug, Clone)]
pub struct Settle {
    /// Whether nobody else writes under its name.
    sole: bool,
    /// The last own sequence; `None` until it has been read.
    last: Option<Sequence>,
    /// A message under the own name is there: who answers less is behind.
    least: Sequence,
    /// How often in a row the last own message was answered to be before the fence.
    behind: u32,
    /// Something of its own is stored: nobody before it writes any more.
    begun: bool,
    phase: Phase,
    waits: bool,
}

impl Settle {
    /// A writer that has appended nothing yet; `sole` where nobody else writes under its name.
    #[must_use]
    pub const fn new(sole: bool) -> Self {
        Self {
            sole,
            last: None,
            least: Sequence(0),
            behind: 0,
            begun: false,
            phase: Phase::Sends,
            waits: false,
        }
    }

    /// A writer whose events hold only right after its name's message at `last`: another writer of the
    /// name in between is [`Step::Taken`].
    #[must_use]
    pub const fn after(last: Sequence) -> Self {
        Self {
            last: Some(last),
            begun: true,
            ..Self::new(true)
        }
    }

    /// Another event is to be appended.
    pub const fn begin(&mut self) {
        self.phase = Phase::Sends;
        self.waits = false;
    }

    /// What is to be done next.
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

    /// The last own message, 0 without one; `None`: nobody answered.
    pub fn last(&mut self, last: Option<Sequence>) {
        let Some(last) = last else {
            self.waits = true;
            return;
        };
        let Phase::Doubts { after } = self.phase else {
            self.last = Some(last.max(self.least));
            return;
        };
        self.waits = true;
        self.behind = if last < after { self.behind + 1 } else { 0 };
        self.phase = match last > after {
            true => Phase::Reads { after },
            false => Phase::Sends,
        };
        if self.behind >= LOST {
            (self.last, self.behind) = (Some(last), 0);
        }
    }

    /// What became of the message.
    pub fn sent(&mut self, sent: Sent) {
        match sent {
            Sent::Stored(sequence) => self.stored(sequence),
            Sent::Doubt => self.waits = true,
            Sent::Conflict => {
                let after = self.last.unwrap_or_default();
                self.phase = Phase::Reads { after };
            }
        }
    }

    /// The first own message after the one that was asked about.
    pub fn found(&mut self, found: Option<Found>) {
        let expected = self.last.unwrap_or_default();
        match (found, self.phase) {
            (Some(Found { sequence, whose }), _) => match whose {
                Whose::Own => self.stored(sequence),
                Whose::Nobodys => self.phase = Phase::Reads { after: sequence },
                Whose::Anothers if self.sole && self.begun => {
                    let found = sequence;
                    self.phase = Phase::Over(Step::Taken { expected, found });
                }
                Whose::Anothers => {
                    (self.last, self.least) = (None, sequence);
                    self.phase = Phase::Sends;
                }
            },
            // What was passed is why the fence did not hold.
            (None, Phase::Reads { after }) if after > expected => {
                self.last = Some(after);
                self.phase = Phase::Sends;
            }
            (None, _) => self.phase = Phase::Doubts { after: expected },
        }
    }

    /// Nobody answered the question for what is after: the message is sent once more.
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

    /// A writer that has read its last message and sent one.
    fn sent(sole: bool, answer: Sent) -> Settle {
        let mut settle = Settle::new(sole);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(7)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(answer);
        settle
    }

    fn found(sequence: u64, whose: Whose) -> Option<Found> {
        let sequence = Sequence(sequence);
        Some(Found { sequence, whose })
    }

    #[test]
    fn what_is_not_answered_is_sent_again_under_the_same_fence() {
        let mut settle = sent(true, Sent::Doubt);
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(Sent::Stored(Sequence(9)));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(9)));
        settle.begin();
        assert_eq!(settle.next_step(), Step::Send(Sequence(9)));
    }

    #[test]
    fn a_refusal_by_the_fence_may_be_its_own_doing() {
        let mut settle = sent(true, Sent::Conflict);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(found(8, Whose::Nobodys));
        assert_eq!(settle.next_step(), Step::Read(Sequence(8)));
        settle.found(found(9, Whose::Own));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(9)));
    }

    #[test]
    fn a_second_writer_of_a_sole_name_is_an_error_of_a_shared_one_not() {
        let mut settle = sent(true, Sent::Stored(Sequence(8)));
        settle.begin();
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
        settle.sent(Sent::Conflict);
        settle.found(found(9, Whose::Anothers));
        let (expected, found_at) = (Sequence(8), Sequence(9));
        let taken = Step::Taken {
            expected,
            found: found_at,
        };
        assert_eq!(settle.next_step(), taken);
        let mut settle = sent(false, Sent::Conflict);
        settle.found(found(8, Whose::Anothers));
        assert_eq!(settle.next_step(), Step::ReadLast);
    }

    #[test]
    fn what_a_killed_one_had_in_flight_is_no_second_writers() {
        let mut settle = sent(true, Sent::Conflict);
        settle.found(found(8, Whose::Anothers));
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
    }

    /// The fence did not hold because the message is stored, and a leader answers that is none any more.
    #[test]
    fn a_leader_that_is_behind_makes_no_double() {
        let mut settle = sent(true, Sent::Conflict);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(None);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Read(Sequence(7)));
        settle.found(None);
        settle.last(Some(Sequence(7)));
        assert_eq!(settle.next_step(), Step::Wait);
        // With the same id.
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
        settle.sent(Sent::Conflict);
        settle.found(found(8, Whose::Own));
        assert_eq!(settle.next_step(), Step::Stored(Sequence(8)));
    }

    #[test]
    fn a_fence_never_goes_back() {
        let mut settle = sent(false, Sent::Conflict);
        settle.found(found(9, Whose::Anothers));
        settle.last(Some(Sequence(8)));
        assert_eq!(settle.next_step(), Step::Send(Sequence(9)));
        // A keeper's word is why it did not hold.
        let mut settle = sent(true, Sent::Conflict);
        settle.found(found(8, Whose::Nobodys));
        settle.found(None);
        assert_eq!(settle.next_step(), Step::Send(Sequence(8)));
    }

    #[test]
    fn a_log_that_stays_behind_was_restored() {
        let mut settle = sent(true, Sent::Conflict);
        for _ in 0..LOST {
            settle.found(None);
            settle.last(Some(Sequence(3)));
            assert_eq!(settle.next_step(), Step::Wait);
            settle.sent(Sent::Conflict);
        }
        settle.unread();
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(3)));
    }

    #[test]
    fn a_question_that_nobody_answers_is_asked_again() {
        let mut settle = Settle::new(true);
        assert_eq!(settle.next_step(), Step::ReadLast);
        settle.last(None);
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::ReadLast);
        let mut settle = sent(true, Sent::Conflict);
        settle.unread();
        assert_eq!(settle.next_step(), Step::Wait);
        assert_eq!(settle.next_step(), Step::Send(Sequence(7)));
    }
}
