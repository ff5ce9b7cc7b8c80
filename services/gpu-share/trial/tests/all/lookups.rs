//! What the CUDA runtime asks the driver for: every function of ours that it asks for by
//! `cuGetProcAddress` is handed out, for the version and the default stream that it means.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{Driver, Program};

/// The runtimes that `scripts/install.sh cudart` puts there.
fn runtimes() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let tools = std::env::var_os("DORMOUSE_TOOLS").map_or(root.join(".tools"), PathBuf::from);
    let folder = std::fs::read_dir(tools.join("cudart"))
        .into_iter()
        .flatten();
    let mut paths: Vec<PathBuf> = folder.map(|it| it.expect("readable").path()).collect();
    paths.retain(|it| it.to_string_lossy().contains("libcudart.so."));
    paths.sort();
    paths
}

/// Gated functions that a runtime must find as ours, by what it asks.
const GATED: [(&str, &str); 9] = [
    ("cuLaunchKernel", "0"),
    ("cuLaunchKernel", "2"),
    ("cuLaunchKernelEx", "2"),
    ("cuLaunchCooperativeKernel", "2"),
    ("cuGraphLaunch", "2"),
    ("cuMemAlloc", "0"),
    ("cuMemAllocAsync", "2"),
    ("cuCtxSynchronize", "0"),
    ("cuMemGetInfo", "0"),
];

#[test]
fn every_function_that_the_runtime_asks_for_and_is_ours_is_handed_out() {
    let runtimes = runtimes();
    if runtimes.is_empty() {
        println!("SKIPPED: no CUDA runtime here: scripts/install.sh cudart");
        return;
    }
    for runtime in runtimes {
        let driver = Driver::new(1);
        let lookups = driver.path("lookups");
        let handed = driver.path("handed");
        let trial = Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
        let mut command = driver.command(trial, Some("nobody"));
        command.env("STANDIN_LOOKUPS", &lookups);
        command.env("DORMOUSE_GPU_TRACE", &handed);
        command.args(["drive", "runtime", &runtime.to_string_lossy()]);
        let said = Program::start(command).end();
        let asked = std::fs::read_to_string(&lookups).expect("lookups");
        let asked: BTreeSet<&str> = asked.lines().collect();
        assert!(
            asked.len() > 300,
            "{}: {} lookups, {said}",
            runtime.display(),
            asked.len()
        );
        let handed = std::fs::read_to_string(&handed).unwrap_or_default();
        println!(
            "{}: {} names, of ours:\n{handed}",
            runtime.display(),
            asked.len()
        );
        for line in asked {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, _, flags] = words[..] else {
                continue;
            };
            if GATED.contains(&(name, flags)) {
                let found = handed.lines().any(|it| it.starts_with(&format!("{line} ")));
                assert!(found, "{}: {line} is not ours", runtime.display());
            }
        }
    }
}
