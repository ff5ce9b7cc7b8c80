//! Points in time, written as RFC 3339 UTC. A `Timestamp` comes from the broker or the caller, as pure crates
//! read no clock.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns a time from microseconds.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns microseconds.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Adds milliseconds.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1000)))
    }

    /// Subtracts milliseconds.
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(ms.saturating_mul(1000)))
    }

    /// Returns seconds; negative when `earlier` is later.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "285 years of microseconds are exact"
    )]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / 1e6
    }

    /// Returns microseconds, 0 when `earlier` is later.
    #[must_use]
    pub fn micros_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Returns whole milliseconds, 0 when `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from((self.0 - earlier.0) / 1000).unwrap_or(0)
    }
}

impl Timestamp {
    /// Formats `2026-11-21 10:00:05Z`.
    #[must_use]
    pub fn to_words(self) -> String {
        let text = self.to_string();
        match (text.get(..10), text.get(11..19)) {
            (Some(date), Some(clock)) => format!("{date} {clock}Z"),
            _ => text,
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// The text is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time such as 2026-11-21T10:00:00Z")]
pub struct TimestampError(String);

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        if let Some(time) = Self::as_written(text.as_bytes()) {
            return Ok(time);
        }
        text.parse::<jiff::Timestamp>()
            .map(|timestamp| Self(timestamp.as_microsecond()))
            .map_err(|_| TimestampError(text.to_owned()))
    }
}

impl Timestamp {
    /// A parser for our own form, `2026-11-21T10:00:00.004000Z`, speeds up reading a log.
    fn as_written(text: &[u8]) -> Option<Self> {
        fn number<T: TryFrom<i32>>(digits: &[u8]) -> Option<T> {
            let add = |number: i32, digit: &u8| number * 10 + i32::from(digit - b'0');
            T::try_from(digits.iter().fold(0, add)).ok()
        }

        let text: &[u8; 27] = text.try_into().ok()?;
        let fits = |(byte, form): (&u8, &u8)| match form {
            b'0' => byte.is_ascii_digit(),
            mark => byte == mark,
        };
        if !text.iter().zip(b"0000-00-00T00:00:00.000000Z").all(fits) {
            return None;
        }
        let written = DateTime::new(
            number(&text[..4])?,
            number(&text[5..7])?,
            number(&text[8..10])?,
            number(&text[11..13])?,
            number(&text[14..16])?,
            number(&text[17..19])?,
            number::<i32>(&text[20..26])? * 1000,
        );
        Self::in_utc(written.ok()?)
    }

    /// Returns the time of a date, at midnight, or of a date and a time of day.
    pub(crate) fn in_utc(written: impl Into<DateTime>) -> Option<Self> {
        let timestamp = Offset::UTC.to_timestamp(written.into()).ok()?;
        Some(Self(timestamp.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parsed(deserializer)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back() {
        let time: Timestamp = "2026-11-21T10:00:00.004Z".parse().expect("valid");
        assert_eq!(time.to_string(), "2026-11-21T10:00:00.004000Z");
        assert_eq!(time.to_string().parse(), Ok(time));
        assert_eq!(time.to_words(), "2026-11-21 10:00:00Z");
        assert_eq!(time.plus_ms(6).ms_since(time), 6);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn the_short_way_reads_what_the_full_parser_reads() {
        // Covers leap days, ends of months, the year 2000 and times before 1970.
        for step in -110_000..110_000_i64 {
            let time = Timestamp::from_micros(step * 39_600_000_007);
            let text = time.to_string();
            let full = text.parse::<jiff::Timestamp>().expect("valid");
            assert_eq!(text.parse(), Ok(Timestamp(full.as_microsecond())), "{text}");
        }
    }

    #[test]
    fn the_short_way_takes_nothing_that_is_no_time() {
        for text in [
            "2026-13-21T10:00:00.004000Z",
            "2026-02-29T10:00:00.004000Z",
            "2026-11-21T24:00:00.004000Z",
            "2026-11-21T10:60:00.004000Z",
            "2026-11-21T10:00:00.00400aZ",
            "2026-11-21 10:00:00.004000 ",
            "0000-00-00T00:00:00.000000Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
