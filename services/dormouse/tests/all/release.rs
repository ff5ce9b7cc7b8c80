//! The release's archive works in an empty folder. The test packs the tested binary instead of a static one.

use std::path::Path;
use std::process::Command;

#[test]
fn a_cluster_runs_from_the_unpacked_archive_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = tempfile::tempdir().expect("a folder");
    let made = Command::new(root.join("scripts/release.sh"))
        .args(["--binary", env!("CARGO_BIN_EXE_dormouse"), "--out"])
        .arg(out.path())
        .output()
        .expect("scripts/release.sh starts");
    let said = String::from_utf8_lossy(&made.stdout);
    assert!(
        made.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&made.stderr)
    );
    assert!(said.contains("runs from an empty folder"), "{said}");
    let files = std::fs::read_dir(out.path()).expect("the archive");
    let names: Vec<String> = files
        .map(|file| {
            file.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(names.len(), 2, "archive and its hash: {names:?}");
}
