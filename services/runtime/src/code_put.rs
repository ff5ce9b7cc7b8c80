//! Packed folders stored by tenants, whose keys may not write the stream: a request per piece to the query
//! service at `<prefix>.tenant.<tenant>.api.code.<SHA-256>.<bytes>.<first byte>`.
//!
//! 1. A piece is stored if it fits its place, the tenant's space and the tenant's rate. Complete folders are
//!    never rewritten.
//! 2. The last piece is stored once the others exist and the digest matches, so a complete folder is
//!    authentic.
//! 3. Incomplete folders expire ten minutes after their last piece.
//!
//! A copy of the service remembers only rates and uploads, so any copy takes any piece.

mod intake;
mod send;

use serde::{Deserialize, Serialize};

/// Error header of an answer.
const REFUSED: &str = "Nats-Service-Error";
const AT_ONCE: usize = 4;

/// Answer to a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    /// True if the folder is complete.
    whole: bool,
    /// True if it was complete before.
    was_whole: bool,
}
