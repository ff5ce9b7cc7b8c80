//! Exact bounds of θ1 and θ2. ⌈θ1 · 2m⌉ and ⌈θ2 · |A_t ∩ A_t−1|⌉ (Dorm, equations 15 and 16) must be ceilings
//! of the written number: with floats 0.07 · 100 is 7.000000000000001 and its ceiling 8.

/// Returns ⌈θ · factor⌉ of the shortest decimal that reads as θ, exactly for a θ of at most 1.
#[must_use]
pub fn ceil_times(theta: f64, factor: u64) -> u64 {
    let text = theta.abs().to_string();
    let places = text.split_once('.').map_or(0, |(_, places)| places.len());
    let digits: u128 = text.replace('.', "").parse().unwrap_or(0);
    // 17 digits times the factor have fewer places than a saturated scale.
    let scale = 10u128.saturating_pow(u32::try_from(places).unwrap_or(u32::MAX));
    let product = digits.saturating_mul(factor.into());
    u64::try_from(product.div_ceil(scale)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::ceil_times;

    #[test]
    fn ceilings_are_of_the_number_that_was_written() {
        for (theta, factor, ceiling) in [
            (0.07, 100, 7),
            (0.1, 6, 1),
            (0.2, 6, 2),
            (0.0, 6, 0),
            (-0.0, 6, 0),
            (1.0, 6, 6),
            (0.012_345_678_901_234_567, 81, 1),
            (0.012_345_678_901_234_567, 82, 2),
            (1e-300, 0, 0),
            (1e-300, u64::MAX, 1),
            (1.0, u64::MAX, u64::MAX),
        ] {
            assert_eq!(ceil_times(theta, factor), ceiling, "{theta} {factor}");
        }
    }
}
