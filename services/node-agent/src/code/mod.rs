//! The code of a job, unpacked once per node and digest.
//!
//! 1. Before a start ([`crate::provided`]) the archive is fetched, verified and unpacked ([`unpack`]) next to
//!    its place. The rename makes an existing folder complete. A reboot empties the cache ([`Cache::open`]).
//! 2. Each container starts in its own writable copy ([`give`]), so a retry starts from the submitted code.

pub mod tree;
pub mod unpack;

use std::fs;
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use dormouse_agent_core::NotStarted;
use dormouse_messages::Workdir;
use dormouse_messages::events::NodeFault;
use dormouse_runtime::{CodeError, CodeStore, retry};
use dormouse_sandbox::folder::Below;

use crate::blocking::aside;
use crate::cache::{self, OneAtATime, used};
use crate::container_plan::ContainerPlan;
use crate::disk_error::{of_disk, of_jobs_folder};
use crate::layout::Layout;
use tree::Tree;
use unpack::{Unpacked, unpack};

/// Name of the copy in a container's directory.
pub const CODE: &str = "code";

/// Wait for an absent archive, since a replica of the store may lag.
const ABSENT: Duration = Duration::from_secs(5);
/// Wait for a store that does not answer. An agent's lease ends earlier.
const UNANSWERED: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(250);

/// A source of archives.
pub trait CodeSource: Send + Sync + 'static {
    /// Returns at least one byte at `offset`.
    fn piece<'a>(
        &'a self,
        tenant: &'a str,
        sha256: &'a str,
        offset: u64,
    ) -> BoxFuture<'a, Result<Bytes, CodeError>>;
}

impl CodeSource for CodeStore {
    fn piece<'a>(
        &'a self,
        tenant: &'a str,
        sha256: &'a str,
        offset: u64,
    ) -> BoxFuture<'a, Result<Bytes, CodeError>> {
        Self::piece(self, tenant, sha256, offset).boxed()
    }
}

/// The unpacked archives of a node.
pub struct Cache {
    layout: Layout,
    source: Option<Arc<dyn CodeSource>>,
    making: OneAtATime,
}

impl Cache {
    /// Opens the cache of a node, and empties it after a reboot. Blocking.
    ///
    /// # Errors
    /// Disk errors.
    pub fn open(layout: Layout, source: Option<Arc<dyn CodeSource>>) -> io::Result<Self> {
        cache::open(&layout.code())?;
        Ok(Self {
            layout,
            source,
            making: OneAtATime::default(),
        })
    }

    /// Makes sure that an archive is unpacked.
    ///
    /// # Errors
    /// If the archive is absent, wrong, or cannot be written.
    pub async fn provide(&self, tenant: &str, packed: &Workdir) -> Result<(), NotStarted> {
        let place = self.layout.unpacked(tenant, &packed.sha256);
        let work = async {
            if used(&place) {
                Ok(())
            } else {
                self.make(tenant, packed, &place).await
            }
        };
        self.making.alone(&place, work).await
    }

    async fn make(&self, tenant: &str, packed: &Workdir, place: &Path) -> Result<(), NotStarted> {
        packed
            .check()
            .map_err(|error| NotStarted::from(format!("its workdir: {error}")))?;
        // No tenant's name begins with a dot.
        let name = format!(".{tenant}-{}", packed.sha256);
        let archive = self.layout.code().join(format!("{name}.tar.zst"));
        let fetched = self.fetch(tenant, packed, &archive).await;
        let (root, place, at) = (self.layout.code(), place.to_owned(), archive.clone());
        let unpacked = match fetched {
            Ok(()) => aside(move || unpack_to(&at, &Below::new(root, name), &place)).await,
            Err(why) => Some(Err(why)),
        };
        let _ = tokio::fs::remove_file(&archive).await;
        unpacked.unwrap_or_else(|| Err("its workdir cannot be unpacked".into()))
    }

