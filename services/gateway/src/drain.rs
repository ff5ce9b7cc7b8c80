//! Leaving replicas: of which nothing is under way any more, and whose connections have lasted too
//! long. Pure: the time, in microseconds, is an argument.
//!
//! 1. A replica leaves: the gateway sends nothing new to it, what is under way goes on.
//! 2. Nothing is under way: `gateway.unrouted` is due, once.
//! 3. Shortly before its grace is over, connections that are still open are closed and counted, so
//!    that the word comes before the replica is asked to stop.

use std::collections::BTreeMap;

use dormouse_messages::events::GatewayUnrouted;
use dormouse_messages::{ContainerId, GatewayId, Sequence};

use crate::balance::Micros;
use crate::routes::Leaving;

/// The word needs a moment to reach the log: a tenth of the grace, this at most.
const MARGIN: Micros = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Drain {
    answers: Option<Sequence>,
    until: Micros,
    closed: Option<u32>,
    told: bool,
}

/// The replicas that leave.
#[derive(Debug, Clone, Default)]
pub struct Drains {
    open: BTreeMap<ContainerId, Drain>,
}

impl Drains {
    /// Takes over what the log says: who leaves, and has not been told of yet.
    pub fn sync(&mut self, leaving: impl IntoIterator<Item = Leaving>, now: Micros) {
        let mut open = BTreeMap::new();
        for it in leaving {
            let grace = Micros::from(it.grace_s) * 1_000_000;
            let known = self.open.remove(&it.container);
            let drain = match known {
                // Another generation asks again: the time begins anew, what was told was of the former.
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

    /// The replicas whose connections are to be closed now; each is named once.
    pub fn overdue(&mut self, now: Micros) -> Vec<ContainerId> {
        let due = self.open.iter_mut();
        let due = due.filter(|(_, drain)| drain.closed.is_none() && drain.until <= now);
        due.map(|(container, drain)| {
            drain.closed = Some(0);
            container.clone()
        })
        .collect()
    }

    /// So many connections to `container` were closed.
    pub fn closed(&mut self, container: &ContainerId, connections: u32) {
        if let Some(drain) = self.open.get_mut(container) {
            *drain.closed.get_or_insert(0) += connections;
        }
    }

    /// What is to be told now: of replicas with nothing under way. Each is told once.
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
                job: container.job.clone(),
                container: container.clone(),
                answers,
                closed: drain.closed.unwrap_or(0),
            });
        }
        due
    }
}
