//! Supervisors: shells that wait for their orders. A few wait in advance, in control groups of
//! their own, so that a start neither forks nor makes groups nor moves a process, for which the
//! kernel holds a lock and waits for milliseconds: it sets limits and writes the orders.
//!
//! Nothing of them outlives the agent: they end when it closes their standard input, and its
//! successor removes their groups.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use super::{Group, Identity, Inner, procfs};
use crate::marks::{Mark, Supervised};
use crate::runtime::{ContainerPlan, NotStarted};
use dormouse_messages::events::NodeFault;

const SUPERVISE: &str = include_str!("supervise.sh");

/// How many wait: the containers that a node is often given at once.
const WAITING: usize = 8;

/// With fewer than this others are made, together: several moves take as long as one.
const FEW: usize = 4;

/// After a start, before the next one is made: what was started comes first, since no process
/// can fork while another is moved.
const FILL_AFTER: Duration = Duration::from_millis(5);

/// How long a supervisor may take to die; a starved machine needs a hundred milliseconds.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// A shell that waits for its orders.
pub(super) struct Supervisor {
    pub child: Child,
    pub identity: Identity,
    orders: File,
}

/// One that waits in advance.
pub(super) struct Waiting {
    supervisor: Supervisor,
    group: Group,
}

/// What a supervisor is told.
pub(super) struct Orders<'a> {
    pub directory: &'a Path,
    /// How the names of its own files begin.
    pub records: &'a Path,
    /// The groups that it is not in yet.
    pub groups: &'a str,
    pub working_dir: &'a Path,
    pub program: &'a Path,
    pub arguments: &'a [String],
    pub env: &'a BTreeMap<String, String>,
}

impl Supervisor {
    /// Starts a shell that waits; `odd` is of its environment that no shell can export.
    fn spawn(odd: &BTreeMap<String, String>) -> io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SUPERVISE, "dormouse"])
            .env_clear()
            .envs(odd)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take().map(|stdin| stdin.into_owned_fd());
        let orders = orders.ok_or_else(|| io::Error::other("it has no standard input"))?;
        let identity = procfs::stat(child.id().unwrap_or_default());
        let identity = identity
            .ok_or_else(|| io::Error::other("its process cannot be seen in /proc; mount it"))?;
        Ok(Self {
            child,
            identity: identity.identity,
            orders: orders?.into(),
        })
    }

    /// Tells it what to run; its standard input is closed behind that.
    pub fn tell(mut self, orders: &Orders<'_>) -> io::Result<Child> {
        self.orders.write_all(&orders.script())?;
        Ok(self.child)
    }
}

impl Waiting {
    /// Ends it, and removes its groups.
    fn end(mut self) {
        let _ = self.supervisor.child.start_kill();
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.supervisor.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.group.remove();
    }
}

impl Orders<'_> {
    /// One complete script, its last line `told`.
    fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        let mut add = |parts: &[&[u8]]| script.extend(parts.concat());
        let path = |path: &Path| quoted(path.as_os_str().as_bytes());
        add(&[b"directory=", &path(self.directory), b"\n"]);
        add(&[b"records=", &path(self.records), b"\n"]);
        add(&[b"groups=", &quoted(self.groups.as_bytes()), b"\n"]);
        add(&[b"environment() {\n:\n"]);
        for (name, value) in self.env.iter().filter(|(name, _)| can_export(name)) {
            add(&[
                b"export ",
                name.as_bytes(),
                b"=",
                &quoted(value.as_bytes()),
                b"\n",
            ]);
        }
        add(&[
            b"}\ncd -P ",
            &path(self.working_dir),
            b" || exit 126\nunset OLDPWD\n",
        ]);
        add(&[b"set -- ", &path(self.program)]);
        for argument in self.arguments {
            add(&[b" ", &quoted(argument.as_bytes())]);
        }
        add(&[b"\ntold=1\n"]);
        script
    }
}

/// A word of the shell that stands for these bytes.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => word.extend(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

/// Whether every shell can export a variable of this name: some keep a few for themselves.
fn can_export(name: &str) -> bool {
    const KEPT: [&str; 9] = [
        "BASHOPTS",
        "BASH_VERSINFO",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "OPTIND",
        "PPID",
        "SHELLOPTS",
        "UID",
    ];
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_name)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !KEPT.contains(&name)
}

impl Inner {
    /// Writes down which process stands for the container, and in which groups, before it is told
    /// what to run.
    fn note(
        &self,
        plan: &ContainerPlan,
        process: Identity,
        group: &Group,
    ) -> Result<Mark, NotStarted> {
        let mut mark = Mark::new(plan.container.clone(), plan.request);
        mark.supervised = Some(Supervised::new(process, group.name()));
        let noted = self.marks.put(&mark);
        let path = self.marks.records(&plan.container, plan.request);
        noted.map_err(|error| NotStarted::disk("cannot write", &path, &error))?;
        Ok(mark)
    }

