//! Time travel, verification and the log archive.
