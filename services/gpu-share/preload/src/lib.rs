//! Loaded before a program (`LD_PRELOAD`), stands between the program and the CUDA driver.
//!
//! | module | purpose |
//! |---|---|
//! | [`symbols`] | the driver's functions, and their replacements |
//! | [`objects`] | loaded objects: finds glibc's own `dlvsym` |
//! | [`resolve`] | `dlsym`, `dlvsym`, `cuGetProcAddress` |
//! | [`calls`] | the replacements, with the driver's signatures |
//! | [`gate`] | one a device: launches wait for the token; events measure work |
//! | [`monitor`] | a thread: grants, revocations, idle holders, a lost agent |
//! | [`memory`], [`ledger`] | allocations against the container's cap, and their list |
//!
//! Without `DORMOUSE_GPU_SOCKET` nothing changes. The library is co-operative: a program that reaches the
//! driver another way is not held. Threads of the standard library call `dlsym`, so that path never
//! allocates, locks or reads the environment.

// The CUDA driver's manual documents the signatures and their safety.
#![allow(missing_docs)]

pub mod calls;
pub mod driver;
pub mod gate;
pub mod ledger;
pub mod link;
pub mod memory;
pub mod monitor;
pub mod objects;
pub mod resolve;
pub mod state;
pub mod symbols;
