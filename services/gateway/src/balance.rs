//! Load balancing: one queue per service, and the least loaded ready replica below its limit. Pure: time is
//! an argument, in microseconds.
//!
//! 1. Load is (in flight + 1) × latency, a moving mean whose weight decays with age (PeakEWMA's product
//!    without peaks, since the number in flight is exact).
//! 2. An error counts as slow, or a fast-failing replica would attract traffic. Broken connections suspend a
//!    replica, each time twice as long.
//! 3. A new replica among older ones ramps up.
//! 4. Without a replica a request queues until its deadline; a full queue sheds.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{Incarnation, Rank};

/// Microseconds since a fixed moment.
pub type Micros = u64;

/// A replica within its service.
pub type Replica = (Incarnation, Rank);

/// A queued request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Clients give up before a longer queue is served.
pub const QUEUE: usize = 1_000;

/// A new replica reaches its full share after this, with warm caches.
const SLOW_START: Micros = 5_000_000;

/// A measured latency has half its weight at this age.
const HALF_WEIGHT: Micros = 10_000_000;

/// Weight of a new measurement in the moving mean.
const SMOOTHING: f64 = 0.2;

/// First suspension of a replica; a restart takes longer.
const REST: Micros = 100_000;
const LONGEST_REST: Micros = 5_000_000;
/// A replica is suspended after this many 5xx answers in a row.
const PATIENCE: u32 = 3;

/// A request earns one token: at most a tenth is retried.
const RETRY_COST: u32 = 10;
/// Covers the requests in flight at a killed replica.
const RETRY_BURST: u32 = 20;

/// End of a request at a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    Failed,
    Broken,
    /// The client left, which tells nothing about the replica.
    Abandoned,
}

/// Fate of an arriving request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Sent(Replica),
    Waits,
    Shed,
}

#[derive(Debug, Clone)]
struct Load {
    usable: bool,
    in_flight: u32,
    since: Micros,
    latency: f64,
    measured: Micros,
    failures: u32,
    broken: bool,
    rests_until: Micros,
}

/// The replicas and the queue of one service.
#[derive(Debug, Clone)]
pub struct Balance {
    limit: u32,
    replicas: BTreeMap<Replica, Load>,
    queue: VecDeque<(Ticket, Micros)>,
    mean: f64,
    retry_tokens: u32,
}

