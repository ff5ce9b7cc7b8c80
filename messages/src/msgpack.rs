//! Reading MessagePack from memory: what `rmp-serde` reads, in half the time.
//!
//! Half of an event are the names of its fields. Here they are compared as the bytes that they
//! are, and lengths are taken from the slice that is read, not through a reader's buffer.
//! Written is by `rmp-serde`; extensions, which it never writes for us, are no events.

use std::fmt::Display;

use rmp_serde::decode::Error;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Deeper than any event; what is nested further is damage, or an attack on the stack.
const MOST_DEPTH: u32 = 128;

/// Bytes that are read from the front.
pub(crate) struct Reader<'de> {
    rest: &'de [u8],
    depth: u32,
}

impl<'de> Reader<'de> {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: &'de [u8]) -> Self {
        Self {
            rest: bytes,
            depth: 0,
        }
    }

    fn take(&mut self, length: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]| byte)
    }

    /// The length that follows a marker, in 1, 2 or 4 bytes.
    fn length(&mut self, bytes: u8) -> Result<usize, Error> {
        Ok(match bytes {
            1 => usize::from(self.byte()?),
            2 => usize::from(u16::from_be_bytes(self.array()?)),
            _ => u32::from_be_bytes(self.array()?) as usize,
        })
    }

    /// The text behind `marker`, if it is one's.
    fn text(&mut self, marker: u8) -> Result<Option<&'de [u8]>, Error> {
        let length = match marker {
            0xa0..=0xbf => usize::from(marker & 0x1f),
            0xd9 => self.length(1)?,
            0xda => self.length(2)?,
            0xdb => self.length(4)?,
            _ => return Ok(None),
        };
        self.take(length).map(Some)
    }

    fn value<V: Visitor<'de>>(&mut self, marker: u8, visitor: V) -> Result<V::Value, Error> {
        if let Some(text) = self.text(marker)? {
            let text = std::str::from_utf8(text).map_err(wrong)?;
            return visitor.visit_borrowed_str(text);
        }
        match marker {
            0x00..=0x7f => visitor.visit_u64(marker.into()),
            0xe0..=0xff => visitor.visit_i64(marker.cast_signed().into()),
            0x80..=0x8f => self.map(usize::from(marker & 0x0f), visitor),
            0x90..=0x9f => self.list(usize::from(marker & 0x0f), visitor),
            0xc0 => visitor.visit_unit(),
            0xc2 => visitor.visit_bool(false),
            0xc3 => visitor.visit_bool(true),
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4))?;
                visitor.visit_borrowed_bytes(self.take(length)?)
            }
            0xca => visitor.visit_f32(f32::from_be_bytes(self.array()?)),
            0xcb => visitor.visit_f64(f64::from_be_bytes(self.array()?)),
            0xcc => visitor.visit_u64(self.byte()?.into()),
            0xcd => visitor.visit_u64(u16::from_be_bytes(self.array()?).into()),
            0xce => visitor.visit_u64(u32::from_be_bytes(self.array()?).into()),
            0xcf => visitor.visit_u64(u64::from_be_bytes(self.array()?)),
            0xd0 => visitor.visit_i64(i8::from_be_bytes(self.array()?).into()),
            0xd1 => visitor.visit_i64(i16::from_be_bytes(self.array()?).into()),
            0xd2 => visitor.visit_i64(i32::from_be_bytes(self.array()?).into()),
            0xd3 => visitor.visit_i64(i64::from_be_bytes(self.array()?)),
            0xdc | 0xdd => {
                let length = self.length(2 << (marker - 0xdc))?;
                self.list(length, visitor)
            }
            0xde | 0xdf => {
                let length = self.length(2 << (marker - 0xde))?;
                self.map(length, visitor)
            }
            _ => Err(wrong(format!("the marker {marker:#04x} is of no value"))),
        }
    }

    fn list<V: Visitor<'de>>(&mut self, left: usize, visitor: V) -> Result<V::Value, Error> {
        self.nested(left, |items| visitor.visit_seq(items))
    }

    fn map<V: Visitor<'de>>(&mut self, left: usize, visitor: V) -> Result<V::Value, Error> {
        self.nested(left, |items| visitor.visit_map(items))
    }

    /// Reads `left` items one level deeper; all of them must be taken.
    fn nested<T>(
        &mut self,
        left: usize,
        read: impl FnOnce(&mut Items<'_, 'de>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.depth == MOST_DEPTH {
            return Err(Error::DepthLimitExceeded);
        }
        self.depth += 1;
        let mut items = Items { reader: self, left };
        let value = read(&mut items)?;
        let left = items.left;
        self.depth -= 1;
        match left {
            0 => Ok(value),
            left => Err(wrong(format!("{left} items too many"))),
        }
    }
}

