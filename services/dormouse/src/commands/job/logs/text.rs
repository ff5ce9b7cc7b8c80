//! Joins pieces of a stream, which end anywhere, into whole lines.

use crate::print;

const LINE_BYTES: usize = 64 << 10;

/// The unfinished line of a stream.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Returns the whole lines in the remainder and `bytes`.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n');
        let whole = match whole {
            Some(last) => last + 1,
            None if self.rest.len() > LINE_BYTES => self.rest.len(),
            None => 0,
        };
        self.rest.drain(..whole).collect()
    }

    /// Returns the remainder, with a line end.
    pub fn last(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }

    /// Prints the whole lines.
    ///
    /// # Errors
    /// If the standard output is closed.
    pub fn print(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        print::program_output(&mut self.take(bytes).as_slice())
    }

    /// Prints the remainder unchanged.
    ///
    /// # Errors
    /// If the standard output is closed.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        print::program_output(&mut rest.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = b"one\ntwo two\n\nthree";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut all = Vec::new();
            for piece in text.chunks(size) {
                let whole = lines.take(piece);
                assert!(whole.is_empty() || whole.ends_with(b"\n"));
                all.extend(whole);
            }
            all.extend(lines.last());
            assert_eq!(all, b"one\ntwo two\n\nthree\n");
        }
    }
}
