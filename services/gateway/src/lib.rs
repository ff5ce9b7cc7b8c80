//! The gateway: a reverse proxy in front of services' replicas. Its routes are a fold of the log; it reports
//! traffic for the autoscaler, and works on without the log.
//!
//! - Pure: [`routes`], [`served`], [`balance`], [`window_stats`] (sums), [`drain`], [`target`] (which
//!   service), [`access`], [`notebook`], [`headers`].
//! - Driver: `run`, `server` (threads), `proxy` (one request), `snapshot` (snapshots).
//! - State: `shared_state` (all), `service` (one service), `in_flight` (one request);
//!   `upstream`, `body`, `answer`, `splice`, `watched` (connections), `responses` (own answers).
//!
//! Invariant: an accepted request is answered, or its client gets a reason.

pub mod access;
mod answer;
pub mod balance;
mod body;
mod config;
pub mod drain;
pub mod headers;
mod in_flight;
pub mod notebook;
mod proxy;
mod responses;
mod run;
mod server;
mod service;
mod shared_state;
mod snapshot;
mod splice;
pub mod target;
mod upstream;
mod watched;
pub mod window_stats;

pub use access::{Key, Trust};
pub use config::{Config, GatewayError, Keep, LEASE, read_secret};
pub use run::Gateway;
