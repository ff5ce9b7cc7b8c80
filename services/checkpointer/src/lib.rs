//! Decides start, checkpoint, stop, resume and end of released jobs. The crate is a pure decider and does no
//! I/O.
//!
//! - `decide`, `step`: the decider, and the due step of one job.
//! - `incarnation`: the steps of an incarnation.
//! - `elastic`, `tasks`: partitions resized in place, task sets.
//! - `limits`, `room`: time limits, free capacity.

mod decide;
mod elastic;
mod incarnation;
mod limits;
mod room;
mod step;
mod tasks;
#[cfg(test)]
mod tests;

pub use decide::Checkpointer;
