//! All integration tests of this crate in one binary, linked once.

mod admit;
mod brute_force;
mod classes;
mod common;
mod document;
mod drf_golden;
mod drf_properties;
mod floors;
mod fractions;
mod limits;
mod locality;
mod places;
mod roles;
mod scale;
mod services;
mod state;
mod testbed;
