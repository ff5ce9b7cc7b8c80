//! Reads whole numbers, also as `1.0` from languages without integers.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

struct Whole<T>(PhantomData<T>);

impl<T: TryFrom<i64> + TryFrom<u64>> Visitor<'_> for Whole<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match <T as TryFrom<i64>>::try_from(-1) {
            Ok(_) => f.write_str("a whole number"),
            Err(_) => f.write_str("a whole number, 0 or more"),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let refused = || E::invalid_value(de::Unexpected::Signed(number), &self);
        T::try_from(number).map_err(|_| refused())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let refused = || E::invalid_value(de::Unexpected::Unsigned(number), &self);
        T::try_from(number).map_err(|_| refused())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        // Exact up to 2^53.
        if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and within i64")]
            return self.visit_i64(number as i64);
        }
        Err(E::invalid_type(de::Unexpected::Float(number), &self))
    }
}

/// Reads a whole number.
///
/// # Errors
/// When it is none, or does not fit.
pub fn whole<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<i64> + TryFrom<u64>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Whole(PhantomData))
}

/// Reads a list of whole numbers.
///
/// # Errors
/// When one is none, or does not fit.
pub fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: TryFrom<i64> + TryFrom<u64>,
    D: Deserializer<'de>,
{
    struct Item<T>(T);

    impl<'de, T: TryFrom<i64> + TryFrom<u64>> Deserialize<'de> for Item<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            whole(deserializer).map(Self)
        }
    }

    let items: Vec<Item<T>> = Vec::deserialize(deserializer)?;
    Ok(items.into_iter().map(|item| item.0).collect())
}

/// Reads a whole number, or nothing.
///
/// # Errors
/// When it is something else, or does not fit.
pub fn maybe<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<i64> + TryFrom<u64>,
    D: Deserializer<'de>,
{
    struct Maybe<T>(PhantomData<T>);

    impl<'de, T: TryFrom<i64> + TryFrom<u64>> Visitor<'de> for Maybe<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Whole::<T>(PhantomData).expecting(f)
        }

        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
            whole(inner).map(Some)
        }
    }

    deserializer.deserialize_option(Maybe(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "super::whole")]
        weight: u32,
        #[serde(default, deserialize_with = "super::maybe")]
        priority: Option<i32>,
    }

    fn read(text: &str) -> Result<Numbers, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_may_have_a_point() {
        let numbers = |weight, priority| Ok(Numbers { weight, priority });
        assert_eq!(
            read(r#"{"weight": 1.0, "priority": -3.0}"#),
            numbers(1, Some(-3))
        );
        assert_eq!(
            read(r#"{"weight": 1e3, "priority": null}"#),
            numbers(1000, None)
        );
        assert_eq!(read(r#"{"weight": 7}"#), numbers(7, None));
    }

    #[test]
    fn what_is_not_whole_is_refused_in_words() {
        for (value, said) in [
            ("1.5", "expected a whole number, 0 or more"),
            ("-1", "expected a whole number, 0 or more"),
            ("4294967296", "expected a whole number"),
            ("1e300", "expected a whole number"),
            ("\"a\"", "expected a whole number"),
        ] {
            let error = read(&format!("{{\"weight\": {value}}}")).expect_err(value);
            assert!(error.contains(said), "{value}: {error}");
        }
        let error = read(r#"{"weight": 1, "priority": 0.5}"#).expect_err("no half priority");
        assert!(error.contains("expected a whole number"), "{error}");
    }
}
