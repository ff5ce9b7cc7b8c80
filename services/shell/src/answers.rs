//! What a broker knows an append by, and what its refusal means: the error codes of nats-server 2.15.
//!
//! Only what never changes is a refusal. What is in flight is stored, or not, a moment later; a broker
//! that cannot say is asked again.

/// Another message came before: the fence does not hold.
pub const WRONG_LAST_SEQUENCE: u64 = 10_071;

/// Another message came between this one and the one that it was to follow.
pub const WRONG_LAST_ID: u64 = 10_070;

/// A member of a batch is stored already.
pub const DUPLICATE_IN_BATCH: u64 = 10_201;

/// The same id is proposed and not applied yet.
pub const DUPLICATE_IN_PROCESS: u64 = 10_158;

/// Another message under the same fence is proposed and not applied yet.
pub const FENCE_IN_PROCESS: u64 = 10_164;

/// The leader changed, or waited too long, between the members of a batch: nothing is stored.
pub const INCOMPLETE_BATCH: u64 = 10_176;

/// Nobody leads the stream.
pub const NOT_AVAILABLE: u64 = 10_008;

/// What is known of an append that was answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Another append came before.
    Conflict,
    /// Perhaps stored, perhaps not, perhaps later.
    Doubt,
    /// Never.
    Refused,
}

/// What an error means, by its code and its status.
#[must_use]
pub const fn meaning(err_code: u64, status: u64) -> Meaning {
    match (err_code, status) {
        (WRONG_LAST_SEQUENCE | DUPLICATE_IN_BATCH, _) => Meaning::Conflict,
        (DUPLICATE_IN_PROCESS | FENCE_IN_PROCESS | INCOMPLETE_BATCH, _) => Meaning::Doubt,
        // 5xx: no leader, no resources, a server that is going down; 408 and 429: too slow, too
        // many at once.
        (_, 408 | 429 | 500..) => Meaning::Doubt,
        _ => Meaning::Refused,
    }
}

/// The id of a message: the same for the same append. `name` begins it: the writer, for all copies of a
/// service alike; for a writer that folds nothing also which one it is, because two of them may append
/// the same data. `expected`: the last own sequence on which it builds; `index`: which of the appends
/// that build on that.
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
        // As nats-server 2.15 answers: error code, status, what it means here.
        for (err_code, status, expected) in [
            (10_071, 400, Meaning::Conflict),
            (10_201, 400, Meaning::Conflict),
            (10_158, 409, Meaning::Doubt),
            (10_164, 400, Meaning::Doubt),
            (10_176, 400, Meaning::Doubt),
            (10_210, 429, Meaning::Doubt),
            (10_008, 503, Meaning::Doubt),
            (10_077, 503, Meaning::Doubt),
            (10_054, 400, Meaning::Refused),
            (10_109, 400, Meaning::Refused),
        ] {
            assert_eq!(meaning(err_code, status), expected, "{err_code}");
        }
    }
}
