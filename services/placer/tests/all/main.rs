//! All integration tests of this crate in one binary, which is linked once: a module for each file.

mod again;
mod division;
mod elastic;
mod faults;
mod given;
mod packing;
mod places;
mod roles;
