//! State shared by a gateway's threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dormouse_messages::{Event, GatewayId, JobId};
use tokio::sync::Notify;

use crate::access::Trust;
use crate::balance::{Micros, Ticket};
use crate::drain::Drains;
use crate::service::ServiceState;
use crate::target::Names;
use dormouse_state::routes::{Routes, Usable};

/// Shared state of a gateway.
pub struct SharedState {
    pub name: GatewayId,
    pub names: Names,
    pub trust: Trust,
    wait: Duration,
    threads: usize,
    began: Instant,
    tickets: AtomicU64,
    services: RwLock<BTreeMap<JobId, Arc<ServiceState>>>,
    drains: Mutex<Drains>,
    drained: Notify,
    joined: AtomicBool,
}

impl SharedState {
    #[must_use]
    pub fn new(
        name: GatewayId,
        names: Names,
        trust: Trust,
        wait: Duration,
        threads: usize,
    ) -> Self {
        Self {
            name,
            names,
            trust,
            wait,
            threads,
            began: Instant::now(),
            tickets: AtomicU64::new(0),
            services: RwLock::default(),
            drains: Mutex::default(),
            drained: Notify::new(),
            joined: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub fn now(&self) -> Micros {
        micros(self.began.elapsed())
    }

    #[must_use]
    pub fn wait_us(&self) -> Micros {
        micros(self.wait)
    }

    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    #[must_use]
    pub fn service(&self, job: &JobId) -> Option<Arc<ServiceState>> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        services.get(job).map(Arc::clone)
    }

    pub fn drained(&self) {
        self.drained.notify_one();
    }

    pub async fn wait_drained(&self) {
        self.drained.notified().await;
    }

    /// By the log: draining replicas wait for this gateway.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }

    pub fn sync(&self, routes: &Routes) {
        let now = self.now();
        self.joined
            .store(routes.has_joined(&self.name), Ordering::Relaxed);
        let mut services = self
            .services
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        services.retain(|job, live| {
            let stays = routes.services().contains_key(job);
            if !stays {
                live.ended();
            }
            stays
        });
        for (job, served) in routes.services() {
            let live = services
                .entry(job.clone())
                .or_insert_with(|| Arc::new(ServiceState::new(job.clone(), served, now)));
            let usable: Vec<Usable> = routes.usable(job).collect();
            let token = served.token();
            live.set_token(token.and_then(|hash| blake3::Hash::from_hex(hash).ok()));
            live.route(&usable, served.target, self.threads, now);
        }
        drop(services);
        let jobs = routes.services().keys();
        let leaving = jobs.flat_map(|job| routes.leaving(job, &self.name));
        self.drains().sync(leaving, now);
    }

    /// Advances queues and closes overdue connections; called ten times a second.
    pub fn tick(&self) {
        let now = self.now();
        for live in self.states() {
            live.tick(now);
        }
        let mut drains = self.drains();
        for container in drains.overdue(now) {
            let Some(live) = self.service(&container.job) else {
                continue;
            };
            let closed = live.close(&container);
            if closed > 0 {
                tracing::warn!(%container, closed, "connections that lasted longer than drain_s were closed");
                drains.closed(&container, closed);
            }
        }
    }

    pub fn unrouted(&self) -> Vec<Event> {
        let under_way = |container: &dormouse_messages::ContainerId| {
            let live = self.service(&container.job);
            live.map_or(0, |live| live.under_way(container))
        };
        let due = self.drains().due(&self.name, under_way);
        due.into_iter().map(Event::from).collect()
    }

    pub fn measured(&self) -> Vec<Event> {
        let now = self.now();
        let states = self.states().into_iter();
        states
            .filter_map(|live| live.measured(&self.name, now))
            .map(Event::from)
            .collect()
    }

    pub fn close_idle(&self) {
        for live in self.states() {
            live.close_idle();
        }
    }

    fn states(&self) -> Vec<Arc<ServiceState>> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        services.values().map(Arc::clone).collect()
    }

    fn drains(&self) -> MutexGuard<'_, Drains> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}
