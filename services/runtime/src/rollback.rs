//! Detects a rollback of a stream. A new leader may answer before it has applied all that it holds, so only
//! two equal answers of one leader, [`APART`] and with an unchanged head, prove one.

use std::time::{Duration, Instant};

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;

use crate::answer::within;
use crate::log::Log;

/// A leader applies thousands of messages meanwhile.
pub(crate) const APART: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Holds,
    Ends {
        leader: String,
        head: u64,
    },
    /// Another message, identified by `mark`.
    Another {
        leader: String,
        mark: i128,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Unsettled,
    WentBack,
}

#[derive(Debug, Default)]
pub(crate) struct Rollback {
    first: Option<(Word, Instant)>,
}

impl Rollback {
    pub fn hear(&mut self, word: Word, at: Instant) -> Verdict {
        if word == Word::Holds {
            self.first = None;
            return Verdict::Same;
        }
        match &self.first {
            Some((first, since)) if *first == word => {
                if at.saturating_duration_since(*since) < APART {
                    return Verdict::Unsettled;
                }
                self.first = None;
                Verdict::WentBack
            }
            _ => {
                tracing::warn!(
                    ?word,
                    "the stream seems to have gone back; its leader is asked again"
                );
                self.first = Some((word, at));
                Verdict::Unsettled
            }
        }
    }
}

impl Log {
    /// Asks the leader about a position; `mark` identifies messages, `read` is the expected mark.
    pub(crate) async fn word(
        &self,
        sequence: u64,
        read: i128,
        mark: impl Fn(&StreamMessage) -> i128,
    ) -> Result<Word, String> {
        let name = self.prefix().log_stream();
        let stream = within(self.inner.jetstream.get_stream_no_info(&name)).await?;
        let asked = async {
            match stream.get_raw_message(sequence).await {
                Ok(message) => Ok(Some(mark(&message))),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let found = within(asked).await?;
        if found == Some(read) {
            return Ok(Word::Holds);
        }
        let info = within(stream.get_info()).await?;
        let leader = info.cluster.and_then(|it| it.leader).unwrap_or_default();
        match found {
            // A trimmed message cannot be compared.
            None if sequence < info.state.first_sequence => Ok(Word::Holds),
            Some(mark) => Ok(Word::Another { leader, mark }),
            None if info.state.last_sequence < sequence => Ok(Word::Ends {
                leader,
                head: info.state.last_sequence,
            }),
            None => Err(format!("{sequence} is read while it is applied")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(leader: &str, head: u64) -> Word {
        Word::Ends {
            leader: leader.to_owned(),
            head,
        }
    }

    fn verdicts(words: &[(u64, Word)]) -> Vec<Verdict> {
        let begun = Instant::now();
        let mut rollback = Rollback::default();
        let said = words.iter().cloned();
        said.map(|(ms, word)| rollback.hear(word, begun + Duration::from_millis(ms)))
            .collect()
    }

    #[test]
    fn a_new_leader_that_has_not_applied_everything_is_asked_again() {
        use Verdict::{Same, Unsettled};
        let words = [
            (0, ends("b1", 5)),
            (500, ends("b1", 9)),
            (2_400, ends("b1", 9)),
            (2_450, Word::Holds),
        ];
        assert_eq!(verdicts(&words), [Unsettled, Unsettled, Unsettled, Same]);
    }

    #[test]
    fn the_words_of_two_leaders_are_not_one_word_twice() {
        use Verdict::{Unsettled, WentBack};
        let words = [
            (0, ends("b1", 5)),
            (3_000, ends("b2", 5)),
            (4_000, ends("b1", 5)),
            (5_000, ends("b1", 5)),
            (6_000, ends("b1", 5)),
        ];
        let expected = [Unsettled, Unsettled, Unsettled, Unsettled, WentBack];
        assert_eq!(verdicts(&words), expected);
    }

    #[test]
    fn what_one_leader_says_twice_counts() {
        use Verdict::{Unsettled, WentBack};
        let another = Word::Another {
            leader: "b1".to_owned(),
            mark: 7,
        };
        assert_eq!(
            verdicts(&[
                (0, another.clone()),
                (1_999, another.clone()),
                (2_000, another)
            ]),
            [Unsettled, Unsettled, WentBack]
        );
    }

    #[test]
    fn a_word_that_was_taken_back_counts_no_more() {
        use Verdict::{Same, Unsettled};
        let words = [
            (0, ends("b1", 5)),
            (100, Word::Holds),
            (2_500, ends("b1", 5)),
        ];
        assert_eq!(verdicts(&words), [Unsettled, Same, Unsettled]);
    }
}
