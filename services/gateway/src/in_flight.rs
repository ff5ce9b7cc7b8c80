//! A request's stay, from arrival to the end of its answer. A drop frees its queue entry or replica.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::balance::{Micros, Ticket};
use crate::service::{End, Granted, Place, Refused, ServiceState};
use crate::shared_state::SharedState;
use crate::upstream::Upstream;

enum Now {
    Waits(oneshot::Receiver<Granted>),
    At {
        upstream: Arc<Upstream>,
        sent: Micros,
    },
    Over,
}

/// A request in the system.
pub struct InFlight {
    hub: Arc<SharedState>,
    live: Arc<ServiceState>,
    ticket: Ticket,
    arrived: Micros,
    deadline: Micros,
    now: Now,
    failed: bool,
}

impl InFlight {
    /// Starts a visit to `live`.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn arrive(hub: &Arc<SharedState>, live: &Arc<ServiceState>) -> Result<Self, Refused> {
        let arrived = hub.now();
        let deadline = arrived + hub.wait_us();
        let ticket = hub.ticket();
        let place = live.arrive(ticket, arrived, deadline)?;
        Ok(Self {
            hub: Arc::clone(hub),
            live: Arc::clone(live),
            ticket,
            arrived,
            deadline,
            now: Now::of(place, arrived),
            failed: false,
        })
    }

    /// Waits for a replica.
    ///
    /// # Errors
    /// The reason why there is no replica.
    pub async fn placed(&mut self) -> Result<Arc<Upstream>, Refused> {
        let granted = match &mut self.now {
            Now::At { upstream, .. } => return Ok(Arc::clone(upstream)),
            Now::Waits(granted) => granted.await.unwrap_or(Err(Refused::Ended)),
            Now::Over => Err(Refused::Ended),
        };
        match granted {
            Ok(upstream) => {
                self.now = Now::At {
                    upstream: Arc::clone(&upstream),
                    sent: self.hub.now(),
                };
                Ok(upstream)
            }
            Err(refused) => {
                self.now = Now::Over;
                self.live.shed(self.hub.now());
                Err(refused)
            }
        }
    }

    pub fn again(&mut self) {
        if let Now::At { upstream, .. } = &self.now {
            let now = self.hub.now();
            let place = self
                .live
                .again(upstream.replica, self.ticket, now, self.deadline);
            self.now = Now::of(place, now);
        }
    }

    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.live.may_retry()
    }

    pub fn status(&mut self, status: http::StatusCode) {
        self.failed = status.is_server_error();
    }

    pub fn answered(mut self) {
        let failed = self.failed;
        self.end(End::Answered { failed });
    }

    pub fn broken_off(mut self) {
        self.end(End::Broken);
    }

    fn end(&mut self, end: End) {
        let now = self.hub.now();
        match std::mem::replace(&mut self.now, Now::Over) {
            Now::Waits(granted) => self.live.give_up(self.ticket, granted, now),
            Now::At { upstream, sent } => {
                let free = self
                    .live
                    .end(upstream.replica, self.arrived, sent, end, now);
                if free {
                    self.hub.drained();
                }
            }
            Now::Over => {}
        }
    }
}

impl Now {
    fn of(place: Place, now: Micros) -> Self {
        match place {
            Place::At(upstream) => Self::At {
                upstream,
                sent: now,
            },
            Place::Waits(granted) => Self::Waits(granted),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.end(End::Left);
    }
}
