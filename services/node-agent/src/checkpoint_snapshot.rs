//! Seals complete checkpoints, because an interrupted save leaves a torn one in the incarnation's folder.
//!
//! 1. A complete checkpoint is linked (small files copied) into `<incarnation>.<number>`, with a list of
//!    sizes and times.
//! 2. An overwritten large file breaks the list. A resume detects this ([`resumable`]) and uses an earlier
//!    checkpoint.
//! 3. The newest few of a job are kept, and all that the log may name ([`retain`]).
//!
//! Blocking.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use dormouse_messages::Incarnation;
use dormouse_sandbox::folder::{Below, Entry, Folder, User};

/// Larger checkpoints are used unsealed.
const FILES_LIMIT: usize = 10_000;

const DEPTH_LIMIT: usize = 16;

/// Small files are often overwritten in place, so they are copied.
const COPIED_BYTES: u64 = 1 << 20;

const LIST: &str = ".sealed";

const LIST_BYTES: u64 = 8 << 20;

/// The document that marks a checkpoint as complete.
pub const DOCUMENT: &str = "checkpoint.json";

/// Limit on the document: two numbers, and the job's additions.
pub const DOCUMENT_BYTES: u64 = 64 * 1024;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sealed {
    path: String,
    bytes: u64,
    modified_ns: i64,
}

fn parse(name: &str) -> Option<(Incarnation, u32)> {
    let (incarnation, number) = name.split_once('.').unwrap_or((name, "0"));
    Some((Incarnation(incarnation.parse().ok()?), number.parse().ok()?))
}

/// Seals a complete checkpoint and returns its new folder.
///
/// # Errors
/// The reason of a failure. The original is then used.
pub fn seal(checkpoint: &Below) -> io::Result<Below> {
    let path = checkpoint.path();
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(job), Some(name)) = (checkpoint.parent(), name) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let from = checkpoint.open()?;
    let document = from.entry(DOCUMENT)?;
    let mut files = Vec::new();
    walk(&from, "", 0, &mut |_, name, way, entry| {
        if name == LIST {
            // A job that resumed may have copied the list.
            return Ok(());
        }
        if entry.modified_ns > document.modified_ns && name != DOCUMENT {
            return Err(io::Error::other(format!(
                "{way} is younger than {DOCUMENT}, which is to be written last"
            )));
        }
        // Keep names: open descriptors could exceed the agent's limit.
        files.push((way.to_owned(), entry));
        if files.len() > FILES_LIMIT {
            Err(io::Error::other("it has too many files"))
        } else {
            Ok(())
        }
    })?;
    let number = 1 + last_number(&job.open()?, name)?;
    let sealed = job.join(format!("{name}.{number}"));
    // A temporary name until completion hides an interrupted seal.
    let unfinished = job.join(format!(".{name}.{number}"));
    let _ = std::fs::remove_dir_all(unfinished.path());
    let mut list = Vec::new();
    let owner = from.owner()?;
    unfinished.make()?.give_to(owner)?;
    for (way, entry) in files {
        let path = Path::new(&way);
        let parent = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().and_then(|name| name.to_str());
        let to = make_private(&unfinished, parent, owner)?;
        let folder = checkpoint.join(parent).open()?;
        let taken = take(&folder, name.unwrap_or_default(), &entry, &to, owner)?;
        list.push(Sealed {
            path: way,
            bytes: taken.bytes,
            modified_ns: taken.modified_ns,
        });
    }
    let list = serde_json::to_vec(&list)?;
    let folder = unfinished.open()?;
    folder.write_private(LIST, &list)?;
    folder.give_file(LIST, owner)?;
    job.open()?
        .rename(&format!(".{name}.{number}"), &format!("{name}.{number}"))?;
    Ok(sealed)
}

fn make_private(sealed: &Below, way: &Path, owner: User) -> io::Result<Folder> {
    let steps: Vec<_> = way.ancestors().collect();
    let steps = steps
        .into_iter()
        .rev()
        .filter(|it| !it.as_os_str().is_empty());
    for step in steps {
        let below = sealed.join(step);
        if below.open().is_err() {
            below.make()?.give_to(owner)?;
        }
    }
    sealed.join(way).open()
}

