//! The gateway: a reverse proxy before the replicas of services.
//!
//! Its routes are a fold of the log, its load and its drains are counted here, and what clients saw
//! goes back to the log, where the autoscaler reads it. Without the log it goes on with its last
//! routes.
//!
//! ```text
//! pure:    routes   the log folded into services and usable replicas
//!          balance  one queue a service, the least loaded replica below its limit
//!          digest   sums by the second: service.measured
//!          drain    which gateway.unrouted are due
//!          target, access, notebook, headers   which service, who may, what is passed on
//! driver:  run      follows, tells ─ server  listener, threads ─ proxy  one request
//!          hub ─ live (one service) ─ visit (one request's stay) ─ upstream, body, splice
//! ```
//!
//! Hyper on both sides: HTTP/1.1 and HTTP/2 in front, HTTP/1.1 to replicas. What it protects: a
//! request that was accepted is answered, or its client is told why not; none is lost because a
//! replica goes in order.

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
