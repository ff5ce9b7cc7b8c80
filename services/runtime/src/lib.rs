//! Runs deciders on NATS. The only crate that names the broker.
//!
//! - `shell`, `observations`, `snapshot`, `clock`, `clock_anchor`, `ingress`: a decider's actors, [`run_service`].
//! - `states`: folded states on the broker, to start from. `trim`: removes the log's beginning. `room`: how full
//!   the log is.
//! - `log`, `connection`, `answer`: the connection. Reading: `shared_follower`, `feed`, `follow`, `fetch`,
//!   `ranges`, `decode`, `rollback`, `reader_account`, `status_reader`. Writing: `publish`, `appender`,
//!   `streams`, `stream_setup`, `import`.
//! - `lease`, `lease_watch`: liveness. `code`, `code_put`: packed folders. `pieces`: messages of both stores.
//! - `api`, `node_api`, `fair_queue`, `status`, `tenant`: queries, status messages, a tenant's client.
//! - `accounts`, `key_identity`, `credentials`: keys. `broker`: the supervised nats-server.
//! - `aside`: threads for slow work. `retry`: repeated attempts. `telemetry`, `spans`, `trace`, `sampling`, `counters`, `health`: observation.

pub mod accounts;
mod answer;
mod api;
mod appender;
mod aside;
mod broker;
mod clock;
mod clock_anchor;
mod code;
mod code_put;
mod connection;
mod counters;
mod credentials;
mod decode;
mod error;
mod fair_queue;
mod feed;
mod fetch;
mod follow;
mod health;
mod import;
mod ingress;
mod key_identity;
mod latest_event;
mod lease;
mod lease_watch;
mod log;
mod node_api;
mod observations;
mod pieces;
mod presence;
mod publish;
mod ranges;
mod reader_account;
mod retry;
mod rollback;
mod room;
mod sampling;
mod settings;
mod shared_follower;
mod shell;
mod snapshot;
mod spans;
mod states;
mod status;
mod status_reader;
mod stream_setup;
mod streams;
pub mod telemetry;
pub mod tenant;
mod trace;
mod trim;

pub use api::{ApiError, Asked};
pub use appender::Appender;
pub use aside::aside;
pub use broker::{BrokerConfig, LocalBroker};
pub use clock::{Clock, SteadyClock, SystemClock, WakefulClock};
pub use code::{CodeError, CodeStore, Stored};
pub use decode::LogItem;
pub use error::{AppendError, BrokerError, LogError, LogWentBack};
pub use health::{BrokerState, FoundStream, StreamState};
pub use ingress::{IngressSource, IntakeOf};
pub use key_identity::Holder;
pub use lease::{Hold, Lease, LeaseState, LeaseValue, Leases, RenewError, home};
pub use lease_watch::{LeaseTable, Lost, LostGateway};
pub use log::Log;
pub use node_api::{NodeAnswer, NodeAnswered};
pub use observations::{Inputs, LeaseWatcher, LocalNodes, Observation, Watched};
pub use retry::{UNBOUNDED, forever, retry};
pub use room::{Bounds, LogRoom};
pub use settings::{Settings, Tls, is_local};
pub use shell::{ServiceError, ServiceOptions, run_service};
pub use snapshot::{Snapshot, Snapshots};
pub use states::{StartError, States};
pub use status::Published;