    /// A supervisor for a container, the groups that it has to enter yet, and its mark.
    pub(super) fn supervisor(
        &self,
        plan: &ContainerPlan,
        env: &BTreeMap<String, String>,
    ) -> Result<(Supervisor, String, Mark), NotStarted> {
        let limits = |error: io::Error| {
            NotStarted::from(format!("its limits cannot be set: {error}; see demand"))
        };
        let odd: BTreeMap<_, _> = env.iter().filter(|(name, _)| !can_export(name)).collect();
        let odd: BTreeMap<_, _> = odd
            .into_iter()
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        if odd.is_empty()
            && let Some(waiting) = self.take_waiting()
        {
            let limited = self.cgroups.limit(&waiting.group, &plan.demand);
            return match limited
                .map_err(limits)
                .and_then(|()| self.note(plan, waiting.supervisor.identity, &waiting.group))
            {
                Ok(mark) => Ok((waiting.supervisor, String::new(), mark)),
                Err(why) => {
                    waiting.end();
                    Err(why)
                }
            };
        }
        let group = self.cgroups.create(&self.group_name()).map_err(limits)?;
        self.cgroups.limit(&group, &plan.demand).map_err(limits)?;
        let supervisor = Supervisor::spawn(&odd).map_err(|error| {
            let why = format!("/bin/sh: {error}; the node is out of processes or memory");
            NotStarted::of_node(NodeFault::Processes, why)
        })?;
        let mark = self.note(plan, supervisor.identity, &group)?;
        Ok((supervisor, group.all_procs(), mark))
    }

    fn take_waiting(&self) -> Option<Waiting> {
        let mut waiting = self.waiting();
        while let Some(mut first) = waiting.pop() {
            match first.supervisor.child.try_wait() {
                Ok(None) => return Some(first),
                _ => first.group.remove(),
            }
        }
        None
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has supervisors wait again, a little later, where few are left.
    pub(super) fn fill_later(self: &Arc<Self>) {
        if self.waiting().len() >= FEW || self.is_filling.swap(true, Ordering::SeqCst) {
            return;
        }
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(FILL_AFTER).await;
            if let Some(inner) = inner.upgrade() {
                let filling = tokio::task::spawn_blocking(move || {
                    if let Err(error) = inner.fill() {
                        tracing::debug!(%error, "no supervisor waits in advance");
                    }
                    inner.is_filling.store(false, Ordering::SeqCst);
                });
                let _ = filling.await;
            }
        });
    }

    fn fill(&self) -> io::Result<()> {
        let missing = WAITING.saturating_sub(self.waiting().len());
        let mut made = Vec::with_capacity(missing);
        let filled = (0..missing).try_for_each(|_| {
            let group = self.cgroups.create(&self.group_name())?;
            match Supervisor::spawn(&BTreeMap::new()) {
                Ok(supervisor) => made.push(Waiting { supervisor, group }),
                Err(error) => {
                    group.remove();
                    return Err(error);
                }
            }
            Ok(())
        });
        let enter = |it: &Waiting| it.group.enter(it.supervisor.identity.pid);
        let filled = filled.and_then(|()| made.iter().try_for_each(enter));
        match filled {
            Ok(()) => self.waiting().append(&mut made),
            Err(_) => made.into_iter().for_each(Waiting::end),
        }
        filled
    }

    /// Never the same: a group is removed after its container's name is free.
    fn group_name(&self) -> String {
        let number = self.groups_made.fetch_add(1, Ordering::SeqCst);
        format!("{:x}-{number}", self.life)
    }

    /// Ends those that wait.
    pub(super) fn end_waiting(&mut self) {
        let waiting = self
            .waiting
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for it in waiting.iter_mut() {
            let _ = it.supervisor.child.start_kill();
        }
        waiting.drain(..).for_each(Waiting::end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_meant() {
        let env = BTreeMap::from(
            [
                ("A", "it's \"$HOME\"\n`x`"),
                ("directory", "of the job"),
                ("no-name", "odd"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let arguments = ["-c", "a 'b' $c", ""].map(str::to_owned);
        let orders = Orders {
            directory: Path::new("/tmp/it's here"),
            records: Path::new("/tmp/records"),
            groups: "",
            working_dir: Path::new("/"),
            program: Path::new("/bin/true"),
            arguments: &arguments,
            env: &env,
        };
        let script = orders.script();
        let shown = "environment; printf '%s|' \"$told\" \"$A\" \"$PWD\" \"$#\" \"$1\" \"$3\" \"$4\"; env | grep -c directory=";
        let script = [script, shown.as_bytes().to_vec()].concat();
        let output = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(&script))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .output()
            .expect("runs");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "1|it's \"$HOME\"\n`x`|/|4|/bin/true|a 'b' $c||1\n"
        );
    }

    #[test]
    fn names_that_no_shell_exports_are_known() {
        for name in ["A", "_x9", "PATH", "IFS"] {
            assert!(can_export(name), "{name}");
        }
        for name in ["", "9a", "a.b", "a-b", "UID", "é"] {
            assert!(name.is_empty() || !can_export(name), "{name}");
        }
    }
}
