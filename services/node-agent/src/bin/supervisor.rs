//! The supervisor as a program of its own, for the tests of this crate. Users run `dormouse supervisor`.

use std::path::PathBuf;

use dormouse_sandbox::one_shot;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_default();
    // The supervisor's own calls: `supervisor --engine CLUSTER NODE`.
    if first == "supervisor" {
        let labels: Vec<_> = arguments.skip(1).collect();
        if let [cluster, node] = &labels[..] {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(dormouse_node_agent::docker::end_all(cluster, node));
        }
        return Ok(());
    }
    if first == one_shot::FLAG {
        return Err(one_shot::run(&arguments.next().unwrap_or_default()));
    }
    dormouse_sandbox::supervisor::run(&PathBuf::from(first))
}
