//! Times and durations of accounting records.

use dormouse_messages::Timestamp;

const NO_TIME: &str = "is no time; write 2026-11-01T10:00:00, or seconds";
const NO_DURATION: &str = "is no duration; write 1-02:03:04 (days, hours, minutes, seconds)";

/// Parses `2026-11-01T10:00:00` or seconds into seconds; `None` for `Unknown` and its like. Clusters print
/// local time, so that differences are off by an hour across a change of the clocks.
///
/// # Errors
/// The text is no time.
pub fn time_s(text: &str) -> Result<Option<i64>, &'static str> {
    if is_absent(text) {
        return Ok(None);
    }
    if let Some(seconds) = seconds(text) {
        return Ok(Some(seconds));
    }
    let parse = |text: &str| text.parse::<Timestamp>().ok();
    let written = match (text.len(), text.get(..10), text.get(11..)) {
        // Date and time without a zone, in the form that a timestamp reads fastest.
        (19, Some(date), Some(time)) => parse(&format!("{date}T{time}.000000Z")),
        _ => parse(text),
    };
    let micros = written.ok_or(NO_TIME)?.as_micros();
    Ok(Some(micros.div_euclid(1_000_000)))
}

/// True for the words that stand for a missing value.
pub fn is_absent(text: &str) -> bool {
    ["", "unknown", "none", "n/a", "nan", "null"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

/// Whole seconds of `86400` or `86400.5`.
fn seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if is_number(whole) && is_number(fraction) {
        // Far below the limits of the simulated clock.
        whole.parse().ok().filter(|seconds| *seconds < 1 << 40)
    } else {
        None
    }
}

/// Parses whole seconds of `3600` or `3600.5`, a duration in its raw form.
///
/// # Errors
/// The text is no number.
pub fn raw_s(text: &str) -> Result<Option<u64>, &'static str> {
    if is_absent(text) {
        return Ok(None);
    }
    let seconds = seconds(text).and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map(Some).ok_or("is no number of seconds")
}

/// Parses Slurm's `[days-]hours:minutes:seconds`, also `minutes:seconds`; `None` for a missing value.
///
/// # Errors
/// The text is no duration.
pub fn duration_s(text: &str) -> Result<Option<u64>, &'static str> {
    if is_absent(text) {
        return Ok(None);
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let mut parts = 0;
    let mut total = days.parse::<u64>().ok();
    for part in clock.split(':') {
        let part = part.parse::<u64>().ok();
        // The first part of `minutes:seconds` stands two places lower.
        let scale = match parts {
            0 if clock.matches(':').count() == 2 => 24,
            0 => 24 * 60,
            _ => 60,
        };
        total = total
            .and_then(|it| it.checked_mul(scale))
            .zip(part)
            .and_then(|(total, part)| total.checked_add(part));
        parts += 1;
    }
    match total {
        Some(total) if (2..=3).contains(&parts) && total < 1 << 40 => Ok(Some(total)),
        _ => Err(NO_DURATION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read() {
        let at = |text| time_s(text).expect("a time");
        assert_eq!(at("1970-01-02T00:00:01"), Some(86_401));
        assert_eq!(at("1970-01-02 00:00:01"), Some(86_401));
        assert_eq!(at("1970-01-02T00:00:01Z"), Some(86_401));
        assert_eq!(at("9437497"), Some(9_437_497));
        assert_eq!(at("9437497.0"), Some(9_437_497));
        for absent in ["Unknown", "None", "", "nan", "N/A"] {
            assert_eq!(at(absent), None, "{absent}");
        }
        for wrong in ["yesterday", "2026-13-01T00:00:00", "2026-11-01", "-5"] {
            assert!(time_s(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_read() {
        let of = |text| duration_s(text).expect("a duration");
        assert_eq!(of("00:01:05"), Some(65));
        assert_eq!(of("01:05"), Some(65));
        assert_eq!(of("2-03:04:05"), Some(2 * 86_400 + 3 * 3_600 + 4 * 60 + 5));
        assert_eq!(of("01:05.250"), Some(65));
        assert_eq!(of(""), None);
        for wrong in ["65", "1:2:3:4", "a:b", "1-", "99999999999999999-00:00:00"] {
            assert!(duration_s(wrong).is_err(), "{wrong}");
        }
        assert_eq!(raw_s("65"), Ok(Some(65)));
        assert_eq!(raw_s("Unknown"), Ok(None));
        assert!(raw_s("1:05").is_err());
    }
}
