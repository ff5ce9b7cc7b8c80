//! Tests of packed code: hostile archives, cache, copies.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::*;
use bytes::Bytes;
use dormouse_messages::Workdir;
use dormouse_messages::events::ContainerExited;
use dormouse_messages::job::JobSpec;
use dormouse_node_agent::cache::prune;
use dormouse_node_agent::code::CodeSource;
use dormouse_node_agent::code::unpack::unpack;
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::{AgentConfig, RuntimeKind, logs_path};
use dormouse_runtime::CodeError;
use dormouse_sandbox::folder::Below;
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

struct Raw<'a> {
    kind: EntryType,
    name: &'a str,
    link: &'a str,
    text: &'a str,
}

const fn file<'a>(name: &'a str, text: &'a str) -> Raw<'a> {
    let kind = EntryType::Regular;
    Raw {
        kind,
        name,
        link: "",
        text,
    }
}

const fn entry<'a>(kind: EntryType, name: &'a str, link: &'a str) -> Raw<'a> {
    Raw {
        kind,
        name,
        link,
        text: "",
    }
}

fn header(raw: &Raw<'_>, size: u64) -> Header {
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    old.name[..raw.name.len()].copy_from_slice(raw.name.as_bytes());
    old.linkname[..raw.link.len()].copy_from_slice(raw.link.as_bytes());
    header.set_entry_type(raw.kind);
    header.set_mode(0o6755);
    header.set_size(size);
    header.set_cksum();
    header
}

