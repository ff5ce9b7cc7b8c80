//! Append ids, and the error codes of nats-server 2.15. Only a permanent error is a refusal.

use crate::Failure;

/// The fence failed.
pub const WRONG_LAST_SEQUENCE: u64 = 10_071;

/// A pipelined message lost its predecessor.
pub const WRONG_LAST_ID: u64 = 10_070;

/// A member of a batch is stored already.
pub const DUPLICATE_IN_BATCH: u64 = 10_201;

/// A proposal with this id is not applied yet.
pub const DUPLICATE_IN_PROCESS: u64 = 10_158;

/// Another proposal with this fence is not applied yet.
pub const FENCE_IN_PROCESS: u64 = 10_164;

/// The leader changed or timed out between members: nothing is stored.
pub const INCOMPLETE_BATCH: u64 = 10_176;

/// The stream has no leader.
pub const NOT_AVAILABLE: u64 = 10_008;

/// Interprets an error code and its status; `why` describes the error.
#[must_use]
pub fn failure(err_code: u64, status: u64, why: String) -> Failure {
    match (err_code, status) {
        (WRONG_LAST_SEQUENCE | DUPLICATE_IN_BATCH, _) => Failure::Conflict,
        (DUPLICATE_IN_PROCESS | FENCE_IN_PROCESS | INCOMPLETE_BATCH, _) => Failure::Doubt(why),
        // 5xx: no leader or resources, shutdown; 408, 429: overload.
        (_, 408 | 429 | 500..) => Failure::Doubt(why),
        _ => Failure::Refused(why),
    }
}

/// Returns an id, equal for a repeated append. `name`: the writer, with a token without a fold, since two may
/// append equal data; `expected`: the fence; `index`: the position.
#[must_use]
pub fn append_id(name: &str, expected: u64, index: usize, data: &[u8]) -> String {
    let hash = blake3::hash(data).to_hex();
    let hash = hash.get(..16).unwrap_or_default();
    format!("{name}-{expected}-{index}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_never_changes_is_refused() {
        type Means = fn(String) -> Failure;
        let cases: [(u64, u64, Means); 10] = [
            (10_071, 400, |_| Failure::Conflict),
            (10_201, 400, |_| Failure::Conflict),
            (10_158, 409, Failure::Doubt),
            (10_164, 400, Failure::Doubt),
            (10_176, 400, Failure::Doubt),
            (10_210, 429, Failure::Doubt),
            (10_008, 503, Failure::Doubt),
            (10_077, 503, Failure::Doubt),
            (10_054, 400, Failure::Refused),
            (10_109, 400, Failure::Refused),
        ];
        for (err_code, status, expected) in cases {
            let why = || "its description".to_owned();
            let found = failure(err_code, status, why());
            assert_eq!(found, expected(why()), "{err_code}");
        }
    }
}
