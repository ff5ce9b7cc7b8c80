//! The release's packages work in an empty folder. The tests pack the tested binary, or a script that speaks
//! for one, instead of a static one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn release(binary: &Path, out: &Path) -> Command {
    let mut release = Command::new(root().join("scripts/release.sh"));
    release.arg("--binary").arg(binary).arg("--out").arg(out);
    // Small packages are for downloads.
    release.env("DORMOUSE_PACKAGE_LEVEL", "1");
    release.env("DORMOUSE_TRY_QUICK", "1");
    // Other tests keep the machine busy.
    release.env("DORMOUSE_TRY_LIMIT_MS", "120000");
    release
}

#[track_caller]
fn ran(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&stdout).into_owned();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {said}\n{errors}");
    said
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("the packages");
    let name = |file: std::io::Result<fs::DirEntry>| file.expect("an entry").file_name();
    let mut names: Vec<_> = files
        .map(|file| name(file).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_cluster_runs_from_the_archive_and_from_the_wheel_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (binary, out) = (folder.path().join("dormouse"), folder.path().join("out"));
    ran(Command::new("strip")
        .arg("-o")
        .arg(&binary)
        .arg(env!("CARGO_BIN_EXE_dormouse")));
    let said = ran(release(&binary, &out).args(["--packages", "archive,wheel"]));
    for package in [".tar.gz runs from an empty folder", ".whl runs from an"] {
        assert!(said.contains(package), "{said}");
    }
    let names = names(&out);
    assert_eq!(
        names.len(),
        5,
        "archive, wheels, what is linked, digests: {names:?}"
    );
}

/// Answers what packing asks of a dormouse.
const SPEAKER: &str = r##"#!/bin/sh
case "$1 $2" in
  "version -o") echo '{"version": "0.1.0"}' ;;
  "completion man") echo '.TH dormouse 1' >"$3/dormouse.1" ;;
  *) echo "# $*" ;;
esac
"##;

#[test]
fn packages_are_the_same_when_packed_again_and_their_digests_are_signed() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (binary, out) = (at("dormouse"), at("out"));
    fs::write(&binary, SPEAKER).expect("written");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("executable");
    fs::write(at("library.so"), "").expect("written");
    ran(Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(at("key")));
    let said = ran(release(&binary, &out)
        .args(["--twice", "--no-try", "--library"])
        .arg(at("library.so"))
        .arg("--key")
        .arg(at("key")));
    assert!(said.contains("packed twice, the same"), "{said}");
    assert_eq!(names(&out).len(), 7, "{:?}", names(&out));
    ran(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&out));
    let public = fs::read_to_string(at("key.pub")).expect("a key");
    fs::write(at("signers"), format!("release {public}")).expect("written");
    let verify = || {
        let mut verify = Command::new("ssh-keygen");
        verify.args(["-Y", "verify", "-n", "dormouse-release", "-I", "release"]);
        verify.arg("-f").arg(at("signers"));
        verify.arg("-s").arg(out.join("SHA256SUMS.sig"));
        let sums = fs::File::open(out.join("SHA256SUMS")).expect("the digests");
        verify.stdin(sums);
        verify
    };
    ran(&mut verify());
    let sums = fs::read_to_string(out.join("SHA256SUMS")).expect("the digests");
    fs::write(out.join("SHA256SUMS"), sums.replacen('0', "1", 1)).expect("written");
    let changed = verify().output().expect("it starts");
    assert!(!changed.status.success(), "changed digests verify");
}
