//! A log's events, packed by the thousand in an unnamed file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dormouse_messages::Recorded;

/// Larger chunks pack no better.
pub const EVENTS: usize = 1_024;

const ZSTD_LEVEL: i32 = 3;

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    length: usize,
}

/// Packed events by position, from 0.
#[derive(Debug, Default)]
pub struct Chunks {
    file: Option<Arc<File>>,
    places: Vec<Place>,
    end: u64,
    open: Vec<Arc<Recorded>>,
}

/// A readable part of a log.
#[derive(Debug, Default)]
pub struct Part {
    file: Option<Arc<File>>,
    places: Vec<Place>,
    skip: usize,
    events: usize,
    open: Vec<Arc<Recorded>>,
}

impl Chunks {
    /// Appends an event.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn push(&mut self, recorded: Arc<Recorded>) -> io::Result<()> {
        self.open.push(recorded);
        if self.open.len() < EVENTS {
            return Ok(());
        }
        let packed = pack(&self.open)?;
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(tempfile::tempfile()?)),
        };
        file.write_all_at(&packed, self.end)?;
        self.places.push(Place {
            offset: self.end,
            length: packed.len(),
        });
        self.end += packed.len() as u64;
        self.open.clear();
        Ok(())
    }

    /// Returns the events from `from` to before `to`.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> Part {
        let full = self.places.len() * EVENTS;
        let to = to.min(full + self.open.len());
        let from = from.min(to);
        let chunks = from / EVENTS..to.min(full).div_ceil(EVENTS);
        let open = from.max(full)..to.max(full);
        Part {
            file: self.file.clone(),
            places: self.places.get(chunks).unwrap_or_default().to_vec(),
            skip: from % EVENTS,
            events: to - from,
            open: self.open[open.start - full..open.end - full].to_vec(),
        }
    }
}

impl Part {
    /// Passes every event to `each`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(self, mut each: impl FnMut(&Arc<Recorded>)) -> io::Result<()> {
        let (mut skip, mut left) = (self.skip, self.events);
        for place in &self.places {
            let mut packed = vec![0; place.length];
            if let Some(file) = &self.file {
                file.read_exact_at(&mut packed, place.offset)?;
            }
            for line in BufReader::new(zstd::Decoder::new(&packed[..])?).lines() {
                let line = line?;
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                let (_, recorded) = Recorded::from_json(&line).map_err(io::Error::other)?;
                each(&Arc::new(recorded));
            }
        }
        self.open.iter().for_each(each);
        Ok(())
    }
}

/// Packs events as JSON lines.
fn pack(events: &[Arc<Recorded>]) -> io::Result<Vec<u8>> {
    let mut packed = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
    for recorded in events {
        writeln!(
            packed,
            "{}",
            recorded.to_json("").map_err(io::Error::other)?
        )?;
    }
    packed.finish()
}
