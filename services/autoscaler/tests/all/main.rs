//! Integration tests in one binary, which links once.

mod notebooks;
mod scaling;
