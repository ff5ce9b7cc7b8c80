//! Common parts of drawings: escaping, and axes with round steps.

/// Escapes a bounded text without control characters.
pub fn escape(text: &str) -> String {
    let shown = dormouse_messages::sanitize::shown(text);
    let escaped = shown.chars().map(|letter| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        other => other.to_string(),
    });
    escaped.collect()
}

/// Converts a count to a coordinate.
#[expect(
    clippy::cast_precision_loss,
    reason = "a drawing's few thousand elements"
)]
pub fn number(count: usize) -> f64 {
    count as f64
}

/// Returns about five round steps from 0 to at least `end`: 1, 2, 2.5 or 5 times a power of ten.
pub fn ticks(end: f64) -> Vec<f64> {
    let rough = (end / 5.0).max(1e-9);
    let power = libm::pow(10.0, libm::log10(rough).floor());
    let fits = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough * 0.999);
    let step = fits.unwrap_or(10.0) * power;
    let mut ticks = vec![0.0];
    // At most ten steps fit, since a step is at least a fifth of the end.
    while ticks.last().is_some_and(|last| *last < end - 1e-9) && ticks.len() < 12 {
        ticks.push(number(ticks.len()) * step);
    }
    ticks
}

pub fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        assert_eq!(ticks(1.8), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(ticks(24.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(label(2.5), "2.5");
        assert_eq!(label(20.0), "20");
        assert_eq!(escape("a<b & \"c\""), "a&lt;b &amp; &quot;c&quot;");
    }
}
