//! From a guard to a program: a fork, the tenant's user, an exec.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use fork::Fork;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, setsid};

use dormouse_messages::events::NodeFault;

use super::walls::{self, Walls};
use super::words::Program;
use crate::folder::Below;
use crate::layout::{STDERR, STDOUT};
use crate::runtime::NotStarted;

/// What a program reads and prints to.
pub enum Ends {
    /// Nothing, and the files of its container.
    Files,
    /// What somebody who is attached to it has given: one descriptor is a terminal.
    Attached(Vec<OwnedFd>),
}

/// A program's three standard descriptors.
struct Standard {
    input: Stdio,
    output: Stdio,
    errors: Stdio,
}

impl Ends {
    fn open(self, program: &Program) -> Result<Standard, NotStarted> {
        let descriptors = match self {
            Self::Files => return files(program),
            Self::Attached(descriptors) => descriptors,
        };
        let why = |error: io::Error| format!("nobody can be attached to it: {error}");
        let [input, output, errors] = match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok(three) => three,
            Err(one) => {
                let terminal = one.into_iter().next();
                let terminal = terminal.ok_or("nothing was given to attach to it")?;
                // The terminal of the session that this process has begun.
                rustix::process::ioctl_tiocsctty(&terminal).map_err(|error| why(error.into()))?;
                let copy = || terminal.try_clone().map_err(why);
                [copy()?, copy()?, terminal]
            }
        };
        Ok(Standard {
            input: input.into(),
            output: output.into(),
            errors: errors.into(),
        })
    }
}

fn files(program: &Program) -> Result<Standard, NotStarted> {
    let output = Below::new(program.output.clone(), "");
    let append = |name: &str| -> io::Result<File> { output.open()?.append(name) };
    match (append(STDOUT), append(STDERR)) {
        (Ok(output), Ok(errors)) => Ok(Standard {
            input: Stdio::null(),
            output: output.into(),
            errors: errors.into(),
        }),
        (Err(error), _) | (_, Err(error)) => Err(crate::runtime::of_disk(
            "cannot open what it prints to in",
            &program.output,
            &error,
        )),
    }
}

/// Starts a program; returns when it has become one. `dies_with_guard` where nothing else ends it
/// then.
///
/// # Errors
/// Why it cannot run.
pub fn launch(
    program: &Program,
    walls: Option<&Walls>,
    dies_with_guard: bool,
    ends: Ends,
) -> Result<Pid, NotStarted> {
    let of_node = |error: io::Error| {
        let why = format!("no process for it: {error}; the node is out of processes or memory");
        NotStarted::of_node(NodeFault::Processes, why)
    };
    let (mut told, tell) = io::pipe().map_err(of_node)?;
    match fork::fork().map_err(of_node)? {
        Fork::Child => {
            let why = become_program(program, walls, dies_with_guard, ends);
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

fn end(mut tell: PipeWriter, why: &NotStarted) -> ! {
    let _ = tell.write_all(&serde_json::to_vec(why).unwrap_or_default());
    std::process::exit(127)
}

/// Returns only where it fails.
fn become_program(
    program: &Program,
    walls: Option<&Walls>,
    dies_with_guard: bool,
    ends: Ends,
) -> NotStarted {
    let _ = setsid();
    // The guard hears signals by a descriptor; the program is to hear them as ever.
    let _ = SigSet::empty().thread_set_mask();
    let standard = match ends.open(program) {
        Ok(standard) => standard,
        Err(why) => return why,
    };
    // The keeper's is not the program's: where memory is short, the program goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "0");
    if let Some(walls) = walls
        && let Err(why) = walls::wear(walls)
    {
        return why;
    }
    // Behind the change of user, which clears it.
    if dies_with_guard && let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return format!("it cannot be tied to its guard: {errno}").into();
    }
    let name = program.path.as_os_str();
    let error = Command::new(name)
        .args(program.arguments.iter().map(OsStr::new))
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.working_dir)
        .stdin(standard.input)
        .stdout(standard.output)
        .stderr(standard.errors)
        .exec();
    let path = program.path.display();
    format!(
        "{path} cannot be run in {}: {error}; correct its `command`",
        program.working_dir.display()
    )
    .into()
}
