//! What ties a node's agent to the brokers, and what happens when that is cut.
//!
//! ```text
//!   whole ──▶ cut (either way, or both) or the agent killed ──▶ whole again
//!                │ the fence: what runs there ends        what it could not say is said,
//!                │ the lease: the node is lost            what it did not hear is heard
//! ```
//!
//! 1. An agent that is killed leaves its containers running; its keeper holds the fence. One that is cut
//!    off holds it itself, by the machine that is shipped ([`Holder`]), driven from its last renewal on;
//!    its keeper ends what is left. Who comes back before it adopts what runs.
//! 2. An agent that does not hear starts and stops nothing; one that cannot speak keeps what it has to
//!    say. A renewal needs both.
//! 3. The brokers count the lease from a later moment than the agent: it is not answered what they saw.
//! 4. An agent that comes back after the fence joins anew; after the loss, it first ends what is left.

use std::collections::BTreeMap;

use dormouse_agent_core::holder::{Answer, Duty, Holder, News};
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{NodeId, Timestamp};

use super::faults::{Faults, Plant};
use super::twins::Lease;

/// How an agent is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It neither hears nor speaks.
    Whole,
    /// It hears the log; nothing that it says arrives.
    Mute,
    /// What it says arrives; it hears nothing.
    Deaf,
    /// It was killed. Its containers run on.
    Killed,
}

/// A renewal that nothing is heard of is given up after so long, as by the agent's driver.
const ANSWER_MS: u64 = 5_000;

/// A node's tie.
#[derive(Debug, Clone, Default)]
pub struct Tie {
    cut: Option<Cut>,
    /// How often it was cut or mended: what was due before is void.
    changes: u64,
    /// How the agent holds its lease while it is cut off; a killed one does not.
    holder: Option<Holder>,
    /// When it asked the renewal that is not answered.
    asked_ms: Option<u64>,
    /// When its keeper ends what runs.
    ends_ms: u64,
    /// When the brokers take its lease for ended.
    lost_ms: u64,
    /// It is whole, but what the agent missed has not reached it yet.
    behind: bool,
}

/// What is due of a tie that is still cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// When the agent next looks after its lease.
    pub wakes: Option<Timestamp>,
    /// When the keeper ends what runs there; never where that is forgotten.
    pub fence: Option<Timestamp>,
    /// When the node is lost.
    pub loss: Timestamp,
    /// Of which change.
    pub of: u64,
}

/// What an agent that is cut off does for its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    /// It ends all that runs.
    pub fences: bool,
    /// When its keeper is to end what is left, if it has told it so.
    pub ends: Option<Timestamp>,
    /// When it looks again.
    pub wakes: Option<Timestamp>,
}

/// A driver's clock.
pub(super) fn ms(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0) / 1_000
}

pub(super) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::from_micros(0).plus_ms(ms)
}

/// A lease whose last renewal was asked then, and the end that the keeper was told.
fn renewed(asked_ms: u64, term: LeaseTerm) -> (Holder, u64) {
    let mut holder = Holder::new(true, term);
    holder.woken(asked_ms);
    holder.answered(asked_ms, Answer::Renewed);
    let mut end_ms = u64::MAX;
    while let Some(duty) = holder.next_duty() {
        if let Duty::Deadline { asked_ms, lasts_ms } = duty {
            end_ms = asked_ms + lasts_ms;
        }
    }
    (holder, end_ms)
}

