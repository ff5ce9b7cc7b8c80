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

/// A library under another name that has functions of the driver, with a version.
fn versioned(driver: &Driver) -> PathBuf {
    let (code, script) = (driver.path("driver.c"), driver.path("driver.map"));
    let text = "int cuLaunchKernel(void) { return 0; } int cuOther(void) { return 0; }";
    std::fs::write(&code, text).expect("written");
    std::fs::write(&script, "DRIVER_1 { global: *; };").expect("written");
    let library = driver.path("libversioned.so");
    let script = format!("-Wl,--version-script={}", script.display());
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    let built = compiler.arg(&code).arg(script).status().expect("cc");
    assert!(built.success());
    library
}

/// `dlsym` and `dlvsym`, of the library's handle and of all objects.
#[test]
fn the_loaders_ways_to_a_function_all_lead_to_the_library() {
    let driver = Driver::new(1);
    let library = versioned(&driver).display().to_string();
    let ask = |socket: Option<&str>, library: &str, version: &str, name: &str| {
        let words = ["resolvers", library, version, name];
        let said = driver.drive(socket, &words).end();
        // What is not the driver's is the loader's own affair: glibc's, or nothing.
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("next libc.so"), "{said}");
        assert!(last.ends_with("none -"), "{said}");
        said.lines().next().unwrap_or_default().to_owned()
    };
    let ours = "libdormouse_gpu.so";
    let own = "libversioned.so";
    let held = Some("nobody");
    let kernel = "cuLaunchKernel";
    assert_eq!(
        ask(held, &library, "DRIVER_1", kernel),
        // Among all objects this library's own is found first: it stands for nothing while the
        // driver itself is not loaded.
        format!("{kernel} {ours} - {ours} {ours}")
    );
    assert_eq!(
        ask(None, &library, "DRIVER_1", kernel),
        format!("{kernel} {own} {own} {own} {own}")
    );
    // A name that is not replaced, and a version that is not there.
    assert_eq!(
        ask(held, &library, "DRIVER_1", "cuOther"),
        format!("cuOther {own} {own} {own} {own}")
    );
    assert_eq!(
        ask(held, &library, "DRIVER_2", kernel),
        format!("{kernel} {ours} - - -")
    );
    // The stand-in's functions have no version: asked for one, the loader finds nothing.
    assert_eq!(
        ask(held, "libcuda.so.1", "DRIVER_1", "cuMemAlloc_v2"),
        format!("cuMemAlloc_v2 {ours} {ours} - -")
    );
}

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
