//! The page: the cluster at every moment of its log, in a browser. Read-only.
//!
//! - [`past`]: packed events, read models, an index.
//! - [`site`]: the source of answers. [`answers`], [`routes`]: answers about moments. [`error`]: failed
//!   answers.
//! - [`access`]: access. [`server`], `tls`, [`reply`], [`config`]: serving. [`live_events`]: new events.
//!   [`assets`]: the page's files.

pub mod access;
pub mod answers;
pub mod assets;
pub mod config;
pub mod error;
pub mod live_events;
pub mod past;
pub mod reply;
pub mod routes;
pub mod server;
pub mod site;
mod tls;

pub use config::{Access, Config, ConfigError};
pub use past::{Head, Past};
pub use server::Server;
pub use site::Page;