fn tarred(entries: &[Raw<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for raw in entries {
        let header = header(raw, raw.text.len() as u64);
        builder
            .append(&header, raw.text.as_bytes())
            .expect("written");
    }
    builder.into_inner().expect("written")
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("compressed")
}

fn packed(entries: &[Raw<'_>]) -> Vec<u8> {
    compressed(&tarred(entries))
}

fn unpacked(archive: &[u8]) -> (tempfile::TempDir, Result<(), String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let into = Below::new(folder.path().to_owned(), "inside");
    let said = unpack(archive, &into).map_err(|error| error.to_string());
    (folder, said)
}

#[test]
fn an_archive_writes_nothing_outside_and_makes_nothing_strange() {
    let outside = tempfile::tempdir().expect("a folder");
    let outside = outside.path().display().to_string();
    let absolute = format!("{outside}/x");
    let link = EntryType::Symlink;
    let hostile: [(&str, Vec<Raw<'_>>); 13] = [
        ("leads out", vec![file("../x", "1")]),
        ("leads out", vec![file("a/../../x", "1")]),
        ("leads out", vec![file(&absolute, "1")]),
        (
            "out of the folder",
            vec![entry(link, "l", &outside), file("l/x", "1")],
        ),
        ("out of the folder", vec![entry(link, "l", "..")]),
        ("out of the folder", vec![entry(link, "a/l", "../../x")]),
        (
            "out of the folder",
            vec![entry(link, "up", "."), entry(link, "l", "up/..")],
        ),
        // Not even a valid link is written through.
        (
            "is a link",
            vec![file("d/a", "1"), entry(link, "l", "d"), file("l/x", "1")],
        ),
        ("exists", vec![entry(link, "l", "x"), file("l", "1")]),
        ("exists", vec![file("a", "1"), file("a", "2")]),
        (
            "neither",
            vec![file("a", "1"), entry(EntryType::Link, "h", "a")],
        ),
        ("neither", vec![entry(EntryType::Char, "null", "")]),
        ("neither", vec![entry(EntryType::Fifo, "pipe", "")]),
    ];
    for (expected, entries) in hostile {
        let (folder, said) = unpacked(&packed(&entries));
        let why = said.expect_err(expected);
        assert!(why.contains(expected), "{expected}: {why}");
        let left: Vec<_> = fs::read_dir(folder.path()).expect("read").collect();
        assert!(left.len() <= 1, "{expected}: {left:?}");
        assert_eq!(
            fs::read_dir(&outside).expect("read").count(),
            0,
            "{expected}"
        );
    }
    let (folder, said) = unpacked(&packed(&[file("./a/run", "1")]));
    said.expect("unpacked");
    let mode = fs::metadata(folder.path().join("inside/a/run"))
        .expect("there")
        .mode();
    assert_eq!(mode & 0o7022, 0, "{mode:o}");
}

#[test]
fn an_archive_takes_no_more_than_was_agreed_on() {
    // A few kilobytes expand to 300 MiB.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    let size = 300 << 20;
    let big = header(&file("big", ""), size);
    encoder.write_all(big.as_bytes()).expect("written");
    let zeros = vec![0_u8; 1 << 20];
    for _ in 0..300 {
        encoder.write_all(&zeros).expect("written");
    }
    let (folder, said) = unpacked(&encoder.finish().expect("finished"));
    assert!(said.expect_err("too large").contains("more than 256 MiB"));
    assert!(!folder.path().join("inside/big").exists());
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    let long = header(
        &entry(EntryType::GNULongName, "././@LongLink", ""),
        100 << 20,
    );
    encoder.write_all(long.as_bytes()).expect("written");
    for _ in 0..100 {
        encoder.write_all(&zeros).expect("written");
    }
    let (_folder, said) = unpacked(&encoder.finish().expect("finished"));
    assert!(said.expect_err("too long").contains("longer than 4096"));
    let names: Vec<String> = (0..=Workdir::MOST_ENTRIES)
        .map(|it| it.to_string())
        .collect();
    let many: Vec<Raw<'_>> = names.iter().map(|name| file(name, "")).collect();
    let (_folder, said) = unpacked(&packed(&many));
    assert!(said.expect_err("too many").contains("more than 20000"));
    let deep = format!("{}x", "a/".repeat(45));
    let deep = [entry(EntryType::Directory, &deep, ""), file("b", "")];
    unpacked(&packed(&deep)).1.expect("not too deep");
    let whole = tarred(&[file("a", &"text ".repeat(500))]);
    let (_folder, said) = unpacked(&compressed(&whole[..1_000]));
    assert!(said.expect_err("cut off").contains("damaged"));
    let mut changed = whole;
    changed[0] ^= 1;
    assert!(unpacked(&compressed(&changed)).1.is_err());
    assert!(
        unpacked(b"no archive")
            .1
            .expect_err("no archive")
            .contains("damaged")
    );
}

#[derive(Default)]
struct Store {
    archives: Mutex<BTreeMap<(String, String), Vec<u8>>>,
    read: AtomicUsize,
}

/// Small, so every archive has several pieces.
const PIECE: usize = 100;

impl Store {
    fn put(&self, tenant: &str, archive: Vec<u8>) -> Workdir {
        let digest = Sha256::digest(&archive);
        let packed = Workdir {
            sha256: digest.iter().map(|it| format!("{it:02x}")).collect(),
            bytes: archive.len() as u64,
        };
        let key = (tenant.to_owned(), packed.sha256.clone());
        self.archives
            .lock()
            .expect("not poisoned")
            .insert(key, archive);
        packed
    }
}

impl CodeSource for Store {
    fn piece<'a>(
        &'a self,
        tenant: &'a str,
        sha256: &'a str,
        offset: u64,
    ) -> BoxFuture<'a, Result<Bytes, CodeError>> {
        async move {
            let (tenant, sha256) = (tenant.to_owned(), sha256.to_owned());
            let key = (tenant.clone(), sha256.clone());
            let archives = self.archives.lock().expect("not poisoned");
            let from = usize::try_from(offset).expect("small");
            let archive = archives.get(&key).filter(|it| from < it.len());
            let archive = archive.ok_or(CodeError::Absent { tenant, sha256 })?;
            if from == 0 {
                self.read.fetch_add(1, Ordering::Relaxed);
            }
            let end = archive.len().min(from + PIECE);
            Ok(Bytes::copy_from_slice(&archive[from..end]))
        }
        .boxed()
    }
}

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn job_with(workdir: Workdir, script: &str) -> JobSpec {
    JobSpec {
        workdir: Some(workdir),
        ..spec(&["/bin/sh", "-c", script])
    }
}

fn printed(folder: &Path, incarnation: u32, rank: u32) -> String {
    let logs = logs_path(folder, &id(incarnation, rank)).expect("logs");
    fs::read_to_string(logs.stdout).expect("read")
}

fn run_incarnation(log: &FakeLog, incarnation: u32, ranks: u32) -> ContainerExited {
    log.append(placed(incarnation, ranks));
    log.append(start(incarnation, None));
    let ended = (0..ranks).map(|rank| log.wait_exited(&id(incarnation, rank)));
    let mut ended: Vec<_> = ended.collect();
    ended.pop().expect("one at least")
}

#[test]
fn each_container_starts_in_a_copy_of_its_own_of_what_was_submitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, store) = (FakeLog::default(), Arc::new(Store::default()));
    let link = entry(EntryType::Symlink, "link", "lib/part.txt");
    let workdir = store.put(
        "ads",
        packed(&[
            file("say.sh", ". ./lib/part.txt"),
            file("lib/part.txt", "echo $PWD"),
            link,
        ]),
    );
    let _agent = Running::with_code(&log, config(folder.path()), store.clone());
    let script = "[ $PWD = $DORMOUSE_WORKDIR ] && ./say.sh && cat link && ls; echo changed > say.sh; echo new > new; rm -r lib";
    log.append(admitted(job_with(workdir, script)));
    for incarnation in [1, 2] {
        let exit = run_incarnation(&log, incarnation, 2);
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
        for rank in [0, 1] {
            let said = printed(folder.path(), incarnation, rank);
            let own = format!("ads/lr/{incarnation}/{rank}/code\n");
            assert!(said.contains(&own), "{said}");
            assert!(said.ends_with("echo $PWDlib\nlink\nsay.sh\n"), "{said}");
        }
    }
    assert_eq!(store.read.load(Ordering::Relaxed), 1, "fetched once");
}

