//! A stand-in for `libcuda.so.1` in tests: a modelled machine, shared by all processes with an equal
//! `STANDIN_GPU`, a file.
//!
//! - A GPU runs one kernel at a time: in launch order within a context, contexts in turns of two
//!   milliseconds. A function's name gives a kernel's duration: `spin_1500000` takes 1.5 ms.
//! - Every busy interval is logged with its process: the oracle of tests ([`model::Gpu`]).
//! - Memory is counted by process and device, up to the device's size.
//! - Captures, graphs, timed events, per-thread streams, both forms of `cuGetProcAddress`.
//!
//! As `libnvidia-ml.so.1` it reports the machine's memory. A missing machine file is created, with one GPU.
//! `STANDIN_LOOKUPS` names a log of `cuGetProcAddress` requests.

// The CUDA driver's manual documents the signatures and their meaning.
#![allow(missing_docs)]

pub mod api;
pub mod local;
pub mod model;
pub mod process;
