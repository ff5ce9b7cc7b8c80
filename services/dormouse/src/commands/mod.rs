//! The commands: a folder each noun, a file each verb, with its flags, help, examples and action.

pub mod account;
pub mod alloc;
pub mod cluster;
pub mod common;
pub mod completion;
pub mod down;
pub mod explain;
pub mod job;
pub mod lab;
pub mod ledger;
pub mod log;
pub mod node;
pub mod notebook;
pub mod plan;
pub mod policy;
pub mod reservation;
pub mod run;
pub mod schema;
pub mod submit;
pub mod supervisor;
pub mod tenant;
pub mod timeline;
pub mod top;
pub mod version;
pub mod webhook;
pub mod whatif;
