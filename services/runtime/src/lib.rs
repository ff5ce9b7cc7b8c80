//! The one shell around every decider: log, fences, leases, snapshots, tracing.
//!
//! The only crate that names the broker. Its parts, from the outside in:
//!
//! ```text
//! run_service ─ shell: follower actor → decider actor ⇄ appender actor, lease, snapshots
//!                 │
//!                Log ─ follow/read (decoded events) · Appender (agents, operator)
//!                 │    Leases · IngressSource · LeaseWatcher · api
//!              Connection ─ one client: reconnects, permission violations
//! LocalBroker: the supervised child of `dormouse up`      telemetry: logs, traces, metrics
//! ```

mod appender;
mod broker;
mod clock;
mod connection;
mod decode;
mod error;
mod fetch;
mod follow;
mod inputs;
mod lease;
mod lease_watch;
mod log;
mod publish;
mod settings;
mod shell;
mod snapshot;
mod spans;
mod streams;
mod trace;

pub use appender::Appender;
pub use broker::{BrokerConfig, LocalBroker};
pub use clock::{Clock, SystemClock};
pub use decode::Followed;
pub use error::{AppendError, BrokerError, LogError};
pub use lease::{Lease, LeaseState, LeaseValue, Leases};
pub use lease_watch::{LeaseTable, Lost};
pub use log::Log;
pub use settings::{Settings, Tls};
pub use inputs::{IngressSource, Inputs, LeaseWatcher, Observed};
pub use shell::{ServiceError, ServiceOptions, build, run_service};
