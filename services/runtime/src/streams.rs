//! The streams and the lease bucket, as they must be configured.

use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, RetentionPolicy, StorageType,
};
use dormouse_messages::Prefix;

/// An ambiguous append is settled by the log itself (see `appender`), so that this window is a
/// second line of defence only; two minutes outlast a failed-over leader.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// What intake has recorded is on the log; the ingress keeps a week for whoever wants to look.
const INGRESS_MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A tenant that floods the ingress fills this, then is refused; it cannot fill the disk.
const INGRESS_MAX_BYTES: i64 = 4 << 30;

/// A broker with less room than this is too small.
const LEAST_MAX_BYTES: i64 = 64 << 20;

/// What a stream tries to reserve of the broker's room, the most first: a small disk has less.
pub(crate) fn reservations(max_bytes: i64) -> impl Iterator<Item = i64> {
    let less = |max_bytes: &i64| Some(max_bytes / 4).filter(|less| *less >= LEAST_MAX_BYTES);
    std::iter::successors(Some(max_bytes), less)
}

/// How long the broker keeps the marker of an ended lease.
const LEASE_MARKER: Duration = Duration::from_secs(3600);

/// The log: nothing is ever deleted, and what does not fit is refused.
pub(crate) fn log(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.log_stream(),
        subjects: vec![prefix.log()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        duplicate_window: DUPLICATE_WINDOW,
        discard: DiscardPolicy::New,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        allow_atomic_publish: true,
        compression: Some(Compression::S2),
        max_messages: -1,
        max_bytes: -1,
        description: Some("Dormouse: every fact, in one order".to_owned()),
        ..Config::default()
    }
}

/// The ingress: what tenants publish, until intake has recorded it.
pub(crate) fn ingress(prefix: &Prefix, replicas: usize) -> Config {
    Config {
        name: prefix.ingress_stream(),
        subjects: vec![prefix.ingress()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        duplicate_window: DUPLICATE_WINDOW,
        discard: DiscardPolicy::New,
        allow_direct: true,
        compression: Some(Compression::S2),
        max_messages: -1,
        max_bytes: INGRESS_MAX_BYTES,
        max_age: INGRESS_MAX_AGE,
        description: Some("Dormouse: what tenants ask for".to_owned()),
        ..Config::default()
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
