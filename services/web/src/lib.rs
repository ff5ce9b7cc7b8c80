//! The page: the cluster at every moment of its log, in a browser.
//!
//! 1. [`past`] holds the log: packed events, read models at distances, an index.
//! 2. [`answers`] are what the page asks for, each of a moment; moments never change, so answers
//!    have an ETag. They come from the queries of the read models and from the history's questions.
//! 3. [`guard`] lets in who may ask, before anything else looks at a request.
//! 4. [`server`] binds, serves, and tells of new events ([`live`]); [`assets`] is the page itself.
//!
//! It only reads: nothing of it appends to the log. Where the log comes from is the caller's: the
//! broker's, or a file.

pub mod answers;
pub mod assets;
pub mod config;
pub mod guard;
pub mod live;
pub mod past;
pub mod reply;
pub mod routes;
pub mod server;
mod tls;

pub use config::{Access, Config, ConfigError};
pub use past::{Head, Past};
pub use server::{Page, Server};
