//! Nodes without a visible renewal for a TTL.
//!
//! 1. After an outage of the broker or of this process every node has a full TTL again.
//! 2. Any incarnation's renewal counts. A new incarnation has a full TTL, since its renewals may be unseen; a
//!    release ends the lease.
//! 3. The longer of the node's term and the policy's counts, since an agent may not know a new policy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_messages::{Build, Event, GatewayId, NodeId, Timestamp};
use tokio::sync::{Notify, mpsc};

use crate::answer::within;
use crate::decode::RawMessage;
use crate::fetch::{self, Fetched, Source};
use crate::lease::{self, Leases};
use crate::log::Log;
use crate::presence::{TERM, changes, process};

const PROBE: Duration = Duration::from_millis(250);

/// A longer gap counts as an outage.
const BLIND: Duration = Duration::from_millis(1_000);

/// A node whose lease has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub node: NodeId,
    pub incarnation: u64,
    /// Broker's time of the last renewal; the epoch without one.
    pub last_seen: Timestamp,
}

/// A gateway whose lease has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostGateway {
    pub gateway: GatewayId,
    /// Broker's time of the last renewal; the epoch without one.
    pub last_seen: Timestamp,
}

impl Leases {
    /// Watches the leases of all nodes and gateways.
    #[must_use]
    pub fn table(&self) -> Arc<LeaseTable> {
        LeaseTable::spawn(self.log.clone())
    }
}

/// The observed leases.
#[derive(Debug)]
pub struct LeaseTable {
    table: Mutex<Table>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Table {
    seen: BTreeMap<String, Seen>,
    /// Start of uninterrupted visibility; `None` during an outage.
    sighted: Option<Instant>,
    expected: BTreeMap<NodeId, (u64, Instant)>,
    /// Since when each gateway on the log is expected to renew its lease.
    gateways: BTreeMap<GatewayId, Instant>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    stored_at: Timestamp,
    given_back: Option<Instant>,
    term: Duration,
    unfenced: bool,
    build: Option<Build>,
}

impl LeaseTable {
    fn spawn(log: Log) -> Arc<Self> {
        let table = Arc::new(Self {
            table: Mutex::new(Table {
                seen: BTreeMap::new(),
                sighted: None,
                expected: BTreeMap::new(),
                gateways: BTreeMap::new(),
            }),
            changed: Arc::new(Notify::new()),
        });
        tokio::spawn(watch(log, Arc::downgrade(&table)));
        table
    }

    /// Returns the notice of changes.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns the gateways without a renewal for `ttl`.
    #[must_use]
    pub fn lost_gateways(&self, joined: &[GatewayId], ttl: Duration) -> Vec<LostGateway> {
        self.lock().lost_gateways(joined, ttl, Instant::now())
    }

    /// Returns the expected nodes without a renewal for `ttl`.
    #[must_use]
    pub fn lost(&self, expected: &[(NodeId, u64)], ttl: Duration) -> Vec<Lost> {
        self.lock().lost(expected, ttl, Instant::now())
    }

