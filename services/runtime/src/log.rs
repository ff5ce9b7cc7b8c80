//! A process's connection to the log. All reading and writing of events is above.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{self, ErrorCode};
use dormouse_messages::{NewerFormat, Prefix, Sequence, TenantId};
use tokio::sync::watch;

use crate::answer::{ANSWER_TIMEOUT, within};
use crate::connection::Connection;
use crate::decode::{self, IMPORTED_TO, ORIGIN};
use crate::error::LogError;
use crate::feed::Feed;
use crate::key_identity::{self, Holder};
use crate::reader_account::{self, Own};
use crate::retry::forever;
use crate::settings::Settings;
use crate::trace::Remembered;

const HEAD_AGAIN: Duration = Duration::from_millis(200);

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
    /// The log's first sequence; refreshed by `head`.
    pub first: AtomicU64,
    /// Query answers are at least as recent.
    pub followed_to: AtomicU64,
    /// Even for tasks started on a service's own thread.
    home: tokio::runtime::Handle,
    pub traces: Mutex<Remembered>,
    pub feed: Feed,
    /// Met by a follower.
    pub newer_format: watch::Sender<Option<NewerFormat>>,
}

impl Log {
    /// Connects, retrying for `settings.connect_timeout`.
    ///
    /// # Errors
    /// When there is no broker, it does not accept the credentials, or the log has a format that this build does
    /// not read.
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
                first: AtomicU64::new(1),
                followed_to: AtomicU64::new(0),
                home: tokio::runtime::Handle::current(),
                traces: Mutex::new(Remembered::default()),
                feed: Feed::default(),
                newer_format: watch::Sender::new(None),
            }),
        };
        // Fails harmlessly before the streams exist.
        if *log.holder() == Holder::Operator {
            let _ = log.head().await;
            log.check_format().await?;
        }
        Ok(log)
    }

    /// Closes the connection for all clones.
    pub async fn close(&self) {
        self.inner.connection.close().await;
    }

    /// Returns the stream's name and creation time, or those of the log that it continues; empty before.
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
        let origin = info.config.metadata.get(ORIGIN).cloned();
        let identity = origin.unwrap_or_else(|| format!("{name}@{}", decode::timestamp(created)));
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
        let first = info.state.first_sequence.max(1);
        self.inner.first.store(first, Ordering::Relaxed);
        // An empty stream may have a last sequence.
        match info.state.messages {
            0 => Ok(Sequence(0)),
            _ => Ok(Sequence(info.state.last_sequence)),
        }
    }

    /// Returns the last sequence once the leader answers.
    pub(crate) async fn head_patiently(&self) -> Sequence {
        let unknown = |error: LogError| tracing::debug!(%error, "the head is not known");
        forever(HEAD_AGAIN, unknown, || self.head()).await
    }

    /// Returns the first sequence as of the last [`Log::head`]; those before are trimmed.
    #[must_use]
    pub fn first(&self) -> Sequence {
        Sequence(self.inner.first.load(Ordering::Relaxed))
    }

    /// Reports whether the log stream has replicas.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.inner.replicated.load(Ordering::Relaxed)
    }

    /// Returns the owner of this client's key.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.inner.holder
    }

    /// Returns the tenant of this client's key.
    #[must_use]
    pub fn tenant(&self) -> Option<&TenantId> {
        match self.holder() {
            Holder::Tenant { tenant, .. } => Some(tenant),
            Holder::Operator | Holder::Unknown => None,
        }
    }

    /// Reports whether a person's separate account reads the log and sends queries only.
    #[must_use]
    pub fn is_persons(&self) -> bool {
        let own = self.inner.own.as_ref();
        own.is_some_and(|own| own.name.is_none())
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

pub(crate) fn is_absent(error: &GetStreamError) -> bool {
    let absent = ErrorCode::STREAM_NOT_FOUND;
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == absent)
}
