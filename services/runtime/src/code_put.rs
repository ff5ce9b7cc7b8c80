//! Packed folders from tenants, whose keys may not write the stream: a request per piece at
//! `<prefix>.tenant.<tenant>.api.code.<SHA-256>.<bytes>.<first byte>`. `send`: the client; `intake`: the
//! service.
//!
//! 1. A piece must fit its place, the tenant's space and rate. Complete folders are never rewritten.
//! 2. The last piece is stored once the others exist and the digest matches.
//! 3. Incomplete folders expire.
//!
//! Any copy of the service takes any piece.

mod intake;
mod send;

use serde::{Deserialize, Serialize};

const REFUSED: &str = "Nats-Service-Error";
const AT_ONCE: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    whole: bool,
    was_whole: bool,
}
