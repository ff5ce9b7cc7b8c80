//! Environments of jobs' Python packages, made by uv once per node, tenant and list.
//!
//! - Packages come from the operator's index ([`Python::check`]), only as wheels, into an empty environment,
//!   because a `*.pth` file runs with its Python.
//! - For contained jobs uv runs as the tenant's user in a sandbox ([`dormouse_sandbox::one_shot`]), with the
//!   tenant's own cache.
//! - The agent treats the folder as a job's ([`dormouse_sandbox::folder`]).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use dormouse_agent_core::NotStarted;
use dormouse_messages::events::NodeFault;
use dormouse_sandbox::folder::{Below, User};
use dormouse_sandbox::isolation::HostView;
use dormouse_sandbox::one_shot::{self, OneShot};

use crate::blocking::aside;
use crate::cache::{self, OneAtATime};
use crate::config::{AgentConfig, RuntimeKind};
use crate::container_plan::PythonPlan;
use crate::disk_error::of_jobs_folder;
use crate::docker::body;
use crate::layout::Layout;
use crate::process::sandboxed;

const UV: &str = "uv";

/// Prefix of uv's caches. No environment's name begins with a dot.
pub(crate) const DOWNLOADS: &str = ".cache";

const SETTINGS: &str = "uv.toml";

const PASSED: [&str; 19] = [
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_HTTP_",
    "UV_EXCLUDE_NEWER",
    "UV_TORCH_BACKEND",
    "SSL_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "LANG",
    "LC_ALL",
    "TZ",
];

/// After a failure with less free space than this the node is at fault.
const LEAST_ROOM_BYTES: u64 = 256 << 20;

/// Marker of a complete environment, written last.
pub(crate) const WHOLE: &str = ".whole";

const SAID_BYTES: usize = 1500;

/// The environments of a node.
pub struct Environments {
    layout: Layout,
    uv: Option<PathBuf>,
    path: OsString,
    view: Option<HostView>,
    supervisor: Vec<String>,
    making: OneAtATime,
}

impl Environments {
    /// Opens a node's environments. Only Pythons visible to containers count. Blocking.
    ///
    /// # Errors
    /// Disk errors.
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
        let view = sandboxed::view(config);
        let is_seen = |folder: &&PathBuf| match config.runtime {
            RuntimeKind::Docker => body::shows(config, folder),
            RuntimeKind::Process => view.as_ref().is_none_or(|view| view.shows(folder)),
        };
        let seen = folders.iter().filter(is_seen);
        let path = std::env::join_paths(seen).unwrap_or_default();
        Ok(Self {
            layout,
            uv: uv.into_iter().find(|file| file.is_file()),
            path,
            view,
            supervisor: config.supervisor.clone(),
            making: OneAtATime::default(),
        })
    }

    /// Makes an environment as its tenant's user.
    ///
    /// # Errors
    /// If uv, Python or a package is missing, or disk errors.
    pub async fn provide(
        &self,
        tenant: &str,
        plan: &PythonPlan,
        user: Option<User>,
    ) -> Result<(), NotStarted> {
        if user.is_some() != self.view.is_some() {
            return Err("the agent does not know by which user its packages are to be installed; start it again".into());
        }
        let making = Making {
            environments: self,
            plan,
            user,
            own: Below::new(self.layout.environments(), tenant),
        };
        let work = async {
            if making.is_there().await {
                Ok(())
            } else {
                making.make().await
            }
        };
        self.making.alone(&plan.folder, work).await
    }
}

struct Making<'a> {
    environments: &'a Environments,
    plan: &'a PythonPlan,
    user: Option<User>,
    own: Below,
}

