//! Holds the node's lease, and fences in time for the containers to end before the lease does.
//!
//! 1. A renewal counts from its request. A lease of 90 s is renewed every 22.5 s; containers are asked to end
//!    67.5 s after the last renewal and killed after 78.75 s. A shorter outage ends nothing.
//! 2. An answer after its own fence (a suspended host) renews nothing: another node may run the containers.
//! 3. A renewal keeps its term ([`LeaseTerm`]) when the policy changes.
//! 4. An agent that never held the lease gives up once it sees the holder renew. Without renewals the holder
//!    is dead, and the lease's end is waited for.
//!
//! Times are milliseconds of a clock that never steps. The driver writes the lease; [`Agent`](crate::Agent)
//! ends the containers.

use std::collections::VecDeque;

use dormouse_messages::policy::LeaseTerm;

/// Longest pause between attempts without the lease.
const RETRY_MS: u64 = 200;

/// A foreign lease older than this many terms is being renewed by a live agent.
const PATIENCE: u64 = 2;

/// The result of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Counted from the request.
    Renewed,
    Taken {
        by: String,
        /// Changes with each renewal.
        revision: u64,
    },
    /// The lease may be held or not.
    Unknown,
}

/// News of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Held,
    /// The lease may end soon: all containers end now.
    Fence,
    /// Another agent holds the lease.
    Superseded(String),
}

/// Work for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duty {
    /// Renew for this many milliseconds; replaces an unanswered request. Answered by [`Holder::answered`].
    Ask(u64),
    /// For the supervisor: containers end by then, whatever becomes of the agent.
    Deadline {
        asked_ms: u64,
        lasts_ms: u64,
    },
    News(News),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next renewal is due then.
    Waiting { until_ms: u64 },
    /// A renewal was requested under this term.
    Asked { at_ms: u64, term: LeaseTerm },
    /// Another agent acts for the node.
    Over,
}

/// The lease of one agent, as a sans-IO state machine.
#[derive(Debug, Clone)]
pub struct Holder {
    /// True if containers end without a lease.
    fenced: bool,
    term: LeaseTerm,
    phase: Phase,
    /// Request and fence term of the last renewal; none after a fence.
    renewed: Option<(u64, u64)>,
    was_held: bool,
    /// Start of the present [`Answer::Taken`] answers.
    taken_since: Option<u64>,
    seen: Option<u64>,
    duties: VecDeque<Duty>,
}

/// Several renewals fit before the fence.
fn renew_every_ms(term: LeaseTerm) -> u64 {
    (term.lease_ms / 4).min(term.fence_ms / 3)
}

impl Holder {
    /// Creates a holder that asks at once. `fenced` is false if no other node could run the containers.
    #[must_use]
    pub const fn new(fenced: bool, term: LeaseTerm) -> Self {
        Self {
            fenced,
            term,
            phase: Phase::Waiting { until_ms: 0 },
            renewed: None,
            was_held: false,
            taken_since: None,
            seen: None,
            duties: VecDeque::new(),
        }
    }

    /// Returns the next work for the driver.
    pub fn next_duty(&mut self) -> Option<Duty> {
        self.duties.pop_front()
    }

