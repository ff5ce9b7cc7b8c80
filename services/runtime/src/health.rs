//! The brokers' health.

use std::time::{Duration, Instant};

use async_nats::Request;
use async_nats::jetstream::stream::{Compression, Config, Info};

use crate::answer::within;
use crate::lease::RenewError;
use crate::log::{Log, is_absent};
use crate::streams::{self, STREAMS_LEASE};

const TRIED_FOR: Duration = Duration::from_secs(1);

const BEHIND: Duration = Duration::from_secs(5);

/// The connected broker.
#[derive(Debug, Clone)]
pub struct BrokerState {
    pub name: String,
    pub version: String,
    pub address: String,
    pub round_trip: Duration,
}

/// One of the cluster's streams.
#[derive(Debug, Clone)]
pub struct StreamState {
    pub name: String,
    pub holds: &'static str,
    pub found: Result<Option<FoundStream>, String>,
}

/// State of an existing stream.
#[derive(Debug, Clone, Default)]
pub struct FoundStream {
    pub messages: u64,
    pub bytes: u64,
    pub max_bytes: Option<u64>,
    pub replicas: usize,
    /// `None` on a single server or without a leader.
    pub leader: Option<String>,
    pub behind: Vec<String>,
    pub differs: Vec<String>,
    /// Nothing can ever be removed.
    pub untrimmable: bool,
}

impl Log {
    /// Returns the broker and its response time.
    pub async fn broker(&self) -> BrokerState {
        let connection = &self.inner.connection;
        let since = Instant::now();
        // Any answer measures the round trip, even a denial.
        let subject = format!("{}.ping", self.inner.prefix.as_str());
        let _ = connection.ask(&subject, Request::new()).await;
        let info = connection.client.server_info();
        BrokerState {
            name: info.server_name,
            version: info.version,
            address: format!("{}:{}", info.host, info.port),
            round_trip: since.elapsed(),
        }
    }

    /// Tests by a lease whether the broker stores.
    ///
    /// # Errors
    /// The leader of the leases, and the reason.
    pub async fn try_storing(&self) -> Result<(), (String, String)> {
        let mut hold = self.leases().hold(STREAMS_LEASE, "doctor", 0, TRIED_FOR);
        match hold.renew().await {
            Ok(()) => {
                hold.give_back().await;
                Ok(())
            }
            Err(RenewError::Held { .. }) => Ok(()),
            Err(error @ RenewError::Unanswered { .. }) => {
                let bucket = format!("KV_{}", self.inner.prefix.lease_bucket());
                let found = within(self.inner.jetstream.get_stream(bucket)).await.ok();
                let leader = found.and_then(|it| it.cached_info().cluster.as_ref()?.leader.clone());
                let broker = match leader {
                    Some(leader) => leader,
                    None => self.broker().await.name,
                };
                Err((broker, error.to_string()))
            }
        }
    }

    /// Returns the cluster's streams.
    pub async fn streams(&self) -> Vec<StreamState> {
        let (prefix, replicas) = (&self.inner.prefix, self.inner.replicas);
        let wanted = [
            (streams::log(prefix, replicas), "the log"),
            (streams::ingress(prefix, replicas), "submissions"),
            (streams::code(prefix, replicas), "packed folders"),
            (streams::states(prefix, replicas), "folded states"),
        ];
        let mut all = Vec::new();
        for (wanted, holds) in wanted {
            let asked = async {
                match self.inner.jetstream.get_stream(&wanted.name).await {
                    Err(error) if is_absent(&error) => Ok(None),
                    asked => asked.map(Some),
                }
            };
            let found = within(asked).await;
            all.push(StreamState {
                found: found.map(|it| it.map(|it| state(it.cached_info(), &wanted))),
                name: wanted.name,
                holds,
            });
        }
        all
    }
}

fn state(info: &Info, wanted: &Config) -> FoundStream {
    let cluster = info.cluster.as_ref();
    let peers = cluster.map(|it| it.replicas.as_slice()).unwrap_or_default();
    let is_behind = |it: &&async_nats::jetstream::stream::PeerInfo| {
        it.offline || (!it.current && it.active > BEHIND)
    };
    let behind = peers.iter().filter(is_behind);
    FoundStream {
        messages: info.state.messages,
        bytes: info.state.bytes,
        max_bytes: u64::try_from(info.config.max_bytes).ok(),
        replicas: info.config.num_replicas,
        leader: cluster.and_then(|it| it.leader.clone()),
        behind: behind.map(|it| it.name.clone()).collect(),
        differs: differences(&info.config, wanted),
        untrimmable: info.config.deny_purge,
    }
}

/// Ignores replicas, sizes and import metadata.
fn differences(found: &Config, wanted: &Config) -> Vec<String> {
    let is_compressed = |it: &Config| matches!(it.compression, Some(Compression::S2));
    // Brokers report -1 for none.
    let most = |it: &Config| it.max_messages_per_subject.max(0);
    let differs = [
        (found.subjects != wanted.subjects, "its subjects"),
        (
            is_compressed(found) != is_compressed(wanted),
            "that it is compressed",
        ),
        (
            found.discard != wanted.discard,
            "what it does when it is full",
        ),
        (
            found.deny_delete != wanted.deny_delete,
            "what may be deleted",
        ),
        (
            found.allow_atomic_publish != wanted.allow_atomic_publish,
            "whether it takes batches",
        ),
        (
            most(found) != most(wanted),
            "how many messages a subject holds",
        ),
    ];
    let differs = differs.into_iter().filter(|(differs, _)| *differs);
    differs.map(|(_, what)| what.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Prefix;

    use super::*;

    #[test]
    fn what_is_configured_otherwise_is_named_and_sizes_may_differ() {
        let wanted = streams::log(&Prefix::default(), 1);
        let larger = Config {
            max_bytes: 7,
            num_replicas: 3,
            ..wanted.clone()
        };
        assert!(differences(&larger, &wanted).is_empty());
        let compressed = Config {
            compression: Some(Compression::S2),
            deny_delete: false,
            ..wanted.clone()
        };
        let named = differences(&compressed, &wanted);
        assert_eq!(named, ["that it is compressed", "what may be deleted"]);
    }
}