impl Making<'_> {
    async fn is_there(&self) -> bool {
        let place = self.own.join(self.plan.name());
        let python = self.plan.bin().join("python3");
        let looked = aside(move || {
            let whole = place.open().and_then(|folder| folder.file(WHOLE));
            whole.is_ok_and(|file| cache::touch(&file)) && python.exists()
        });
        looked.await.unwrap_or(false)
    }

    async fn make(&self) -> Result<(), NotStarted> {
        let begun = std::time::Instant::now();
        let checked = self.plan.python.check();
        checked.map_err(|error| NotStarted::from(format!("its python: {error}")))?;
        // The first attempt uses only the cache, without the network.
        let made = match self.attempt(true).await {
            Err(_) => self.attempt(false).await,
            made => made,
        };
        if made.is_err() {
            let place = self.plan.folder.clone();
            aside(move || fs::remove_dir_all(place)).await;
        }
        made?;
        tracing::info!(
            environment = %self.plan.folder.display(),
            seconds = begun.elapsed().as_secs_f64(),
            "made an environment of Python packages"
        );
        Ok(())
    }

    async fn attempt(&self, offline: bool) -> Result<(), NotStarted> {
        let place = self.plan.folder.clone();
        let (own, cache, user) = (self.own.clone(), self.cache(), self.user);
        let emptied = aside(move || -> io::Result<()> {
            match fs::remove_dir_all(&place) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let (folder, cache) = (own.make()?, own.join(cache).make()?);
            cache::touch(&cache);
            match user {
                Some(user) => folder.give(user).and_then(|()| cache.give(user)),
                None => Ok(()),
            }
        });
        let emptied = emptied
            .await
            .unwrap_or_else(|| Err(io::ErrorKind::Other.into()));
        let what = "cannot make its environment in";
        emptied.map_err(|error| of_jobs_folder(what, &self.own, &error))?;
        let folder = self.plan.folder.display().to_string();
        let mut venv = vec!["venv", "--no-project", &folder];
        if let Some(version) = &self.plan.python.version {
            venv.extend(["--python", version]);
        }
        self.uv(&venv).await?;
        let python = self.plan.bin().join("python3").display().to_string();
        let mut install = vec!["pip", "install", "--no-build", "--python", &python];
        install.extend(["--requirements", "-"]);
        install.extend(offline.then_some("--offline"));
        self.uv(&install).await?;
        let place = self.own.join(self.plan.name());
        let written = aside(move || place.open()?.write(WHOLE, b""));
        let written = written
            .await
            .unwrap_or_else(|| Err(io::ErrorKind::Other.into()));
        written
            .map_err(|error| of_jobs_folder("cannot finish its environment in", &self.own, &error))
    }

    /// One cache per user, because another user's files are not writable.
    fn cache(&self) -> String {
        let user = self.user.map(|user| format!("-{}", user.uid));
        format!("{DOWNLOADS}{}", user.unwrap_or_default())
    }

    async fn uv(&self, words: &[&str]) -> Result<(), NotStarted> {
        let uv = self.environments.uv.as_ref().ok_or_else(|| NotStarted::from(
            "its packages need uv, which is not in the PATH of this node's agent; install it there (pip install uv) and restart the agent, or keep the job to nodes that have it (constraints)",
        ))?;
        let flags = "--no-managed-python --no-python-downloads --no-progress --quiet --color never";
        let words = words.iter().copied().chain(flags.split(' '));
        let words: Vec<String> = words.map(str::to_owned).collect();
        let output = self.run(uv.clone(), words).await;
        let output =
            output.map_err(|error| NotStarted::from(format!("uv cannot be run: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = said.floor_char_boundary(SAID_BYTES.min(said.len()));
        let why = format!("its Python environment cannot be made: {}", &said[..end]);
        // Ask the disk: packages can influence uv's text.
        let is_full = rustix::fs::statvfs(self.environments.layout.environments())
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_ROOM_BYTES);
        Err(if is_full {
            NotStarted::of_node(NodeFault::Disk, why)
        } else {
            why.into()
        })
    }

    async fn run(&self, uv: PathBuf, words: Vec<String>) -> io::Result<Output> {
        let Environments {
            layout,
            path,
            view,
            supervisor,
            ..
        } = self.environments;
        let own = std::path::absolute(self.own.path())?;
        let mut command = match (view, self.user) {
            (Some(view), Some(user)) => {
                let orders = OneShot {
                    view: view.clone(),
                    sandbox: sandboxed::of_installer(&self.own, user, self.shown(view, &uv)?),
                    folder: layout.supervisor(),
                    program: uv,
                    arguments: words,
                    working_dir: own.clone(),
                };
                let mut command = Command::new(supervisor.first().map_or("", String::as_str));
                let orders = serde_json::to_string(&orders)?;
                command
                    .args(&supervisor[1..])
                    .args([one_shot::FLAG, &orders]);
                command
            }
            _ => {
                let mut command = Command::new(uv);
                command.args(words).current_dir(&own);
                command
            }
        };
        let is_passed = |name: &str| {
            let name = name.to_ascii_uppercase();
            PASSED.iter().any(|it| name.starts_with(it))
        };
        let passed = std::env::vars_os();
        let passed = passed.filter(|(name, _)| name.to_str().is_some_and(is_passed));
        command
            .env_clear()
            .envs(passed)
            .env("PATH", path)
            .env("HOME", &own)
            .env("TMPDIR", own.join(self.cache()))
            .env("UV_CACHE_DIR", own.join(self.cache()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut uv = command.spawn()?;
        let requirements = self.plan.python.requirements.join("\n") + "\n";
        if let Some(mut input) = uv.stdin.take() {
            let _ = input.write_all(requirements.as_bytes()).await;
        }
        uv.wait_with_output().await
    }

    fn shown(&self, view: &HostView, uv: &std::path::Path) -> io::Result<Vec<PathBuf>> {
        let uv = fs::canonicalize(uv)?;
        let environments = std::path::absolute(self.environments.layout.environments())?;
        let settings = environments.ancestors().map(|folder| folder.join(SETTINGS));
        let settings = settings.filter(|file| file.is_file());
        Ok(Some(uv)
            .filter(|uv| !view.shows(uv))
            .into_iter()
            .chain(settings)
            .collect())
    }
}
