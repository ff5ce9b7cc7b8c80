//! Formats ages, sizes and shares.

use dormouse_messages::{Amounts, Timestamp};

/// Formats a duration in two units: `3m12s`.
pub fn age(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "0s".to_owned();
    }
    if seconds < 10.0 && seconds.fract() >= 0.05 {
        return format!("{seconds:.1}s");
    }
    let whole = std::time::Duration::from_secs_f64(seconds.min(1e15)).as_secs();
    match whole {
        0..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// Formats a time in UTC: `2026-11-21 10:00:05Z`.
pub fn date(time: Timestamp) -> String {
    time.to_words()
}

/// Formats bytes: `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(5);
    if unit == 0 {
        return format!("{bytes} B");
    }
    // No float is needed: 10 · bytes < 2^64 up to the largest amount.
    let tenths = bytes.saturating_mul(10) >> (10 * unit);
    let name = UNITS.get(unit as usize).copied().unwrap_or("PiB");
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = match size {
        s if s >= 100.0 => 1,
        s if s >= 1.0 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

pub(super) fn share(value: f64) -> String {
    format!("{value:.3}")
}

pub(super) fn used_of(used: &Amounts, capacity: &Amounts) -> String {
    let parts = capacity.iter().map(|(resource, amount)| {
        format!(
            "{} {}/{}",
            resource.name(),
            resource.display(used.get(resource)),
            resource.display(amount)
        )
    });
    parts.collect::<Vec<_>>().join(", ")
}

pub(super) fn count(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
