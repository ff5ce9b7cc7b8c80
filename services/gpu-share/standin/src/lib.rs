//! A stand-in for `libcuda.so.1` in tests: one modelled machine, whose GPUs all processes share
//! that load it with the same `STANDIN_GPU`, a file.
//!
//! - A GPU runs one kernel at a time: those of a context in the order in which they were launched,
//!   contexts in turns of two milliseconds. A kernel takes as long as its function's name says:
//!   `spin_1500000` takes 1.5 ms of the machine's clock.
//! - Every busy interval is written down with its process: the oracle of tests ([`model::Gpu`]).
//! - Memory is counted by process and device, never given beyond what the device has.
//! - Captures, graphs, events with times, streams of threads, both forms of `cuGetProcAddress`.
//!
//! Under the name `libnvidia-ml.so.1` it answers for the memory of the same machine. A machine whose file
//! is not there yet is made, with one GPU.
//!
//! With `STANDIN_LOOKUPS`, a file, it writes down what it is asked for by `cuGetProcAddress`.

// The signatures and their meaning are the CUDA driver's: its manual documents them.
#![allow(missing_docs)]

pub mod api;
pub mod local;
pub mod model;
pub mod process;
