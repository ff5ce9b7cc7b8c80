//! The privileged half of a node: the supervisor, and the sandboxes of plain processes.
//!
//! The crate's processes run as root next to programs of tenants. The crate works on plain values and knows no
//! job, no log, and no layout of the agent's folders. Each process has one thread, and waits for no agent and no
//! network.
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