impl Balance {
    /// Creates a balance without replicas, each with `limit`.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit: limit.max(1),
            replicas: BTreeMap::new(),
            queue: VecDeque::new(),
            mean: 0.0,
            retry_tokens: RETRY_COST * RETRY_BURST.max(limit.min(1_000)),
        }
    }

    /// Sets the usable replicas; requests elsewhere continue.
    pub fn route(&mut self, usable: &[Replica], now: Micros) {
        for (replica, load) in &mut self.replicas {
            load.usable = usable.contains(replica);
        }
        self.replicas
            .retain(|_, load| load.usable || load.in_flight > 0);
        for replica in usable {
            self.replicas.entry(*replica).or_insert_with(|| Load {
                usable: true,
                in_flight: 0,
                since: now,
                latency: 0.0,
                measured: 0,
                failures: 0,
                broken: false,
                rests_until: 0,
            });
        }
    }

    /// Places or queues a request until `deadline`.
    pub fn arrive(&mut self, ticket: Ticket, now: Micros, deadline: Micros) -> Arrival {
        let most = RETRY_COST * RETRY_BURST.max(self.limit.min(1_000));
        self.retry_tokens = (self.retry_tokens + 1).min(most);
        if self.queue.is_empty()
            && let Some(replica) = self.choose(now)
        {
            return Arrival::Sent(self.send(replica));
        }
        if self.queue.len() >= QUEUE {
            return Arrival::Shed;
        }
        self.queue.push_back((ticket, deadline));
        Arrival::Waits
    }

    /// Places a failed request again, ahead of later ones.
    pub fn again(&mut self, ticket: Ticket, now: Micros, deadline: Micros) -> Arrival {
        if let Some(replica) = self.choose(now) {
            return Arrival::Sent(self.send(replica));
        }
        self.queue.push_front((ticket, deadline));
        Arrival::Waits
    }

    /// Spends retry budget and reports whether there was enough.
    pub fn may_retry(&mut self) -> bool {
        let left = self.retry_tokens.checked_sub(RETRY_COST);
        self.retry_tokens = left.unwrap_or(self.retry_tokens);
        left.is_some()
    }

    /// Ends a request at `replica` after `took`.
    pub fn end(&mut self, replica: Replica, outcome: Outcome, took: Micros, now: Micros) {
        let mean = self.mean;
        let Some(load) = self.replicas.get_mut(&replica) else {
            return;
        };
        load.in_flight = load.in_flight.saturating_sub(1);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 microseconds")]
        let took = took as f64;
        match outcome {
            Outcome::Answered => {
                (load.failures, load.broken) = (0, false);
                load.measure(took, now);
                self.mean = smoothed(self.mean, took);
            }
            Outcome::Failed | Outcome::Broken => {
                load.failures = load.failures.saturating_add(1);
                load.broken = outcome == Outcome::Broken;
                load.measure(took.max(10.0 * mean), now);
                let patience = if load.broken { 1 } else { PATIENCE };
                if let Some(times) = load.failures.checked_sub(patience) {
                    let rest = REST << times.min(10);
                    load.rests_until = now + rest.min(LONGEST_REST);
                }
            }
            Outcome::Abandoned => {}
        }
        if !load.usable && load.in_flight == 0 {
            self.replicas.remove(&replica);
        }
    }

    /// Returns the next placement. Call until `None` after each end, each route, and periodically.
    pub fn next(&mut self, now: Micros) -> Option<(Ticket, Replica)> {
        if self.queue.is_empty() {
            return None;
        }
        let replica = self.choose(now)?;
        let (ticket, _) = self.queue.pop_front()?;
        Some((ticket, self.send(replica)))
    }

    /// Removes and returns requests past their deadline.
    pub fn expire(&mut self, now: Micros) -> Vec<Ticket> {
        let due = self.queue.iter().filter(|(_, deadline)| *deadline <= now);
        let due: Vec<Ticket> = due.map(|(ticket, _)| *ticket).collect();
        if !due.is_empty() {
            self.queue.retain(|(_, deadline)| *deadline > now);
        }
        due
    }

    /// Removes a request whose client left.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let place = self.queue.iter().position(|(it, _)| *it == ticket);
        place.is_some_and(|place| self.queue.remove(place).is_some())
    }

    /// Empties the queue of an ended service.
    pub fn clear(&mut self) -> Vec<Ticket> {
        self.queue.drain(..).map(|(ticket, _)| ticket).collect()
    }

    /// Returns the queue's length.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of usable replicas.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.replicas.values().filter(|load| load.usable).count()
    }

    /// Reports whether `replica` gets new requests.
    #[must_use]
    pub fn is_usable(&self, replica: Replica) -> bool {
        self.replicas.get(&replica).is_some_and(|load| load.usable)
    }

    /// Returns the requests in flight at `replica`.
    #[must_use]
    pub fn in_flight(&self, replica: Replica) -> u32 {
        self.replicas.get(&replica).map_or(0, |load| load.in_flight)
    }

    fn send(&mut self, replica: Replica) -> Replica {
        if let Some(load) = self.replicas.get_mut(&replica) {
            load.in_flight += 1;
        }
        replica
    }

    fn choose(&self, now: Micros) -> Option<Replica> {
        let usable = || self.replicas.values().filter(|load| load.usable);
        let warm = usable().any(|load| load.age(now) >= SLOW_START);
        // If all replicas are suspended, only those with broken connections stay excluded.
        let all_rest = usable().all(|load| load.rests_until > now);
        let free = self.replicas.iter().filter(|(_, load)| {
            load.usable
                && load.in_flight < load.limit(self.limit, warm, now)
                && (load.rests_until <= now || (all_rest && !load.broken))
        });
        let score = |load: &Load| f64::from(load.in_flight + 1) * load.expected(self.mean, now);
        let least = free.min_by(|(_, a), (_, b)| score(a).total_cmp(&score(b)));
        least.map(|(replica, _)| *replica)
    }
}

impl Load {
    const fn age(&self, now: Micros) -> Micros {
        now.saturating_sub(self.since)
    }

    fn measure(&mut self, took: f64, now: Micros) {
        self.latency = smoothed(self.latency, took);
        self.measured = now;
    }

    /// A new replica among older ones starts at one.
    fn limit(&self, limit: u32, warm: bool, now: Micros) -> u32 {
        let age = self.age(now);
        if !warm || age >= SLOW_START {
            return limit;
        }
        let share = u64::from(limit - 1) * age / SLOW_START;
        1 + u32::try_from(share).unwrap_or(limit - 1)
    }

    /// Returns the expected latency, which decays to the service's mean.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 microseconds")]
    fn expected(&self, mean: f64, now: Micros) -> f64 {
        let mean = mean.max(1.0);
        if self.latency == 0.0 {
            return mean;
        }
        let age = now.saturating_sub(self.measured) as f64;
        let weight = 1.0 / (1.0 + age / HALF_WEIGHT as f64);
        mean + (self.latency - mean) * weight
    }
}

fn smoothed(mean: f64, value: f64) -> f64 {
    if mean == 0.0 {
        value.max(1.0)
    } else {
        mean + SMOOTHING * (value - mean)
    }
}
