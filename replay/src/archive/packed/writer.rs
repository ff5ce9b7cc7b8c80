//! Writes values: a serializer whose words and shapes are shared by all values of a block.

use std::collections::HashMap;

use dormouse_messages::Timestamp;
use serde::de::value::Error;
use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Value;

use super::{put, put_text, tag, zigzag};

/// Longer texts are not looked for again.
const WORD_BYTES: usize = 64;

/// Values, and what they share.
#[derive(Default)]
pub struct ValueWriter {
    /// The values.
    pub out: Vec<u8>,
    /// Where times are counted from, in microseconds.
    pub from: i64,
    /// Texts that came once, and the numbers of those that came more often. Never iterated.
    seen: HashMap<Box<str>, Option<u64>>,
    words: List,
    /// The numbers of the shapes by their encoding. Never iterated.
    numbers: HashMap<Box<[u8]>, u64>,
    shapes: List,
    /// The encoded names so far of the records that are open.
    names: Vec<u8>,
}

/// An encoded list that grows.
#[derive(Default)]
struct List {
    length: u64,
    items: Vec<u8>,
}

impl List {
    fn put_into(&self, out: &mut Vec<u8>) {
        put(out, self.length);
        out.extend_from_slice(&self.items);
    }
}

impl ValueWriter {
    /// Appends the words and the shapes of all values.
    pub fn put_tables(&self, out: &mut Vec<u8>) {
        self.words.put_into(out);
        self.shapes.put_into(out);
    }

    /// Forgets everything, for the next block.
    pub fn clear(&mut self) {
        self.out.clear();
        self.seen.clear();
        self.numbers.clear();
        self.words = List::default();
        self.shapes = List::default();
    }

    /// A text that is hardly written again.
    pub fn unique(&mut self, text: &str) {
        self.out.push(tag::TEXT);
        put_text(&mut self.out, text);
    }

    /// A text: as it is the first time, as a word from the second time on.
    pub fn text(&mut self, text: &str) {
        if text.len() > WORD_BYTES {
            return self.unique(text);
        }
        let number = match self.seen.get_mut(text) {
            None => {
                self.seen.insert(text.into(), None);
                return self.unique(text);
            }
            Some(Some(number)) => *number,
            Some(number) => {
                put_text(&mut self.words.items, text);
                self.words.length += 1;
                *number.insert(self.words.length - 1)
            }
        };
        match u8::try_from(number) {
            Ok(short) if short <= u8::MAX - tag::FIRST_WORD => {
                self.out.push(tag::FIRST_WORD + short);
            }
            _ => {
                self.out.push(tag::WORD);
                put(&mut self.out, number);
            }
        }
    }

    fn unsigned(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(short) if short < tag::NIL => self.out.push(short),
            _ => {
                self.out.push(tag::UNSIGNED);
                put(&mut self.out, number);
            }
        }
    }

    fn signed(&mut self, number: i64) {
        if let Ok(number) = u64::try_from(number) {
            return self.unsigned(number);
        }
        self.out.push(tag::NEGATIVE);
        put(&mut self.out, (!number).cast_unsigned());
    }

    fn time(&mut self, time: Timestamp) {
        self.out.push(tag::TIME);
        let later = time.as_micros().wrapping_sub(self.from);
        put(&mut self.out, zigzag(later));
    }

    fn open(&mut self) -> Open<'_> {
        Open {
            start: self.out.len(),
            names: self.names.len(),
            length: 0,
            variant: None,
            writer: self,
        }
    }

    /// A variant with values is a record of one field, named as the variant.
    fn open_variant(&mut self, name: &str) -> Open<'_> {
        let outside = (self.out.len(), self.names.len());
        put_text(&mut self.names, name);
        Open {
            variant: Some(outside),
            ..self.open()
        }
    }

    /// Puts the head of a list or a record before its values, which begin at `start`.
    fn head(&mut self, start: usize, tag: u8, number: u64) {
        let end = self.out.len();
        self.out.push(tag);
        put(&mut self.out, number);
        let head = self.out.len() - end;
        self.out[start..].rotate_right(head);
    }

    /// Ends a record of `length` fields.
    fn end_record(&mut self, start: usize, names: usize, length: u64) {
        let shape = &self.names[names..];
        let number = match self.numbers.get(shape) {
            Some(number) => *number,
            None => {
                let number = self.shapes.length;
                self.numbers.insert(shape.into(), number);
                put(&mut self.shapes.items, length);
                self.shapes.items.extend_from_slice(shape);
                self.shapes.length += 1;
                number
            }
        };
        self.names.truncate(names);
        self.head(start, tag::RECORD, number);
    }
}

/// A list or a record whose values are being written.
pub struct Open<'a> {
    writer: &'a mut ValueWriter,
    /// Where its values begin.
    start: usize,
    /// Where its names begin.
    names: usize,
    length: u64,
    /// Where the record around it and its name begin, if it is a variant's.
    variant: Option<(usize, usize)>,
}

impl Open<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.length += 1;
        value.serialize(&mut *self.writer)
    }

    fn name(&mut self, name: &str) {
        put_text(&mut self.writer.names, name);
    }

    fn end_variant(self) {
        if let Some((start, names)) = self.variant {
            self.writer.end_record(start, names, 1);
        }
    }

    fn end_list(self) -> Result<(), Error> {
        self.writer.head(self.start, tag::LIST, self.length);
        self.end_variant();
        Ok(())
    }

    fn end_record(self) -> Result<(), Error> {
        self.writer.end_record(self.start, self.names, self.length);
        self.end_variant();
        Ok(())
    }
}

/// What `value` is as a text, if it is one.
fn as_text<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => Ok(text),
        _ => Err(Error::custom("a name is not a text")),
    }
}

impl<'a> Serializer for &'a mut ValueWriter {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Open<'a>;
    type SerializeTuple = Open<'a>;
    type SerializeTupleStruct = Open<'a>;
    type SerializeTupleVariant = Open<'a>;
    type SerializeMap = Open<'a>;
    type SerializeStruct = Open<'a>;
    type SerializeStructVariant = Open<'a>;

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.push(if value { tag::TRUE } else { tag::FALSE });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), Error> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        self.signed(value);
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), Error> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        self.unsigned(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.out.push(tag::FLOAT);
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.push(tag::NIL);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        if name == Timestamp::NEWTYPE {
            // Outside the years that can be written it is a text.
            if let Ok(time) = as_text(value)?.parse() {
                self.time(time);
                return Ok(());
            }
        }
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut open = self.open();
        open.name(variant);
        open.item(value)?;
        open.end_record()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Open<'a>, Error> {
        Ok(self.open())
    }

    fn serialize_tuple(self, _: usize) -> Result<Open<'a>, Error> {
        Ok(self.open())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Open<'a>, Error> {
        Ok(self.open())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'a>, Error> {
        Ok(self.open_variant(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Open<'a>, Error> {
        Ok(self.open())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Open<'a>, Error> {
        Ok(self.open())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'a>, Error> {
        Ok(self.open_variant(variant))
    }
}

impl SerializeMap for Open<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.name(&as_text(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.item(value)
    }

    fn end(self) -> Result<(), Error> {
        self.end_record()
    }
}

macro_rules! lists {
    ($($of:ident $item:ident;)*) => { $(
        impl $of for Open<'_> {
            type Ok = ();
            type Error = Error;

            fn $item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.end_list()
            }
        }
    )* };
}

lists! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! records {
    ($($of:ident)*) => { $(
        impl $of for Open<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.name(name);
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.end_record()
            }
        }
    )* };
}

records! { SerializeStruct SerializeStructVariant }
