//! Decides the life of each released job: start, checkpoint, stop, resume, and how it ends.

mod decide;
mod elastic;
mod limits;
mod room;
mod step;
mod tasks;
#[cfg(test)]
mod tests;

pub use decide::Checkpointer;
