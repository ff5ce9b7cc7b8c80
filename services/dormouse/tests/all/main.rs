//! All integration tests of this crate in one binary, which is linked once: a module for each file.

mod architecture;
mod clients;
#[path = "../../../runtime/tests/all/common/collector.rs"]
mod collector;
mod common;
mod copies;
mod documents;
mod e2e;
mod everyday;
mod faults;
mod features;
mod garbage;
mod gateway;
mod holders;
mod jaeger;
mod keeper;
mod layout;
mod lives;
mod logs;
mod metadata;
mod nemesis;
mod notebooks;
mod page;
mod python;
mod questions;
mod release;
mod roles;
mod secured;
mod tasks;
mod tenants;
mod torture;
mod trace;
mod webhook;
mod who;
mod words;
mod workdir;
