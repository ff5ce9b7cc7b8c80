//! One service: queue, replicas, sums.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_messages::events::ServiceMeasured;
use dormouse_messages::job::Kind;
use dormouse_messages::service::Access;
use dormouse_messages::{ContainerId, GatewayId, JobId};
use tokio::sync::oneshot;

use crate::balance::{Arrival, Balance, Micros, Outcome, Replica, Ticket};
use crate::upstream::Upstream;
use crate::window_stats::{Around, WindowStats};
use dormouse_state::routes::{Served, Usable};

/// Result for a queued request.
pub type Granted = Result<Arc<Upstream>, Refused>;

/// Reason for a request without a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Full,
    Deadline { ready: bool },
    Ended,
}

/// The current state of one service.
pub struct ServiceState {
    pub job: JobId,
    pub kind: Kind,
    pub access: Access,
    state: Mutex<State>,
}

struct State {
    balance: Balance,
    digest: WindowStats,
    upstreams: BTreeMap<Replica, Arc<Upstream>>,
    waiting: HashMap<Ticket, oneshot::Sender<Granted>>,
    target: u32,
    token: Option<blake3::Hash>,
}

/// End of a request, for the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Answered {
        /// True for 5xx.
        failed: bool,
    },
    Broken,
    /// The client left, or an upgraded connection ended.
    Left,
}