fn wrong(why: impl Display) -> Error {
    de::Error::custom(why)
}

fn cut_off() -> Error {
    wrong("it is cut off")
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let marker = self.byte()?;
        self.value(marker, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest.split_first() {
            Some((0xc0, rest)) => {
                self.rest = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant's name, or a map from its name to its value.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let has_value = self.rest.first() == Some(&0x81);
        if has_value {
            self.byte()?;
        }
        visitor.visit_enum(Variant {
            reader: self,
            has_value,
        })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let marker = self.byte()?;
        match self.text(marker)? {
            Some(name) => visitor.visit_borrowed_bytes(name),
            None => self.value(marker, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct ignored_any
    }
}

/// What is left of a list or a map.
struct Items<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl<'de> Items<'_, 'de> {
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant of an enum.
struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    has_value: bool,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(&mut *self.reader)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.has_value {
            true => de::Deserialize::deserialize(self.reader),
            false => Ok(()),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        Number(u32),
        Pair(u8, String),
        Named { at: i64 },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Everything {
        numbers: Vec<i64>,
        unsigned: Vec<u64>,
        fractions: (f32, f64),
        texts: BTreeMap<String, Option<bool>>,
        kinds: Vec<Kind>,
        nothing: (),
    }

    fn everything() -> Everything {
        let edges = [0, 1, 31, 32, 127, 128, 255, 256, 65_535, 65_536, 1 << 32];
        Everything {
            numbers: edges.iter().flat_map(|n| [*n, -n, -n - 1]).collect(),
            unsigned: vec![0, u64::from(u32::MAX), u64::MAX],
            fractions: (0.5, -2.155_380_391_424_781_8e-16),
            texts: [0, 1, 31, 32, 255, 256, 65_536]
                .map(|length| ("ä".repeat(length), (length > 31).then_some(length > 255)))
                .into(),
            kinds: vec![
                Kind::Plain,
                Kind::Number(7),
                Kind::Pair(1, "x".to_owned()),
                Kind::Named { at: -1 },
            ],
            nothing: (),
        }
    }

    fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
        T::deserialize(&mut Reader::new(bytes))
    }

    #[test]
    fn what_rmp_writes_reads_back() {
        let everything = everything();
        let bytes = rmp_serde::to_vec_named(&everything).expect("writes");
        assert_eq!(read::<Everything>(&bytes).expect("reads"), everything);
        let value = json!({"a": [1, -1, 2.5, null, true, "text", {"b": []}], "c": {}});
        let long: Value = (0..70_000).collect::<Vec<u32>>().into();
        for value in [value, long] {
            let bytes = rmp_serde::to_vec_named(&value).expect("writes");
            assert_eq!(read::<Value>(&bytes).expect("reads"), value);
        }
    }

    #[test]
    fn whatever_is_cut_off_is_an_error() {
        let bytes = rmp_serde::to_vec_named(&everything()).expect("writes");
        for length in (0..bytes.len()).filter(|length| length % 97 < 40) {
            assert!(read::<Everything>(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let nested = [0x91; 100_000];
        for bytes in [
            &[0xc1][..],
            &[0xd4, 1, 2],
            &[0xa1, 0xff],
            &[0xdd, 0xff, 0xff, 0xff, 0xff],
            &nested,
        ] {
            assert!(read::<Value>(bytes).is_err());
            assert!(read::<Vec<Value>>(bytes).is_err());
        }
        assert!(read::<[u8; 1]>(&[0x92, 1, 2]).is_err(), "an item too many");
    }
}
