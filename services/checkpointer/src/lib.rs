//! Decides start, checkpoint, stop, resume and end of each released job. The crate is a pure decider and does
//! no I/O.
//!
//! - `decide`: the decider; `step`: the due step of one job.
//! - `elastic`: partitions resized in place; `tasks`: task sets.
//! - `limits`: time limits; `room`: free capacity for starts.

mod decide;
mod elastic;
mod limits;
mod room;
mod step;
mod tasks;
#[cfg(test)]
mod tests;

pub use decide::Checkpointer;
