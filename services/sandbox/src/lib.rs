//! The privileged half of a node: the supervisor, and the sandboxes of plain processes.
//!
//! Code here runs as root next to programs of tenants. It works on plain values: it knows no job, no log, and
//! no layout of the agent's folders. It has one thread per process, and never waits for an agent or a network.
//!
//! - [`supervisor`]: the parent of all inits; `protocol`, `framed_socket`: the way to the agent and to inits
//! - `init`: the first process of a container, and the start of programs; [`spawn`] without a copy of memory;
//!   [`one_shot`]: one program in a sandbox, without a supervisor
//! - [`isolation`]: what a container sees: root, mounts, devices, network, system calls, user
//! - [`cgroups`]: limits; [`procfs`]: processes; `kernel`: system calls that no safe crate offers
//! - [`folder`]: the only access to paths that a job can write; [`StartError`]: whose fault a failure is

pub mod cgroups;
mod error;
pub mod folder;
pub mod framed_socket;
mod init;
pub mod isolation;
mod kernel;
pub mod one_shot;
pub mod procfs;
pub mod protocol;
pub mod spawn;
pub mod supervisor;

pub use error::{ENDED, Fault, StartError};
