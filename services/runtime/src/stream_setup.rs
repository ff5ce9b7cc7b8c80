//! Creates and updates the streams, and the readers of agents and gateways.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::Config;

use crate::answer::{patiently, within};
use crate::error::LogError;
use crate::lease::token;
use crate::log::{Inner, Log};
use crate::streams::{self, STREAMS_LEASE};

const TURN: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(30);

impl Log {
    /// Creates or updates all streams. Only the command that starts the cluster may.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer for 30 s.
    pub async fn ensure_streams(&self) -> Result<(), LogError> {
        let Inner {
            jetstream,
            prefix,
            replicas,
            ..
        } = &*self.inner;
        let bucket = streams::leases(prefix, *replicas);
        let name = bucket.bucket.clone();
        patiently(
            "create the bucket",
            &name,
            |_| None,
            || jetstream.create_or_update_key_value(bucket.clone()),
        )
        .await?;
        if self.has_streams().await {
            return self.head().await.map(|_| ());
        }
        // Concurrent reservations would compete for space.
        let mut turn = self.leases().seek(STREAMS_LEASE, &token(), 0, TURN);
        if tokio::time::timeout(PATIENCE, turn.held()).await.is_err() {
            tracing::warn!(
                "making the streams without the lease `streams`: another holds it, or it is denied"
            );
        }
        let made = self.make_streams().await;
        turn.release().await;
        made?;
        self.head().await.map(|_| ())
    }

    fn wanted_streams(&self) -> [Config; 4] {
        let (prefix, replicas) = (&self.inner.prefix, self.inner.replicas);
        [
            streams::log(prefix, replicas),
            streams::ingress(prefix, replicas),
            streams::code(prefix, replicas),
            streams::states(prefix, replicas),
        ]
    }

    async fn has_streams(&self) -> bool {
        for wanted in self.wanted_streams() {
            let found = within(self.inner.jetstream.get_stream(&wanted.name)).await;
            let is = found.map(|stream| stream.cached_info().config.clone());
            if !is.is_ok_and(|is| updated(wanted, &is) == is) {
                return false;
            }
        }
        true
    }

    async fn make_streams(&self) -> Result<(), LogError> {
        for wanted in self.wanted_streams() {
            match within(self.inner.jetstream.get_stream(&wanted.name)).await {
                Ok(stream) => {
                    let config = updated(wanted, &stream.cached_info().config);
                    self.create_or_update(&config, config.max_bytes).await?;
                }
                Err(_) => self.create(&wanted).await?,
            }
        }
        Ok(())
    }

    /// Reserves at most a quarter of the free storage: creates a stream of four times the size first; if
    /// refused, tries less.
    pub(crate) async fn create(&self, config: &Config) -> Result<(), LogError> {
        if config.max_bytes < 0 {
            return self.create_or_update(config, config.max_bytes).await;
        }
        for max_bytes in streams::reservations(config.max_bytes) {
            match self.create_or_update(config, 4 * max_bytes).await {
                Err(LogError::NoRoom(_)) => {}
                Ok(()) => return self.create_or_update(config, max_bytes).await,
                Err(error) => return Err(error),
            }
        }
        Err(LogError::NoRoom(config.name.clone()))
    }

    async fn create_or_update(&self, config: &Config, max_bytes: i64) -> Result<(), LogError> {
        let make = || {
            let config = Config {
                max_bytes,
                ..config.clone()
            };
            self.inner.jetstream.create_or_update_stream(config)
        };
        let unrecoverable = |error: &CreateStreamError| unrecoverable(error, &config.name);
        let made = patiently("create the stream", &config.name, unrecoverable, make);
        made.await.map(|_| ())
    }

    /// Creates missing readers: `node-n0`, `gateway-g0`.
    ///
    /// # Errors
    /// When the broker refuses, or does not answer.
    pub async fn ensure_readers(&self, names: &[String]) -> Result<(), LogError> {
        let stream = self.prefix().log_stream();
        for name in names {
            let config = pull::Config {
                durable_name: Some(name.clone()),
                deliver_policy: DeliverPolicy::All,
                ack_policy: AckPolicy::None,
                replay_policy: ReplayPolicy::Instant,
                ..pull::Config::default()
            };
            let jetstream = &self.inner.jetstream;
            within(jetstream.create_consumer_on_stream(config, &stream))
                .await
                .map_err(|why| LogError::request("make the reader", name, why))?;
        }
        Ok(())
    }
}

fn unrecoverable(error: &CreateStreamError, name: &str) -> Option<LogError> {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else {
        return None;
    };
    match error.error_code() {
        ErrorCode::STORAGE_RESOURCES_EXCEEDED | ErrorCode::INSUFFICIENT_RESOURCES => {
            Some(LogError::NoRoom(name.to_owned()))
        }
        // While a broker is offline, a retry may succeed.
        ErrorCode::CLUSTER_NO_PEERS if lacks_storage(&error.to_string()) => {
            Some(LogError::NoRoom(name.to_owned()))
        }
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => Some(LogError::NoReplicas),
        _ => None,
    }
}

fn updated(wanted: Config, is: &Config) -> Config {
    Config {
        metadata: is.metadata.clone(),
        first_sequence: is.first_sequence,
        max_bytes: is.max_bytes,
        // A broker never takes these back.
        deny_purge: is.deny_purge || wanted.deny_purge,
        deny_delete: is.deny_delete || wanted.deny_delete,
        ..wanted
    }
}

fn lacks_storage(description: &str) -> bool {
    description.contains("insufficient storage") && !description.contains("offline")
}
