//! Packs a job's folder into a reproducible archive.
//!
//! - `.git`, and all that `.gitignore` and `.dormouseignore` exclude, stay out.
//! - Entries are sorted; only the executable bit of a mode counts; no times, no owners.
//! - Links out of the folder, special files, and folders over the limits are refused.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use dormouse_messages::Workdir;
use dormouse_node_agent::code::tree::stays;
use ignore::WalkBuilder;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

const IGNORE: &str = ".dormouseignore";
/// Higher levels take much longer for little gain.
const ZSTD_LEVEL: i32 = 3;
const NAMED: usize = 5;

/// A packed folder.
#[derive(Debug, Clone)]
pub struct Pack {
    pub packed: Workdir,
    pub archive: Bytes,
    pub entries: usize,
}

struct Found {
    way: PathBuf,
    path: PathBuf,
    metadata: Metadata,
}

/// Packs a folder; blocking.
///
/// # Errors
/// If an entry is unreadable, forbidden or too large.
pub fn pack(folder: &Path) -> anyhow::Result<Pack> {
    let found = find(folder)?;
    check(folder, &found)?;
    let encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
    let mut builder = Builder::new(encoder);
    let mut left = Workdir::MOST_UNPACKED_BYTES;
    for entry in &found {
        append(&mut builder, entry, &mut left)
            .with_context(|| format!("cannot pack {}", entry.path.display()))?;
    }
    let archive = builder.into_inner()?.finish()?;
    let digest = Sha256::digest(&archive);
    let packed = Workdir {
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: archive.len() as u64,
    };
    Ok(Pack {
        packed,
        archive: archive.into(),
        entries: found.len(),
    })
}

fn find(folder: &Path) -> anyhow::Result<Vec<Found>> {
    let shown = folder.display();
    if !fs::metadata(folder)
        .with_context(|| format!("workdir {shown}"))?
        .is_dir()
    {
        bail!("workdir {shown} is not a folder");
    }
    // Rules outside the repository do not count for git either.
    let real = folder.canonicalize()?;
    let is_in_git = real.ancestors().any(|above| above.join(".git").exists());
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .ignore(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(is_in_git)
        .parents(is_in_git)
        .add_custom_ignore_filename(IGNORE)
        .filter_entry(|entry| entry.file_name() != OsStr::new(".git"))
        .build();
    let mut found = Vec::new();
    for entry in walk {
        let entry = entry?;
        let way = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        if way.as_os_str().is_empty() {
            continue;
        }
        if found.len() >= Workdir::MOST_ENTRIES {
            bail!(
                "workdir {shown} has more than {} files and folders{}",
                Workdir::MOST_ENTRIES,
                advice(&largest(&found, |_| 1), |count| format!("{count} files"))
            );
        }
        let path = entry.path().to_owned();
        let metadata = fs::symlink_metadata(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        found.push(Found {
            way: way.to_owned(),
            path,
            metadata,
        });
    }
    found.sort_by(|a, b| a.way.cmp(&b.way));
    Ok(found)
}

fn largest(found: &[Found], of: impl Fn(&Found) -> u64) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for entry in found.iter().filter(|it| it.metadata.is_file()) {
        let first: PathBuf = entry.way.components().take(2).collect();
        *sums.entry(first.display().to_string()).or_default() += of(entry);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums.truncate(NAMED);
    sums
}

fn advice(largest: &[(String, u64)], shown: impl Fn(u64) -> String) -> String {
    let each = largest.iter();
    let each: Vec<_> = each
        .map(|(name, much)| format!("{name} ({})", shown(*much)))
        .collect();
    format!(
        ": most are in {}; name what is no code in .gitignore or {IGNORE}, and mount data",
        each.join(", ")
    )
}

fn check(folder: &Path, found: &[Found]) -> anyhow::Result<()> {
    let shown = folder.display();
    let mut refused = Vec::new();
    for entry in found {
        let kind = entry.metadata.file_type();
        let what = if kind.is_symlink() {
            let target = fs::read_link(&entry.path)?;
            if stays(&entry.way, &target) {
                continue;
            }
            format!("a link to {}, out of the folder", target.display())
        } else if kind.is_socket() {
            "a socket".to_owned()
        } else if kind.is_fifo() {
            "a pipe".to_owned()
        } else if kind.is_dir() || kind.is_file() {
            continue;
        } else {
            "a device".to_owned()
        };
        refused.push(format!("{} is {what}", entry.way.display()));
    }
    if !refused.is_empty() {
        let more = refused.len().saturating_sub(NAMED);
        refused.truncate(NAMED);
        let more = match more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        bail!(
            "workdir {shown}: {}{more}; remove it, or name it in .gitignore or {IGNORE}",
            refused.join("; ")
        );
    }
    let files = found.iter().filter(|it| it.metadata.is_file());
    let bytes: u64 = files.map(|it| it.metadata.len()).sum();
    if bytes > Workdir::MOST_UNPACKED_BYTES {
        let mib = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
        bail!(
            "workdir {shown} has {}; the most is {}{}",
            mib(bytes),
            mib(Workdir::MOST_UNPACKED_BYTES),
            advice(&largest(found, |it| it.metadata.len()), mib)
        );
    }
    Ok(())
}

fn header(kind: EntryType, mode: u32, bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(
    builder: &mut Builder<impl std::io::Write>,
    entry: &Found,
    left: &mut u64,
) -> anyhow::Result<()> {
    let kind = entry.metadata.file_type();
    if kind.is_dir() {
        let mut header = header(EntryType::Directory, 0o755, 0);
        builder.append_data(&mut header, &entry.way, std::io::empty())?;
    } else if kind.is_symlink() {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        builder.append_link(&mut header, &entry.way, fs::read_link(&entry.path)?)?;
    } else {
        // The header's length must match even if the file changes meanwhile.
        let content = fs::read(&entry.path)?;
        let bytes = content.len() as u64;
        let grown = || "it grows while it is packed";
        *left = left.checked_sub(bytes).with_context(grown)?;
        let is_program = entry.metadata.permissions().mode() & 0o111 != 0;
        let mode = if is_program { 0o755 } else { 0o644 };
        let mut header = header(EntryType::Regular, mode, bytes);
        builder.append_data(&mut header, &entry.way, content.as_slice())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
