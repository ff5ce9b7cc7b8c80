//! Reads bytes front to back, and the tables at the head of a block.

use std::cell::OnceCell;
use std::ptr;

use dormouse_messages::{EventType, Text};
use serde::de::Error as _;
use serde::de::value::Error;

use super::unzigzag;

/// The tables that the values of a block share.
#[derive(Default)]
pub struct Tables<'de> {
    pub types: Vec<(&'de str, Option<EventType>)>,
    pub words: Vec<Word<'de>>,
    pub shapes: Vec<Shape<'de>>,
}

/// A text that came twice.
pub struct Word<'de> {
    pub text: &'de str,
    pub owned: OnceCell<Text>,
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

pub type Names = &'static [&'static str];

impl Shape<'_> {
    /// Returns the places of the struct's `fields`. Caches the first struct alone, since a shape hardly
    /// ever serves two. No field of an event has an `alias`, which would be counted as a field.
    pub fn places(&self, fields: Names) -> Option<&Places> {
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
    pub rest: &'de [u8],
}

pub fn damaged<T>() -> Result<T, Error> {
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

    pub fn length(&mut self) -> Result<usize, Error> {
        match usize::try_from(self.number()?) {
            Ok(length) if length <= self.rest.len() => Ok(length),
            _ => damaged(),
        }
    }

    pub fn text(&mut self) -> Result<&'de str, Error> {
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
