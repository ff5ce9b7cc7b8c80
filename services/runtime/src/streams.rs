//! The streams and the lease bucket, as they must be configured.

use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, RetentionPolicy, Source, StorageType,
};
use dormouse_messages::Prefix;

/// An ambiguous append is settled by the log itself (see `appender`), so that this window is a
/// second line of defence only; two minutes outlast a failed-over leader.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// What intake has recorded leaves the ingress; what nobody records in a week is given up.
const INGRESS_MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// All tenants' submissions that wait to be recorded.
const INGRESS_MAX_BYTES: i64 = 6 << 30;

/// Messages that wait under one subject: of one tenant, of one verb. What a tenant publishes beyond
/// that the broker refuses, and takes the other tenants' on.
const INGRESS_MAX_WAITING: i64 = 1_024;

/// What is larger than a submission can be is refused with a reason on the log up to this, and by the
/// broker beyond: all that one tenant may have waiting is less than the stream holds.
const INGRESS_MAX_MESSAGE: i32 = 1_280 << 10;

/// A broker with less room than this is too small.
const LEAST_MAX_BYTES: i64 = 64 << 20;

/// What a stream tries to reserve of the broker's room, the most first: a small disk has less.
pub(crate) fn reservations(max_bytes: i64) -> impl Iterator<Item = i64> {
    let less = |max_bytes: &i64| Some(max_bytes / 4).filter(|less| *less >= LEAST_MAX_BYTES);
    std::iter::successors(Some(max_bytes), less)
}

/// A broker that was killed goes on writing, at times, behind what it had compressed before, and such
/// a block cannot be read again (nats-server 2.15.1): with three brokers all copies of the log were
/// lost so within minutes of faults.
const UNCOMPRESSED: Option<Compression> = Some(Compression::None);

/// How long the broker keeps the marker of an ended lease.
const LEASE_MARKER: Duration = Duration::from_secs(3600);

/// A stream without bounds, in files: every setting as the broker writes it, so that it can be compared.
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

/// The log: nothing is ever deleted, and what does not fit is refused.
pub(crate) fn log(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.log_stream(),
        subjects: vec![prefix.log()],
        num_replicas: replicas,
        discard: DiscardPolicy::New,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        allow_atomic_publish: true,
        description: Some("Dormouse: every fact, in one order".to_owned()),
        ..plain()
    }
}

/// A source that never has a message.
fn nothing(prefix: &Prefix) -> Source {
    Source {
        name: prefix.log_stream(),
        filter_subject: Some(format!("{}.log.nothing", prefix.as_str())),
        ..Source::default()
    }
}

/// The ingress: what tenants publish, until intake has recorded it.
pub(crate) fn ingress(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.ingress_stream(),
        subjects: prefix.ingress(),
        num_replicas: replicas,
        // None. Ids are compared over the whole stream: one tenant's would make another's message a
        // duplicate. The broker has a window of its own where none is named, but for streams that
        // have a source.
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

/// All tenants' packed folders.
const CODE_MAX_BYTES: i64 = 16 << 30;

/// The store of packed folders: a message a piece, which stays until it is purged. The packed folders
/// of one tenant are bounded by whoever stores them ([`crate::code`]).
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

/// The leases: one value a key, ended by the broker.
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
