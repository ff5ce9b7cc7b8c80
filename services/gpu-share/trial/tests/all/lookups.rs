//! The library answers every `cuGetProcAddress` request of a CUDA runtime for a replaced function, at the
//! requested version and default stream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::{Driver, Program, library};

/// Installed by `scripts/install.sh cudart`.
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

#[test]
fn the_loaders_ways_to_a_function_all_lead_to_the_library() {
    let driver = Driver::new(1);
    let library = versioned(&driver).display().to_string();
    let ask = |socket: Option<&str>, library: &str, version: &str, name: &str| {
        let words = ["resolvers", library, version, name];
        let said = driver.drive(socket, &words).end();
        // Other functions stay with the loader: glibc's, or none.
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
        // The library's own function is found first; it is void while the driver is not loaded.
        format!("{kernel} {ours} - {ours} {ours}")
    );
    assert_eq!(
        ask(None, &library, "DRIVER_1", kernel),
        format!("{kernel} {own} {own} {own} {own}")
    );
    // A name that is not replaced, and a version that does not exist.
    assert_eq!(
        ask(held, &library, "DRIVER_1", "cuOther"),
        format!("cuOther {own} {own} {own} {own}")
    );
    assert_eq!(
        ask(held, &library, "DRIVER_2", kernel),
        format!("{kernel} {ours} - - -")
    );
    // The stand-in's functions have no version, so the loader finds none.
    assert_eq!(
        ask(held, "libcuda.so.1", "DRIVER_1", "cuMemAlloc_v2"),
        format!("cuMemAlloc_v2 {ours} {ours} - -")
    );
}

fn gated() -> BTreeSet<String> {
    let mut list = std::process::Command::new("nm");
    list.args(["-D", "--defined-only", "--format=posix"]);
    let listed = list
        .arg(library("libdormouse_gpu.so"))
        .output()
        .expect("nm");
    assert!(listed.status.success(), "nm: {listed:?}");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| name.starts_with("cu") || name.starts_with("nvml"));
    let names = names.filter(|name| !name.starts_with("cuGetProcAddress"));
    names.map(str::to_owned).collect()
}

fn base(exported: &str) -> &str {
    let name = exported.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    name.trim_end_matches("_v2")
}

const VERSIONS: [&str; 20] = [
    "2000", "3010", "3020", "3030", "4000", "5000", "6050", "7000", "9000", "10000", "10010",
    "11000", "11020", "11030", "11040", "12000", "12020", "12080", "13000", "13020",
];

#[test]
fn every_function_of_the_library_is_found_by_every_way() {
    let driver = Driver::new(1);
    let gated = gated();
    assert!(gated.len() > 140, "{gated:?}");
    let ours: Vec<&str> = gated.iter().map(String::as_str).collect();
    let (cuda, nvml): (Vec<&str>, Vec<&str>) = ours.iter().partition(|it| it.starts_with("cu"));
    for (file, names) in [("libcuda.so.1", &cuda), ("libnvidia-ml.so.1", &nvml)] {
        let mut words = vec!["resolvers", file, "NONE"];
        words.extend(names);
        let said = driver.drive(Some("nobody"), &words).end();
        for name in names.iter() {
            let line = format!("{name} libdormouse_gpu.so libdormouse_gpu.so ");
            assert!(said.contains(&line), "{name} is not ours by dlsym: {said}");
        }
    }
    let bases: BTreeSet<&str> = cuda.iter().map(|name| base(name)).collect();
    let names = driver.path("names");
    let text: Vec<&str> = bases.into_iter().collect();
    std::fs::write(&names, text.join("\n")).expect("written");
    let lookups = driver.path("lookups");
    let trial = Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
    let mut command = driver.command(trial, Some("nobody"));
    command.env("STANDIN_LOOKUPS", &lookups);
    command.args(["drive", "asked"]).arg(&names).args(VERSIONS);
    let said = Program::start(command).end();
    let given: BTreeMap<String, Vec<&str>> = said.lines().map(question).collect();
    let asked = std::fs::read_to_string(&lookups).expect("lookups");
    let mut found = BTreeSet::new();
    for (question, meant) in asked.lines().map(question) {
        let [meant] = meant[..] else { continue };
        if !gated.contains(meant) {
            continue;
        }
        let whose = ["libdormouse_gpu.so", meant, "libdormouse_gpu.so", meant];
        assert_eq!(given[&question], whose, "{question} means {meant}");
        found.insert(meant);
    }
    let never: Vec<&&str> = cuda.iter().filter(|name| !found.contains(**name)).collect();
    assert!(never.is_empty(), "no question means {never:?}");
}

fn question(line: &str) -> (String, Vec<&str>) {
    let words: Vec<&str> = line.split(' ').collect();
    let (question, answer) = words.split_at(3.min(words.len()));
    (question.join(" "), answer.to_vec())
}

/// Not replaced, with the reason.
const OTHERS: [(&str, &str); 9] = [
    (
        "cuExternalMemoryGetMapped",
        "was counted when it was imported",
    ),
    ("cuGraphics", "memory of a picture, whose owner has it"),
    ("cuGraph", "makes graphs; their launches are held"),
    ("cuLaunchHostFunc", "a function of the host"),
    ("cuMemAllocHost", "memory of the host"),
    ("cuMipmappedArrayGet", "asks about an array"),
    ("cuArrayGet", "asks about an array"),
    ("cuArray3DGet", "asks about an array"),
    ("cuMemDiscardBatchAsync", "moves nothing"),
];

#[test]
fn every_function_that_the_runtime_asks_for_and_is_ours_is_handed_out() {
    let runtimes = runtimes();
    if runtimes.is_empty() {
        let must = std::env::var("DORMOUSE_NO_SKIP").as_deref() == Ok("1");
        assert!(!must, "no CUDA runtime here: scripts/install.sh cudart");
        println!("SKIPPED: no CUDA runtime here: scripts/install.sh cudart");
        return;
    }
    let gated = gated();
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
        let runtime = runtime.display();
        let asked = std::fs::read_to_string(&lookups).expect("lookups");
        let asked: BTreeSet<&str> = asked.lines().collect();
        assert!(
            asked.len() > 300,
            "{runtime}: {} lookups, {said}",
            asked.len()
        );
        let handed = std::fs::read_to_string(&handed).unwrap_or_default();
        let handed: BTreeSet<&str> = handed.lines().collect();
        let mut ours = BTreeSet::new();
        for line in &asked {
            // Name, version, flags, and the exported function.
            let meant = line.rsplit(' ').next().unwrap_or_default();
            if gated.contains(meant) {
                assert!(handed.contains(line), "{runtime}: {line} is not ours");
                ours.insert(meant);
            }
            let name = line.split(' ').next().unwrap_or_default();
            let works = [
                "Launch",
                "Memcpy",
                "Memset",
                "MemAlloc",
                "Prefetch",
                "Array",
                "MemCreate",
            ];
            let works = works.iter().any(|it| name.contains(it));
            let known = OTHERS.iter().any(|(it, _)| name.starts_with(it));
            assert!(
                !works || known || gated.contains(meant),
                "{runtime}: {line} works on the device past the library"
            );
        }
        println!(
            "{runtime}: {} questions, {} functions of ours",
            asked.len(),
            ours.len()
        );
        assert!(ours.len() > 80, "{runtime}: {ours:?}");
    }
}