    async fn fetch(&self, tenant: &str, packed: &Workdir, to: &Path) -> Result<(), NotStarted> {
        let disk = |error: io::Error| of_disk("cannot write", to, &error);
        let mut file = tokio::fs::File::create(to).await.map_err(disk)?;
        let (mut digest, mut read) = (Sha256::new(), 0_u64);
        while read < packed.bytes {
            let piece = self.piece(tenant, &packed.sha256, read).await?;
            read += piece.len() as u64;
            if piece.is_empty() || read > packed.bytes {
                break;
            }
            digest.update(&piece);
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        let digest: String = digest
            .finalize()
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        if read == packed.bytes && digest == packed.sha256 {
            Ok(())
        } else {
            Err(NotStarted::from(format!(
                "what the cluster's store holds as its packed folder {} is something else ({read} bytes, {digest}); submit the job again with its folder",
                packed.sha256
            )))
        }
    }

    async fn piece(&self, tenant: &str, sha256: &str, at: u64) -> Result<Bytes, NotStarted> {
        let Some(source) = &self.source else {
            return Err("this agent has no store of packed folders".into());
        };
        let begun = Instant::now();
        let again = |error: &CodeError| match error {
            CodeError::Unanswered(_) => true,
            CodeError::Absent { .. } | CodeError::NoStore => begun.elapsed() < ABSENT,
            _ => false,
        };
        let ask = || source.piece(tenant, sha256, at);
        let piece = retry(AGAIN, UNANSWERED, again, ask).await;
        piece.map_err(|error| NotStarted::from(error.to_string()))
    }
}

fn unpack_to(archive: &Path, unpacked_to: &Below, place: &Path) -> Result<(), NotStarted> {
    let new = unpacked_to.path();
    let disk = |error: io::Error| of_disk("cannot unpack its workdir into", &new, &error);
    let _ = fs::remove_dir_all(&new);
    let file = fs::File::open(archive).map_err(disk)?;
    let unpacked = unpack(BufReader::new(file), unpacked_to).map_err(|error| match error {
        Unpacked::Wrong(why) => NotStarted::from(format!("its workdir is not unpacked: {why}")),
        Unpacked::Disk(error) => disk(error),
    });
    let placed = unpacked.and_then(|()| {
        let above = place.parent().unwrap_or(place);
        fs::create_dir_all(above)
            .and_then(|()| fs::rename(&new, place))
            .map_err(disk)
    });
    if placed.is_err() {
        let _ = fs::remove_dir_all(&new);
    }
    placed
}

/// Gives a container a fresh copy in its directory. Blocking.
///
/// # Errors
/// Disk errors.
pub fn give(layout: &Layout, plan: &ContainerPlan) -> Result<(), NotStarted> {
    let Some(code) = &plan.code else {
        return Ok(());
    };
    let from = layout.unpacked(plan.container.job.tenant(), &code.packed.sha256);
    let to = layout.container_below(&plan.container).join(CODE);
    let copied = || -> io::Result<()> {
        match fs::remove_dir_all(to.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let tree = Tree::new(to.clone(), plan.user)?;
        copy(&from, Path::new(""), &tree)
    };
    copied().map_err(|error| match error.kind() {
        // The cache was pruned during the start.
        io::ErrorKind::NotFound if !from.exists() => NotStarted::of_node(
            NodeFault::Disk,
            format!("its workdir went while it was copied: {error}"),
        ),
        _ => of_jobs_folder("cannot copy its workdir to", &to, &error),
    })
}

fn copy(from: &Path, way: &Path, tree: &Tree) -> io::Result<()> {
    for entry in fs::read_dir(from.join(way))? {
        let entry = entry?;
        let (kind, way) = (entry.file_type()?, way.join(entry.file_name()));
        if kind.is_dir() {
            tree.folder(&way)?;
            copy(from, &way, tree)?;
        } else if kind.is_symlink() {
            tree.link(&way, &fs::read_link(entry.path())?)?;
        } else {
            let mut file = fs::File::open(entry.path())?;
            let is_program = file.metadata()?.permissions().mode() & 0o111 != 0;
            io::copy(&mut file, &mut tree.file(&way, is_program)?)?;
        }
    }
    Ok(())
}