/// Copies or links a file, and returns its sealed entry.
///
/// # Errors
/// Kernel errors, or a change since `entry` by the next save.
fn take(folder: &Folder, name: &str, entry: &Entry, to: &Folder, owner: User) -> io::Result<Entry> {
    if entry.bytes <= COPIED_BYTES {
        to.write_private(name, &folder.read(name, COPIED_BYTES)?)?;
        to.give_file(name, owner)?;
    } else {
        folder.link(name, to)?;
    }
    let now = folder.entry(name)?;
    let as_before = |it: &Entry| (it.file, it.bytes, it.modified_ns);
    if as_before(&now) != as_before(entry) {
        return Err(io::Error::other(format!(
            "{name} was written to while it was sealed"
        )));
    }
    to.entry(name)
}

/// Reports whether a folder's name is a sealed checkpoint's.
#[must_use]
pub fn is_sealed(name: &str) -> bool {
    parse(name).is_some_and(|(_, number)| number > 0)
}

/// Lists the paths of a checkpoint's files, without the list.
///
/// # Errors
/// Disk errors, or too many files.
pub fn files(checkpoint: &Below) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    walk(&checkpoint.open()?, "", 0, &mut |_, name, way, _| {
        if name != LIST {
            files.push(way.to_owned());
        }
        Ok(())
    })?;
    if files.len() > FILES_LIMIT {
        Err(io::Error::other("it has too many files"))
    } else {
        Ok(files)
    }
}

/// Writes the list of a fetched checkpoint, as if sealed here.
///
/// # Errors
/// Disk errors.
pub fn list(checkpoint: &Below) -> io::Result<()> {
    let folder = checkpoint.open()?;
    let mut list = Vec::new();
    walk(&folder, "", 0, &mut |_, _, way, entry| {
        list.push(Sealed {
            path: way.to_owned(),
            bytes: entry.bytes,
            modified_ns: entry.modified_ns,
        });
        Ok(())
    })?;
    folder.write(LIST, &serde_json::to_vec(&list)?)
}

fn last_number(job: &Folder, name: &str) -> io::Result<u32> {
    let (incarnation, _) = parse(name).ok_or(ErrorKind::InvalidInput)?;
    let names = job.names()?;
    let numbers = names.iter().filter_map(|name| parse(name));
    let own = numbers.filter(|(it, _)| *it == incarnation);
    Ok(own.map(|(_, number)| number).max().unwrap_or(0))
}

fn walk(
    folder: &Folder,
    way: &str,
    depth: usize,
    each: &mut impl FnMut(&Folder, &str, &str, Entry) -> io::Result<()>,
) -> io::Result<()> {
    if depth > DEPTH_LIMIT {
        return Err(io::Error::other("its folders are too deep"));
    }
    if folder.has_unreadable_names()? {
        return Err(io::Error::other(
            "it has a file whose name is not UTF-8: such a file would not be restored",
        ));
    }
    let entries = folder.entries()?;
    if entries.len() >= FILES_LIMIT {
        return Err(io::Error::other("it has too many files"));
    }
    for (name, entry) in entries {
        let way = match way {
            "" => name.clone(),
            way => format!("{way}/{name}"),
        };
        if entry.is_folder {
            walk(&folder.folder(&name)?, &way, depth + 1, each)?;
        } else if entry.is_regular {
            each(folder, &name, &way, entry)?;
        }
    }
    Ok(())
}

/// The reason why a checkpoint is unreadable, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// The root of checkpoints is absent: another node may succeed.
    Here(String),
    Anywhere(String),
}

/// Verifies that a checkpoint can be resumed from.
///
/// # Errors
/// The reason why not.
pub fn resumable(checkpoint: &Below) -> Result<(), Unreadable> {
    checkpoint.check_root().map_err(|error| {
        let path = checkpoint.path();
        Unreadable::Here(format!("{}: {error}", path.display()))
    })?;
    verify(checkpoint).map_err(Unreadable::Anywhere)
}

