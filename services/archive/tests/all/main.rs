//! Tests of the archive over a real broker.

mod common;
mod damage;
mod sealing;
mod trimming;
mod years;
