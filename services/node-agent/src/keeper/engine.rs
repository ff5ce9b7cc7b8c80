//! The deadline of containers that an engine runs.
//!
//! They are not the keeper's children, and to ask an engine takes a client that may wait. So, at
//! the deadline, the keeper starts a process of its own build that ends them by their labels and
//! tries until the engine has done it.

use std::process::{Command, Stdio};

use super::words::Engine;

/// Starts that process; its number.
pub fn end_all(engine: &Engine) -> Option<u32> {
    let started = Command::new("/proc/self/exe")
        .args(["keeper", "--engine"])
        .args([&engine.cluster, &engine.node])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(child.id()),
        Err(error) => {
            eprintln!("the engine's containers cannot be ended: {error}");
            None
        }
    }
}
