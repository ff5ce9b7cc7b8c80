//! Draining replicas. Pure: time is an argument, in microseconds.
//!
//! 1. A draining replica gets no new requests.
//! 2. Without running requests `gateway.unrouted` is due, once.
//! 3. Shortly before the grace ends, connections are closed and counted, so that the event precedes the stop.

use std::collections::BTreeMap;

use dormouse_messages::events::GatewayUnrouted;
use dormouse_messages::{ContainerId, GatewayId, Sequence};

use crate::balance::Micros;
use dormouse_state::routes::Leaving;

/// Time for the event to reach the log.
const MARGIN: Micros = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Drain {
    answers: Option<Sequence>,
    until: Micros,
    closed: Option<u32>,
    told: bool,
}

/// The draining replicas.
#[derive(Debug, Clone, Default)]
pub struct Drains {
    open: BTreeMap<ContainerId, Drain>,
}

impl Drains {
    /// Takes the unreported draining replicas of the log.
    pub fn sync(&mut self, leaving: impl IntoIterator<Item = Leaving>, now: Micros) {
        let mut open = BTreeMap::new();
        for it in leaving {
            let grace = Micros::from(it.grace_s) * 1_000_000;
            let known = self.open.remove(&it.container);
            let drain = match known {
                // A request of another generation restarts the grace.
                Some(known) if known.answers == it.answers => known,
                _ => Drain {
                    answers: it.answers,
                    until: now + grace - MARGIN.min(grace / 10),
                    closed: None,
                    told: false,
                },
            };
            open.insert(it.container, drain);
        }
        self.open = open;
    }

    /// Returns replicas to disconnect, each once.
    pub fn overdue(&mut self, now: Micros) -> Vec<ContainerId> {
        let due = self.open.iter_mut();
        let due = due.filter(|(_, drain)| drain.closed.is_none() && drain.until <= now);
        due.map(|(container, drain)| {
            drain.closed = Some(0);
            container.clone()
        })
        .collect()
    }

    /// Records closed connections of `container`.
    pub fn closed(&mut self, container: &ContainerId, connections: u32) {
        if let Some(drain) = self.open.get_mut(container) {
            *drain.closed.get_or_insert(0) += connections;
        }
    }

    /// Returns due events, each once.
    pub fn due(
        &mut self,
        gateway: &GatewayId,
        under_way: impl Fn(&ContainerId) -> u32,
    ) -> Vec<GatewayUnrouted> {
        let mut due = Vec::new();
        for (container, drain) in &mut self.open {
            let Some(answers) = drain.answers.filter(|_| !drain.told) else {
                continue;
            };
            if under_way(container) > 0 {
                continue;
            }
            drain.told = true;
            due.push(GatewayUnrouted {
                gateway: gateway.clone(),
                container: container.clone(),
                answers,
                closed: drain.closed.unwrap_or(0),
            });
        }
        due
    }
}