    /// Returns the time of the next [`Self::woken`], unless answered earlier; none once superseded.
    #[must_use]
    pub fn wakes_at_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting { until_ms } => Some(until_ms),
            Phase::Asked { at_ms, term } => {
                Some(self.fence_at_ms().unwrap_or(at_ms + term.lease_ms))
            }
            Phase::Over => None,
        }
    }

    /// True if the lease is held.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.renewed.is_some()
    }

    fn fence_at_ms(&self) -> Option<u64> {
        let (at_ms, lasts_ms) = self.renewed.filter(|_| self.fenced)?;
        Some(at_ms + lasts_ms)
    }

    /// Sets the policy's term, which renews a held lease at once.
    pub fn term(&mut self, now_ms: u64, term: LeaseTerm) {
        let changed = std::mem::replace(&mut self.term, term) != term;
        if changed
            && self.is_held()
            && let Phase::Waiting { until_ms } = &mut self.phase
        {
            *until_ms = now_ms;
        }
    }

    /// Advances the time.
    pub fn woken(&mut self, now_ms: u64) {
        if self.wakes_at_ms().is_none_or(|at_ms| now_ms < at_ms) {
            return;
        }
        match self.phase {
            Phase::Waiting { .. } => {
                // After a suspension other nodes may run the containers.
                self.fence_if_due(now_ms);
                self.phase = Phase::Asked {
                    at_ms: now_ms,
                    term: self.term,
                };
                self.duties.push_back(Duty::Ask(self.term.lease_ms));
            }
            Phase::Asked { .. } => self.answered(now_ms, Answer::Unknown),
            Phase::Over => {}
        }
    }

    /// Records the result of the last renewal.
    pub fn answered(&mut self, now_ms: u64, answer: Answer) {
        let Phase::Asked { at_ms, term } = self.phase else {
            return;
        };
        match answer {
            Answer::Renewed if !self.fenced || now_ms < at_ms + term.fence_ms => {
                (self.taken_since, self.was_held) = (None, true);
                return self.renewed(at_ms, term);
            }
            Answer::Renewed | Answer::Unknown => self.taken_since = None,
            Answer::Taken { by, revision } => {
                let since_ms = *self.taken_since.get_or_insert(at_ms);
                let patient = now_ms.saturating_sub(since_ms) <= PATIENCE * term.lease_ms;
                let before = self.seen.replace(revision);
                let alive = before.is_some_and(|before| before != revision);
                if self.was_held || alive || !patient {
                    self.phase = Phase::Over;
                    return self.duties.push_back(Duty::News(News::Superseded(by)));
                }
            }
        }
        self.fence_if_due(now_ms);
        let until_ms = now_ms + RETRY_MS.min(term.lease_ms / 20);
        self.phase = Phase::Waiting { until_ms };
    }

    fn fence_if_due(&mut self, now_ms: u64) {
        if self.fence_at_ms().is_some_and(|at_ms| now_ms >= at_ms) {
            self.renewed = None;
            self.duties.push_back(Duty::News(News::Fence));
        }
    }

    fn renewed(&mut self, asked_ms: u64, term: LeaseTerm) {
        self.duties.push_back(Duty::Deadline {
            asked_ms,
            lasts_ms: term.fence_ms + term.grace_ms(),
        });
        if self.renewed.replace((asked_ms, term.fence_ms)).is_none() {
            self.duties.push_back(Duty::News(News::Held));
        }
        let until_ms = if self.term == term {
            asked_ms + renew_every_ms(term)
        } else {
            asked_ms
        };
        self.phase = Phase::Waiting { until_ms };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: LeaseTerm = LeaseTerm {
        lease_ms: 20_000,
        fence_ms: 15_000,
    };

    fn duties(holder: &mut Holder) -> Vec<Duty> {
        std::iter::from_fn(|| holder.next_duty()).collect()
    }

    fn held(fenced: bool, at_ms: u64) -> Holder {
        let mut holder = Holder::new(fenced, TERM);
        holder.woken(at_ms);
        assert_eq!(duties(&mut holder), [Duty::Ask(20_000)]);
        holder.answered(at_ms, Answer::Renewed);
        let deadline = Duty::Deadline {
            asked_ms: at_ms,
            lasts_ms: 17_500,
        };
        assert_eq!(duties(&mut holder), [deadline, Duty::News(News::Held)]);
        holder
    }

    /// Leaves requests unanswered until `until_ms` and returns the news.
    fn silence(holder: &mut Holder, until_ms: u64) -> Vec<(u64, News)> {
        let mut heard = Vec::new();
        while let Some(at_ms) = holder.wakes_at_ms().filter(|at_ms| *at_ms <= until_ms) {
            holder.woken(at_ms);
            for duty in duties(holder) {
                match duty {
                    Duty::News(news) => heard.push((at_ms, news)),
                    Duty::Ask(_) => {}
                    Duty::Deadline { .. } => panic!("nothing was renewed"),
                }
            }
        }
        heard
    }

    #[test]
    fn a_cut_fences_once_and_in_time() {
        let mut holder = held(true, 1_000);
        assert_eq!(holder.wakes_at_ms(), Some(6_000));
        assert_eq!(silence(&mut holder, 60_000), [(16_000, News::Fence)]);
        while !duties(&mut holder).contains(&Duty::Ask(20_000)) {
            let at_ms = holder.wakes_at_ms().expect("it tries on");
            holder.woken(at_ms);
        }
        holder.answered(90_000, Answer::Renewed);
        assert!(duties(&mut holder).contains(&Duty::News(News::Held)));
    }

    #[test]
    fn a_host_that_stood_still_beyond_its_fence_begins_anew() {
        let mut holder = held(true, 0);
        holder.woken(110_000);
        assert_eq!(
            duties(&mut holder),
            [Duty::News(News::Fence), Duty::Ask(20_000)]
        );
        holder.answered(110_000, Answer::Renewed);
        assert_eq!(duties(&mut holder)[1], Duty::News(News::Held));
        let mut holder = held(true, 0);
        holder.woken(14_000);
        holder.answered(14_000, Answer::Renewed);
        assert!(!duties(&mut holder).contains(&Duty::News(News::Fence)));
    }

    #[test]
    fn without_a_fence_a_cut_ends_nothing() {
        let mut holder = held(false, 0);
        assert_eq!(silence(&mut holder, 600_000), []);
        assert!(holder.is_held());
    }

    #[test]
    fn an_answer_after_its_own_fence_renews_nothing() {
        let mut holder = held(true, 0);
        holder.woken(5_000);
        assert_eq!(duties(&mut holder), [Duty::Ask(20_000)]);
        holder.answered(5_000 + 15_000, Answer::Renewed);
        assert_eq!(duties(&mut holder), [Duty::News(News::Fence)]);
        let at_ms = holder.wakes_at_ms().expect("it tries on");
        holder.woken(at_ms);
        holder.answered(at_ms, Answer::Renewed);
        assert!(duties(&mut holder).contains(&Duty::News(News::Held)));
    }

    #[test]
    fn another_term_is_asked_for_at_once() {
        let mut holder = held(true, 0);
        let short = LeaseTerm {
            lease_ms: 8_000,
            fence_ms: 6_000,
        };
        holder.term(100, short);
        holder.woken(100);
        assert_eq!(duties(&mut holder), [Duty::Ask(8_000)]);
        holder.term(110, TERM);
        holder.answered(120, Answer::Renewed);
        duties(&mut holder);
        holder.woken(120);
        assert_eq!(duties(&mut holder), [Duty::Ask(20_000)]);
    }

    fn taken(revision: u64) -> Answer {
        let by = "n0, incarnation 1".to_owned();
        Answer::Taken { by, revision }
    }

    #[test]
    fn a_second_agent_gives_up_once_the_first_is_seen_alive() {
        let mut holder = Holder::new(true, TERM);
        for (at_ms, revision) in [(0, 7), (1_000, 7)] {
            holder.woken(at_ms);
            holder.answered(at_ms, taken(revision));
            assert_eq!(duties(&mut holder), [Duty::Ask(20_000)]);
        }
        holder.woken(2_000);
        holder.answered(2_000, taken(8));
        let gone = matches!(&duties(&mut holder)[1..], [Duty::News(News::Superseded(_))]);
        assert!(gone);
        assert_eq!(holder.wakes_at_ms(), None);
    }

    #[test]
    fn the_end_of_a_lease_that_nobody_renews_is_waited_for() {
        let mut holder = Holder::new(true, TERM);
        for at_ms in [0, 10_000, 40_000] {
            holder.woken(at_ms);
            holder.answered(at_ms, taken(7));
            assert_eq!(duties(&mut holder), [Duty::Ask(20_000)]);
        }
        // Another agent must be renewing the lease.
        holder.woken(41_000);
        holder.answered(41_000, taken(7));
        assert_eq!(duties(&mut holder).len(), 2);
    }

    #[test]
    fn who_takes_a_held_lease_is_obeyed() {
        let mut holder = held(true, 0);
        holder.woken(5_000);
        holder.answered(5_001, taken(9));
        let said = duties(&mut holder);
        assert!(said.contains(&Duty::News(News::Superseded(
            "n0, incarnation 1".to_owned()
        ))));
    }
}
