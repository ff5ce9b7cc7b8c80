//! A process's connection to the log, and operations on its streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, ErrorCode};
use dormouse_messages::{GatewayId, NodeId, Prefix, Sequence, Writer};
use tokio::sync::mpsc;

use crate::appender::Appender;
use crate::connection::{ANSWER_TIMEOUT, Connection};
use crate::decode::LogItem;
use crate::error::LogError;
use crate::follow;
use crate::import::IMPORTED_TO;
use crate::key_identity::{self, Holder};
use crate::lease::{Leases, token};
use crate::reader_account::{self, Own};
use crate::settings::Settings;
use crate::shared_follower::{self, Feed};
use crate::streams;
use crate::trace::Remembered;

pub(crate) const STREAMS_LEASE: &str = "streams";

const TURN: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the log. Clones share it.
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub connection: Connection,
    pub jetstream: jetstream::Context,
    pub own: Option<Own>,
    pub holder: Holder,
    pub prefix: Prefix,
    pub replicas: usize,
    identity: RwLock<String>,
    /// Limits what may be sent (see `publish`); refreshed by `head`.
    replicated: AtomicBool,
    pub imported_to: AtomicU64,
    /// Query answers are at least as recent.
    pub followed_to: AtomicU64,
    /// Even for tasks started on a service's own thread.
    home: tokio::runtime::Handle,
    pub traces: Mutex<Remembered>,
    pub feed: Feed,
}

impl Log {
    /// Connects, retrying for `settings.connect_timeout`.
    ///
    /// # Errors
    /// When there is no broker, or it does not accept the credentials.
    pub async fn connect(settings: &Settings) -> Result<Self, LogError> {
        let connection = Connection::open(settings).await?;
        let mut holder = Holder::Operator;
        let own = match &settings.reader {
            Some(reader) => reader_account::find(&connection, &settings.prefix, reader).await,
            None if settings.person => {
                holder = key_identity::find(&connection, &settings.prefix).await;
                match holder {
                    Holder::Tenant { .. } => None,
                    Holder::Operator | Holder::Unknown => {
                        let own = reader_account::find_person(&connection, &settings.prefix).await;
                        holder = own.as_ref().map_or(Holder::Unknown, |_| Holder::Operator);
                        own.ok().flatten()
                    }
                }
            }
            None => None,
        };
        let api = own.as_ref().map_or("$JS.API", |own| own.api.as_str());
        let jetstream = jetstream::context::ContextBuilder::new()
            .api_prefix(api)
            .timeout(ANSWER_TIMEOUT)
            .build(connection.client.clone());
        let log = Self {
            inner: Arc::new(Inner {
                connection,
                jetstream,
                own,
                holder,
                prefix: settings.prefix.clone(),
                replicas: settings.replicas.max(1),
                identity: RwLock::new(String::new()),
                replicated: AtomicBool::new(settings.replicas > 1),
                imported_to: AtomicU64::new(0),
                followed_to: AtomicU64::new(0),
                home: tokio::runtime::Handle::current(),
                traces: Mutex::new(Remembered::default()),
                feed: Feed::default(),
            }),
        };
        // Fails harmlessly before the streams exist.
        if *log.holder() == Holder::Operator {
            let _ = log.head().await;
        }
        Ok(log)
    }

    /// Closes the connection for all clones.
    pub async fn close(&self) {
        self.inner.connection.close().await;
    }

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

