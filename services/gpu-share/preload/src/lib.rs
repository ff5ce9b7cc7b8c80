//! Loaded before a program (`LD_PRELOAD`), it stands between the program and the CUDA driver.
//!
//! | module | what it does |
//! |---|---|
//! | [`symbols`] | finds the driver's functions, and hands out ours in their place |
//! | [`objects`] | what the process has loaded: where glibc's own `dlvsym` is |
//! | [`resolve`] | `dlsym`, `dlvsym`, `cuGetProcAddress`: which of ours stands for what was asked |
//! | [`calls`] | the functions themselves, each with the driver's signature |
//! | [`gate`] | one a device: launches wait for the token; work is measured by the driver's events |
//! | [`monitor`] | a thread: grants and revocations, idle holders, an agent that is gone |
//! | [`memory`] | what the process has allocated, against the container's cap |
//!
//! Without `DORMOUSE_GPU_SOCKET` in the environment it changes nothing. It is co-operative: a
//! program that reaches the driver by another way is not held by it.
//!
//! Threads of the standard library call `dlsym`: on that path there is no allocation, no lock and
//! no environment.

// The signatures and their safety are the CUDA driver's: its manual documents them.
#![allow(missing_docs)]

pub mod calls;
pub mod driver;
pub mod gate;
pub mod link;
pub mod memory;
pub mod monitor;
pub mod objects;
pub mod resolve;
pub mod state;
pub mod symbols;
