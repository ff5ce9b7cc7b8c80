//! Holding the node's lease, and fencing in time: before the lease can end, the node's containers
//! have to be gone.
//!
//! ```text
//!  inputs                                          effects
//!  woken     the time has come             ┐        ┌ Ask        renew it for so long
//!  answered  renewed, held by another, not ├ Holder ┤ Deadline   for the keeper: it ends what is left
//!  term      the policy has another lease  ┘        └ News       held, fence, superseded
//! ```
//!
//! 1. A renewal counts from when it was asked, not from when it was answered. A lease of 90 s is
//!    renewed every 22.5 s; 67.5 s after the last renewal that succeeded everything is asked to end,
//!    at 78.75 s it is killed. A shorter outage of the broker ends nothing.
//! 2. An answer that comes when its own renewal is past the fence (the host stood still meanwhile)
//!    renews nothing: the keeper has ended everything, and another node may run it.
//! 3. The policy on the log says how long leases last ([`LeaseTerm`]); each renewal says for how long
//!    it is, and holds for that long, whatever the policy has become meanwhile.
//! 4. Where another agent acts for the node already, that one stays: an agent that never held the lease
//!    gives up as soon as it sees the holder renew it. A lease that nobody renews is of an agent that
//!    has died, and its end is waited for.
//!
//! Times are milliseconds of a clock of the driver's that does not step. How a lease is written is
//! the driver's; that the containers end at the fence is [`Agent`](crate::Agent)'s.

use std::collections::VecDeque;

use dormouse_messages::policy::LeaseTerm;

/// Between two attempts while the lease is not held, at most.
const RETRY_MS: u64 = 200;

/// Whose lease does not end in so many of its spans, another agent renews.
const PATIENCE: u64 = 2;

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is held, from the moment of the question on.
    Renewed,
    /// Another agent holds it.
    Taken {
        /// Which one.
        by: String,
        /// Of its last renewal: it moves with each.
        revision: u64,
    },
    /// No answer, or a refusal: it may be held or not.
    Unknown,
}

/// News of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It is held (again).
    Held,
    /// It may end soon: everything ends now.
    Fence,
    /// Someone else holds it: the agent leaves.
    Superseded(String),
}

/// Something for the driver to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duty {
    /// Renew the lease for so many milliseconds; answered by [`Holder::answered`]. What was asked
    /// before and not answered is given up.
    Ask(u64),
    /// Whatever becomes of the agent, everything has ended so long after this moment.
    Deadline {
        /// When the renewal was asked.
        asked_ms: u64,
        /// Milliseconds from there.
        lasts_ms: u64,
    },
    /// For the agent.
    News(News),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next renewal is asked then.
    Waiting { until_ms: u64 },
    /// One was asked then, under this term.
    Asked { at_ms: u64, term: LeaseTerm },
    /// Another agent acts for the node.
    Over,
}

/// The machine of one agent's lease.
#[derive(Debug, Clone)]
pub struct Holder {
    /// Whether containers end when it cannot be renewed.
    fenced: bool,
    term: LeaseTerm,
    phase: Phase,
    /// When the last renewal was asked that succeeded, and for how long containers may run on from
    /// there; none after a fence.
    renewed: Option<(u64, u64)>,
    was_held: bool,
    /// Since when every answer has been that another holds it.
    taken_since: Option<u64>,
    /// The revision of the other one's last renewal.
    seen: Option<u64>,
    duties: VecDeque<Duty>,
}

/// Milliseconds between two renewals: several of them fit before the fence.
fn renew_every_ms(term: LeaseTerm) -> u64 {
    (term.lease_ms / 4).min(term.fence_ms / 3)
}

impl Holder {
    /// An agent that asks at once; `fenced` unless nobody else could run its containers.
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

    /// What is to be done next, if anything.
    pub fn next_duty(&mut self) -> Option<Duty> {
        self.duties.pop_front()
    }

    /// When [`Self::woken`] is to be called, unless there is an answer before; never when another
    /// agent acts for the node.
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

    /// Whether it is held, as far as the agent knows.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.renewed.is_some()
    }

    /// When everything is to end for want of a renewal.
    fn fence_at_ms(&self) -> Option<u64> {
        let (at_ms, lasts_ms) = self.renewed.filter(|_| self.fenced)?;
        Some(at_ms + lasts_ms)
    }

    /// The policy has another lease: where it is held, it is renewed for that at once.
    pub fn term(&mut self, now_ms: u64, term: LeaseTerm) {
        let changed = std::mem::replace(&mut self.term, term) != term;
        if changed
            && self.is_held()
            && let Phase::Waiting { until_ms } = &mut self.phase
        {
            *until_ms = now_ms;
        }
    }

    /// The time is this now.
    pub fn woken(&mut self, now_ms: u64) {
        if self.wakes_at_ms().is_none_or(|at_ms| now_ms < at_ms) {
            return;
        }
        match self.phase {
            Phase::Waiting { .. } => {
                // The host has stood still: its keeper has ended what ran, and others may run it.
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

    /// What became of the renewal that was asked last.
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
        let until_ms = match self.term == term {
            true => asked_ms + renew_every_ms(term),
            // Another one has come meanwhile.
            false => asked_ms,
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

    /// Held since `at_ms`.
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

    /// Asks and is not answered until `until_ms`; the news, and when it came.
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
        // It is asked again and again, and back when there is an answer.
        while !duties(&mut holder).contains(&Duty::Ask(20_000)) {
            let at_ms = holder.wakes_at_ms().expect("it tries on");
            holder.woken(at_ms);
        }
        holder.answered(90_000, Answer::Renewed);
        assert!(duties(&mut holder).contains(&Duty::News(News::Held)));
    }

    /// Nothing has looked at the time meanwhile: the node may be lost, and its jobs run elsewhere.
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
        // Within it, it goes on.
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

    /// The host stood still, and its answer was there when it woke.
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
        // One that comes while an answer is awaited is asked for after it.
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
        // It does not end: another agent renews it unseen.
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