#[test]
fn what_is_not_what_it_is_said_to_be_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, store) = (FakeLog::default(), Arc::new(Store::default()));
    let good = store.put("ads", packed(&[file("a", "1")]));
    let hostile = store.put("ads", packed(&[file("../x", "1")]));
    let other = store.put("search", packed(&[file("a", "theirs")]));
    let key = ("ads".to_owned(), good.sha256.clone());
    store
        .archives
        .lock()
        .expect("not poisoned")
        .get_mut(&key)
        .expect("there")[20] ^= 1;
    let _agent = Running::with_code(&log, config(folder.path()), store);
    let refused = [
        (good, "is something else"),
        (hostile, "leads out"),
        // The digest exists under another tenant.
        (other, "is not in the cluster's store"),
    ];
    for (incarnation, (workdir, expected)) in (1..).zip(refused) {
        log.append(admitted(job_with(workdir, "true")));
        let exit = run_incarnation(&log, incarnation, 1);
        let why = exit.reason.unwrap_or_default();
        assert!(why.contains(expected), "{expected}: {why}");
    }
}

#[test]
fn what_is_cached_survives_the_agent_and_not_the_machine_and_goes_when_it_is_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, store) = (FakeLog::default(), Arc::new(Store::default()));
    let workdir = store.put("ads", packed(&[file("a", "1")]));
    let layout = config(folder.path()).layout();
    let place = layout.unpacked("ads", &workdir.sha256);
    log.append(admitted(job_with(workdir, "cat a")));
    for (incarnation, fetched) in [(1, 1), (2, 1), (3, 2)] {
        if incarnation == 3 {
            // After a reboot, cached files may be torn.
            fs::write(layout.code().join("boot"), "another").expect("written");
            fs::write(place.join("a"), "torn").expect("written");
        }
        let agent = Running::with_code(&log, config(folder.path()), store.clone());
        run_incarnation(&log, incarnation, 1);
        agent.stop().expect("left in order");
        assert_eq!(printed(folder.path(), incarnation, 0), "1");
        assert_eq!(store.read.load(Ordering::Relaxed), fetched);
    }
    let day = std::time::Duration::from_secs(86_400);
    let none = std::collections::BTreeSet::new();
    assert_eq!(prune::prune(&layout.code(), &none, day), 0);
    let old = prune::old(&layout.code(), &none, std::time::Duration::ZERO);
    assert_eq!(old.iter().map(|it| &it.path).collect::<Vec<_>>(), [&place]);
    assert_eq!(
        prune::prune(&layout.code(), &none, std::time::Duration::ZERO),
        1
    );
    assert!(!place.exists());
}

#[test]
fn a_contained_job_owns_its_copy_and_sees_no_cache() {
    if !Contain::is_possible() {
        return skipped("not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (log, store) = (FakeLog::default(), Arc::new(Store::default()));
    let link = entry(EntryType::Symlink, "link", "run");
    let workdir = store.put(
        "ads",
        packed(&[file("run", "echo ran"), file("d/a", "1"), link]),
    );
    let config = AgentConfig {
        contain: Some(Contain::default()),
        ..config(folder.path())
    };
    let cache = config.layout().code().display().to_string();
    let script = format!(
        "./run && cat d/a && echo more > d/b && rm run link && stat -c %u . d d/a; ls {cache}; pwd"
    );
    let _agent = Running::with_code(&log, config, store);
    log.append(admitted(job_with(workdir, &script)));
    let exit = run_incarnation(&log, 1, 1);
    assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    let said = printed(folder.path(), 1, 0);
    assert!(
        said.starts_with("ran\n1200000\n200000\n200000\n/"),
        "{said}"
    );
    assert!(said.ends_with("ads/lr/1/0/code\n"), "{said}");
    let logs = logs_path(folder.path(), &id(1, 0)).expect("logs");
    let errors = fs::read_to_string(logs.stderr).expect("read");
    assert!(errors.contains("No such file"), "{errors}");
}

#[test]
fn a_docker_container_starts_in_its_copy() {
    if !crate::docker::engine() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (log, store) = (FakeLog::default(), Arc::new(Store::default()));
    let workdir = store.put("ads", packed(&[file("run", "cat d/a"), file("d/a", "1")]));
    for (incarnation, contain) in [(1, None), (2, Some(Contain::default()))] {
        if contain.is_some() && !Contain::is_possible() {
            return skipped("not root");
        }
        let config = AgentConfig {
            runtime: RuntimeKind::Docker,
            cluster: format!("test-code-{}", std::process::id()),
            contain,
            ..config(folder.path())
        };
        let agent = Running::with_code(&log, config, store.clone());
        let script = "sh ./run && echo more > d/b && rm run && pwd";
        log.append(admitted(job_with(workdir.clone(), script)));
        let exit = run_incarnation(&log, incarnation, 1);
        agent.stop().expect("left in order");
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
        let said = printed(folder.path(), incarnation, 0);
        let own = format!("ads/lr/{incarnation}/0/code\n");
        assert!(said.starts_with("1/") && said.ends_with(&own), "{said}");
    }
}
