//! Durations and sizes as users write them, one form for every flag.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use dormouse_messages::Resource;
pub use dormouse_messages::Span;
use dormouse_messages::quantity::lacks_unit;

/// The flag value that lifts a bound.
const NONE: &str = "none";

/// Parses a duration within bounds.
///
/// # Errors
/// A message with the expected forms or the bounds.
pub fn between(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let Span(span) = text.parse()?;
    if bounds.contains(&span) {
        Ok(span)
    } else {
        let (least, most) = bounds.into_inner();
        Err(format!(
            "write a time from {} to {}",
            Span(least),
            Span(most)
        ))
    }
}

/// A limit in seconds; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub u32);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(0));
        }
        let Span(span) = text.parse()?;
        u32::try_from(span.as_secs())
            .map(Self)
            .map_err(|_| format!("{text} is longer than anything runs"))
    }
}

/// Parses a number of bytes: `64Mi`, `1.5Gi`.
///
/// # Errors
/// A message with the mistake.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = Resource::Memory.parse(text);
    let bytes = bytes.map_err(|error| error.to_string())?;
    match lacks_unit(bytes) {
        Some(why) => Err(why),
        None if bytes == 0 => Err(format!("write a size such as 64Mi, or {NONE}")),
        None => Ok(bytes),
    }
}

/// A bound on bytes; `none` lifts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit(pub Option<u64>);

impl FromStr for SizeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            NONE => Ok(Self(None)),
            text => size(text).map(|bytes| Self(Some(bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_none_lifts_a_bound() {
        assert_eq!(size("64Mi"), Ok(64 << 20));
        assert_eq!("none".parse(), Ok(Limit(0)));
        assert_eq!("none".parse(), Ok(SizeLimit(None)));
        assert!(size("64").is_err() && size("0").is_err() && size("much").is_err());
    }
}
