//! All integration tests of this crate in one binary, to link only once.

mod asyncapi;
mod common;
mod fixtures;
mod fuzz;
mod released;
mod schema;
