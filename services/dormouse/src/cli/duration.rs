//! Durations and sizes as users write them, one form for every flag.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use dormouse_messages::Resource;
use dormouse_messages::quantity::lacks_unit;

/// The flag value that lifts a bound.
const NONE: &str = "none";

/// A duration: `500ms`, `90s`, `10m`, `2h` or `1d`; a bare number is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// Largest unit first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no time such as 90s, 10m, 2h or 1d");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "" => "s",
            "min" => "m",
            unit => unit,
        };
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, unit_ms) = unit.ok_or_else(wrong)?;
        let millis = match (digits.parse::<u64>(), digits.parse::<f64>()) {
            (Ok(whole), _) => whole.checked_mul(*unit_ms).map(Duration::from_millis),
            (_, Ok(part)) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                Duration::try_from_secs_f64(part * Duration::from_millis(*unit_ms).as_secs_f64())
                    .ok()
            }
            _ => None,
        };
        millis.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |unit: &&(&str, u64)| millis.is_multiple_of(u128::from(unit.1));
        match UNITS.iter().find(fits) {
            Some((name, unit_ms)) if millis > 0 => {
                write!(f, "{}{name}", millis / u128::from(*unit_ms))
            }
            _ => write!(f, "{}s", self.0.as_secs_f64()),
        }
    }
}

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
        Err(format!("from {} to {}", Span(least), Span(most)))
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
    fn durations_are_read_as_people_write_them() {
        for (text, millis, written) in [
            ("90", 90_000, "90s"),
            ("90s", 90_000, "90s"),
            ("250ms", 250, "250ms"),
            ("0.2s", 200, "200ms"),
            ("10m", 600_000, "10m"),
            ("2h", 7_200_000, "2h"),
            ("1d", 86_400_000, "1d"),
            ("0", 0, "0s"),
        ] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.0.as_millis(), millis, "{text}");
            assert_eq!(span.to_string(), written);
        }
        for text in ["", "m", "10x", "-5m", "inf", "99999999999999999999s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert_eq!("none".parse(), Ok(Limit(0)));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("64Mi"), Ok(64 << 20));
        assert_eq!("none".parse(), Ok(SizeLimit(None)));
        assert!(size("64").is_err() && size("0").is_err() && size("much").is_err());
    }
}
