//! One service: what it promises, its replicas, and what gateways told of it.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{JobAdmitted, ServiceMeasured};
use dormouse_messages::job::{Containers, Kind};
use dormouse_messages::service::{LatencyObjective, Percentile};
use dormouse_messages::{Fact, GatewayId, Timestamp};
use serde::{Deserialize, Serialize};

use super::lines::Lines;
use super::replicas::Replicas;
use super::sums::{Sums, number};

/// Windows are summed by so many seconds.
pub const SLOT_S: u32 = 10;

/// Sums of five minutes.
const SLOTS_KEPT: usize = 30;

/// A service has a few gateways; more names are a flood.
const MOST_GATEWAYS: usize = 64;

/// A gateway that was silent for so long is forgotten.
const SILENT_S: i64 = 600;

/// Nobody tells a window that is older than a minute: one that is so much older than the last of its
/// gateway was told after that one's clock was set back.
const SET_BACK_US: i64 = 300_000_000;

/// A gateway tells every ten seconds, or more often, while there are replicas: after so long without
/// a word nobody knows how the service is.
const FRESH_S: f64 = 30.0;

/// A gateway's last window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// By its own clock.
    said: Timestamp,
    /// By the log's.
    at: Timestamp,
    /// It has left, or is lost.
    gone: bool,
}

/// What was told within [`SLOT_S`] seconds, by all gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Slot {
    /// Its number since 1970.
    number: i64,
    /// The second in which the first window with requests began.
    from: i64,
    sums: Sums,
}

/// Windows that were told lately, together.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// Their sums.
    pub sums: Sums,
    /// How long that is.
    pub seconds: f64,
}

impl Recent {
    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        number(self.sums.requests) / self.seconds
    }
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// What it promises.
    pub objective: Option<LatencyObjective>,
    /// The most replicas that it may have.
    pub max: u32,
    /// How many it is to have.
    pub target: u32,
    scaled: bool,
    /// Whether it cannot keep its objective with the most replicas.
    pub saturated: bool,
    /// Its replicas.
    pub replicas: Replicas,
    /// Since its admission.
    pub total: Sums,
    /// The newest last.
    slots: VecDeque<Slot>,
    gateways: BTreeMap<GatewayId, Told>,
    /// When the last window was told, by the log's time.
    pub told: Option<Timestamp>,
    /// Whether all that was told is drawn, and that nobody tells anything now.
    silent: bool,
    /// Whether it is over.
    pub ended: bool,
}

/// The whole second nearest to a time.
const fn second(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(500_000).saturating_add(1) / 2
}

/// The slot of a window that was told in this second: it ends there.
fn slot(second: i64) -> i64 {
    second.saturating_sub(1).div_euclid(i64::from(SLOT_S))
}

fn begin(slot: i64) -> i64 {
    slot.saturating_mul(i64::from(SLOT_S))
}

impl Service {
    /// An admitted one, where the job is a service.
    pub(super) fn admitted(event: &JobAdmitted) -> Option<Self> {
        let spec = &event.spec;
        (spec.kind == Kind::Inference).then(|| Self {
            objective: spec.service.as_ref().and_then(|it| it.objective),
            max: spec.containers.max,
            target: spec.containers.min,
            ..Self::default()
        })
    }

    /// Its bounds are others.
    pub(super) fn revised(&mut self, containers: Containers) {
        self.max = containers.max;
        if !self.scaled {
            self.target = containers.min;
        }
    }

    /// It is to have so many replicas.
    pub(super) const fn scaled(&mut self, replicas: u32, saturated: bool) {
        (self.target, self.scaled, self.saturated) = (replicas, true, saturated);
    }

    /// Adds a sound window. Slots that are over by then are drawn.
    pub(super) fn measured(&mut self, event: &ServiceMeasured, fact: &Fact<'_>, lines: &mut Lines) {
        let said = event.until.unwrap_or(fact.envelope().time);
        let at = fact.at;
        if !self.is_new(&event.gateway, said, at) {
            return;
        }
        let gone = false;
        self.gateways
            .insert(event.gateway.clone(), Told { said, at, gone });
        self.told = Some(at);
        let is_first = self.slots.is_empty();
        self.pass(slot(second(at)), lines);
        self.silent = false;
        self.total.add(event, self.objective);
        let Some(slot) = self.slots.back_mut() else {
            return;
        };
        slot.sums.add(event, self.objective);
        let from = second(at) - i64::from(event.window_s);
        if is_first {
            slot.from = from;
        } else if event.requests > 0 {
            slot.from = slot.from.min(from);
        }
    }

