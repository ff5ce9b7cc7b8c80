//! Exact decimals for θ1 and θ2. The bounds ⌈θ1 · 2m⌉ and ⌈θ2 · |A_t ∩ A_t−1|⌉ (Dorm, equations 15 and 16)
//! must be ceilings of the written number: with floats 0.07 · 100 is 7.000000000000001 and its ceiling 8. An
//! `f64` is read through its shortest decimal text.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// No policy needs more digits.
const MAX_DIGITS: usize = 18;

/// A decimal number ≥ 0: `digits` / 10^`places`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decimal {
    digits: u64,
    places: u32,
}

/// Text or a float that is no decimal number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a decimal number from 0 with at most 18 digits, such as 0.1")]
pub struct DecimalError(String);

impl Decimal {
    /// Builds a decimal from its digits: `new(7, 2)` is 0.07. Places beyond 18 are cut off.
    #[must_use]
    pub fn new(digits: u64, places: u32) -> Self {
        Self {
            digits,
            places: places.min(18),
        }
    }

    /// Returns the decimal of the float's shortest text.
    ///
    /// # Errors
    /// When the float is negative, not finite, or needs more than 18 digits.
    pub fn from_f64(value: f64) -> Result<Self, DecimalError> {
        format!("{value}").parse()
    }

    /// Returns ⌈self · factor⌉, exactly.
    #[must_use]
    pub fn ceil_times(self, factor: u64) -> u64 {
        let scale = 10u128.pow(self.places);
        let product = u128::from(self.digits) * u128::from(factor);
        u64::try_from(product.div_ceil(scale)).unwrap_or(u64::MAX)
    }

    /// Returns the nearest float.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        // Parsing one text rounds correctly; dividing two floats would not.
        format!("{}e-{}", self.digits, self.places)
            .parse()
            .unwrap_or(0.0)
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        let left = u128::from(self.digits) * 10u128.pow(other.places);
        let right = u128::from(other.digits) * 10u128.pow(self.places);
        left == right
    }
}

impl Eq for Decimal {}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let error = || DecimalError(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let long = whole.len() + fraction.len() > MAX_DIGITS;
        if (whole.is_empty() && fraction.is_empty()) || long || !plain(whole) || !plain(fraction) {
            return Err(error());
        }
        let digits = format!("{whole}{fraction}").parse().map_err(|_| error())?;
        let places = u32::try_from(fraction.len()).map_err(|_| error())?;
        Ok(Self { digits, places })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_f64())
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.to_f64())
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DecimalVisitor;
        impl Visitor<'_> for DecimalVisitor {
            type Value = Decimal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal number from 0, such as 0.1")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Decimal, E> {
                value.to_string().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Decimal, E> {
                value.to_string().parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Decimal, E> {
                Decimal::from_f64(value).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Decimal, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(DecimalVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_of_the_number_that_was_written() {
        let theta = Decimal::from_f64(0.07).expect("valid");
        assert_eq!(theta.ceil_times(100), 7);
        assert_eq!(Decimal::from_f64(0.1).expect("valid").ceil_times(6), 1);
        assert_eq!(Decimal::from_f64(0.2).expect("valid").ceil_times(6), 2);
        assert_eq!(Decimal::new(0, 0).ceil_times(6), 0);
        assert_eq!("1".parse::<Decimal>().map(|one| one.ceil_times(6)), Ok(6));
    }

    #[test]
    fn wrong_decimals_are_refused() {
        for text in [
            "",
            ".",
            "-0.1",
            "0,1",
            "1e-3",
            "nan",
            "0.1234567890123456789",
        ] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
        assert!(Decimal::from_f64(-0.1).is_err());
        assert!(Decimal::from_f64(f64::INFINITY).is_err());
    }

    #[test]
    fn equal_decimals_are_equal() {
        assert_eq!(Decimal::new(10, 2), Decimal::new(1, 1));
        assert!((Decimal::new(7, 2).to_f64() - 0.07).abs() < f64::EPSILON);
    }
}
