//! Starts programs from an init: a fork, the tenant's user, an exec. The plain case does not copy the init
//! ([`crate::spawn`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use fork::Fork;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, setsid};

use crate::StartError;
use crate::folder::{Below, Folder};
use crate::isolation::Sandbox;
use crate::protocol::Program;
use crate::spawn::{self, Failure, Start, end_now};

/// The standard descriptors of a program.
pub enum Ends {
    Files,
    /// An attached user's descriptors. A single one is a terminal.
    Attached(Vec<OwnedFd>),
}

impl Ends {
    fn open(
        self,
        program: &Program,
        sandbox: Option<&Sandbox>,
    ) -> Result<[OwnedFd; 3], StartError> {
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
                // The controlling terminal of the new session.
                rustix::process::ioctl_tiocsctty(&terminal).map_err(|error| why(error.into()))?;
                let copy = || terminal.try_clone().map_err(why);
                Ok([copy()?, copy()?, terminal])
            }
        }
    }
}

/// A tenant's mount may cover any path in a sandbox.
fn files(program: &Program, sandbox: Option<&Sandbox>) -> Result<[OwnedFd; 3], StartError> {
    let in_folder = |folder: &Folder, null: File| -> io::Result<[OwnedFd; 3]> {
        let [output, errors] = &program.output_files;
        let files = [folder.append(output)?, folder.append(errors)?];
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
    open().map_err(|error| StartError::of_disk(what, &program.output, &error))
}

fn no_process(error: &io::Error) -> StartError {
    let why = format!("no process for it: {error}; the node is out of processes or memory");
    StartError::of_node(why)
}

fn cannot_run(program: &Program, error: &io::Error) -> StartError {
    let path = program.path.display();
    let folder = program.working_dir.display();
    format!("{path} cannot be run in {folder}: {error}; correct its `command`").into()
}

/// Starts a program, and returns after its exec. Without a sandbox the program dies with its init.
///
/// # Errors
/// The reason why the program cannot run.
pub fn launch(program: &Program, sandbox: Option<&Sandbox>, ends: Ends) -> Result<Pid, StartError> {
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
            // The reader sees the end only without other holders.
            drop((tell, ends));
            let mut why = Vec::new();
            told.read_to_end(&mut why).map_err(of_node)?;
            if why.is_empty() {
                return Ok(Pid::from_raw(pid));
            }
            let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
            let unread = |_| StartError::from("it ended before it ran");
            Err(serde_json::from_slice(&why).unwrap_or_else(unread))
        }
    }
}

fn spawn(program: &Program) -> Result<Pid, StartError> {
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
    match spawn::start(&start) {
        Ok(pid) => Ok(Pid::from_raw(pid)),
        Err(Failure::Process(error)) => Err(no_process(&error)),
        Err(Failure::Program(error)) => Err(cannot_run(program, &error)),
    }
}

fn end(mut tell: PipeWriter, why: &StartError) -> ! {
    let _ = tell.write_all(&serde_json::to_vec(why).unwrap_or_default());
    end_now(127)
}

/// Becomes the program. Returns only on failure.
fn become_program(program: &Program, sandbox: Option<&Sandbox>, ends: Ends) -> StartError {
    let _ = setsid();
    // The program must not inherit the init's mask.
    let _ = SigSet::empty().thread_set_mask();
    let [input, output, errors] = match ends.open(program, sandbox) {
        Ok(standard) => standard.map(Stdio::from),
        Err(why) => return why,
    };
    match sandbox {
        Some(sandbox) => {
            // The program must go before the supervisor.
            let _ = sandbox.reset_oom_score();
            if let Err(why) = sandbox.drop_privileges() {
                return why;
            }
        }
        None => {
            let _ = std::fs::write("/proc/self/oom_score_adj", "0");
            if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
                return format!("it cannot be tied to its init: {errno}").into();
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
