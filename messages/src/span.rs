//! Durations as users write them, one form for every document and flag.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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
    }
}