    /// Whether a gateway's window is neither old nor told twice.
    fn is_new(&mut self, gateway: &GatewayId, said: Timestamp, at: Timestamp) -> bool {
        self.gateways
            .retain(|_, it| second(at) - second(it.at) < SILENT_S);
        match self.gateways.get(gateway) {
            Some(last) => {
                let back_us = last.said.as_micros().saturating_sub(said.as_micros());
                !(0..SET_BACK_US).contains(&back_us)
            }
            None => self.gateways.len() < MOST_GATEWAYS,
        }
    }

    /// The slots up to this one, which is the last then.
    fn pass(&mut self, to: i64, lines: &mut Lines) {
        let kept = i64::try_from(SLOTS_KEPT).unwrap_or(i64::MAX);
        let last = self.slots.back().map(|it| it.number);
        // A broker whose clock is far behind the one before begins anew.
        if last.is_some_and(|last| to < last - kept) {
            self.slots.clear();
        }
        let next = match self.slots.back() {
            Some(last) => {
                if last.number < to && !self.silent {
                    self.draw(last, lines);
                }
                last.number + 1
            }
            None => to,
        };
        if next < to {
            // Nothing was told in between.
            lines.told(
                at_second(begin(next)),
                SLOT_S,
                &Sums::default(),
                self.objective,
            );
        }
        for number in next.max(to - kept + 1)..=to {
            self.slots.push_back(Slot {
                number,
                from: begin(number),
                sums: Sums::default(),
            });
        }
        while self.slots.len() > SLOTS_KEPT {
            self.slots.pop_front();
        }
    }

    fn draw(&self, slot: &Slot, lines: &mut Lines) {
        let at = at_second(begin(slot.number));
        lines.told(at, SLOT_S, &slot.sums, self.objective);
    }

    /// A gateway tells nothing any more; without any the service is not measured.
    pub(super) fn left(&mut self, gateway: &GatewayId, at: Timestamp, lines: &mut Lines) {
        let Some(told) = self.gateways.get_mut(gateway) else {
            return;
        };
        told.gone = true;
        if self.gateways.values().all(|it| it.gone) {
            self.silence(at, lines);
        }
    }

    /// What was told is drawn, and nothing from `at` on.
    fn silence(&mut self, at: Timestamp, lines: &mut Lines) {
        if let Some(last) = self.slots.back().filter(|_| !self.silent) {
            self.draw(last, lines);
            lines.told(at, SLOT_S, &Sums::default(), self.objective);
        }
        self.silent = true;
    }

    /// It is over: only what it did in all is kept.
    pub(super) fn end(&mut self, at: Timestamp, lines: &mut Lines) {
        self.silence(at, lines);
        self.slots.clear();
        self.gateways.clear();
        self.replicas.end();
        (self.ended, self.target, self.saturated) = (true, 0, false);
    }

    /// The percentile that its latency is told at.
    #[must_use]
    pub fn percentile(&self) -> Percentile {
        self.objective.map(|it| it.percentile).unwrap_or_default()
    }

    /// Whether gateways have told lately how it is.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.told
            .is_some_and(|told| !self.ended && now.seconds_since(told) <= FRESH_S)
    }

    /// What was told within about so many seconds before now; `None` where nobody tells anything.
    #[must_use]
    pub fn recent(&self, seconds: u32, now: Timestamp) -> Option<Recent> {
        let until = second(self.told.filter(|_| self.is_fresh(now))?);
        let after = slot(until) - i64::from(seconds / SLOT_S);
        let slots = self.slots.iter().filter(|it| it.number > after);
        let mut recent: Option<(Sums, i64)> = None;
        for slot in slots {
            let (sums, _) = recent.get_or_insert_with(|| (Sums::default(), slot.from));
            sums.merge(&slot.sums);
        }
        let (sums, from) = recent?;
        let seconds = u32::try_from((until - from).max(1)).unwrap_or(u32::MAX);
        Some(Recent {
            sums,
            seconds: f64::from(seconds),
        })
    }

    /// The gateways that tell how it is.
    pub fn telling(&self, now: Timestamp) -> impl Iterator<Item = &GatewayId> {
        let told = self.gateways.iter();
        let told = told.filter(move |(_, it)| !it.gone && now.seconds_since(it.at) <= FRESH_S);
        told.map(|(gateway, _)| gateway)
    }

    /// Whether it is within its bounds.
    pub(super) fn is_bounded(&self) -> bool {
        let slots = self.slots.iter();
        self.slots.len() <= SLOTS_KEPT
            && self.gateways.len() <= MOST_GATEWAYS
            && self.total.is_bounded()
            && slots.map(|it| &it.sums).all(Sums::is_bounded)
    }
}

const fn at_second(second: i64) -> Timestamp {
    Timestamp::from_micros(second.saturating_mul(1_000_000))
}
