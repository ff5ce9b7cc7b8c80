//! Reads values: a deserializer over the bytes of a block.

use std::cell::OnceCell;
use std::ptr;

use dormouse_messages::{EventType, Text, Timestamp};
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use super::access::{Fields, Items, Variant};
use super::{tag, unzigzag};

/// Bounds nesting: no event nests as deeply, and a damaged one must not overflow the stack.
const DEEPEST: u32 = 100;

/// The tables that the values of a block share.
#[derive(Default)]
pub struct Tables<'de> {
    pub types: Vec<(&'de str, Option<EventType>)>,
    words: Vec<Word<'de>>,
    shapes: Vec<Shape<'de>>,
}

struct Word<'de> {
    text: &'de str,
    owned: OnceCell<Text>,
}

/// The names of a record's fields.
#[derive(Default)]
pub struct Shape<'de> {
    pub names: Vec<&'de str>,
    places: OnceCell<(Names, Places)>,
}

/// Maps a record's names to a struct's fields.
pub enum Places {
    /// The names are the fields, in the struct's order.
    Same,
    /// The field's index for each name, counted from 0.
    Of(Vec<Option<u64>>),
}

type Names = &'static [&'static str];

impl Shape<'_> {
    /// Returns the places of the struct's `fields`. Caches the first struct alone, since a shape hardly
    /// ever serves two. No field of an event has an `alias`, which would be counted as a field.
    fn places(&self, fields: Names) -> Option<&Places> {
        let place = |name: &&str| {
            let place = fields.iter().position(|field| field == name)?;
            u64::try_from(place).ok()
        };
        let places = || {
            if self.names == fields {
                Places::Same
            } else {
                Places::Of(self.names.iter().map(place).collect())
            }
        };
        let (known, places) = self.places.get_or_init(|| (fields, places()));
        ptr::eq(*known, fields).then_some(places)
    }
}

/// Reads bytes front to back.
pub struct Cursor<'de> {
    rest: &'de [u8],
}

fn damaged<T>() -> Result<T, Error> {
    Err(Error::custom("the archive is damaged"))
}

impl<'de> Cursor<'de> {
    pub const fn new(bytes: &'de [u8]) -> Self {
        Self { rest: bytes }
    }

    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Error> {
        let Some((byte, rest)) = self.rest.split_first() else {
            return damaged();
        };
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub fn number(&mut self) -> Result<u64, Error> {
        let byte = self.byte()?;
        if byte < 0x80 {
            return Ok(byte.into());
        }
        self.long_number(byte)
    }

    fn long_number(&mut self, first: u8) -> Result<u64, Error> {
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        damaged()
    }

    pub fn signed(&mut self) -> Result<i64, Error> {
        self.number().map(unzigzag)
    }

    fn length(&mut self) -> Result<usize, Error> {
        match usize::try_from(self.number()?) {
            Ok(length) if length <= self.rest.len() => Ok(length),
            _ => damaged(),
        }
    }

    fn text(&mut self) -> Result<&'de str, Error> {
        let length = self.length()?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        str::from_utf8(text).map_err(Error::custom)
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        (0..self.length()?).map(|_| item(self)).collect()
    }

    pub fn tables(&mut self) -> Result<Tables<'de>, Error> {
        let event_type = |name| (name, EventType::of(name));
        Ok(Tables {
            types: self.list(|cursor| cursor.text().map(event_type))?,
            words: self.list(|cursor| {
                let (text, owned) = (cursor.text()?, OnceCell::new());
                Ok(Word { text, owned })
            })?,
            shapes: self.list(|cursor| {
                let names = cursor.list(Self::text)?;
                let places = OnceCell::new();
                Ok(Shape { names, places })
            })?,
        })
    }
}

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