    fn wanted_streams(&self) -> [Config; 3] {
        let (prefix, replicas) = (&self.inner.prefix, self.inner.replicas);
        [
            streams::log(prefix, replicas),
            streams::ingress(prefix, replicas),
            streams::code(prefix, replicas),
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
        let hopeless = |error: &CreateStreamError| hopeless(error, &config.name);
        let made = patiently("create the stream", &config.name, hopeless, make);
        made.await.map(|_| ())
    }

    /// Returns the stream's name and creation time; empty before.
    #[must_use]
    pub fn identity(&self) -> String {
        let identity = self.inner.identity.read();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the first token of every subject.
    #[must_use]
    pub fn prefix(&self) -> &Prefix {
        &self.inner.prefix
    }

    /// Returns the last sequence, from the leader.
    ///
    /// # Errors
    /// When the stream does not exist, or the broker does not answer.
    pub async fn head(&self) -> Result<Sequence, LogError> {
        let name = self.inner.prefix.log_stream();
        let asked = async {
            match self.inner.jetstream.get_stream(&name).await {
                Err(error) if is_absent(&error) => Ok(None),
                asked => asked.map(Some),
            }
        };
        let found = within(asked)
            .await
            .map_err(|why| LogError::request("read the state of stream", &name, why))?;
        let Some(info) = found else {
            return Err(LogError::NoLog(name));
        };
        let info = info.cached_info();
        let created = info.created.unix_timestamp_nanos();
        let identity = format!("{name}@{}", crate::decode::timestamp(created));
        let mut known = self.inner.identity.write();
        match known.as_mut() {
            Ok(known) => **known = identity,
            Err(poisoned) => **poisoned.get_mut() = identity,
        }
        drop(known);
        let replicated = info.config.num_replicas > 1;
        self.inner.replicated.store(replicated, Ordering::Relaxed);
        let imported_to = info.config.metadata.get(IMPORTED_TO);
        if let Some(imported_to) = imported_to.and_then(|it| it.parse().ok()) {
            let known = &self.inner.imported_to;
            known.store(imported_to, Ordering::Relaxed);
        }
        // An empty stream may have a last sequence.
        match info.state.messages {
            0 => Ok(Sequence(0)),
            _ => Ok(Sequence(info.state.last_sequence)),
        }
    }

    /// Reports whether the log stream has replicas.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.inner.replicated.load(Ordering::Relaxed)
    }

    /// Follows every event from `from`, across outages. The channel ends only if the log lost delivered
    /// events: start again.
    #[must_use]
    pub fn follow(&self, from: Sequence) -> mpsc::Receiver<LogItem> {
        shared_follower::follow(self, from)
    }

    /// Reads from `from` to `to` or the head. `CaughtUp` is last, unless cut short.
    ///
    /// # Errors
    /// When the head cannot be read.
    pub async fn read(
        &self,
        from: Sequence,
        to: Sequence,
    ) -> Result<mpsc::Receiver<LogItem>, LogError> {
        let head = self.head().await?;
        Ok(follow::read(self, from, to.min(head)))
    }

    /// Returns an appender for `writer`; an agent's names its node.
    #[must_use]
    pub fn appender(&self, writer: Writer, node: Option<NodeId>) -> Appender {
        Appender::new(self.clone(), writer, node)
    }

    /// Returns an operator's appender, fenced by `last`.
    #[must_use]
    pub fn operator_after(&self, last: Sequence) -> Appender {
        Appender::of_operator_after(self.clone(), last)
    }

    /// Returns an appender for the named gateway.
    #[must_use]
    pub fn gateway_appender(&self, gateway: &GatewayId) -> Appender {
        Appender::of_gateway(self.clone(), gateway)
    }

    /// Returns the leases.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases::new(self.clone())
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.home.spawn(task);
    }

    pub(crate) async fn stream(&self) -> Result<Stream<()>, String> {
        self.inner
            .jetstream
            .get_stream_no_info(self.inner.prefix.log_stream())
            .await
            .map_err(|error| error.to_string())
    }
}

const NO_ANSWER: &str = "no answer in time";

/// The library does not, while its buffer is full.
pub(crate) async fn within<T, E: std::fmt::Display>(
    request: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(once(error.to_string())),
        Err(_) => Err(NO_ANSWER.to_owned()),
    }
}

/// Removes a repetition: the library's errors name kind and source, often in equal words.
pub(crate) fn once(why: String) -> String {
    let halves = why.len().checked_sub(2).map(|rest| rest / 2);
    match halves.and_then(|half| Some((why.get(..half)?, why.get(half..)?))) {
        Some((first, second)) if second.strip_prefix(": ") == Some(first) => first.to_owned(),
        _ => why,
    }
}

fn hopeless(error: &CreateStreamError, name: &str) -> Option<LogError> {
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
        ..wanted
    }
}

fn lacks_storage(description: &str) -> bool {
    description.contains("insufficient storage") && !description.contains("offline")
}

pub(crate) fn is_absent(error: &GetStreamError) -> bool {
    let absent = ErrorCode::STREAM_NOT_FOUND;
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == absent)
}

/// Retries, since a new cluster elects its leaders first.
async fn patiently<T, E, F>(
    operation: &'static str,
    name: &str,
    hopeless: impl Fn(&E) -> Option<LogError>,
    mut request: impl FnMut() -> F,
) -> Result<T, LogError>
where
    E: std::fmt::Display,
    F: IntoFuture<Output = Result<T, E>>,
{
    let mut attempts_left = 60_u32;
    loop {
        let why = match tokio::time::timeout(ANSWER_TIMEOUT, request()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => match hopeless(&error) {
                Some(error) => return Err(error),
                None => once(error.to_string()),
            },
            Err(_) => NO_ANSWER.to_owned(),
        };
        if attempts_left == 0 {
            return Err(LogError::request(operation, name, why));
        }
        if attempts_left.is_multiple_of(10) {
            tracing::info!(operation, name, why, "not yet; trying again");
        }
        attempts_left -= 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::once;

    #[test]
    fn what_is_said_twice_is_said_once() {
        let said = |why: &str| once(why.to_owned());
        assert_eq!(said("no responders: no responders"), "no responders");
        for why in ["", ":", "é: è", "no: responders"] {
            assert_eq!(said(why), why);
        }
    }
}
