//! Accounts on running brokers.
//!
//! - [`plan`]: exports, imports and permissions; equal to `deploy/nats/make-accounts.sh`, by a test on a
//!   broker.
//! - [`claims`]: the plan as NATS JWTs signed by the cluster's key, and credentials.
//! - [`resolver`]: sends claims to the brokers, which disconnect revoked keys.

pub mod claims;
pub mod plan;
pub mod resolver;

pub use claims::{Claims, Credentials, Root};
pub use plan::{Principal, SERVICES};
pub use resolver::{AccountError, Accounts, Beginning, Issued};