impl Tie {
    /// Nothing that it asks is answered: `unheard` is what it makes of that.
    fn woken(&mut self, now: Timestamp, unheard: Answer) -> Woken {
        let now_ms = ms(now);
        let (mut fences, mut ends) = (false, None);
        let Some(holder) = &mut self.holder else {
            let wakes = None;
            return Woken {
                fences,
                ends,
                wakes,
            };
        };
        match self.asked_ms {
            Some(asked_ms) if now_ms >= asked_ms + ANSWER_MS => {
                self.asked_ms = None;
                holder.answered(now_ms, unheard);
            }
            _ => holder.woken(now_ms),
        }
        while let Some(duty) = holder.next_duty() {
            match duty {
                Duty::Ask(_) => self.asked_ms = Some(now_ms),
                Duty::News(News::Fence) => (fences, self.asked_ms) = (true, None),
                Duty::Deadline { asked_ms, lasts_ms } => {
                    self.ends_ms = asked_ms + lasts_ms;
                    ends = Some(at_ms(self.ends_ms));
                }
                Duty::News(News::Held | News::Superseded(_)) => {}
            }
        }
        let given_up = self
            .asked_ms
            .map_or(u64::MAX, |asked_ms| asked_ms + ANSWER_MS);
        let wakes = holder
            .wakes_at_ms()
            .map(|at| at_ms(at.min(given_up)).max(now));
        // What it does after the fence is to ask on until the tie is whole again.
        let wakes = wakes.filter(|_| holder.is_held());
        Woken {
            fences,
            ends,
            wakes,
        }
    }

    /// It is answered again; what its agent is told of the lease. After a host stood still the fence may be
    /// among that: nothing has looked at the time before.
    fn answered(&mut self, now_ms: u64) -> Vec<News> {
        self.asked_ms = None;
        let Some(mut holder) = self.holder.take() else {
            return Vec::new();
        };
        holder.answered(now_ms, Answer::Unknown);
        let asked_ms = holder.wakes_at_ms().map_or(now_ms, |at| at.max(now_ms));
        holder.woken(asked_ms);
        holder.answered(asked_ms, Answer::Renewed);
        let duties = std::iter::from_fn(|| holder.next_duty());
        let news = duties.filter_map(|it| match it {
            Duty::News(news) => Some(news),
            Duty::Ask(_) | Duty::Deadline { .. } => None,
        });
        news.collect()
    }
}

/// All ties.
#[derive(Debug, Clone, Default)]
pub struct Ties(BTreeMap<NodeId, Tie>);

impl Ties {
    fn of(&self, node: &NodeId) -> Option<&Tie> {
        self.0.get(node)
    }

