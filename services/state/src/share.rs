//! Exact dominant shares.
//!
//! share = max over resources r with total_r > 0 of amount_r / total_r (Ghodsi et al., DRF, NSDI 2011).
//! Fractions compare by multiplication, so ties are exact.

use std::cmp::Ordering;

use dormouse_messages::Amounts;

/// A dominant share: `over` / `under`, `under` above 0.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Amount of the dominant resource.
    pub over: u64,
    /// The total; 1 if none applies.
    pub under: u64,
}

impl Share {
    /// The empty share.
    pub const ZERO: Self = Self { over: 0, under: 1 };

    /// Returns the dominant share; the first resource wins ties.
    #[must_use]
    pub fn dominant(amounts: &Amounts, total: &Amounts) -> Self {
        let mut largest = Self::ZERO;
        for (resource, over) in amounts.iter() {
            let under = total.get(resource);
            if under == 0 {
                continue;
            }
            let share = Self { over, under };
            if share > largest {
                largest = share;
            }
        }
        largest
    }

    /// Returns a decimal for display.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a figure to read; nothing is decided on it"
    )]
    pub fn as_f64(self) -> f64 {
        self.over as f64 / self.under as f64
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = u128::from(self.over) * u128::from(other.under);
        left.cmp(&(u128::from(other.over) * u128::from(self.under)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(text: &str) -> Amounts {
        text.parse().expect("amounts")
    }

    #[test]
    fn the_largest_fraction_counts_and_absent_resources_do_not() {
        let total = amounts("cpu=20,memory=40Gi");
        let share = |text: &str| Share::dominant(&amounts(text), &total);
        assert_eq!(share("cpu=3,memory=12Gi"), share("cpu=6"));
        assert_eq!(share("gpu=4"), Share::ZERO);
        assert!(share("cpu=5") > share("memory=9Gi"));
        assert!((share("cpu=5").as_f64() - 0.25).abs() < 1e-12);
    }
}
