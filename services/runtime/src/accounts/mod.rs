//! Accounts at the broker, made on a running cluster: who has one, what it may, and its keys.
//!
//! 1. [`plan`]: what each account exports, imports and lets its users do. The same as
//!    `deploy/nats/make-accounts.sh` writes for brokers with a static file; a test holds both to one
//!    table, on a real broker.
//! 2. [`claims`]: the same as claims that the cluster's own key signs (NATS's JWTs), and credentials.
//! 3. [`resolver`]: claims are sent to the brokers, which keep them and close the connections of what
//!    is revoked.

pub mod claims;
pub mod plan;
pub mod resolver;

pub use claims::{Claims, Credentials, Root};
pub use plan::{Principal, SERVICES};
pub use resolver::{AccountError, Accounts, Beginning, Issued};
