//! How events lie in a compact archive: values that say what they are, names and words once.
//!
//! An archive is `dormouse-log-2\n`, the log's identity on a line, blocks, and an empty block.
//! A block is its packed length, its unpacked length and its number of events (`u32` each, little
//! endian) and a zstd frame with a checksum. It is read without the others, on any thread:
//!
//! ```text
//! types   words   shapes   event event event …
//!
//! types   names of event types           a list: its length, then each text
//! words   texts that came twice          a text: its length in bytes, UTF-8
//! shapes  names of a record's fields     a list of lists
//! event   sequence, stored at (each less the one before), writer, type, time less stored at,
//!         id, source, subject, trace context, data
//! ```
//!
//! Numbers are variable-length (7 bits a byte, lowest first; signed ones in zigzag). A value is a
//! tag ([`tag`]) and what the tag says. A record has the number of its shape and then the values
//! of its fields: a reader finds out once for a shape which field of its struct each one is, and
//! compares no names with every event. Fields that it does not know are skipped, fields that are
//! absent take their defaults, so that an archive is read by later builds and by earlier ones.
//!
//! Formats such as postcard and bitcode write structs without names and cannot do that.

mod access;
mod block;
mod reader;
mod serializer;
#[cfg(test)]
mod tests;
mod writer;

pub use block::{BlockHead, BlockWriter, decode_block};

/// What a value begins with. Below [`tag::NIL`]: the unsigned number itself; from
/// [`tag::FIRST_WORD`] on: one of the first words.
mod tag {
    /// Nothing.
    pub const NIL: u8 = 0x80;
    pub const FALSE: u8 = 0x81;
    pub const TRUE: u8 = 0x82;
    /// An unsigned number follows.
    pub const UNSIGNED: u8 = 0x83;
    /// The number n, not negative, of -1 - n follows.
    pub const NEGATIVE: u8 = 0x84;
    /// The eight bytes of a double follow, lowest first.
    pub const FLOAT: u8 = 0x85;
    /// Microseconds follow, less those at which the event was stored.
    pub const TIME: u8 = 0x86;
    /// A text follows.
    pub const TEXT: u8 = 0x87;
    /// The number of a word follows.
    pub const WORD: u8 = 0x88;
    /// A number of values, and then they, follow.
    pub const LIST: u8 = 0x89;
    /// The number of a shape, and then a value for each of its names, follow.
    pub const RECORD: u8 = 0x8a;
    /// Word 0.
    pub const FIRST_WORD: u8 = 0xa0;
}

/// Appends a number.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends a text.
fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A signed number as an unsigned one that is small where the number is near 0.
const fn zigzag(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

/// What [`zigzag`] was given.
const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
