//! Reads values: a deserializer over the bytes of a block, with serde's access to lists, records and
//! variants.

use dormouse_messages::{Text, Timestamp};
use serde::de::value::{BorrowedStrDeserializer, Error, U64Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::cursor::{Cursor, Names, Places, Shape, Tables, Word, damaged};
use super::tag;

/// Bounds nesting: no event nests as deeply, and a damaged one must not overflow the stack.
const DEEPEST: u32 = 100;

/// Reads the values of an event.
pub struct ValueReader<'t, 'de> {
    pub cursor: Cursor<'de>,
    pub tables: &'t Tables<'de>,
    /// The origin of times, in microseconds.
    pub from: i64,
    depth: u32,
}

impl<'t, 'de> ValueReader<'t, 'de> {
    pub const fn new(cursor: Cursor<'de>, tables: &'t Tables<'de>) -> Self {
        Self {
            cursor,
            tables,
            from: 0,
            depth: 0,
        }
    }

    fn word(&self, number: u64) -> Result<&'t Word<'de>, Error> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.tables.words.get(number).map_or_else(damaged, Ok)
    }

    #[inline]
    fn word_of(&mut self, tag: u8) -> Result<Option<&'t Word<'de>>, Error> {
        let number = match tag {
            tag::FIRST_WORD.. => (tag - tag::FIRST_WORD).into(),
            tag::WORD => self.cursor.number()?,
            _ => return Ok(None),
        };
        self.word(number).map(Some)
    }

    #[inline]
    fn text_of(&mut self, tag: u8) -> Result<Option<&'de str>, Error> {
        if tag == tag::TEXT {
            return self.cursor.text().map(Some);
        }
        Ok(self.word_of(tag)?.map(|word| word.text))
    }

    /// Reads a text; a word is allocated only once.
    pub fn text(&mut self) -> Result<Text, Error> {
        let tag = self.cursor.byte()?;
        if let Some(word) = self.word_of(tag)? {
            return Ok(word.owned.get_or_init(|| word.text.into()).clone());
        }
        self.text_of(tag)?
            .map_or_else(damaged, |text| Ok(text.into()))
    }

    pub fn optional_text(&mut self) -> Result<Option<&'de str>, Error> {
        match self.cursor.byte()? {
            tag::NIL => Ok(None),
            tag => self
                .text_of(tag)?
                .map_or_else(damaged, |text| Ok(Some(text))),
        }
    }

    fn shape(&mut self) -> Result<&'t Shape<'de>, Error> {
        let number = usize::try_from(self.cursor.number()?).unwrap_or(usize::MAX);
        self.tables.shapes.get(number).map_or_else(damaged, Ok)
    }

    fn time(&mut self) -> Result<i64, Error> {
        Ok(self.from.wrapping_add(self.cursor.signed()?))
    }

    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEEPEST {
            return damaged();
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list<V: Visitor<'de>>(&mut self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.inside(|reader| {
            let mut items = Items::new(reader, length);
            let value = visitor.visit_seq(&mut items)?;
            items.end()?;
            Ok(value)
        })
    }

    fn record<V: Visitor<'de>>(
        &mut self,
        fields: Option<Names>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let shape = self.shape()?;
        let places = match fields.and_then(|fields| shape.places(fields)) {
            // Derived structs also read their fields as a list, without comparing names.
            Some(Places::Same) => return self.list(shape.names.len(), visitor),
            Some(Places::Of(places)) => Some(places.as_slice()),
            None => None,
        };
        self.inside(|reader| {
            let mut fields = Fields::new(reader, &shape.names, places);
            let value = visitor.visit_map(&mut fields)?;
            fields.end()?;
            Ok(value)
        })
    }

    fn value<V: Visitor<'de>>(&mut self, tag: u8, visitor: V) -> Result<V::Value, Error> {
        match tag {
            0..tag::NIL => visitor.visit_u64(tag.into()),
            tag::NIL => visitor.visit_unit(),
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            tag::UNSIGNED => visitor.visit_u64(self.cursor.number()?),
            tag::NEGATIVE => visitor.visit_i64(!self.cursor.number()?.cast_signed()),
            tag::FLOAT => {
                let Some((bytes, rest)) = self.cursor.rest.split_first_chunk() else {
                    return damaged();
                };
                self.cursor.rest = rest;
                visitor.visit_f64(f64::from_le_bytes(*bytes))
            }
            tag::TIME => visitor.visit_string(Timestamp::from_micros(self.time()?).to_string()),
            tag::LIST => {
                let length = self.cursor.length()?;
                self.list(length, visitor)
            }
            tag::RECORD => self.record(None, visitor),
            tag => match self.text_of(tag)? {
                Some(text) => visitor.visit_borrowed_str(text),
                None => damaged(),
            },
        }
    }
}

