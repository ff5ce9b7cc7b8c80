//! Measures the log of a simulated service.

use std::sync::Arc;

use dormouse_messages::{Event, LogClock, Recorded, Timestamp};

use super::traces::Trace;
use super::{OBJECTIVE_MS, WARM_UP_S};
use crate::simulate::mean;

/// The result of one simulation.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub requests: u64,
    pub in_time: f64,
    /// The mean number, from decision to decision.
    pub replicas: f64,
    pub changes: u32,
    /// Seconds from each jump of the rate to the next increase.
    pub reactions_s: Vec<f64>,
}

impl Figures {
    pub(super) fn of(log: &[Arc<Recorded>], begins: Timestamp, trace: &Trace) -> Self {
        let (from_s, until_s) = (WARM_UP_S as f64, trace.rates.len() as f64);
        let mut figures = Self::default();
        let mut targets = vec![(f64::NEG_INFINITY, 1.0)];
        let mut rises_s = Vec::new();
        let mut queued = 0;
        let mut clock = LogClock::default();
        for recorded in log {
            let fact = clock.read(recorded);
            let at_s = fact.at.seconds_since(begins);
            match fact.event() {
                Some(Event::ServiceScaled(event)) if event.replicas != event.previous => {
                    targets.push((at_s, f64::from(event.replicas)));
                    figures.changes += u32::from(at_s >= from_s);
                    if event.replicas > event.previous {
                        rises_s.push(at_s);
                    }
                }
                Some(Event::ServiceMeasured(event)) if at_s > from_s => {
                    figures.requests += event.latency_ms.total();
                    figures.in_time += event.latency_ms.at_most(OBJECTIVE_MS);
                    queued = event.queued;
                }
                _ => {}
            }
        }
        // What waits at the end counts as late.
        figures.requests += u64::from(queued);
        figures.replicas = mean(&targets, from_s, until_s);
        let reactions = trace.jumps.iter().filter_map(|jump| {
            let jump_s = *jump as f64;
            let rise_s = rises_s.iter().find(|rise_s| **rise_s > jump_s)?;
            Some(rise_s - jump_s).filter(|reaction_s| *reaction_s < 60.0)
        });
        figures.reactions_s = reactions.collect();
        figures
    }

    /// Returns the fraction of requests answered in time.
    #[must_use]
    pub fn attainment(&self) -> f64 {
        match self.requests {
            0 => 1.0,
            requests => self.in_time / requests as f64,
        }
    }
}