impl ServiceState {
    #[must_use]
    pub fn new(job: JobId, served: &Served, now: Micros) -> Self {
        let objective = served.service.objective.map(|it| it.latency_ms);
        Self {
            job,
            kind: served.kind,
            access: served.service.access,
            state: Mutex::new(State {
                balance: Balance::new(served.concurrency()),
                digest: WindowStats::new(objective, now),
                upstreams: BTreeMap::new(),
                waiting: HashMap::new(),
                target: served.target,
                token: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn route(&self, usable: &[Usable], target: u32, threads: usize, now: Micros) {
        let mut state = self.state();
        state.target = target;
        let mut replicas = Vec::with_capacity(usable.len());
        for it in usable {
            let Ok(ip) = it.address.parse() else {
                tracing::warn!(container = %it.container, address = it.address, "not used: its node's address is no IP address; start the agent with --address");
                continue;
            };
            let replica = (it.container.incarnation, it.container.rank);
            replicas.push(replica);
            state.upstreams.entry(replica).or_insert_with(|| {
                let address = std::net::SocketAddr::new(ip, it.port);
                tracing::info!(container = %it.container, %address, "routed");
                Arc::new(Upstream::new(it.container.clone(), address, threads))
            });
        }
        state.balance.route(&replicas, now);
        let State {
            upstreams, balance, ..
        } = &mut *state;
        upstreams.retain(|replica, upstream| {
            let used = replicas.contains(replica);
            if !used {
                upstream.close_idle(true);
            }
            used || balance.in_flight(*replica) > 0
        });
        state.grant(now);
    }

    pub fn set_token(&self, token: Option<blake3::Hash>) {
        self.state().token = token;
    }

    #[must_use]
    pub fn token(&self) -> Option<blake3::Hash> {
        self.state().token
    }

    pub fn touched(&self) {
        self.state().digest.touched();
    }

    #[must_use]
    pub fn target(&self) -> u32 {
        self.state().target
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state().balance.ready() > 0
    }

    /// Places or queues an arriving request.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn arrive(&self, ticket: Ticket, now: Micros, deadline: Micros) -> Result<Place, Refused> {
        let mut state = self.state();
        match state.balance.arrive(ticket, now, deadline) {
            Arrival::Shed => {
                state.digest.turned_away(now);
                Err(Refused::Full)
            }
            arrival => {
                state.digest.arrived(now);
                Ok(state.place(ticket, arrival))
            }
        }
    }

    pub fn again(&self, replica: Replica, ticket: Ticket, now: Micros, deadline: Micros) -> Place {
        let mut state = self.state();
        state.balance.end(replica, Outcome::Broken, 0, now);
        let arrival = state.balance.again(ticket, now, deadline);
        state.place(ticket, arrival)
    }

    pub fn may_retry(&self) -> bool {
        self.state().balance.may_retry()
    }

    pub fn give_up(&self, ticket: Ticket, mut granted: oneshot::Receiver<Granted>, now: Micros) {
        let mut state = self.state();
        state.waiting.remove(&ticket);
        if !state.balance.cancel(ticket)
            && let Ok(Ok(upstream)) = granted.try_recv()
        {
            // The grant crossed the client's departure.
            let replica = upstream.replica;
            state.balance.end(replica, Outcome::Abandoned, 0, now);
            state.grant(now);
        }
        state.digest.left(now);
    }

    pub fn shed(&self, now: Micros) {
        self.state().digest.shed(now);
    }

    /// True if the replica is now drained.
    pub fn end(
        &self,
        replica: Replica,
        arrived: Micros,
        sent: Micros,
        end: End,
        now: Micros,
    ) -> bool {
        let mut state = self.state();
        let took = now.saturating_sub(sent);
        let outcome = match end {
            End::Answered { failed: false } => Outcome::Answered,
            End::Answered { failed: true } => Outcome::Failed,
            End::Broken => Outcome::Broken,
            End::Left => Outcome::Abandoned,
        };
        state.balance.end(replica, outcome, took, now);
        state.digest.left(now);
        match end {
            End::Answered { failed } => {
                let latency = now.saturating_sub(arrived);
                state.digest.answered(latency, took);
                if failed {
                    state.digest.failed();
                }
            }
            End::Broken => state.digest.failed(),
            End::Left => {}
        }
        state.grant(now);
        !state.balance.is_usable(replica) && state.balance.in_flight(replica) == 0
    }

    pub fn tick(&self, now: Micros) {
        let mut state = self.state();
        if state.balance.queued() == 0 {
            return;
        }
        state.grant(now);
        let ready = state.balance.ready() > 0;
        for ticket in state.balance.expire(now) {
            if let Some(waiting) = state.waiting.remove(&ticket) {
                let _ = waiting.send(Err(Refused::Deadline { ready }));
            }
        }
    }

    pub fn close_idle(&self) {
        for upstream in self.state().upstreams.values() {
            upstream.close_idle(false);
        }
    }

    pub fn ended(&self) {
        let mut state = self.state();
        state.balance.clear();
        for (_, waiting) in state.waiting.drain() {
            let _ = waiting.send(Err(Refused::Ended));
        }
        for upstream in state.upstreams.values() {
            upstream.close_idle(true);
        }
    }

    pub fn under_way(&self, container: &ContainerId) -> u32 {
        let replica = (container.incarnation, container.rank);
        self.state().balance.in_flight(replica)
    }

    /// Returns the number of running requests.
    pub fn close(&self, container: &ContainerId) -> u32 {
        let replica = (container.incarnation, container.rank);
        let state = self.state();
        if let Some(upstream) = state.upstreams.get(&replica) {
            upstream.end();
        }
        state.balance.in_flight(replica)
    }

    pub fn measured(&self, gateway: &GatewayId, now: Micros) -> Option<ServiceMeasured> {
        let mut state = self.state();
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        let around = Around {
            queued: count(state.balance.queued()),
            ready: count(state.balance.ready()),
            target: state.target,
        };
        state.digest.due(&self.job, gateway, around, now)
    }
}

/// Position of a request that wants a replica.
pub enum Place {
    At(Arc<Upstream>),
    Waits(oneshot::Receiver<Granted>),
}

impl State {
    fn place(&mut self, ticket: Ticket, arrival: Arrival) -> Place {
        if let Arrival::Sent(replica) = arrival
            && let Some(upstream) = self.upstreams.get(&replica)
        {
            return Place::At(Arc::clone(upstream));
        }
        let (grant, granted) = oneshot::channel();
        self.waiting.insert(ticket, grant);
        Place::Waits(granted)
    }

    fn grant(&mut self, now: Micros) {
        while let Some((ticket, replica)) = self.balance.next(now) {
            let upstream = self.upstreams.get(&replica).map(Arc::clone);
            let waiting = self.waiting.remove(&ticket);
            let sent = match (waiting, upstream) {
                (Some(waiting), Some(upstream)) => waiting.send(Ok(upstream)).is_ok(),
                _ => false,
            };
            if !sent {
                self.balance.end(replica, Outcome::Abandoned, 0, now);
            }
        }
    }
}
