//! The gateway: a reverse proxy in front of services' replicas. Its routes are a fold of the log; it reports
//! traffic for the autoscaler, and works on without the log.
//!
//! - Pure: [`routes`], [`served`], [`balance`], [`digest`] (sums), [`drain`], [`target`] (which service),
//!   [`access`], [`notebook`], [`headers`].
//! - Driver: `run`, `server` (threads), `proxy` (one request), `kept` (snapshots).
//! - State: `hub` (all), `live` (one service), `visit` (one request); `upstream`, `body`, `splice`, `watched`
//!   (connections), `words` (own answers).
//!
//! Invariant: an accepted request is answered, or its client gets a reason.

pub mod access;
pub mod balance;
mod body;
mod config;
pub mod digest;
pub mod drain;
pub mod headers;
mod hub;
mod kept;
mod live;
pub mod notebook;
mod proxy;
pub mod routes;
mod run;
pub mod served;
mod server;
mod splice;
pub mod target;
mod upstream;
mod visit;
mod watched;
mod words;

pub use access::{Key, Trust};
pub use config::{Config, GatewayError, Keep, LEASE, read_secret};
pub use run::Gateway;
