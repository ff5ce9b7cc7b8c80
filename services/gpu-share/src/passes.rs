//! Passes: let launches through an open gate without the gate's lock.
//!
//! A pass is one word: validity, remaining launches, and threads between `enter` and `leave`. Closing the
//! gate invalidates the pass under the lock, and the segment waits for the threads inside.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

const VALID: u64 = 1 << 63;
/// The bits below count the remaining launches.
const INSIDE: u64 = 1 << 32;
/// Other streams take the gate's lock.
const PASSES: usize = 16;
/// A stream was destroyed while a thread launched into it: the place is never reused.
const LOST: usize = usize::MAX;

/// The pass of one stream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Pass {
    /// The stream's handle plus one; 0 for none.
    stream: AtomicUsize,
    word: AtomicU64,
}

/// The passes of a gate, by a stream's handle.
#[derive(Debug, Default)]
pub struct Passes([Pass; PASSES]);

const fn place(handle: usize) -> usize {
    (handle ^ (handle >> 5) ^ (handle >> 12)) % PASSES
}

const fn left(word: u64) -> u64 {
    word & (INSIDE - 1)
}

impl Passes {
    /// Returns the pass of a stream, if any.
    #[inline]
    #[must_use]
    pub fn of(&self, handle: usize) -> Option<&Pass> {
        let pass = &self.0[place(handle)];
        (pass.stream.load(Relaxed) == handle.wrapping_add(1)).then_some(pass)
    }

    /// Takes the place of a handle if it is free.
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

    /// Returns the pass at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> &Pass {
        &self.0[place]
    }

    /// Gives a place back when its stream is gone.
    pub fn give(&self, place: usize) {
        let pass = &self.0[place];
        pass.invalidate();
        pass.stream
            .store(if pass.inside() == 0 { 0 } else { LOST }, Relaxed);
    }

    /// Invalidates all passes: launches then take the gate's lock.
    pub fn invalidate_all(&self) {
        for pass in &self.0 {
            pass.invalidate();
        }
    }
}

impl Pass {
    /// Enters before a launch; false if the launch must take the gate's lock.
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

    /// Leaves after a launch; true if it was the segment's last and nobody else is inside.
    #[inline]
    pub fn leave(&self) -> bool {
        let before = self.word.fetch_sub(INSIDE, Release);
        (before & !VALID) == INSIDE
    }

    /// Enters under the gate's lock; true if the segment had room.
    pub fn let_in(&self) -> bool {
        let one = |word: u64| Some(word + INSIDE - u64::from(left(word) > 0));
        let before = self.word.fetch_update(AcqRel, Relaxed, one);
        left(before.unwrap_or_else(|word| word)) > 0
    }

    /// Starts a segment of `launches` under the gate's lock.
    pub fn allot(&self, launches: u32) {
        let renewed = |word: u64| Some(word - left(word) + u64::from(launches));
        let _ = self.word.fetch_update(AcqRel, Relaxed, renewed);
    }

    /// Lets launches pass, under the lock of an open gate.
    pub fn validate(&self) {
        self.word.fetch_or(VALID, Release);
    }

    /// Makes launches take the lock again.
    pub fn invalidate(&self) {
        if self.word.load(Relaxed) & VALID != 0 {
            self.word.fetch_and(!VALID, AcqRel);
        }
    }

    /// Returns the threads between `enter` and `leave`.
    #[must_use]
    pub fn inside(&self) -> u64 {
        (self.word.load(Acquire) & !VALID) / INSIDE
    }

    /// Returns the segment's remaining launches.
    #[must_use]
    pub fn left(&self) -> u32 {
        left(self.word.load(Acquire)) as u32
    }
}
