//! Prepares a start: the container's directory, program and environment. Nothing waits for the disk (no
//! fsync), and errors name their remedy.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dormouse_agent_core::NotStarted;
use dormouse_messages::Resource;
use dormouse_messages::job::Mount;
use dormouse_sandbox::protocol::{Demand, Orders, Program};

use super::{Inner, sandboxed};
use crate::NO_PROGRAM;
use crate::code;
use crate::container_plan::{ContainerPlan, PythonPlan};
use crate::disk_error::of_jobs_folder;
use crate::layout::{Layout, STDERR, STDOUT};
use crate::mounts;
use crate::secrets;

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

/// Without a sandbox, source and target must be equal.
fn check_mounts(mounts: &[Mount], is_contained: bool) -> Result<(), String> {
    for mount in mounts {
        if !is_contained && mount.source != mount.target {
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

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Inner {
    pub(super) fn prepare(&self, plan: &ContainerPlan) -> Result<Orders, NotStarted> {
        check_mounts(&plan.mounts, plan.user.is_some())?;
        let plan = &ContainerPlan {
            mounts: mounts::real(plan)?,
            ..plan.clone()
        };
        // A running container keeps its directory.
        if self
            .marks
            .get(&plan.container, plan.request)
            .is_none_or(|it| it.supervised.is_none())
        {
            make_directory(&self.layout, plan)?;
            code::give(&self.layout, plan)?;
        }
        let incarnation = plan.container.incarnation;
        let checkpoint = self.layout.checkpoint_below(&plan.folder(), incarnation);
        checkpoint.make().map_err(|error| {
            let what = "cannot create the checkpoint directory";
            of_jobs_folder(what, &checkpoint, &error)
        })?;
        let program = self.program(plan)?;
        let sandbox = match (plan.user, &self.contain) {
            (Some(user), Some(contain)) => {
                sandboxed::give(&self.layout, plan, user)?;
                // Needed only if no control group counts processes.
                let counted = self.limits.is_err().then_some(contain.processes);
                Some(sandboxed::sandbox(&self.layout, plan, user, counted))
            }
            _ => None,
        };
        self.note(plan)?;
        Ok(Orders {
            container: plan.container.to_string(),
            request: plan.request.0,
            demand: Demand {
                cpu_milli: plan.demand.get(&Resource::Cpu),
                memory_bytes: plan.demand.get(&Resource::Memory),
                processes: self.contain.as_ref().map(|it| it.processes),
            },
            program,
            sandbox,
        })
    }

    pub(super) fn program(&self, plan: &ContainerPlan) -> Result<Program, String> {
        let env = self.environment(plan)?;
        let working_dir = self.working_dir(plan);
        if !working_dir.is_dir() {
            let path = working_dir.display();
            return Err(format!("its working directory {path} is not there"));
        }
        let is_seen = |path: &Path| {
            let own = plan.python.as_ref().map(|it| &it.folder);
            let mut own = own.into_iter().chain([&plan.directory]);
            let view = self.view.as_ref();
            view.is_none_or(|view| own.any(|it| path.starts_with(it)) || view.shows(path))
        };
        let path = find(&plan.argv, &env, working_dir, is_seen)?;
        Ok(Program {
            path,
            arguments: plan.argv[1..].to_vec(),
            env,
            working_dir: working_dir.to_owned(),
            output: plan.directory.clone(),
            output_files: [STDOUT, STDERR].map(str::to_owned),
        })
    }

    fn working_dir<'a>(&'a self, plan: &'a ContainerPlan) -> &'a Path {
        if let Some(code) = &plan.code {
            return &code.folder;
        }
        let is_seen = |path: &&Path| self.view.as_ref().is_none_or(|view| view.shows(path));
        let common = self.working_dir.as_deref().filter(is_seen);
        common.unwrap_or(&plan.directory)
    }

    fn environment(&self, plan: &ContainerPlan) -> Result<BTreeMap<String, String>, String> {
        let inherited = match plan.user {
            Some(_) => &sandboxed::INHERITED[..],
            None => &INHERITED[..],
        };
        let mut env: BTreeMap<String, String> = inherited
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect();
        let own_path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
        let packages = plan.python.as_ref().map(PythonPlan::bin);
        let added = packages.iter().chain(&self.path);
        let added = added.map(|folder| folder.display().to_string());
        let path: Vec<_> = added.chain([own_path]).collect();
        env.insert("PATH".to_owned(), path.join(":"));
        if self.has_gpus {
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), plan.gpus.join(","));
        }
        if plan.user.is_some() {
            sandboxed::add_to(&mut env, plan);
        }
        env.extend(secrets::resolve(&plan.env, &plan.granted)?);
        Ok(env)
    }
}

fn make_directory(layout: &Layout, plan: &ContainerPlan) -> Result<(), NotStarted> {
    let directory = &plan.directory;
    let below = layout.container_below(&plan.container);
    let make = || {
        layout.claim(&plan.folder())?;
        let folder = below.make()?;
        // Another log's output, or a lost start's.
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
        of_jobs_folder("cannot create its directory", &below, &error)
    })?;
    for name in [STDOUT, STDERR] {
        let opened = folder.append(name);
        opened
            .map_err(|error| of_jobs_folder("cannot open what it prints to in", &below, &error))?;
    }
    Ok(())
}

fn find(
    argv: &[String],
    env: &BTreeMap<String, String>,
    working_dir: &Path,
    is_seen: impl Fn(&Path) -> bool,
) -> Result<PathBuf, String> {
    let name = argv.first().map_or("", String::as_str);
    if name.is_empty() || argv.iter().any(|argument| argument.contains('\0')) {
        return Err(
            "its command line is empty or holds a NUL byte; correct its `command`".to_owned(),
        );
    }
    let executable = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = working_dir.join(name);
        let shown = path.display();
        // Do not reveal whether a hidden program exists.
        return match (is_seen(&path), executable(&path)) {
            (true, true) => Ok(path),
            (true, false) => Err(format!(
                "{shown} is not an executable file on this node; {NO_PROGRAM}"
            )),
            (false, _) => Err(format!(
                "{shown} is in no folder of this node that its jobs see; mount its folder, {NO_PROGRAM}"
            )),
        };
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    std::env::split_paths(path)
        .map(|folder| working_dir.join(folder).join(name))
        .find(|candidate| executable(candidate) && is_seen(candidate))
        .ok_or_else(|| format!("{name:?} is not found in PATH on this node ({path}); {NO_PROGRAM}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_jobs_see_nothing_it_is_not_told_what_is_there() {
        let why = |name: &str, is_seen: bool| {
            let argv = [name.to_owned()];
            let found = find(&argv, &BTreeMap::new(), Path::new("/"), |_| is_seen);
            found.expect_err("it cannot run")
        };
        let hint = |name: &str| {
            format!(
                "{name} is in no folder of this node that its jobs see; mount its folder, {NO_PROGRAM}"
            )
        };
        for name in ["/bin/sh", "/no/such/program"] {
            assert_eq!(why(name, false), hint(name));
        }
        let missing = why("/no/such/program", true);
        assert!(missing.contains("is not an executable file"), "{missing}");
    }
}
