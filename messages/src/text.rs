//! Immutable text, parsed in place.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Debug, Display};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use smol_str::SmolStr;

/// Immutable text, inline up to 23 bytes and shared beyond: folds hold the same names in many places.
#[derive(Clone, Default, Eq)]
pub struct Text(SmolStr);

impl Text {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// By eight bytes: folds look up similar names with every event.
impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        let (whole_a, _) = a.as_chunks::<8>();
        let (whole_b, _) = b.as_chunks::<8>();
        for (a, b) in whole_a.iter().zip(whole_b) {
            if a != b {
                return u64::from_be_bytes(*a).cmp(&u64::from_be_bytes(*b));
            }
        }
        let length = a.len().min(b.len());
        let ends = last_word(&a[..length]).cmp(&last_word(&b[..length]));
        ends.then(a.len().cmp(&b.len()))
    }
}

/// Orders texts of one length with equal bytes before. Overlapping chunks cover a shorter text.
fn last_word(text: &[u8]) -> u64 {
    if let Some(last) = text.last_chunk() {
        return u64::from_be_bytes(*last);
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let [first, last] = [first, last].map(|it| u64::from(u32::from_be_bytes(*it)));
        return first << 32 | last;
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let [first, last] = [first, last].map(|it| u64::from(u16::from_be_bytes(*it)));
        return first << 16 | last;
    }
    text.first().copied().map_or(0, u64::from)
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.cmp(other).is_eq()
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl FromStr for Text {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

impl Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&**self, f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        String::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Parses a string in place.
///
/// # Errors
/// The deserializer's, or the parser's.
pub(crate) fn parsed<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    struct Parsed<T>(PhantomData<T>);

    impl<T: FromStr<Err: Display>> Visitor<'_> for Parsed<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Parsed(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ordered_as_strings_are() {
        let long = "ads/a-name-longer-than-what-stands-in-the-value";
        let mut texts = vec![
            "", "a", "ab", "b", "ads/j1", "ads/j10", "ads/j2", "a\0", "ö",
        ];
        texts.extend((0..=long.len()).map(|end| &long[..end]));
        texts.extend([
            "ads/a-nbme",
            "ads/a-name-longer-tham",
            "ads/a-nam\0",
            "ads/a-na\0\0",
        ]);
        // Partial chunks of every length.
        let others: Vec<String> = (1..12)
            .flat_map(|length| (0..length).map(move |place| (length, place)))
            .flat_map(|(length, place)| ["a", "y"].map(|it| (length, place, it)))
            .map(|(length, place, it)| "x".repeat(place) + it + &"x".repeat(length - place - 1))
            .collect();
        texts.extend(others.iter().map(String::as_str));
        for a in &texts {
            for b in &texts {
                let (left, right) = (Text::from(*a), Text::from(*b));
                assert_eq!(left.cmp(&right), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(left == right, a == b, "{a:?} {b:?}");
            }
        }
    }
}
