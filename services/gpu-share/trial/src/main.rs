//! Tries GPU sharing: `gpu-trial serve` is a scheduler without an agent, `gpu-trial drive` a program that
//! uses the driver in one of several ways.
//!
//! ```text
//! gpu-trial serve NAME SOCKET UUID[,UUID] REQUEST LIMIT CAP_BYTES ...
//! gpu-trial drive WAY [NUMBER]...
//! gpu-trial drive runtime LIBCUDART
//! gpu-trial drive resolvers LIBRARY VERSION NAME...
//! gpu-trial drive asked FILE VERSION...
//! gpu-trial test|bench LIBDORMOUSE_GPU
//! ```
//!
//! Tests read the output of `drive`: words and numbers, one item a line.

mod calls;
mod cost;
mod cuda;
mod drive;
mod machine;
mod management;
mod memory;
mod resolvers;
mod serve;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", library] => machine::test(library),
        ["bench", library] => machine::bench(library),
        ["serve", tenants @ ..] => serve::run(tenants),
        ["drive", "runtime", path] => drive::runtime(path),
        ["drive", "resolvers", library, version, names @ ..] => {
            resolvers::run(library, version, names)
        }
        ["drive", "asked", names, versions @ ..] => resolvers::asked(names, versions),
        ["drive", way, numbers @ ..] => drive::run(way, numbers),
        _ => bail!("gpu-trial serve|drive|test|bench: see the head of main.rs"),
    }
}
