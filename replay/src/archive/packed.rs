//! The compact archive format: self-describing values, with names and repeated texts written once.
//!
//! An archive is `dormouse-log-2\n`, the log's identity on a line, blocks, and an empty block.
//! A block is its packed length, its unpacked length and its number of events (`u32` each, little
//! endian) and a zstd frame with a checksum. Each block decodes without the others:
//!
//! ```text
//! types   words   shapes   event event event …
//!
//! types   names of event types           a list: its length, then each text
//! words   texts that came twice          a text: its length in bytes, UTF-8
//! shapes  names of a record's fields     a list of lists
//!
//! event   sequence, stored at (each less the one before), writer, type, time less stored at,
//!         id, source, subject, trace context, data
//! ```
//!
//! Numbers are variable-length (7 bits a byte, lowest first; signed ones in zigzag). A value is a tag
//! ([`tag`]) and its content. A record has the number of its shape, then its fields' values. Readers map
//! a shape to a struct once, skip unknown fields and default absent fields, so that earlier and later
//! builds can read an archive. Formats such as postcard and bitcode write structs without names.
//!
//! - `block`: blocks; `cursor`: bytes and tables.
//! - `reader`, `serializer`: serde's sides; `writer`: values and their shared tables.

mod block;
mod cursor;
mod reader;
mod serializer;
#[cfg(test)]
mod tests;
mod writer;

pub use block::{BlockHead, BlockWriter, decode_block};

/// The first byte of a value. A byte below [`tag::NIL`] is the unsigned number itself; a byte from
/// [`tag::FIRST_WORD`] on is one of the first words.
mod tag {
    pub const NIL: u8 = 0x80;
    pub const FALSE: u8 = 0x81;
    pub const TRUE: u8 = 0x82;
    /// An unsigned number follows.
    pub const UNSIGNED: u8 = 0x83;
    /// The number n of -1 - n follows.
    pub const NEGATIVE: u8 = 0x84;
    /// The eight bytes of a double follow, lowest first.
    pub const FLOAT: u8 = 0x85;
    /// Microseconds follow, less those of the time of storage.
    pub const TIME: u8 = 0x86;
    /// Then the length in bytes and the text.
    pub const TEXT: u8 = 0x87;
    /// The number of a word follows.
    pub const WORD: u8 = 0x88;
    /// The length and the values follow.
    pub const LIST: u8 = 0x89;
    /// The number of a shape and one value for each of its names follow.
    pub const RECORD: u8 = 0x8a;
    /// The tag of word 0.
    pub const FIRST_WORD: u8 = 0xa0;
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Maps a signed number to an unsigned one that is small for numbers near 0.
const fn zigzag(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}
