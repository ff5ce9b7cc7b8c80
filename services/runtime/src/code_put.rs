//! Packed folders that tenants store with their own keys, which may not write the stream: a request
//! a piece, on `<prefix>.tenant.<tenant>.api.code.<SHA-256>.<bytes>.<first byte>`, answered by the
//! query service.
//!
//! 1. A piece is stored where it fits its place in an archive of that length, the tenant has room
//!    (`most_bytes` of [`Log::serve_code`](crate::Log::serve_code)) and does not send too fast. What is whole is never written again.
//! 2. The last piece is stored once the others are there and the digest of all is the name. So what
//!    is whole is what it is said to be.
//! 3. What is not whole after ten minutes without a piece goes.
//!
//! A copy of the service holds nothing but what it has seen begun and how fast each tenant sends:
//! any copy takes any piece. Who sends too much at once is answered at once, and sends again.

mod intake;
mod send;

use serde::{Deserialize, Serialize};

/// Where errors stand in an answer.
const REFUSED: &str = "Nats-Service-Error";
/// Pieces that are sent, or read again, at once.
const AT_ONCE: usize = 4;

/// What is said of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    /// Whether all of the folder is stored.
    whole: bool,
    /// Whether it was before.
    was_whole: bool,
}
