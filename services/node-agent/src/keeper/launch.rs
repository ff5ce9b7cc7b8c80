//! From a guard to a program: a fork, the tenant's user, an exec. Where it stays the guard's user and
//! nobody is attached to it, the guard is not copied for that ([`dormouse_spawn`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use dormouse_spawn::{Failure, Start};
use fork::Fork;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, setsid};

use dormouse_messages::events::NodeFault;

use super::sandbox::Sandbox;
use super::words::Program;
use crate::folder::{Below, Folder};
use crate::layout::{STDERR, STDOUT};
use crate::runtime::NotStarted;

/// What a program reads and prints to.
pub enum Ends {
    /// Nothing, and the files of its container.
    Files,
    /// What somebody who is attached to it has given: one descriptor is a terminal.
    Attached(Vec<OwnedFd>),
}

impl Ends {
    /// The program's standard input, output and error output.
    fn open(
        self,
        program: &Program,
        sandbox: Option<&Sandbox>,
    ) -> Result<[OwnedFd; 3], NotStarted> {
        let descriptors = match self {
            Self::Files => return files(program, sandbox),
            Self::Attached(descriptors) => descriptors,
        };
        let why = |error: io::Error| format!("nobody can be attached to it: {error}");
        match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok(three) => Ok(three),
            Err(one) => {
                let terminal = one.into_iter().next();
                let terminal = terminal.ok_or("nothing was given to attach to it")?;
                // The terminal of the session that this process has begun.
                rustix::process::ioctl_tiocsctty(&terminal).map_err(|error| why(error.into()))?;
                let copy = || terminal.try_clone().map_err(why);
                Ok([copy()?, copy()?, terminal])
            }
        }
    }
}

/// In a sandbox nothing is opened by a path: a mount of its tenant's may be there.
fn files(program: &Program, sandbox: Option<&Sandbox>) -> Result<[OwnedFd; 3], NotStarted> {
    let in_folder = |folder: &Folder, null: File| -> io::Result<[OwnedFd; 3]> {
        let files = [folder.append(STDOUT)?, folder.append(STDERR)?];
        let [output, errors] = files.map(OwnedFd::from);
        Ok([null.into(), output, errors])
    };
    let open = || match sandbox {
        Some(sandbox) => in_folder(&sandbox.directory, sandbox.null.try_clone()?),
        None => {
            let output = Below::new(program.output.clone(), "").open()?;
            in_folder(&output, File::open("/dev/null")?)
        }
    };
    let what = "cannot open what it prints to in";
    open().map_err(|error| crate::runtime::of_disk(what, &program.output, &error))
}

fn no_process(error: &io::Error) -> NotStarted {
    let why = format!("no process for it: {error}; the node is out of processes or memory");
    NotStarted::of_node(NodeFault::Processes, why)
}

fn cannot_run(program: &Program, error: &io::Error) -> NotStarted {
    let path = program.path.display();
    let folder = program.working_dir.display();
    format!("{path} cannot be run in {folder}: {error}; correct its `command`").into()
}

/// Starts a program; returns when it has become one. Outside of a sandbox it dies with its guard.
///
/// # Errors
/// Why it cannot run.
pub fn launch(program: &Program, sandbox: Option<&Sandbox>, ends: Ends) -> Result<Pid, NotStarted> {
    if let (None, Ends::Files) = (sandbox, &ends) {
        return spawn(program);
    }
    let of_node = |error: io::Error| no_process(&error);
    let (mut told, tell) = io::pipe().map_err(of_node)?;
    match fork::fork().map_err(of_node)? {
        Fork::Child => {
            let why = become_program(program, sandbox, ends);
            end(tell, &why)
        }
        Fork::Parent(pid) => {
            // What reads learns of the program's end only where nobody else has the other end.
            drop((tell, ends));
            let mut why = Vec::new();
            told.read_to_end(&mut why).map_err(of_node)?;
            if why.is_empty() {
                return Ok(Pid::from_raw(pid));
            }
            let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
            let unread = |_| NotStarted::from("it ended before it ran");
            Err(serde_json::from_slice(&why).unwrap_or_else(unread))
        }
    }
}

/// Without a sandbox: the program is the guard's own, and dies with it.
fn spawn(program: &Program) -> Result<Pid, NotStarted> {
    let standard = files(program, None)?;
    let start = Start::new(
        &program.path,
        &program.arguments,
        &program.env,
        &program.working_dir,
        standard.each_ref().map(AsFd::as_fd),
    );
    let start = start.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => cannot_run(program, &error),
        _ => no_process(&error),
    })?;
    match dormouse_spawn::start(&start) {
        Ok(pid) => Ok(Pid::from_raw(pid)),
        Err(Failure::Process(error)) => Err(no_process(&error)),
        Err(Failure::Program(error)) => Err(cannot_run(program, &error)),
    }
}

fn end(mut tell: PipeWriter, why: &NotStarted) -> ! {
    let _ = tell.write_all(&serde_json::to_vec(why).unwrap_or_default());
    dormouse_spawn::end_now(127)
}

/// Returns only where it fails.
fn become_program(program: &Program, sandbox: Option<&Sandbox>, ends: Ends) -> NotStarted {
    let _ = setsid();
    // The guard hears signals by a descriptor; the program is to hear them as ever.
    let _ = SigSet::empty().thread_set_mask();
    let [input, output, errors] = match ends.open(program, sandbox) {
        Ok(standard) => standard.map(Stdio::from),
        Err(why) => return why,
    };
    match sandbox {
        Some(sandbox) => {
            // The keeper's is not the program's: where memory is short, the program goes first.
            let _ = sandbox.reset_oom_score();
            if let Err(why) = sandbox.drop_privileges() {
                return why;
            }
        }
        None => {
            let _ = std::fs::write("/proc/self/oom_score_adj", "0");
            if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
                return format!("it cannot be tied to its guard: {errno}").into();
            }
        }
    }
    let name = program.path.as_os_str();
    let error = Command::new(name)
        .args(program.arguments.iter().map(OsStr::new))
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.working_dir)
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .exec();
    cannot_run(program, &error)
}
