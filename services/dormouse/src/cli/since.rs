//! Points in time and durations as users write them.

use std::str::FromStr;

use dormouse_messages::Timestamp;

/// An age in seconds, or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Ago(u64),
    At(Timestamp),
}

impl Since {
    /// Returns the time, given `now`.
    #[must_use]
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(seconds) => {
                let micros = i64::try_from(seconds.saturating_mul(1_000_000));
                Timestamp::from_micros(now.as_micros() - micros.unwrap_or(i64::MAX / 2))
            }
            Self::At(time) => time,
        }
    }
}

/// Parses seconds: `90s`, `10m`, `2h`, `1d`; a bare number is seconds.
///
/// # Errors
/// A message with the expected forms.
pub fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    let number: Option<u64> = digits.parse().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds
        .filter(|_| unit > 0)
        .ok_or_else(|| format!("{text:?} is no time such as 90s, 10m, 2h or 1d"))
}

/// A limit in seconds; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub u32);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(0)),
            text => u32::try_from(seconds(text)?)
                .map(Self)
                .map_err(|_| format!("{text} is longer than anything runs")),
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(time) => Ok(Self::At(time)),
            Err(_) => seconds(text)
                .map(Self::Ago)
                .map_err(|error| format!("{error}, nor one like 2026-11-23T05:30:00Z")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("90", 90),
            ("90s", 90),
            ("10m", 600),
            ("2h", 7_200),
            ("1d", 86_400),
        ] {
            assert_eq!(text.parse(), Ok(Since::Ago(expected)), "{text}");
        }
        let time: Since = "2026-11-23T05:30:00Z".parse().expect("a time");
        assert!(matches!(time, Since::At(_)));
        for text in ["", "m", "10x", "-5m", "99999999999999999999s"] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
    }
}
