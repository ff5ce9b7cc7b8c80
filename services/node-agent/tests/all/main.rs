//! All integration tests of this crate in one binary, which is linked once: a module for each file.

mod adopted;
mod agent;
mod broker;
mod code;
mod common;
mod containment;
mod disk;
mod docker;
mod elastic;
mod exec;
mod executor;
mod executors;
mod gpu_walls;
mod gpus;
mod hostile;
mod in_place;
mod keeping;
mod network;
mod process;
mod python;
mod reconcile;
mod roles;
mod snapshots;
mod sources;
mod store;
mod tasks;
