//! Weights in arguments.

use dormouse_messages::policy::MAX_WEIGHT;

/// Parses a weight.
///
/// # Errors
/// A message with the bounds.
pub fn weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok();
    let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
    weight.ok_or_else(|| format!("a weight is a whole number from 1 to {MAX_WEIGHT}"))
}
