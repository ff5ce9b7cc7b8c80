//! Starting a container: its directory, its limits, its process. Nothing here waits for the
//! disk (no fsync), and everything that can fail says why and what to do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use dormouse_messages::ContainerId;
use dormouse_messages::job::Mount;
use tokio::process::Command;

use super::supervisor::Orders;
use super::{Group, Inner};
use crate::folder::{Folder, aside};
use crate::layout::{Layout, STDERR, STDOUT};
use crate::marks::Mark;
use crate::mounts;
use crate::runtime::{ContainerPlan, NotStarted};
use crate::secrets;

/// Enters the control groups and becomes the program.
const ENTER: &str = "for group in $1; do echo $$ >\"$group\"; done; shift; exec \"$@\"";

/// What a job inherits of the agent's environment: where it is, not what it holds.
const INHERITED: [&str; 9] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SHELL",
    "LD_LIBRARY_PATH",
];

/// A plain process sees the node's own files: a mount holds if it is where it comes from.
fn check_mounts(mounts: &[Mount]) -> Result<(), String> {
    for mount in mounts {
        if mount.source != mount.target {
            return Err(format!(
                "{} cannot be mounted at {} for a plain process; name the same path twice, or run the agent with --runtime docker",
                mount.source, mount.target
            ));
        }
        if !Path::new(&mount.source).exists() {
            return Err(format!("{} is not on this node; see mounts", mount.source));
        }
    }
    Ok(())
}

/// Where programs are looked for if the agent itself was told nothing.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Inner {
    /// Starts the container; blocking. The supervisor's number.
    pub(super) fn start(self: &Arc<Self>, plan: &ContainerPlan) -> Result<u32, NotStarted> {
        let directory = &plan.directory;
        check_mounts(&plan.mounts)?;
        mounts::real(plan)?;
        // A supervisor was here before: it is watched, not repeated.
        if let Some(mark) = self.marks.get(&plan.container, plan.request) {
            return self.resume_watching(&mark);
        }
        make_directory(&self.layout, plan)?;
        let ContainerId {
            job, incarnation, ..
        } = &plan.container;
        let checkpoint = self.layout.checkpoint_below(job, *incarnation);
        checkpoint.make().map_err(|error| {
            let what = "cannot create the checkpoint directory";
            NotStarted::disk(what, &plan.checkpoint, &error)
        })?;
        let env = self.environment(plan)?;
        let working_dir = self.working_dir(plan);
        if !working_dir.is_dir() {
            let path = working_dir.display();
            return Err(format!("its working directory {path} is not there").into());
        }
        let program = find(&plan.argv, &env, working_dir)?;
        let (supervisor, groups, mark) = self.supervisor(plan, &env)?;
        let identity = supervisor.identity;
        let told = supervisor.tell(&Orders {
            directory,
            records: &self.marks.records(&plan.container, plan.request),
            groups: &groups,
            working_dir,
            program: &program,
            arguments: &plan.argv[1..],
            env: &env,
        });
        let mut child = told.map_err(|error| format!("its supervisor has ended ({error})"))?;
        self.remember(&mark, identity);
        self.fill_later();
        let (inner, container) = (Arc::clone(self), plan.container.clone());
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            inner.finish(container, status).await;
        });
        Ok(identity.pid)
    }

    fn resume_watching(self: &Arc<Self>, mark: &Mark) -> Result<u32, NotStarted> {
        let identity = mark.supervised.as_ref().and_then(|it| it.identity());
        let identity = identity.ok_or("it was started before the machine's last restart")?;
        self.adopt(mark, identity);
        Ok(identity.pid)
    }

    fn working_dir<'a>(&'a self, plan: &'a ContainerPlan) -> &'a Path {
        self.working_dir.as_deref().unwrap_or(&plan.directory)
    }

    fn environment(&self, plan: &ContainerPlan) -> Result<BTreeMap<String, String>, String> {
        let mut env: BTreeMap<String, String> = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect();
        let inherited = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
        let added = self.path.iter().map(|folder| folder.display().to_string());
        let path: Vec<_> = added.chain([inherited]).collect();
        env.insert("PATH".to_owned(), path.join(":"));
        if self.has_gpus {
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), plan.gpus.join(","));
        }
        env.extend(secrets::resolve(&plan.env, &plan.granted)?);
        Ok(env)
    }

    /// What the container and a command beside it share.
    fn dress(
        &self,
        command: &mut Command,
        plan: &ContainerPlan,
        env: &BTreeMap<String, String>,
    ) -> Result<(), NotStarted> {
        let folder = self.layout.container_below(&plan.container).open();
        let folder =
            folder.map_err(|error| NotStarted::disk("cannot open", &plan.directory, &error))?;
        command
            .env_clear()
            .envs(env)
            .current_dir(self.working_dir(plan))
            .stdin(Stdio::null())
            .stdout(append(&folder, STDOUT)?)
            .stderr(append(&folder, STDERR)?)
            .process_group(0);
        Ok(())
    }

    /// Runs a command in the container's groups, and waits for it.
    pub(super) async fn beside(self: &Arc<Self>, plan: ContainerPlan) -> Result<(), String> {
        let (inner, prepared) = (Arc::clone(self), plan.clone());
        let prepare = aside(move || {
            let env = inner.environment(&prepared)?;
            let program = find(&prepared.argv, &env, inner.working_dir(&prepared))?;
            Ok::<_, String>((env, program))
        });
        let (env, program) = prepare.await.ok_or("it cannot be prepared")??;
        let live = self.get(&plan.container);
        let group = live.map_or_else(Group::default, |live| live.group);
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", ENTER, "dormouse"])
            .arg(group.all_procs())
            .arg(program)
            .args(&plan.argv[1..])
            .kill_on_drop(true);
        self.dress(&mut command, &plan, &env)
            .map_err(|error| error.why)?;
        let status = command.status().await.map_err(|error| error.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{:?} ended with {status}", plan.argv))
        }
    }
}