    /// Whether the node's agent hears the log.
    pub fn hears(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| !tie.behind && matches!(tie.cut, None | Some(Cut::Mute)))
    }

    /// Whether what the agent says is stored.
    pub fn speaks(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| matches!(tie.cut, None | Some(Cut::Deaf)))
    }

    /// Whether it hears the answer to what it asks.
    pub fn is_answered(&self, node: &NodeId) -> bool {
        self.of(node).is_none_or(|tie| tie.cut.is_none())
    }

    /// Cuts a tie that is whole.
    pub fn cut(
        &mut self,
        node: &NodeId,
        cut: Cut,
        term: LeaseTerm,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Option<Deadlines> {
        let tie = self.0.entry(node.clone()).or_default();
        if tie.cut.is_some() {
            return None;
        }
        tie.cut = Some(cut);
        tie.behind = false;
        tie.changes += 1;
        // The last renewal was up to a quarter of the lease ago; the next one may still arrive.
        let renewed_ms = faults.up_to(term.lease_ms / 4);
        let seen_ms = match cut {
            Cut::Deaf => renewed_ms.saturating_sub(faults.up_to(term.lease_ms / 4)),
            Cut::Whole | Cut::Mute | Cut::Killed => renewed_ms,
        };
        let since = |ago_ms: u64, span_ms: u64| now.plus_ms(span_ms.saturating_sub(ago_ms));
        let (holder, end_ms) = renewed(ms(now).saturating_sub(renewed_ms), term);
        let forgotten = faults.plant() == Some(Plant::Unfenced);
        (tie.asked_ms, tie.ends_ms) = (None, end_ms);
        tie.holder = (cut != Cut::Killed).then_some(holder);
        let loss = since(seen_ms, term.lease_ms);
        tie.lost_ms = ms(loss);
        let looks = tie.holder.as_ref().filter(|_| !forgotten);
        Some(Deadlines {
            wakes: looks.and_then(Holder::wakes_at_ms).map(at_ms),
            fence: (!forgotten).then_some(at_ms(end_ms)),
            loss,
            of: tie.changes,
        })
    }

    /// An agent that is cut off looks after its lease.
    pub fn woken(&mut self, node: &NodeId, now: Timestamp, faults: &Faults) -> Woken {
        let unheard = match faults.plant() {
            Some(Plant::UnheardRenewals) => Answer::Renewed,
            _ => Answer::Unknown,
        };
        let tie = self.0.entry(node.clone()).or_default();
        tie.woken(now, unheard)
    }

    /// Whether its keeper ends what runs on a node by now, if this change still counts.
    pub fn is_past(&self, node: &NodeId, of: u64, now: Timestamp) -> bool {
        let ends_ms = self.of(node).map_or(0, |tie| tie.ends_ms);
        self.counts(node, of) && ms(now) >= ends_ms
    }

    /// Whether its agent was killed, and none is back.
    pub fn is_killed(&self, node: &NodeId) -> bool {
        self.of(node)
            .is_some_and(|tie| tie.cut == Some(Cut::Killed))
    }

    /// Whether its agent is cut off or killed.
    pub fn is_cut(&self, node: &NodeId) -> bool {
        self.of(node).is_some_and(|tie| tie.cut.is_some())
    }

    /// The node's lease at the brokers. One who is cut off does not renew it; its end is on the log if the
    /// node `is_lost`.
    pub fn lease(&self, node: &NodeId, term: LeaseTerm, now: Timestamp, is_lost: bool) -> Lease {
        let every_ms = (term.lease_ms / 4).max(1);
        let tie = self.of(node).filter(|tie| tie.cut.is_some());
        match tie.map(|tie| tie.lost_ms) {
            None => Lease::Held(ms(now) / every_ms),
            Some(lost_ms) if is_lost && ms(now) >= lost_ms => Lease::Free,
            Some(lost_ms) => Lease::Held(lost_ms.saturating_sub(term.lease_ms) / every_ms),
        }
    }

    /// Whether a deadline of this change still counts.
    pub fn counts(&self, node: &NodeId, of: u64) -> bool {
        let tie = self.of(node);
        tie.is_some_and(|tie| tie.cut.is_some() && tie.changes == of)
    }

    /// The node dies with its agent.
    pub fn die(&mut self, node: &NodeId) {
        let tie = self.0.entry(node.clone()).or_default();
        (tie.cut, tie.holder, tie.asked_ms) = (None, None, None);
        tie.behind = false;
        tie.changes += 1;
    }

    /// The tie is whole again; how it was cut, and what the agent is told of its lease.
    pub fn mend(&mut self, node: &NodeId, now: Timestamp) -> Option<(Cut, Vec<News>)> {
        let tie = self.0.get_mut(node)?;
        let cut = tie.cut.take()?;
        tie.changes += 1;
        Some((cut, tie.answered(ms(now))))
    }

    /// When the keeper of an agent that is cut off ends what runs.
    pub fn ends_at(&self, node: &NodeId) -> Timestamp {
        at_ms(self.of(node).map_or(0, |tie| tie.ends_ms))
    }

    /// What the agent missed reaches it later than the answers to what it asks.
    pub fn stays_behind(&mut self, node: &NodeId) {
        self.0.entry(node.clone()).or_default().behind = true;
    }

    /// What it missed reaches it now; nothing if it was cut off again meanwhile.
    pub fn catches_up(&mut self, node: &NodeId) -> bool {
        let tie = self.0.get_mut(node);
        tie.is_some_and(|tie| std::mem::take(&mut tie.behind))
    }
}