impl<'de> Deserializer<'de> for &mut ValueReader<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let tag = self.cursor.byte()?;
        self.value(tag, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.cursor.byte()? {
            tag::RECORD => self.record(Some(fields), visitor),
            tag => self.value(tag, visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let tag = self.cursor.byte()?;
        match self.text_of(tag)? {
            Some(text) => visitor.visit_borrowed_str(text),
            None => self.value(tag, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.cursor.rest.first() == Some(&tag::NIL) {
            self.cursor.byte()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == Timestamp::NEWTYPE && self.cursor.rest.first() == Some(&tag::TIME) {
            self.cursor.byte()?;
            return visitor.visit_i64(self.time()?);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: Names,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let tag = self.cursor.byte()?;
        if let Some(text) = self.text_of(tag)? {
            return visitor.visit_enum(BorrowedStrDeserializer::new(text));
        }
        if tag != tag::RECORD {
            return damaged();
        }
        match self.shape()?.names.as_slice() {
            [name] => self.inside(|reader| visitor.visit_enum(Variant { reader, name })),
            _ => damaged(),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The values of a list.
struct Items<'a, 't, 'de> {
    reader: &'a mut ValueReader<'t, 'de>,
    left: usize,
}

impl<'a, 't, 'de> Items<'a, 't, 'de> {
    const fn new(reader: &'a mut ValueReader<'t, 'de>, length: usize) -> Self {
        Self {
            reader,
            left: length,
        }
    }

    /// Fails unless all values were taken.
    fn end(self) -> Result<(), Error> {
        match self.left {
            0 => Ok(()),
            left => Err(Error::custom(format!("a list is {left} too long"))),
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, '_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The fields of a record.
struct Fields<'a, 't, 'de> {
    reader: &'a mut ValueReader<'t, 'de>,
    names: &'t [&'de str],
    places: Option<&'t [Option<u64>]>,
    next: usize,
}

impl<'a, 't, 'de> Fields<'a, 't, 'de> {
    const fn new(
        reader: &'a mut ValueReader<'t, 'de>,
        names: &'t [&'de str],
        places: Option<&'t [Option<u64>]>,
    ) -> Self {
        Self {
            reader,
            names,
            places,
            next: 0,
        }
    }

    /// Fails unless all fields were taken.
    fn end(self) -> Result<(), Error> {
        if self.next == self.names.len() {
            Ok(())
        } else {
            Err(Error::custom("a record has fields that are not read"))
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, '_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.get(self.next) else {
            return Ok(None);
        };
        let places = self.places.and_then(|places| places.get(self.next));
        let key = match places.copied().flatten() {
            // Derived structs also identify their fields by number.
            Some(place) => {
                let place: U64Deserializer<Error> = place.into_deserializer();
                seed.deserialize(place)
            }
            None => seed.deserialize(BorrowedStrDeserializer::new(name)),
        };
        self.next += 1;
        key.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.names.len() - self.next)
    }
}

/// An enum variant with values.
struct Variant<'a, 't, 'de> {
    reader: &'a mut ValueReader<'t, 'de>,
    name: &'de str,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let variant = seed.deserialize(BorrowedStrDeserializer::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(Error::custom(format!("{} has no values", self.name)))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.deserialize_struct("", fields, visitor)
    }
}
