//! All integration tests of this crate in one binary, linked once.

mod again;
mod assign;
mod elastic;
mod faults;
mod given;
mod places;
mod roles;
