//! Tests packing a folder: contents, refusals, and unpacking by the agent.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use dormouse_node_agent::code::unpack::unpack;
use dormouse_sandbox::folder::Below;
use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        write(folder.path(), name, text);
    }
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

fn names(folder: &Path) -> Vec<String> {
    let found = find(folder).expect("found");
    found
        .iter()
        .map(|it| it.way.display().to_string())
        .collect()
}

fn refusal(folder: &Path) -> String {
    format!("{:#}", pack(folder).expect_err("refused"))
}

#[test]
fn the_same_files_make_the_same_archive() {
    let files = [
        ("train.py", "print(1)\n"),
        ("lib/b.py", "b"),
        ("lib/a.py", "a"),
    ];
    let (one, mut other) = (folder(&files), files);
    other.reverse();
    let other = folder(&other);
    let program = |folder: &Path, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.join("train.py"), mode).expect("set");
    };
    program(one.path(), 0o700);
    program(other.path(), 0o755);
    let file = fs::File::open(other.path().join("lib/a.py")).expect("opened");
    file.set_modified(std::time::UNIX_EPOCH).expect("set");
    let packed = pack(one.path()).expect("packed").packed;
    assert_eq!(packed, pack(other.path()).expect("packed").packed);
    assert_eq!(packed.check(), Ok(()));
    program(other.path(), 0o644);
    assert_ne!(packed, pack(other.path()).expect("packed").packed);
    program(other.path(), 0o755);
    write(other.path(), "lib/a.py", "A");
    assert_ne!(packed, pack(other.path()).expect("packed").packed);
}

#[test]
fn what_git_leaves_out_stays_out() {
    let folder = folder(&[
        (".gitignore", "*.log\n/data/\n"),
        (".dormouseignore", "notes\n"),
        (".git/config", "secret"),
        (".hidden", "goes along"),
        ("data/big", "0"),
        ("lib/data/small", "1"),
        ("notes/a", "2"),
        ("out.log", "3"),
        ("train.py", "4"),
    ]);
    let all = [
        ".dormouseignore",
        ".gitignore",
        ".hidden",
        "lib",
        "lib/data",
        "lib/data/small",
        "train.py",
    ];
    assert_eq!(names(folder.path()), all);
    let repository = tempfile::tempdir().expect("a folder");
    write(repository.path(), ".gitignore", "*.py\n");
    write(repository.path(), "r/.git/config", "");
    write(repository.path(), "r/.gitignore", "*.tmp\n");
    write(repository.path(), "r/sub/train.py", "");
    write(repository.path(), "r/sub/a.tmp", "");
    assert_eq!(names(&repository.path().join("r/sub")), ["train.py"]);
}

#[test]
fn what_may_not_go_along_is_named() {
    let folder = folder(&[("a/train.py", "")]);
    symlink("train.py", folder.path().join("a/inside")).expect("linked");
    pack(folder.path()).expect("links that stay go along");
    symlink("../../etc/passwd", folder.path().join("a/outside")).expect("linked");
    let _socket = UnixListener::bind(folder.path().join("socket")).expect("bound");
    let why = refusal(folder.path());
    assert!(
        why.contains("a/outside is a link to ../../etc/passwd"),
        "{why}"
    );
    assert!(why.contains("socket is a socket"), "{why}");
    assert!(refusal(&folder.path().join("a/train.py")).contains("is not a folder"));
    assert!(refusal(&folder.path().join("none")).contains("none"));
}

#[test]
fn too_much_is_refused_with_what_takes_most() {
    let folder = folder(&[("train.py", "")]);
    fs::create_dir_all(folder.path().join("data/raw")).expect("made");
    let big = fs::File::create(folder.path().join("data/raw/big")).expect("made");
    big.set_len(Workdir::MOST_UNPACKED_BYTES + 1).expect("set");
    let why = refusal(folder.path());
    assert!(why.contains("has 257 MiB; the most is 256 MiB"), "{why}");
    assert!(why.contains("data/raw (257 MiB)"), "{why}");
    drop(big);
    fs::remove_dir_all(folder.path().join("data")).expect("removed");
    fs::create_dir_all(folder.path().join("many")).expect("made");
    for number in 0..=Workdir::MOST_ENTRIES {
        fs::write(folder.path().join(format!("many/{number}")), "").expect("written");
    }
    let why = refusal(folder.path());
    assert!(why.contains("more than 20000 files"), "{why}");
}

#[test]
fn what_is_packed_is_what_is_unpacked() {
    let deep = format!("{}/{}.py", "folder/".repeat(30), "n".repeat(200));
    let folder = folder(&[("run.sh", "#!/bin/sh\n"), (&deep, "deep"), ("lib/a", "")]);
    let program = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path().join("run.sh"), program).expect("set");
    fs::create_dir(folder.path().join("empty")).expect("made");
    symlink("lib/a", folder.path().join("link")).expect("linked");
    let long = format!("lib/{}", "l".repeat(150));
    symlink(&long, folder.path().join("dangling")).expect("linked");
    let pack = pack(folder.path()).expect("packed");
    let into = tempfile::tempdir().expect("a folder");
    let below = Below::new(into.path().to_owned(), "unpacked");
    unpack(pack.archive.as_ref(), &below).expect("unpacked");
    let unpacked = below.path();
    assert_eq!(names(&unpacked), names(folder.path()));
    assert_eq!(
        fs::read_to_string(unpacked.join(&deep)).expect("read"),
        "deep"
    );
    assert_eq!(
        fs::read_link(unpacked.join("dangling")).expect("read"),
        Path::new(&long)
    );
    let mode = |name: &str| {
        let found = fs::metadata(unpacked.join(name)).expect("there");
        found.permissions().mode() & 0o111 != 0
    };
    assert!(mode("run.sh") && !mode("lib/a"));
    assert_eq!(super::pack(&unpacked).expect("packed").packed, pack.packed);
}
