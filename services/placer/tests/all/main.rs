//! All integration tests of this crate in one binary, linked once.

mod again;
mod division;
mod elastic;
mod faults;
mod given;
mod packing;
mod places;
mod roles;