/// Makes the container's directory, empty but for the files that it prints to; what is there under
/// its name is moved aside.
fn make_directory(layout: &Layout, plan: &ContainerPlan) -> Result<(), NotStarted> {
    let directory = &plan.directory;
    let below = layout.container_below(&plan.container);
    let make = || {
        let folder = below.make()?;
        // Something printed here: of another log, or of a start that an agent did not live to see.
        if folder.names()?.is_empty() {
            return Ok(folder);
        }
        let mut aside = directory.clone();
        aside.set_extension(format!("before-{}", plan.request));
        let _ = fs::remove_dir_all(&aside);
        fs::rename(directory, &aside)?;
        below.make()
    };
    let folder = make().map_err(|error: std::io::Error| {
        NotStarted::disk("cannot create its directory", directory, &error)
    })?;
    for name in [STDOUT, STDERR] {
        append(&folder, name)?;
    }
    Ok(())
}

fn append(folder: &Folder, name: &str) -> Result<File, NotStarted> {
    let file = folder.append(name);
    file.map_err(|error| NotStarted::disk("cannot open", Path::new(name), &error))
}

/// Finds the program as `exec` would, so that its absence is told before anything runs.
fn find(
    argv: &[String],
    env: &BTreeMap<String, String>,
    working_dir: &Path,
) -> Result<PathBuf, String> {
    let name = argv.first().map_or("", String::as_str);
    if name.is_empty() || argv.iter().any(|argument| argument.contains('\0')) {
        return Err("its command line is empty or holds a NUL byte; correct command".to_owned());
    }
    let executable = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = working_dir.join(name);
        return if executable(&path) {
            Ok(path)
        } else {
            Err(format!(
                "{} is not an executable file on this node; install it or correct command",
                path.display()
            ))
        };
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    std::env::split_paths(path)
        .map(|folder| working_dir.join(folder).join(name))
        .find(|candidate| executable(candidate))
        .ok_or_else(|| {
            format!(
                "{name:?} is not found in PATH on this node ({path}); install it or correct command"
            )
        })
}
