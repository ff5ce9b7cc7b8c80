//! Points in time, written as RFC 3339 UTC. A `Timestamp` comes from the broker or the caller, as pure crates
//! read no clock.

use std::fmt;
use std::str::FromStr;

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

/// A parser for our own form, `2026-11-21T10:00:00.004000Z`, speeds up reading a log.
impl Timestamp {
    fn as_written(text: &[u8]) -> Option<Self> {
        let text: &[u8; 27] = text.try_into().ok()?;
        let marks = [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'.'),
            (26, b'Z'),
        ];
        if marks.iter().any(|(at, mark)| text[*at] != *mark) {
            return None;
        }
        let number = |from: usize, to: usize| {
            text[from..to].iter().try_fold(0i64, |number, digit| {
                digit
                    .is_ascii_digit()
                    .then(|| number * 10 + i64::from(digit - b'0'))
            })
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        // Other days and leap seconds need the full parser.
        let plain =
            (1970..=9998).contains(&year) && (1..=12).contains(&month) && (1..=28).contains(&day);
        if !plain || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        // Days since 1970-01-01, in years from March (Hinnant, chrono-compatible low-level date algorithms,
        // `days_from_civil`).
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * month + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
        Some(Self(seconds * 1_000_000 + number(20, 26)?))
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
        // Covers leap days, ends of months and the year 2000.
        for step in 0..110_000_i64 {
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
