//! What the brokers say of themselves: for a person who asks whether all is well.

use std::time::{Duration, Instant};

use async_nats::Request;
use async_nats::jetstream::stream::{Compression, Config, Info};

use crate::lease::RenewError;
use crate::log::{Log, STREAMS_LEASE, is_absent, within};
use crate::streams;

/// How long the lease is taken for that tries whether the broker stores.
const TRIED_FOR: Duration = Duration::from_secs(1);

/// A copy of a stream that has not caught up for longer than this is named.
const BEHIND: Duration = Duration::from_secs(5);

/// The broker that a connection leads to.
#[derive(Debug, Clone)]
pub struct BrokerState {
    /// Its own name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it says that it is.
    pub address: String,
    /// How long it took to answer.
    pub round_trip: Duration,
}

/// One of the cluster's streams.
#[derive(Debug, Clone)]
pub struct StreamState {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub holds: &'static str,
    /// What there is of it: nothing where it does not exist, an error where that cannot be read.
    pub found: Result<Option<FoundStream>, String>,
}

/// A stream that is there.
#[derive(Debug, Clone, Default)]
pub struct FoundStream {
    /// Messages in it.
    pub messages: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// How many bytes it may hold, if that is bounded.
    pub max_bytes: Option<u64>,
    /// Its copies.
    pub replicas: usize,
    /// The broker that leads it; nothing on a single one, or where there is none.
    pub leader: Option<String>,
    /// Brokers whose copies are away or behind.
    pub behind: Vec<String>,
    /// What is configured otherwise than it must be, in words.
    pub differs: Vec<String>,
}

impl Log {
    /// The broker, and how long it takes to answer.
    pub async fn broker(&self) -> BrokerState {
        let connection = &self.inner.connection;
        let since = Instant::now();
        // It says at once that nobody answers there, or that this key may not ask.
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

    /// Whether the broker stores, by a lease that is taken and given back.
    ///
    /// # Errors
    /// The broker that leads the leases, and why it does not.
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

    /// The cluster's streams as the brokers have them.
    pub async fn streams(&self) -> Vec<StreamState> {
        let (prefix, replicas) = (&self.inner.prefix, self.inner.replicas);
        let wanted = [
            (streams::log(prefix, replicas), "the log"),
            (streams::ingress(prefix, replicas), "submissions"),
            (streams::code(prefix, replicas), "packed folders"),
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
    }
}

/// What of a stream is not as [`streams`] says. Copies, sizes and what an import noted may differ.
fn differences(found: &Config, wanted: &Config) -> Vec<String> {
    let is_compressed = |it: &Config| matches!(it.compression, Some(Compression::S2));
    // -1 is what a broker says for none.
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
            found.deny_delete != wanted.deny_delete || found.deny_purge != wanted.deny_purge,
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
            deny_purge: false,
            ..wanted.clone()
        };
        let named = differences(&compressed, &wanted);
        assert_eq!(named, ["that it is compressed", "what may be deleted"]);
    }
}
