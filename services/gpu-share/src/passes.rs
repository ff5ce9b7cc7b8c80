//! Passes: what lets a launch through the open gate of a device without the gate's lock.
//!
//! A stream with an open segment has a word: whether the gate is open for it, how many launches the
//! segment still has room for, and how many threads are between `enter` and `leave`. A launch is
//! one exchange of the word before it and one subtraction after it. Who closes the gate, under its
//! lock, takes the pass away; whoever passed before is still counted inside, and the segment is not
//! ended before they have left.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// The gate is open for the stream.
const VALID: u64 = 1 << 63;
/// One thread between `enter` and `leave`; below it stand the launches that are left.
const INSIDE: u64 = 1 << 32;
/// Streams of a gate that have a pass; launches into others take the gate's lock.
const PASSES: usize = 16;
/// A place whose stream was destroyed while a thread launched into it: it is not used again.
const LOST: usize = usize::MAX;

/// What a stream's launches pass by.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Pass {
    /// The stream that has it; 0 for none.
    stream: AtomicUsize,
    word: AtomicU64,
}

/// The passes of a gate, by a stream's handle.
#[derive(Debug, Default)]
pub struct Passes([Pass; PASSES]);

/// Handles are addresses of the driver, and the small numbers of the default streams.
const fn place(handle: usize) -> usize {
    (handle ^ (handle >> 5) ^ (handle >> 12)) % PASSES
}

/// Launches that are left, by a pass's word.
const fn left(word: u64) -> u64 {
    word & (INSIDE - 1)
}

impl Passes {
    /// The pass of a stream, by its handle, if it has one.
    #[inline]
    #[must_use]
    pub fn of(&self, handle: usize) -> Option<&Pass> {
        let pass = &self.0[place(handle)];
        (pass.stream.load(Relaxed) == handle.wrapping_add(1)).then_some(pass)
    }

    /// A place for a stream, if that of its handle is free.
    #[must_use]
    pub fn take(&self, handle: usize) -> Option<usize> {
        let at = place(handle);
        if self.0[at].stream.load(Relaxed) != 0 {
            return None;
        }
        self.0[at].word.store(0, Relaxed);
        self.0[at].stream.store(handle.wrapping_add(1), Release);
        Some(at)
    }

    /// The pass at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> &Pass {
        &self.0[place]
    }

    /// The stream of a place is gone.
    pub fn give(&self, place: usize) {
        let pass = &self.0[place];
        pass.invalidate();
        pass.stream
            .store(if pass.inside() == 0 { 0 } else { LOST }, Relaxed);
    }

    /// Takes every pass away: from now on launches ask under the gate's lock.
    pub fn invalidate_all(&self) {
        for pass in &self.0 {
            pass.invalidate();
        }
    }
}

impl Pass {
    /// Before a launch; false if it is to ask under the gate's lock.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & VALID != 0 && left(word) > 0 {
            let within = word + INSIDE - 1;
            match self
                .word
                .compare_exchange_weak(word, within, Acquire, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// After a launch; whether it was the segment's last, and nobody else is inside.
    #[inline]
    pub fn leave(&self) -> bool {
        let before = self.word.fetch_sub(INSIDE, Release);
        (before & !VALID) == INSIDE
    }

    /// Under the gate's lock: a launch enters; whether the segment had room for it.
    pub fn let_in(&self) -> bool {
        let one = |word: u64| Some(word + INSIDE - u64::from(left(word) > 0));
        let before = self.word.fetch_update(AcqRel, Relaxed, one);
        left(before.unwrap_or_else(|word| word)) > 0
    }

    /// Under the gate's lock: a segment begins that has room for so many launches.
    pub fn allot(&self, launches: u32) {
        let renewed = |word: u64| Some(word - left(word) + u64::from(launches));
        let _ = self.word.fetch_update(AcqRel, Relaxed, renewed);
    }

    /// Under the gate's lock, which is open: launches may pass.
    pub fn validate(&self) {
        self.word.fetch_or(VALID, Release);
    }

    /// Under the gate's lock: launches ask there from now on.
    pub fn invalidate(&self) {
        if self.word.load(Relaxed) & VALID != 0 {
            self.word.fetch_and(!VALID, AcqRel);
        }
    }

    /// Threads between `enter` and `leave`.
    #[must_use]
    pub fn inside(&self) -> u64 {
        (self.word.load(Acquire) & !VALID) / INSIDE
    }

    /// Launches that the segment has room for.
    #[must_use]
    pub fn left(&self) -> u32 {
        // Below INSIDE.
        left(self.word.load(Acquire)) as u32
    }
}
