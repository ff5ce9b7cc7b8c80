//! Two copies over a log with late, lost or refused answers.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A fenced log with lossy answers.
#[derive(Default)]
struct Broker {
    log: Vec<LogItem>,
    own_last: u64,
}

impl Broker {
    fn head(&self) -> Sequence {
        Sequence(self.log.len() as u64)
    }

    fn push(&mut self, writer: Writer, event: Event) {
        let sequence = self.head().0 + 1;
        if writer == Writer::Placer {
            self.own_last = sequence;
        }
        self.log.push(recorded(sequence, writer, event));
    }
}

struct Copy {
    shell: Shell<Toy<false>>,
    read: usize,
    appends: VecDeque<crate::Append>,
    heads: u32,
    pauses: u32,
}

impl Copy {
    fn new() -> Self {
        let mut shell = shell();
        shell.activate();
        Self {
            shell,
            read: 0,
            appends: VecDeque::new(),
            heads: 0,
            pauses: 0,
        }
    }

    fn advance(&mut self) {
        self.shell.advance(at(0), |_| Vec::new());
        for effect in self.shell.take_effects() {
            match effect {
                Effect::Append(append) => self.appends.push_back(append),
                Effect::AskHead => self.heads += 1,
                Effect::Pause(_) => self.pauses += 1,
                Effect::Decide(_)
                | Effect::WakeAt(_)
                | Effect::Save(_)
                | Effect::Keep(_)
                | Effect::Decided
                | Effect::Discarded { .. }
                | Effect::End => {}
            }
        }
    }

    fn deliver(&mut self, broker: &mut Broker, lost: bool, most: usize) {
        let Some(append) = self.appends.pop_front() else {
            return;
        };
        let holds = append.expected.0 == broker.own_last;
        if holds {
            for draft in append.drafts.into_iter().take(most.max(1)) {
                broker.push(Writer::Placer, draft.event);
            }
        }
        self.shell.answered(match (lost, holds) {
            (true, _) => failed(Failure::Doubt("lost".to_owned())),
            (false, true) => stored(broker.own_last),
            (false, false) => failed(Failure::Conflict),
        });
    }

    fn fold(&mut self, broker: &Broker, most: usize) {
        let to = (self.read + most).min(broker.log.len());
        let mut batch = broker.log[self.read..to].to_vec();
        if to == broker.log.len() {
            batch.push(LogItem::CaughtUp(broker.head()));
        }
        self.read = to;
        self.shell.followed(&batch).expect("known versions");
    }
}

proptest! {
    /// Any order of late folds, lost answers, partial appends and conflicts.
    #[test]
    fn two_copies_answer_everything_once(steps in prop::collection::vec((0u8..7, 0usize..2, 1usize..4), 0..300)) {
        let mut broker = Broker::default();
        let mut copies = [Copy::new(), Copy::new()];
        let mut nodes = 0;
        for (what, which, number) in steps {
            let copy = &mut copies[which];
            match what {
                0 => {
                    nodes += 1;
                    broker.push(Writer::Operator, drained(nodes));
                }
                1 => copy.fold(&broker, number),
                2 => copy.deliver(&mut broker, false, 9),
                3 => copy.deliver(&mut broker, true, number),
                4 if copy.heads > 0 => {
                    copy.heads -= 1;
                    copy.shell.head(broker.head());
                }
                5 if copy.pauses > 0 => {
                    copy.pauses -= 1;
                    copy.shell.resumed();
                }
                _ => {}
            }
            copies[which].advance();
        }
        // From here on everything arrives.
        for _ in 0..2_000 {
            for copy in &mut copies {
                copy.fold(&broker, 100);
                for _ in 0..std::mem::take(&mut copy.heads) {
                    copy.shell.head(broker.head());
                }
                for _ in 0..std::mem::take(&mut copy.pauses) {
                    copy.shell.resumed();
                }
                copy.advance();
                copy.deliver(&mut broker, false, 9);
            }
        }
        for copy in &mut copies {
            copy.fold(&broker, 10_000);
        }
        let state = copies[0].shell.state();
        prop_assert!(state.open.is_empty());
        prop_assert_eq!(state.answered.len() as u64, nodes);
        prop_assert!(state.answered.values().all(|times| *times == 1), "{:?}", state.answered);
    }
}