fn verify(checkpoint: &Below) -> Result<(), String> {
    let folder = checkpoint.open().map_err(|error| error.to_string())?;
    let document = folder.read(DOCUMENT, DOCUMENT_BYTES);
    let document = document.map_err(|error| format!("{DOCUMENT}: {error}"))?;
    serde_json::from_slice::<serde_json::Value>(&document)
        .map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let list = match folder.read(LIST, LIST_BYTES) {
        // Not sealed: an earlier agent's, or sealing failed.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        list => list.map_err(|error| format!("{LIST}: {error}"))?,
    };
    let list: Vec<Sealed> =
        serde_json::from_slice(&list).map_err(|error| format!("{LIST}: {error}"))?;
    for sealed in list {
        let path = Path::new(&sealed.path);
        let name = path.file_name().and_then(|name| name.to_str());
        let parent = path.parent().unwrap_or(Path::new(""));
        let found = checkpoint.join(parent).open();
        let found = found.and_then(|folder| folder.entry(name.unwrap_or_default()));
        let found = found.map_err(|error| format!("{}: {error}", sealed.path))?;
        if (found.bytes, found.modified_ns) != (sealed.bytes, sealed.modified_ns) {
            return Err(format!(
                "{} was written to after the checkpoint was complete",
                sealed.path
            ));
        }
    }
    Ok(())
}

