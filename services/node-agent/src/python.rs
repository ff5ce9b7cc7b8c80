//! Environments of the Python packages that go with jobs, made by uv once a node, tenant and list.
//!
//! uv runs as the agent, so nothing of a package may run meanwhile: only wheels are installed, none
//! is built or compiled, and each attempt begins with an empty environment, since a file `*.pth`
//! of a package runs wherever its environment's Python does. What is installed is only read by
//! containers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use dormouse_messages::Python;
use dormouse_messages::events::NodeFault;

use crate::cache::{self, OneAtATime, used};
use crate::config::{AgentConfig, RuntimeKind};
use crate::docker::body;
use crate::folder::aside;
use crate::layout::Layout;
use crate::process::sandboxed::view;
use crate::runtime::{NotStarted, of_disk};

/// The program that makes environments.
const UV: &str = "uv";

/// Its own cache, among the tenants' folders: no tenant's name begins with a dot.
pub(crate) const DOWNLOADS: &str = ".cache";

/// Written last: an environment without it is not whole.
pub(crate) const WHOLE: &str = ".whole";

/// What a person is shown of what uv says.
const SAID_BYTES: usize = 1500;

/// What a container is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonPlan {
    /// The packages.
    pub python: Python,
    /// Their environment.
    pub folder: PathBuf,
}

impl PythonPlan {
    /// Its name among its tenant's.
    #[must_use]
    pub fn name(&self) -> String {
        key(&self.python)
    }

    /// Where its programs are.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }
}

/// The name of an environment among its tenant's.
#[must_use]
pub fn key(python: &Python) -> String {
    let mut digest = Sha256::new();
    for word in python.version.iter().chain(&python.requirements) {
        digest.update(word);
        digest.update("\n");
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|it| format!("{it:02x}"))
        .collect()
}

/// The environments of a node.
pub struct Environments {
    layout: Layout,
    uv: Option<PathBuf>,
    /// Where Python is looked for.
    path: OsString,
    making: OneAtATime,
}

impl Environments {
    /// Those of a node; blocking. Of its Pythons only those count that its containers see.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(config: &AgentConfig) -> io::Result<Self> {
        let layout = config.layout();
        cache::open(&layout.environments())?;
        let own = std::env::var_os("PATH").unwrap_or_default();
        let folders = config
            .path
            .iter()
            .cloned()
            .chain(std::env::split_paths(&own));
        let folders: Vec<_> = folders.collect();
        let uv = folders.iter().map(|folder| folder.join(UV));
        let view = view(config);
        let is_seen = |folder: &&PathBuf| match config.runtime {
            RuntimeKind::Docker => body::shows(config, folder),
            RuntimeKind::Process => view.as_ref().is_none_or(|view| view.shows(folder)),
        };
        let seen = folders.iter().filter(is_seen);
        Ok(Self {
            layout,
            uv: uv.into_iter().find(|file| file.is_file()),
            path: std::env::join_paths(seen).unwrap_or_default(),
            making: OneAtATime::default(),
        })
    }

    /// Has an environment made.
    ///
    /// # Errors
    /// When uv or Python is missing, when packages cannot be had, or the disk's.
    pub async fn provide(&self, plan: &PythonPlan) -> Result<(), NotStarted> {
        let work = async {
            let place = &plan.folder;
            // The Python that it was made for may be gone.
            if used(&place.join(WHOLE)) && place.join("bin/python3").exists() {
                return Ok(());
            }
            self.make(plan).await
        };
        self.making.alone(&plan.folder, work).await
    }

    async fn make(&self, plan: &PythonPlan) -> Result<(), NotStarted> {
        let begun = std::time::Instant::now();
        let checked = plan.python.check();
        checked.map_err(|error| NotStarted::from(format!("its python: {error}")))?;
        // What is known here needs no network.
        let made = match self.attempt(plan, true).await {
            Err(_) => self.attempt(plan, false).await,
            made => made,
        };
        if made.is_err() {
            let place = plan.folder.clone();
            aside(move || fs::remove_dir_all(place)).await;
        }
        made?;
        tracing::info!(
            environment = %plan.folder.display(),
            seconds = begun.elapsed().as_secs_f64(),
            "made an environment of Python packages"
        );
        Ok(())
    }

    async fn attempt(&self, plan: &PythonPlan, offline: bool) -> Result<(), NotStarted> {
        let place = plan.folder.clone();
        let requirements = plan.folder.with_extension("txt");
        let (at, lines) = (requirements.clone(), plan.python.requirements.join("\n"));
        let emptied = aside(move || -> Result<(), NotStarted> {
            let disk = |error: io::Error| of_disk("cannot make its environment in", &place, &error);
            match fs::remove_dir_all(&place) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk(error)),
                _ => {}
            }
            fs::create_dir_all(place.parent().unwrap_or(&place)).map_err(disk)?;
            fs::write(at, lines + "\n").map_err(disk)
        });
        emptied
            .await
            .unwrap_or_else(|| Err("its environment cannot be made".into()))?;
        let new = |uv: &mut Command| {
            uv.arg("venv").arg("--no-project").arg(&plan.folder);
            if let Some(version) = &plan.python.version {
                uv.args(["--python", version]);
            }
        };
        self.uv(new).await?;
        let install = |uv: &mut Command| {
            uv.args(["pip", "install", "--no-build"]);
            uv.arg("--python").arg(plan.bin().join("python3"));
            uv.arg("--requirements").arg(&requirements);
            if offline {
                uv.arg("--offline");
            }
        };
        let installed = self.uv(install).await;
        let _ = tokio::fs::remove_file(&requirements).await;
        installed?;
        let whole = plan.folder.join(WHOLE);
        let written = tokio::fs::write(&whole, "").await;
        written.map_err(|error| of_disk("cannot write", &whole, &error))
    }

    /// Runs uv; what it says when it fails is the reason.
    async fn uv(&self, told: impl FnOnce(&mut Command)) -> Result<(), NotStarted> {
        let cache = self.layout.environments().join(DOWNLOADS);
        let uv = self.uv.as_ref().ok_or_else(|| NotStarted::from(
            "its packages need uv, which is not in the PATH of this node's agent; install it there (pip install uv) and restart the agent, or keep the job to nodes that have it (constraints)",
        ))?;
        let mut uv = Command::new(uv);
        told(&mut uv);
        uv.args(["--no-managed-python", "--no-python-downloads"])
            .args(["--no-progress", "--quiet", "--color", "never"])
            .env("PATH", &self.path)
            .env("UV_CACHE_DIR", &cache)
            // Not what lies around the agent.
            .env_remove("VIRTUAL_ENV")
            .current_dir(self.layout.environments())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = uv.output().await;
        let output =
            output.map_err(|error| NotStarted::from(format!("uv cannot be run: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = said.floor_char_boundary(SAID_BYTES.min(said.len()));
        let why = format!("its Python environment cannot be made: {}", &said[..end]);
        Err(match said.contains("No space left on device") {
            true => NotStarted::of_node(NodeFault::Disk, why),
            false => why.into(),
        })
    }
}
