//! Unpacks an untrusted archive: regular files, folders, and links within the folder. Refuses paths and links
//! that lead out, hard links, devices, duplicates, and excess. Keeps only the executable bit.

use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use dormouse_messages::Workdir;
use dormouse_sandbox::folder::Below;
use tar::{Archive, Entry, EntryType};

use super::tree::{Tree, stays};

const MOST_NAME_BYTES: u64 = 4_096;
const MOST_DEPTH: usize = 64;
/// The files, and per entry a header, a long name with its header, and padding.
const MOST_TAR_BYTES: u64 =
    Workdir::MOST_UNPACKED_BYTES + (Workdir::MOST_ENTRIES as u64) * 3_072 + (1 << 20);
/// Window of the decompressor: 8 MiB, twice the packer's limit.
const WINDOW_LOG: u32 = 23;

/// The reason why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum Unpacked {
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Disk(#[from] io::Error),
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Unpacked> {
    Err(Unpacked::Wrong(why.into()))
}

fn damaged(error: &io::Error) -> Unpacked {
    Unpacked::Wrong(format!("it is damaged: {error}"))
}

fn checked(name: Vec<u8>) -> Result<PathBuf, Unpacked> {
    let named = PathBuf::from(std::ffi::OsString::from_vec(name));
    let mut way = PathBuf::new();
    for step in named.components() {
        match step {
            Component::CurDir => {}
            Component::Normal(step) => way.push(step),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return wrong(format!("{} leads out of the folder", named.display()));
            }
        }
    }
    match way.components().count() {
        0..=MOST_DEPTH => Ok(way),
        _ => wrong(format!("{} is too deep", named.display())),
    }
}

fn long(entry: &mut impl Read) -> Result<Vec<u8>, Unpacked> {
    let mut name = Vec::new();
    let read = entry.take(MOST_NAME_BYTES + 1).read_to_end(&mut name);
    read.map_err(|error| damaged(&error))?;
    if name.len() as u64 > MOST_NAME_BYTES {
        return wrong("a name is longer than 4096 bytes");
    }
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Unpacks an archive into a new folder. After an error the caller removes the rest. Blocking.
///
/// # Errors
/// The archive's defect, or kernel errors.
pub fn unpack(archive: impl Read, into: &Below) -> Result<(), Unpacked> {
    let tree = Tree::new(into.clone(), None)?;
    let mut decoder = zstd::Decoder::new(archive).map_err(|error| damaged(&error))?;
    let bounded = decoder.window_log_max(WINDOW_LOG);
    bounded.map_err(|error| damaged(&error))?;
    let mut archive = Archive::new(decoder.take(MOST_TAR_BYTES));
    let (mut bytes, mut entries) = (0_u64, 0_usize);
    let (mut name, mut target) = (None, None);
    let all = archive.entries().map_err(|error| damaged(&error))?;
    // Raw mode: otherwise the library reads names of any length.
    for entry in all.raw(true) {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        match entry.header().entry_type() {
            EntryType::GNULongName => name = Some(long(&mut entry)?),
            EntryType::GNULongLink => target = Some(long(&mut entry)?),
            kind => {
                let of_header = || entry.header().path_bytes().into_owned();
                let way = checked(name.take().unwrap_or_else(of_header))?;
                entries += 1;
                if entries > Workdir::MOST_ENTRIES {
                    return wrong(format!("it has more than {} files", Workdir::MOST_ENTRIES));
                }
                bytes = bytes.saturating_add(entry.header().entry_size().unwrap_or(u64::MAX));
                if bytes > Workdir::MOST_UNPACKED_BYTES {
                    let most = Workdir::MOST_UNPACKED_BYTES >> 20;
                    return wrong(format!("it has more than {most} MiB"));
                }
                make(&tree, &way, kind, &mut entry, target.take())?;
            }
        }
    }
    Ok(())
}

fn make<R: Read>(
    tree: &Tree,
    way: &Path,
    kind: EntryType,
    entry: &mut Entry<'_, R>,
    target: Option<Vec<u8>>,
) -> Result<(), Unpacked> {
    match kind {
        EntryType::Directory => {
            tree.folder(way)?;
            Ok(())
        }
        EntryType::Regular if way.file_name().is_some() => {
            let mode = entry.header().mode().map_err(|error| damaged(&error))?;
            let size = entry.header().entry_size();
            let size = size.map_err(|error| damaged(&error))?;
            let mut file = tree.file(way, mode & 0o111 != 0)?;
            if io::copy(entry, &mut file)? == size {
                Ok(())
            } else {
                wrong("it is damaged: it ends within a file")
            }
        }
        EntryType::Symlink if way.file_name().is_some() => {
            let of_header = || Some(entry.header().link_name_bytes()?.into_owned());
            let target = target.or_else(of_header).unwrap_or_default();
            let target = PathBuf::from(std::ffi::OsString::from_vec(target));
            if !stays(way, &target) {
                return wrong(format!(
                    "{} is a link to {}, out of the folder",
                    way.display(),
                    target.display()
                ));
            }
            Ok(tree.link(way, &target)?)
        }
        _ => wrong(format!(
            "{} is neither a file, a folder nor a link",
            way.display()
        )),
    }
}
