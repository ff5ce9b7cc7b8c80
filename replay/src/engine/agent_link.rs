//! The link between a node's agent and the brokers, and its disconnections.
//!
//! ```text
//!  whole ──▶ cut (either way, or both) or the agent killed ──▶ whole again
//!               │ the fence: the containers end          pending reports are sent,
//!               │ the lease: the node is lost            missed events are delivered
//! ```
//!
//! 1. A disconnected agent enforces the fence with the shipped machine ([`Holder`]), a killed agent's
//!    supervisor alone. An agent that returns earlier adopts the running containers.
//! 2. A deaf agent starts and stops nothing; a mute one keeps its reports. A renewal needs both directions.
//! 3. The brokers count the lease from a later moment than the agent, which misses their last answers.
//! 4. An agent that returns after the fence joins again; after the loss it first ends the containers.

use std::collections::BTreeMap;

use dormouse_agent_core::lease_holder::{Answer, Duty, Holder, News};
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{NodeId, Timestamp};

use super::faults::{Faults, Plant};

/// The kind of a disconnection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Whole,
    /// Only events of the log arrive.
    Mute,
    /// Only the agent's reports arrive.
    Deaf,
    /// The agent was killed; its containers run on.
    Killed,
}

/// The timeout of a renewal, as in the agent's driver.
const ANSWER_MS: u64 = 5_000;

/// A node's link.
#[derive(Debug, Clone, Default)]
pub struct Tie {
    cut: Option<Cut>,
    /// Counts cuts and mends; deadlines of earlier counts are void.
    changes: u64,
    /// The lease machine while disconnected; `None` for a killed agent.
    holder: Option<Holder>,
    asked_ms: Option<u64>,
    /// The supervisor's deadline for the containers.
    ends_ms: u64,
    /// The end of the lease for the brokers.
    lost_ms: u64,
    /// Connected, but missed events have not arrived yet.
    behind: bool,
}

/// The deadlines of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    pub wakes: Option<Timestamp>,
    /// The supervisor's deadline for the containers; `None` if the planted bug skips it.
    pub fence: Option<Timestamp>,
    pub loss: Timestamp,
    pub of: u64,
}

/// The lease actions of a disconnected agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    pub fences: bool,
    pub ends: Option<Timestamp>,
    pub wakes: Option<Timestamp>,
}

/// A node's lease at the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lease {
    Free,
    /// Held; the revision of the last renewal.
    Held(u64),
}

pub(super) fn ms(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0) / 1_000
}

pub(super) fn at_ms(ms: u64) -> Timestamp {
    Timestamp::from_micros(0).plus_ms(ms)
}

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
        // After the fence the machine only retries until the link is whole.
        let wakes = wakes.filter(|_| holder.is_held());
        Woken {
            fences,
            ends,
            wakes,
        }
    }

    /// After a suspension the news may include the fence.
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

/// All nodes' links.
#[derive(Debug, Clone, Default)]
pub struct Ties(BTreeMap<NodeId, Tie>);

impl Ties {
    fn of(&self, node: &NodeId) -> Option<&Tie> {
        self.0.get(node)
    }

    /// True if log events reach the agent.
    pub fn hears(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| !tie.behind && matches!(tie.cut, None | Some(Cut::Mute)))
    }

    /// True if the agent's reports arrive.
    pub fn speaks(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| matches!(tie.cut, None | Some(Cut::Deaf)))
    }

    /// True if answers reach the agent.
    pub fn is_answered(&self, node: &NodeId) -> bool {
        self.of(node).is_none_or(|tie| tie.cut.is_none())
    }

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

    pub fn woken(&mut self, node: &NodeId, now: Timestamp, faults: &Faults) -> Woken {
        let unheard = match faults.plant() {
            Some(Plant::UnheardRenewals) => Answer::Renewed,
            _ => Answer::Unknown,
        };
        let tie = self.0.entry(node.clone()).or_default();
        tie.woken(now, unheard)
    }

    pub fn is_past(&self, node: &NodeId, of: u64, now: Timestamp) -> bool {
        let ends_ms = self.of(node).map_or(0, |tie| tie.ends_ms);
        self.counts(node, of) && ms(now) >= ends_ms
    }

    pub fn is_killed(&self, node: &NodeId) -> bool {
        self.of(node)
            .is_some_and(|tie| tie.cut == Some(Cut::Killed))
    }

    pub fn is_cut(&self, node: &NodeId) -> bool {
        self.of(node).is_some_and(|tie| tie.cut.is_some())
    }

    /// Returns the node's lease at the brokers. A disconnected agent does not renew; the lease's end is
    /// on the log if the node `is_lost`.
    pub fn lease(&self, node: &NodeId, term: LeaseTerm, now: Timestamp, is_lost: bool) -> Lease {
        let every_ms = (term.lease_ms / 4).max(1);
        let tie = self.of(node).filter(|tie| tie.cut.is_some());
        match tie.map(|tie| tie.lost_ms) {
            None => Lease::Held(ms(now) / every_ms),
            Some(lost_ms) if is_lost && ms(now) >= lost_ms => Lease::Free,
            Some(lost_ms) => Lease::Held(lost_ms.saturating_sub(term.lease_ms) / every_ms),
        }
    }

    pub fn counts(&self, node: &NodeId, of: u64) -> bool {
        let tie = self.of(node);
        tie.is_some_and(|tie| tie.cut.is_some() && tie.changes == of)
    }

    pub fn die(&mut self, node: &NodeId) {
        let tie = self.0.entry(node.clone()).or_default();
        (tie.cut, tie.holder, tie.asked_ms) = (None, None, None);
        tie.behind = false;
        tie.changes += 1;
    }

    pub fn mend(&mut self, node: &NodeId, now: Timestamp) -> Option<(Cut, Vec<News>)> {
        let tie = self.0.get_mut(node)?;
        let cut = tie.cut.take()?;
        tie.changes += 1;
        Some((cut, tie.answered(ms(now))))
    }

    pub fn ends_at(&self, node: &NodeId) -> Timestamp {
        at_ms(self.of(node).map_or(0, |tie| tie.ends_ms))
    }

    pub fn stays_behind(&mut self, node: &NodeId) {
        self.0.entry(node.clone()).or_default().behind = true;
    }

    pub fn catches_up(&mut self, node: &NodeId) -> bool {
        let tie = self.0.get_mut(node);
        tie.is_some_and(|tie| std::mem::take(&mut tie.behind))
    }
}
