//! Which replica gets a request: one queue a service, and the least loaded ready replica that works
//! on fewer requests than its limit. Pure: the time, in microseconds, is an argument.
//!
//! 1. Load is (in flight + 1) × latency, the latency a moving mean that loses its weight with age
//!    (PeakEWMA's product, without its peaks: a gateway knows exactly what is in flight).
//! 2. An error counts as slow, or a replica that fails fast would attract the traffic. One that
//!    refuses or breaks connections rests, each time twice as long.
//! 3. A new replica among older ones gets its share over some seconds.
//! 4. A request that finds no replica waits in the queue, in order, until its deadline; a full
//!    queue sheds.
//! 5. What was sent in vain may be sent once more elsewhere, within a budget.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{Incarnation, Rank};

/// Microseconds since some moment that stays the same.
pub type Micros = u64;

/// A replica within its service.
pub type Replica = (Incarnation, Rank);

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Requests of one service that wait at most. A thousand at 10 ms each are 10 s of a replica:
/// more would not be answered before their clients give up.
pub const QUEUE: usize = 1_000;

/// A new replica gets its whole share after so long: caches are warm after the first seconds.
const SLOW_START: Micros = 5_000_000;

/// The age at which a replica's measured latency has half its weight.
const HALF_WEIGHT: Micros = 10_000_000;

/// The part of a new measurement in the moving mean.
const SMOOTHING: f64 = 0.2;

/// The first rest of a replica that breaks connections: a restart of its process takes longer.
const REST: Micros = 100_000;
/// The longest: it is then tried again.
const LONGEST_REST: Micros = 5_000_000;
/// So many 5xx in a row make a replica rest, where another does not.
const PATIENCE: u32 = 3;

/// A retry costs ten tokens, a request earns one: at most a tenth of the requests is sent again.
const RETRY_COST: u32 = 10;
/// What a killed replica had in flight may be retried though little came before: this many.
const RETRY_BURST: u32 = 20;

/// How a request at a replica ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Answered,
    /// Answered with 5xx.
    Failed,
    /// The replica refused or broke the connection.
    Broken,
    /// The client went away: it says nothing of the replica.
    Abandoned,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It goes to this replica.
    Sent(Replica),
    /// It waits.
    Waits,
    /// There is no room for it.
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

/// The replicas of one service and the requests that wait for them.
#[derive(Debug, Clone)]
pub struct Balance {
    limit: u32,
    replicas: BTreeMap<Replica, Load>,
    queue: VecDeque<(Ticket, Micros)>,
    /// Mean latency of answers without error.
    mean: f64,
    retry_tokens: u32,
}

impl Balance {
    /// No replicas yet; each will work on `limit` requests at once.
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

    /// These replicas may be used from now on, and no others. What is in flight at others goes on.
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

    /// A request has arrived; it waits until `deadline` at most.
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

    /// A request that came to nothing at one replica is to be sent elsewhere, before those that
    /// came later.
    pub fn again(&mut self, ticket: Ticket, now: Micros, deadline: Micros) -> Arrival {
        if let Some(replica) = self.choose(now) {
            return Arrival::Sent(self.send(replica));
        }
        self.queue.push_front((ticket, deadline));
        Arrival::Waits
    }

    /// Whether a request that a replica may have seen may be sent once more; takes from the budget.
    pub fn may_retry(&mut self) -> bool {
        let left = self.retry_tokens.checked_sub(RETRY_COST);
        self.retry_tokens = left.unwrap_or(self.retry_tokens);
        left.is_some()
    }

    /// A request at `replica` has ended after `took`.
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
                let patience = match load.broken {
                    true => 1,
                    false => PATIENCE,
                };
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

    /// The next one that waits and the replica that it goes to. To be asked until there is none,
    /// after each end, each new route, and now and then.
    pub fn next(&mut self, now: Micros) -> Option<(Ticket, Replica)> {
        if self.queue.is_empty() {
            return None;
        }
        let replica = self.choose(now)?;
        let (ticket, _) = self.queue.pop_front()?;
        Some((ticket, self.send(replica)))
    }

    /// Those that have waited until their deadline: they are taken out of the queue.
    pub fn expire(&mut self, now: Micros) -> Vec<Ticket> {
        let due = self.queue.iter().filter(|(_, deadline)| *deadline <= now);
        let due: Vec<Ticket> = due.map(|(ticket, _)| *ticket).collect();
        if !due.is_empty() {
            self.queue.retain(|(_, deadline)| *deadline > now);
        }
        due
    }

    /// The client of a waiting request has gone.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let place = self.queue.iter().position(|(it, _)| *it == ticket);
        place.is_some_and(|place| self.queue.remove(place).is_some())
    }

    /// Everything that waits, taken out: the service has ended.
    pub fn clear(&mut self) -> Vec<Ticket> {
        self.queue.drain(..).map(|(ticket, _)| ticket).collect()
    }

    /// How many wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many replicas may be used.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.replicas.values().filter(|load| load.usable).count()
    }

    /// Whether new requests may go to `replica`.
    #[must_use]
    pub fn is_usable(&self, replica: Replica) -> bool {
        self.replicas.get(&replica).is_some_and(|load| load.usable)
    }

    /// How many requests are under way at `replica`.
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
        // Where everybody fails, resting helps nobody: but who breaks connections is not there.
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

    /// Requests that it may work on now: a new one among older ones begins with one.
    fn limit(&self, limit: u32, warm: bool, now: Micros) -> u32 {
        let age = self.age(now);
        if !warm || age >= SLOW_START {
            return limit;
        }
        let share = u64::from(limit - 1) * age / SLOW_START;
        1 + u32::try_from(share).unwrap_or(limit - 1)
    }

    /// The latency to expect: its own while it is young, the service's mean where it has none.
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
    match mean == 0.0 {
        true => value.max(1.0),
        false => mean + SMOOTHING * (value - mean),
    }
}
