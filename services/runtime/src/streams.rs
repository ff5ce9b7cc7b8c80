//! Configuration of the streams and the lease bucket.

use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, RetentionPolicy, Source, StorageType,
};
use dormouse_messages::Prefix;

/// A second line of defence, since `appender` resolves ambiguous appends; outlasts a fail-over.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// Submissions that nobody records expire.
const INGRESS_MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bound of all tenants' waiting submissions.
const INGRESS_MAX_BYTES: i64 = 6 << 30;

/// Per tenant and verb: an overflow harms no others.
const INGRESS_MAX_WAITING: i64 = 1_024;

/// Up to this intake records a refusal; beyond, the broker refuses. One tenant cannot fill
/// [`INGRESS_MAX_BYTES`].
const INGRESS_MAX_MESSAGE: i32 = 1_280 << 10;

/// A smaller broker is refused.
const LEAST_MAX_BYTES: i64 = 64 << 20;

/// The lease of the process that makes the streams.
pub(crate) const STREAMS_LEASE: &str = "streams";

/// Returns decreasing reservations to try.
pub(crate) fn reservations(max_bytes: i64) -> impl Iterator<Item = i64> {
    let less = |max_bytes: &i64| Some(max_bytes / 4).filter(|less| *less >= LEAST_MAX_BYTES);
    std::iter::successors(Some(max_bytes), less)
}

/// nats-server 2.15.1, when killed, may write after a compressed block, which then is unreadable: faults
/// destroyed all copies of a log.
const UNCOMPRESSED: Option<Compression> = Some(Compression::None);

const LEASE_MARKER: Duration = Duration::from_secs(3600);

/// Every setting as the broker reports it, for comparison.
fn plain() -> Config {
    Config {
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        duplicate_window: DUPLICATE_WINDOW,
        compression: UNCOMPRESSED,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_message_size: -1,
        max_consumers: -1,
        ..Config::default()
    }
}

/// Returns the log: overflow is refused, single events are never deleted, and only the archiver's account may
/// purge archived events.
pub(crate) fn log(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.log_stream(),
        subjects: vec![prefix.log()],
        num_replicas: replicas,
        discard: DiscardPolicy::New,
        deny_delete: true,
        allow_direct: true,
        allow_atomic_publish: true,
        description: Some("Dormouse: every fact, in one order".to_owned()),
        ..plain()
    }
}

/// Returns a source that never has a message.
fn nothing(prefix: &Prefix) -> Source {
    Source {
        name: prefix.log_stream(),
        filter_subject: Some(format!("{}.log.nothing", prefix.as_str())),
        ..Source::default()
    }
}

pub(crate) fn ingress(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.ingress_stream(),
        subjects: prefix.ingress(),
        num_replicas: replicas,
        // Ids are compared over the whole stream, and tenants' ids may collide. The broker replaces 0 by a
        // default, except with a source.
        duplicate_window: Duration::ZERO,
        sources: Some(vec![nothing(prefix)]),
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: INGRESS_MAX_WAITING,
        max_message_size: INGRESS_MAX_MESSAGE,
        allow_direct: true,
        max_bytes: INGRESS_MAX_BYTES,
        max_age: INGRESS_MAX_AGE,
        description: Some("Dormouse: what tenants ask for".to_owned()),
        ..plain()
    }
}

/// Bound of all tenants' packed folders.
const CODE_MAX_BYTES: i64 = 16 << 30;

/// A message per piece; [`crate::code`] bounds a tenant's share.
pub(crate) fn code(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.code_stream(),
        subjects: vec![prefix.code()],
        num_replicas: replicas,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        allow_direct: true,
        max_bytes: CODE_MAX_BYTES,
        description: Some("Dormouse: the code that goes with jobs".to_owned()),
        ..plain()
    }
}

/// States of all folds, twice.
const STATES_MAX_BYTES: i64 = 16 << 30;

/// A message per piece of a state.
pub(crate) fn states(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.states_stream(),
        subjects: vec![prefix.states()],
        num_replicas: replicas,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        allow_direct: true,
        max_bytes: STATES_MAX_BYTES,
        description: Some("Dormouse: folded states to start from".to_owned()),
        ..plain()
    }
}

pub(crate) fn leases(prefix: &Prefix, replicas: usize) -> kv::Config {
    kv::Config {
        bucket: prefix.lease_bucket(),
        description: "Dormouse: who is active, which nodes live".to_owned(),
        history: 1,
        storage: StorageType::File,
        num_replicas: replicas,
        limit_markers: Some(LEASE_MARKER),
        ..kv::Config::default()
    }
}
