//! The log's archive: closed segments of the log in a folder or a bucket, each with the folded states at its
//! end. The archive alone answers every question about its part of the log.
//!
//! ```text
//! segments/<first>-<last>-<digest>.parquet    the events (dormouse-replay, `log_file`)
//! states/<last>/<name>-v<version>-<digest>.zst   a folded state
//! manifests/<number>.json                     written last, and never again
//! ```
//!
//! A manifest names the digest of the manifest before: the newest digest says that nothing in the archive was
//! changed.
//!
//! - `manifest`: the manifest and its digest.
//! - `store`: objects, written once and checked when they are read.
//! - `folds`: every state of a segment's end, and their copies on the broker.
//! - `segment`: a segment's file, written, read back and checked.
//! - `sealer`: seals the next segment when the policy asks for it, and trims the log as the archiver's decider
//!   says.
//! - `history`: reads the archive as a log, nearest states first.
//! - `restore`: makes a lost log again.
//! - `verify`: checks the whole archive.

mod error;
mod folds;
mod history;
mod manifest;
mod restore;
mod sealer;
mod segment;
mod store;
mod verify;

pub use error::ArchiveError;
pub use folds::Folds;
pub use history::Start;
pub use manifest::{Manifest, Object, Sealed, StateObject};
pub use sealer::{Sealer, SealerOptions, seal_now};
pub use store::Archive;
pub use verify::{Checked, Verification};