/// Removes a job's checkpoints up to the present incarnation, and returns their number. Keeps the newest
/// `keep`, `named` ones, and the present folder.
///
/// # Errors
/// Disk errors.
pub fn retain(
    job: &Below,
    present: Incarnation,
    keep: usize,
    named: &BTreeSet<String>,
) -> io::Result<usize> {
    let mut found: Vec<_> = job.open()?.entries()?;
    found.retain(|(name, entry)| entry.is_folder && parse(name).is_some());
    found.sort_by_key(|(name, _)| std::cmp::Reverse(parse(name)));
    let old = found
        .iter()
        .map(|(name, _)| name)
        .filter(|name| {
            parse(name) != Some((present, 0)) && parse(name).is_some_and(|it| it.0 <= present)
        })
        .skip(keep)
        .filter(|name| !named.contains(*name));
    let mut removed = 0;
    for name in old {
        std::fs::remove_dir_all(job.join(name).path())?;
        removed += 1;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn job() -> (tempfile::TempDir, Below) {
        let at = tempfile::tempdir().expect("a folder");
        let job = Below::new(at.path().to_owned(), "ads/lr");
        (at, job)
    }

    fn save(below: &Below, step: u32, size: usize) {
        below.make().expect("made");
        let path = below.path();
        fs::write(
            path.join("model"),
            vec![u8::try_from(step).expect("small"); size],
        )
        .expect("written");
        fs::write(path.join(DOCUMENT), format!("{{\"step\":{step}}}")).expect("written");
    }

    #[test]
    fn a_torn_second_save_reaches_no_small_file_and_is_found_in_a_large_one() {
        for (size, is_safe) in [(100, true), (2 << 20, false)] {
            let (_at, job) = job();
            let below = job.join("1");
            save(&below, 1, size);
            let sealed = seal(&below).expect("sealed");
            assert_eq!(sealed, job.join("1.1"));
            assert_eq!(verify(&sealed), Ok(()));
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(below.path().join("model"), b"half").expect("written");
            let verified = verify(&sealed);
            assert_eq!(verified.is_ok(), is_safe, "{verified:?}");
            let error = seal(&below).expect_err("torn").to_string();
            assert!(error.contains("model is younger"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_written_to_meanwhile_is_not_sealed() {
        for size in [100, 2 << 20] {
            let (_at, job) = job();
            let below = job.join("1");
            save(&below, 1, size);
            let from = below.open().expect("a folder");
            let (model, document) = (from.entry("model"), from.entry(DOCUMENT));
            let to = job.join(".1.1").make().expect("a folder");
            let owner = from.owner().expect("known");
            let document = document.expect("there");
            take(&from, DOCUMENT, &document, &to, owner).expect("as it was");
            fs::write(below.path().join("model"), b"half").expect("written");
            let torn = take(&from, "model", &model.expect("there"), &to, owner);
            let error = torn.expect_err("torn");
            assert!(
                error.to_string().contains("model was written to"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_sealed_copy_is_its_owners_alone_and_many_files_take_few_descriptors() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let (_at, job) = job();
        let below = job.join("1");
        for folder in 0..40 {
            let path = below.join(format!("deep/{folder}")).path();
            fs::create_dir_all(&path).expect("made");
            for file in 0..20 {
                fs::write(path.join(file.to_string()), "x").expect("written");
            }
        }
        save(&below, 1, 1);
        let is_root = nix::unistd::geteuid().is_root();
        let uid = if is_root {
            200_003
        } else {
            nix::unistd::getuid().as_raw()
        };
        let own = nix::unistd::Uid::from_raw(uid);
        nix::unistd::chown(&below.path(), Some(own), None).expect("given");
        let highest = nix::sys::resource::Resource::RLIMIT_NOFILE;
        let (before, most) = nix::sys::resource::getrlimit(highest).expect("known");
        let open = fs::read_dir("/proc/self/fd").expect("listed").count() as u64;
        nix::sys::resource::setrlimit(highest, open + 200, most).expect("set");
        let sealed = seal(&below);
        nix::sys::resource::setrlimit(highest, before, most).expect("set");
        let sealed = sealed.expect("sealed").path();
        for (way, mode) in [
            ("", 0o700),
            ("deep", 0o700),
            ("deep/7", 0o700),
            ("deep/7/7", 0o600),
            (DOCUMENT, 0o600),
            (LIST, 0o600),
        ] {
            let found = fs::metadata(sealed.join(way)).expect("there");
            assert_eq!(found.permissions().mode() & 0o777, mode, "{way}");
            assert_eq!(found.uid(), uid, "{way}");
        }
    }

    #[test]
    fn a_file_that_would_be_lost_is_said() {
        use std::os::unix::ffi::OsStrExt;
        let (_at, job) = job();
        save(&job.join("1"), 1, 1);
        let name = std::ffi::OsStr::from_bytes(b"mod\xffl");
        fs::write(job.join("1").path().join(name), b"x").expect("written");
        let error = seal(&job.join("1")).expect_err("it cannot be named");
        assert!(error.to_string().contains("not UTF-8"), "{error}");
    }

    #[test]
    fn what_is_missing_or_no_document_cannot_be_resumed_from() {
        let (_at, job) = job();
        assert!(verify(&job.join("1.1")).is_err());
        save(&job.join("1"), 1, 1);
        let sealed = seal(&job.join("1")).expect("sealed");
        fs::remove_file(sealed.path().join("model")).expect("removed");
        assert!(
            verify(&sealed)
                .expect_err("a file is gone")
                .contains("model")
        );
        fs::write(sealed.path().join(DOCUMENT), "{\"step\":").expect("written");
        assert!(verify(&sealed).expect_err("torn").contains(DOCUMENT));
    }

    #[test]
    fn the_newest_are_kept_and_what_the_log_names() {
        let (_at, job) = job();
        for (incarnation, step) in [("1", 1), ("1", 2), ("2", 3), ("2", 4), ("2", 5)] {
            save(&job.join(incarnation), step, 1);
            seal(&job.join(incarnation)).expect("sealed");
        }
        let named = BTreeSet::from(["1.1".to_owned()]);
        let removed = retain(&job, Incarnation(2), 2, &named).expect("removed");
        let left = job.open().and_then(|folder| folder.names());
        assert_eq!(left.expect("listed"), ["1.1", "2", "2.2", "2.3"]);
        assert_eq!(removed, 3);
    }
}
