//! Accounts of the brokers.
//!
//! - [`plan`]: exports, imports and permissions.
//! - [`mod@file`]: the plan as a file that the brokers read.
//! - [`claims`]: the plan as NATS JWTs signed by the cluster's key, and credentials.
//! - [`resolver`]: sends claims to the brokers, which disconnect revoked keys.
//!
//! Agents, gateways and persons have accounts of their own: nats-server checks no reply or delivery subject,
//! so that a client in the log's account could deliver bytes to any subject. Imports rewrite replies, and map
//! a person's subjects to ones with the person's name. Within one account the broker cannot map by user.
//!
//! Accounts of running brokers live in NATS's resolver, not behind an auth callout: a callout chooses only
//! among accounts of the brokers' file, and nobody connects while it is down. The log therefore does not hold
//! the rights.

pub mod claims;
pub mod file;
pub mod plan;
pub mod resolver;

pub use claims::{Claims, Credentials, Root};
pub use plan::{Principal, SERVICES};
pub use resolver::{AccountError, Accounts, Beginning, Issued};