    /// Returns the events that turn `known` into the builds of the living processes.
    #[must_use]
    pub fn builds(&self, known: &BTreeMap<String, Build>) -> Vec<Event> {
        self.lock().builds(known, Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn lost(&mut self, expected: &[(NodeId, u64)], ttl: Duration, now: Instant) -> Vec<Lost> {
        self.expect(expected, now);
        let Some(sighted) = self.sighted else {
            return Vec::new();
        };
        let lost = expected.iter().filter_map(|(node, incarnation)| {
            let seen = self.seen.get(&format!("node.{node}"));
            let term = seen.map_or(ttl, |seen| ttl.max(seen.term));
            let silent = |since: Instant| now.saturating_duration_since(since) > term;
            if !silent(sighted) {
                return None;
            }
            let since = self.expected.get(node).map_or(now, |(_, since)| *since);
            let given_back = seen.and_then(|seen| seen.given_back);
            let alive = match given_back {
                Some(at) => at < since && !silent(since),
                None => {
                    let renewed = |seen: &Seen| seen.unfenced || !silent(seen.at);
                    !silent(since) || seen.is_some_and(renewed)
                }
            };
            (!alive).then(|| Lost {
                node: node.clone(),
                incarnation: *incarnation,
                last_seen: seen.map_or_else(Timestamp::default, |seen| seen.stored_at),
            })
        });
        lost.collect()
    }

    fn expect(&mut self, expected: &[(NodeId, u64)], now: Instant) {
        let before = std::mem::take(&mut self.expected);
        let since = expected.iter().map(|(node, incarnation)| {
            let same = before.get(node).filter(|(of, _)| of == incarnation);
            (node.clone(), *same.unwrap_or(&(*incarnation, now)))
        });
        self.expected = since.collect();
    }

    fn lost_gateways(
        &mut self,
        joined: &[GatewayId],
        ttl: Duration,
        now: Instant,
    ) -> Vec<LostGateway> {
        let before = std::mem::take(&mut self.gateways);
        let since = |gateway: &GatewayId| *before.get(gateway).unwrap_or(&now);
        self.gateways = joined.iter().map(|it| (it.clone(), since(it))).collect();
        let silent = |since: Instant| now.saturating_duration_since(since) > ttl;
        if !self.sighted.is_some_and(silent) {
            return Vec::new();
        }
        let lost = self.gateways.iter().filter_map(|(gateway, since)| {
            let seen = self.seen.get(&format!("gateway.{gateway}"));
            let alive = match seen.and_then(|seen| seen.given_back) {
                Some(at) => at < *since && !silent(*since),
                None => !silent(*since) || seen.is_some_and(|seen| !silent(seen.at)),
            };
            (!alive).then(|| LostGateway {
                gateway: gateway.clone(),
                last_seen: seen.map_or_else(Timestamp::default, |seen| seen.stored_at),
            })
        });
        lost.collect()
    }

    fn builds(&self, known: &BTreeMap<String, Build>, now: Instant) -> Vec<Event> {
        let silent = |since: Instant, term| now.saturating_duration_since(since) > term;
        // Every living process has renewed its lease since.
        if !self.sighted.is_some_and(|since| silent(since, TERM)) {
            return Vec::new();
        }
        let living = self.seen.iter().filter_map(|(key, seen)| {
            let build = seen.build.as_ref().filter(|build| build.is_valid())?;
            let is_over = seen.given_back.is_some() || silent(seen.at, seen.term.max(TERM));
            (!is_over).then_some((process(key)?, build))
        });
        changes(known, &living.collect())
    }

    fn take(&mut self, message: &RawMessage, now: Instant) {
        // `$KV.<bucket>.<key>`.
        let Some(key) = message.subject.as_str().splitn(3, '.').nth(2) else {
            return;
        };
        match lease::parse(message.headers.as_ref(), &message.payload) {
            Some(value) => {
                let seen = Seen {
                    at: now,
                    stored_at: message.stored_at(),
                    given_back: None,
                    term: Duration::from_millis(value.term_ms.unwrap_or(0)),
                    unfenced: value.unfenced,
                    build: value.build,
                };
                self.seen.insert(key.to_owned(), seen);
            }
            None => {
                let given_back = message
                    .headers
                    .as_ref()
                    .is_some_and(|headers| headers.get("KV-Operation").is_some());
                if let Some(seen) = self.seen.get_mut(key).filter(|_| given_back) {
                    seen.given_back.get_or_insert(now);
                }
            }
        }
    }
}

async fn watch(log: Log, table: std::sync::Weak<LeaseTable>) {
    let bucket = log.prefix().lease_bucket();
    let stream = format!("KV_{bucket}");
    let source = Source {
        stream: stream.clone(),
        // Includes the deciders' leases.
        filter: format!("$KV.{bucket}.>"),
        from: 1,
        to: None,
        last_per_subject: true,
        permanent: false,
    };
    let mut fetched = fetch::spawn(log.clone(), source);
    let mut looked = Instant::now();
    loop {
        let (serves, closed) = look(&log, &stream, &mut fetched, &table).await;
        let Some(table) = table.upgrade().filter(|_| !closed) else {
            return;
        };
        let now = Instant::now();
        let blind = now.duration_since(looked) > BLIND;
        looked = now;
        let mut inner = table.lock();
        inner.sighted = match inner.sighted {
            Some(since) if serves && !blind => Some(since),
            _ if serves => Some(now),
            _ => None,
        };
        drop(inner);
        table.changed.notify_one();
    }
}

/// Returns whether the broker answered, and whether the messages ended.
async fn look(
    log: &Log,
    stream: &str,
    fetched: &mut mpsc::Receiver<Fetched>,
    table: &std::sync::Weak<LeaseTable>,
) -> (bool, bool) {
    let probe = async {
        tokio::time::sleep(PROBE).await;
        let asked = Instant::now();
        let alive = match log.inner.jetstream.get_stream_no_info(stream).await {
            Ok(stream) => within(stream.get_info()).await.is_ok(),
            Err(_) => false,
        };
        alive && asked.elapsed() < PROBE * 2 && log.inner.connection.is_connected()
    };
    tokio::pin!(probe);
    let mut again = false;
    loop {
        tokio::select! {
            biased;
            more = fetched.recv() => {
                let (Some(more), Some(table)) = (more, table.upgrade()) else {
                    return (false, true);
                };
                let now = Instant::now();
                match more {
                    Fetched::Messages(messages) => {
                        let mut inner = table.lock();
                        for message in &messages {
                            inner.take(message, now);
                        }
                    }
                    Fetched::Connected => again = true,
                    Fetched::Head(_) => {}
                }
            }
            serves = &mut probe => return (serves && !again, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(2);

    fn expected() -> Vec<(NodeId, u64)> {
        vec![("n0".parse().expect("a name"), 1)]
    }

    fn table(sighted: Option<Instant>, seen: Option<Seen>) -> Table {
        Table {
            seen: seen
                .map(|seen| ("node.n0".to_owned(), seen))
                .into_iter()
                .collect(),
            sighted,
            expected: BTreeMap::new(),
            gateways: BTreeMap::new(),
        }
    }

    fn expecting(since: Instant, mut table: Table) -> Table {
        table.expect(&expected(), since);
        table
    }

    fn seen(at: Instant) -> Seen {
        Seen {
            at,
            stored_at: Timestamp::from_micros(7),
            given_back: None,
            term: Duration::ZERO,
            unfenced: false,
            build: None,
        }
    }

    #[test]
    fn silence_counts_only_while_renewals_would_be_seen() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let lost = |table: Table| expecting(start, table).lost(&expected(), TTL, later);
        assert_eq!(lost(table(None, Some(seen(start)))).len(), 0);
        let sighted_again = start + Duration::from_secs(4);
        assert_eq!(lost(table(Some(sighted_again), Some(seen(start)))).len(), 0);
        let gone = lost(table(Some(start), Some(seen(start))));
        assert_eq!(
            gone.first().map(|it| it.last_seen),
            Some(Timestamp::from_micros(7))
        );
        assert_eq!(lost(table(Some(start), None)).len(), 1);
        assert_eq!(lost(table(Some(start), Some(seen(later)))).len(), 0);
    }

    #[test]
    fn a_gateway_that_has_just_joined_has_a_ttl_to_be_seen() {
        let start = Instant::now();
        let g0: [GatewayId; 1] = ["g0".parse().expect("a name")];
        let mut table = table(Some(start), None);
        let mut lost = |after_s: u64| {
            let now = start + Duration::from_secs(after_s);
            table.lost_gateways(&g0, TTL, now).len()
        };
        assert_eq!((lost(60), lost(61), lost(63)), (0, 0, 1));
    }

    #[test]
    fn a_lease_lasts_as_long_as_its_holder_counts_on_it() {
        let start = Instant::now();
        let lost = |seen: Seen, after_s: u64| {
            let later = start + Duration::from_secs(after_s);
            !expecting(start, table(Some(start), Some(seen)))
                .lost(&expected(), TTL, later)
                .is_empty()
        };
        let longer = || Seen {
            term: Duration::from_secs(90),
            ..seen(start)
        };
        assert!(!lost(longer(), 89), "the policy was made shorter meanwhile");
        assert!(lost(longer(), 91));
        let unfenced = || Seen {
            unfenced: true,
            ..seen(start)
        };
        assert!(!lost(unfenced(), 86_400), "no fence ends what it runs");
        let given_back = Seen {
            given_back: Some(start),
            ..unfenced()
        };
        assert!(lost(given_back, 3));
    }

    #[test]
    fn a_gateway_is_lost_when_its_own_lease_ends() {
        let start = Instant::now();
        let mut table = table(Some(start), Some(seen(start)));
        let later = seen(start + Duration::from_secs(4));
        table.seen.insert("gateway.g0".to_owned(), later);
        let names = ["g0", "g1", "n0"].map(|name| name.parse().expect("a name"));
        let mut lost = |after_s| {
            let now = start + Duration::from_secs(after_s);
            let lost = table.lost_gateways(&names, TTL, now).into_iter();
            lost.map(|it| it.gateway.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(lost(1), Vec::<String>::new(), "not watched for long enough");
        assert_eq!(
            lost(5),
            ["g1", "n0"],
            "a node's lease is none of a gateway's"
        );
        assert_eq!(lost(7), ["g0", "g1", "n0"]);
    }

    #[test]
    fn a_build_joins_with_its_lease_and_leaves_with_it() {
        let start = Instant::now();
        let build = Build::own("a");
        let runs = |at| Seen {
            build: Some(build.clone()),
            ..seen(at)
        };
        let told = |seen: Seen, known: bool, after_s: u64| {
            let known = known.then(|| ("agent/n0".to_owned(), build.clone()));
            let now = start + Duration::from_secs(after_s);
            let table = table(Some(start), Some(seen));
            let events = table.builds(&known.into_iter().collect(), now);
            events.first().map(Event::subject_name)
        };
        let (early, late) = (start, start + Duration::from_secs(8));
        assert_eq!(
            told(runs(early), false, 5),
            None,
            "not watched for long enough"
        );
        assert_eq!(told(runs(late), false, 10), Some("build.joined"));
        assert_eq!(told(runs(late), true, 10), None);
        assert_eq!(told(runs(early), true, 10), Some("build.left"));
        let given_back = Seen {
            given_back: Some(late),
            ..runs(late)
        };
        assert_eq!(told(given_back, true, 10), Some("build.left"));
        let longer = Seen {
            term: Duration::from_secs(90),
            ..runs(early)
        };
        assert_eq!(told(longer, true, 10), None);
    }

    #[test]
    fn a_lease_given_back_does_not_count() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let lost = |given_back: Option<Instant>, expected_since: Instant| {
            let seen = Seen {
                given_back,
                ..seen(start)
            };
            let mut table = expecting(expected_since, table(Some(start), Some(seen)));
            table.lost(&expected(), TTL, later).len()
        };
        let lately = later - TTL / 2;
        assert_eq!(lost(Some(later), lately), 1);
        // The former incarnation renewed the lease.
        assert_eq!(lost(Some(start), lately), 0);
        assert_eq!(lost(Some(start), start), 1);
    }

    #[test]
    fn an_incarnation_that_has_just_joined_is_not_lost_for_what_was_before() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut table = expecting(start, table(Some(start), Some(seen(start))));
        let again = [("n0".parse().expect("a name"), 2)];
        assert_eq!(table.lost(&expected(), TTL, after(5)).len(), 1);
        assert_eq!(table.lost(&again, TTL, after(6)).len(), 0);
        assert_eq!(table.lost(&again, TTL, after(8)).len(), 0);
        assert_eq!(table.lost(&again, TTL, after(9)).len(), 1);
    }
}
