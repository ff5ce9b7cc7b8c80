//! Decides the life of each released job: start, checkpoint, stop, resume.
