//! Splits integers in proportion by largest remainders, without rounding loss.

/// Splits `total` in proportion to `weights`. The largest fractions get the remainders, the first one at
/// a tie. All-zero weights get nothing.
pub fn apportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: &u64| u128::from(total) * u128::from(*weight);
    let mut parts: Vec<u64> = weights
        .iter()
        .map(|weight| u64::try_from(exact(weight) / sum).unwrap_or(u64::MAX))
        .collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(exact(&weights[*index]) % sum), *index));
    let left = total - parts.iter().sum::<u64>();
    for index in order.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        parts[index] += 1;
    }
    parts
}

/// Returns the amount that each lends: the borrowed total, split over the unused amounts.
pub fn lent(entitled: &[u64], used: &[u64]) -> Vec<u64> {
    let pairs = || entitled.iter().zip(used);
    let borrowed = pairs().map(|(entitled, used)| used.saturating_sub(*entitled));
    let unused: Vec<u64> = pairs()
        .map(|(entitled, used)| entitled.saturating_sub(*used))
        .collect();
    apportion(borrowed.sum(), &unused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_and_add_up() {
        assert_eq!(apportion(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(
            apportion(10, &[1, 3]),
            [3, 7],
            "2.5 and 7.5: the first of equal remainders"
        );
        assert_eq!(apportion(0, &[1, 3]), [0, 0]);
        assert_eq!(apportion(7, &[0, 0]), [0, 0]);
        assert_eq!(apportion(u64::MAX, &[u64::MAX, 0, 1])[1], 0);
    }

    #[test]
    fn what_is_borrowed_is_lent_by_those_who_use_less() {
        // 12 in three equal parts; the first uses 8, the second 1, the third 2.
        assert_eq!(lent(&[4, 4, 4], &[8, 1, 2]), [0, 2, 2]);
        assert_eq!(lent(&[4, 4], &[4, 1]), [0, 0], "nobody borrows");
    }
}
