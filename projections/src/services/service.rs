//! One service: objective, replicas and measurements.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{JobAdmitted, ServiceMeasured};
use dormouse_messages::job::{Containers, Kind};
use dormouse_messages::service::{LatencyObjective, Percentile};
use dormouse_messages::{Fact, GatewayId, Timestamp};
use serde::{Deserialize, Serialize};

use super::lines::Lines;
use super::replicas::Replicas;
use super::sums::{Sums, number};

/// Seconds per slot.
pub const SLOT_S: u32 = 10;

/// Five minutes.
const SLOTS_KEPT: usize = 30;

/// A service has a few gateways; more names are a flood.
const MOST_GATEWAYS: usize = 64;

const SILENT_S: i64 = 600;

/// Reports are at most a minute old: an older one follows a reset clock.
const SET_BACK_US: i64 = 300_000_000;

/// Gateways report every ten seconds while there are replicas.
const FRESH_S: f64 = 30.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    said: Timestamp,
    at: Timestamp,
    gone: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Slot {
    number: i64,
    /// Start of the first window with requests.
    from: i64,
    sums: Sums,
}

/// The sum of recent windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    pub sums: Sums,
    pub seconds: f64,
}

impl Recent {
    /// Returns the requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        number(self.sums.requests) / self.seconds
    }
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub objective: Option<LatencyObjective>,
    pub max: u32,
    pub target: u32,
    scaled: bool,
    pub saturated: bool,
    pub replicas: Replicas,
    /// Since admission.
    pub total: Sums,
    /// Newest last.
    slots: VecDeque<Slot>,
    gateways: BTreeMap<GatewayId, Told>,
    pub told: Option<Timestamp>,
    /// True if drawn to the end without reports.
    silent: bool,
    pub ended: bool,
}

const fn second(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(500_000).saturating_add(1) / 2
}

/// Returns the slot of a window that ends in this second.
fn slot(second: i64) -> i64 {
    second.saturating_sub(1).div_euclid(i64::from(SLOT_S))
}

fn begin(slot: i64) -> i64 {
    slot.saturating_mul(i64::from(SLOT_S))
}

impl Service {
    pub(super) fn admitted(event: &JobAdmitted) -> Option<Self> {
        let spec = &event.spec;
        (spec.kind == Kind::Inference).then(|| Self {
            objective: spec.service.as_ref().and_then(|it| it.objective),
            max: spec.containers.max,
            target: spec.containers.min,
            ..Self::default()
        })
    }

    pub(super) fn revised(&mut self, containers: Containers) {
        self.max = containers.max;
        if !self.scaled {
            self.target = containers.min;
        }
    }

    pub(super) const fn scaled(&mut self, replicas: u32, saturated: bool) {
        (self.target, self.scaled, self.saturated) = (replicas, true, saturated);
    }

    /// Draws completed slots.
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

    /// Rejects outdated and repeated windows.
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

    fn pass(&mut self, to: i64, lines: &mut Lines) {
        let kept = i64::try_from(SLOTS_KEPT).unwrap_or(i64::MAX);
        let last = self.slots.back().map(|it| it.number);
        // Start over after a large step back.
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

    /// Without gateways the service is not measured.
    pub(super) fn left(&mut self, gateway: &GatewayId, at: Timestamp, lines: &mut Lines) {
        let Some(told) = self.gateways.get_mut(gateway) else {
            return;
        };
        told.gone = true;
        if self.gateways.values().all(|it| it.gone) {
            self.silence(at, lines);
        }
    }

    fn silence(&mut self, at: Timestamp, lines: &mut Lines) {
        if let Some(last) = self.slots.back().filter(|_| !self.silent) {
            self.draw(last, lines);
            lines.told(at, SLOT_S, &Sums::default(), self.objective);
        }
        self.silent = true;
    }

    /// Keeps the totals.
    pub(super) fn end(&mut self, at: Timestamp, lines: &mut Lines) {
        self.silence(at, lines);
        self.slots.clear();
        self.gateways.clear();
        self.replicas.end();
        (self.ended, self.target, self.saturated) = (true, 0, false);
    }

    /// Returns the percentile for latencies.
    #[must_use]
    pub fn percentile(&self) -> Percentile {
        self.objective.map(|it| it.percentile).unwrap_or_default()
    }

    /// True if a gateway reported recently.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.told
            .is_some_and(|told| !self.ended && now.seconds_since(told) <= FRESH_S)
    }

    /// Returns the last seconds' sum; `None` without recent reports.
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

    /// Returns the gateways that report.
    pub fn telling(&self, now: Timestamp) -> impl Iterator<Item = &GatewayId> {
        let told = self.gateways.iter();
        let told = told.filter(move |(_, it)| !it.gone && now.seconds_since(it.at) <= FRESH_S);
        told.map(|(gateway, _)| gateway)
    }

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
