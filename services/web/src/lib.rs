//! The page: the cluster at every moment of its log, in a browser. Read-only.
//!
//! - [`past`]: packed events, read models, an index.
//! - [`site`]: the source of answers. [`answers`], [`routes`]: answers about moments. [`error`]: failed
//!   answers.
//! - [`access`]: access. [`server`], `tls`, [`reply`], [`config`]: serving. [`live_events`]: new events.
//!   [`assets`]: the page's files.
//!
//! hyper and one `match` serve some fifteen `GET`s; a framework would add crates and no feature. The browser
//! gets plain modules without a build step.

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
