//! Writes values whose words and shapes all values of a block share.

use std::collections::HashMap;

use dormouse_messages::Timestamp;
use serde::Serialize;
use serde::de::value::Error;

use super::{put, put_text, tag, zigzag};

/// Longer texts are not shared.
const WORD_BYTES: usize = 64;

/// The values of a block and their shared tables.
#[derive(Default)]
pub struct ValueWriter {
    pub out: Vec<u8>,
    /// The origin of times, in microseconds.
    pub from: i64,
    /// `None` for a text seen once, else the word's number. Never iterated.
    seen: HashMap<Box<str>, Option<u64>>,
    words: List,
    /// The numbers of the shapes by their encoding. Never iterated.
    numbers: HashMap<Box<[u8]>, u64>,
    shapes: List,
    names: Vec<u8>,
}

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
    pub fn put_tables(&self, out: &mut Vec<u8>) {
        self.words.put_into(out);
        self.shapes.put_into(out);
    }

    pub fn clear(&mut self) {
        self.out.clear();
        self.seen.clear();
        self.numbers.clear();
        self.words = List::default();
        self.shapes = List::default();
    }

    /// Writes a text that hardly repeats.
    pub fn unique(&mut self, text: &str) {
        self.out.push(tag::TEXT);
        put_text(&mut self.out, text);
    }

    /// Writes a text in full the first time, as a word from the second time on.
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

    pub fn unsigned(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(short) if short < tag::NIL => self.out.push(short),
            _ => {
                self.out.push(tag::UNSIGNED);
                put(&mut self.out, number);
            }
        }
    }

    pub fn signed(&mut self, number: i64) {
        if let Ok(number) = u64::try_from(number) {
            return self.unsigned(number);
        }
        self.out.push(tag::NEGATIVE);
        put(&mut self.out, (!number).cast_unsigned());
    }

    /// Writes a time relative to `from`.
    pub fn time(&mut self, time: Timestamp) {
        self.out.push(tag::TIME);
        let later = time.as_micros().wrapping_sub(self.from);
        put(&mut self.out, zigzag(later));
    }

    pub fn open(&mut self) -> Open<'_> {
        Open {
            start: self.out.len(),
            names: self.names.len(),
            length: 0,
            variant: None,
            writer: self,
        }
    }

    /// Opens a variant with values: a record of one field with the variant's name.
    pub fn open_variant(&mut self, name: &str) -> Open<'_> {
        let outside = (self.out.len(), self.names.len());
        put_text(&mut self.names, name);
        Open {
            variant: Some(outside),
            ..self.open()
        }
    }

    fn head(&mut self, start: usize, tag: u8, number: u64) {
        let end = self.out.len();
        self.out.push(tag);
        put(&mut self.out, number);
        let head = self.out.len() - end;
        self.out[start..].rotate_right(head);
    }

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

/// A list or a record in progress.
pub struct Open<'a> {
    writer: &'a mut ValueWriter,
    start: usize,
    names: usize,
    length: u64,
    variant: Option<(usize, usize)>,
}

impl Open<'_> {
    pub fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.length += 1;
        value.serialize(&mut *self.writer)
    }

    pub fn name(&mut self, name: &str) {
        put_text(&mut self.writer.names, name);
    }

    fn end_variant(self) {
        if let Some((start, names)) = self.variant {
            self.writer.end_record(start, names, 1);
        }
    }

    pub fn end_list(self) -> Result<(), Error> {
        self.writer.head(self.start, tag::LIST, self.length);
        self.end_variant();
        Ok(())
    }

    pub fn end_record(self) -> Result<(), Error> {
        self.writer.end_record(self.start, self.names, self.length);
        self.end_variant();
        Ok(())
    }
}
