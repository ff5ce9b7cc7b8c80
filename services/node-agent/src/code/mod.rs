//! The code that goes with a job: fetched and unpacked once a node and digest, copied for each
//! container.
//!
//! 1. Before a start ([`WithCode`]) the archive is fetched from the cluster's store, its digest is
//!    compared, and it is unpacked beside its place ([`unpack`]), then renamed: a folder that is
//!    there is whole. What a crash of the machine may have torn is not believed: the cache is of
//!    one life of the kernel, and begins empty in the next ([`Cache::open`]).
//! 2. Each container gets a copy ([`give`]) in its own directory, which it may write to, and starts
//!    there. So a retry starts from what was submitted, not from what the attempt before left.

pub mod prune;
pub mod tree;
pub mod unpack;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use dormouse_messages::events::NodeFault;
use dormouse_messages::{ContainerId, Sequence, Workdir};
use dormouse_runtime::{CodeError, CodeStore};

use crate::exec::attached::Attached;
use crate::folder::{Below, aside};
use crate::layout::Layout;
use crate::runtime::{
    ContainerPlan, ContainerRuntime, Exec, Found, NotStarted, RuntimeError, of_disk,
};
use tree::Tree;
use unpack::{Unpacked, unpack};

/// The copy, in a container's directory.
pub const CODE: &str = "code";

/// In which life of the kernel the cache was made.
const BOOT: &str = "boot";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A copy of the store may be behind: what is not there may come so long.
const ABSENT: Duration = Duration::from_secs(5);
/// A store that does not answer is asked so long; an agent's lease ends before.
const UNANSWERED: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(250);

/// What a container is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePlan {
    /// The archive.
    pub packed: Workdir,
    /// The container's copy, where it starts.
    pub folder: PathBuf,
}

/// Where archives come from.
pub trait CodeSource: Send + Sync + 'static {
    /// The piece that begins with byte `offset`: at least one byte.
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

type Making = Arc<tokio::sync::Mutex<()>>;

/// What is unpacked on a node.
pub struct Cache {
    layout: Layout,
    source: Option<Arc<dyn CodeSource>>,
    /// One at a time of each.
    making: Mutex<BTreeMap<PathBuf, Making>>,
}

impl Cache {
    /// The cache of a node, emptied where the machine was started anew since; blocking.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(layout: Layout, source: Option<Arc<dyn CodeSource>>) -> io::Result<Self> {
        let folder = layout.code();
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let known = fs::read_to_string(folder.join(BOOT)).unwrap_or_default();
        if boot.is_empty() || boot != known {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(BOOT), boot)?;
        }
        Ok(Self {
            layout,
            source,
            making: Mutex::default(),
        })
    }

    /// Has an archive unpacked.
    ///
    /// # Errors
    /// When it cannot be fetched, is not what it is said to be, or cannot be written.
    pub async fn provide(&self, tenant: &str, packed: &Workdir) -> Result<(), NotStarted> {
        let place = self.layout.unpacked(tenant, &packed.sha256);
        let making = {
            let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(making.entry(place.clone()).or_default())
        };
        let made = {
            let _alone = making.lock().await;
            match used(&place) {
                true => Ok(()),
                false => self.make(tenant, packed, &place).await,
            }
        };
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if making
            .get(&place)
            .is_some_and(|it| Arc::strong_count(it) <= 2)
        {
            making.remove(&place);
        }
        made
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
        match read == packed.bytes && digest == packed.sha256 {
            true => Ok(()),
            false => Err(NotStarted::from(format!(
                "what the cluster's store holds as its packed folder {} is something else ({read} bytes, {digest}); submit the job again with its folder",
                packed.sha256
            ))),
        }
    }

    async fn piece(&self, tenant: &str, sha256: &str, at: u64) -> Result<Bytes, NotStarted> {
        let Some(source) = &self.source else {
            return Err("this agent has no store of packed folders".into());
        };
        let begun = Instant::now();
        loop {
            let error = match source.piece(tenant, sha256, at).await {
                Ok(piece) => return Ok(piece),
                Err(error) => error,
            };
            let within = match &error {
                CodeError::Unanswered(_) => UNANSWERED,
                CodeError::Absent { .. } | CodeError::NoStore => ABSENT,
                _ => Duration::ZERO,
            };
            if begun.elapsed() >= within {
                return Err(NotStarted::from(error.to_string()));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Whether it is there; notes that it is used.
fn used(place: &Path) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    fs::File::open(place).is_ok_and(|folder| {
        let _ = rustix::fs::futimens(&folder, &times);
        true
    })
}

fn unpack_to(archive: &Path, beside: &Below, place: &Path) -> Result<(), NotStarted> {
    let new = beside.path();
    let disk = |error: io::Error| of_disk("cannot unpack its workdir into", &new, &error);
    let _ = fs::remove_dir_all(&new);
    let file = fs::File::open(archive).map_err(disk)?;
    let unpacked = unpack(BufReader::new(file), beside).map_err(|error| match error {
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

/// Gives a container its copy, in its directory; blocking. What is there under its name goes.
///
/// # Errors
/// The disk's.
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
        // Removed, as old, while it started.
        io::ErrorKind::NotFound => NotStarted::of_node(
            NodeFault::Disk,
            format!("its workdir went while it was copied: {error}"),
        ),
        _ => of_disk("cannot copy its workdir to", &to.path(), &error),
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

/// A runtime whose containers have their code before they start.
pub struct WithCode {
    /// What runs them.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// What is unpacked.
    pub cache: Arc<Cache>,
}

impl ContainerRuntime for WithCode {
    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>> {
        async move {
            if let Some(code) = &plan.code {
                let tenant = plan.container.job.tenant();
                let provided = self.cache.provide(tenant, &code.packed).await;
                provided.map_err(RuntimeError::Start)?;
            }
            self.runtime.start(plan).await
        }
        .boxed()
    }

    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.signal(container, signal)
    }

    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.notify(container, signal)
    }

    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.runtime.kill(container)
    }

    fn beside(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<(), String>> {
        self.runtime.beside(plan)
    }

    fn exec(&self, plan: ContainerPlan, exec: Exec) -> BoxFuture<'_, Result<Attached, String>> {
        self.runtime.exec(plan, exec)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>> {
        self.runtime.list()
    }

    fn forget(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()> {
        self.runtime.forget(container, request)
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.runtime.leave()
    }
}
