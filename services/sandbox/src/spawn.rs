//! Starts programs without copying the parent's memory, and ends a process at once.
//!
//! [`start`] uses `clone` with `CLONE_VM` and `CLONE_VFORK` like `posix_spawn`, and adds a session, death
//! with the parent, and an out-of-memory score.
//!
//! 1. [`Start::new`] allocates beforehand; the child makes only system calls, with signals blocked until the
//!    parent's handlers are gone.
//! 2. A child that cannot exec leaves the error in the parent's memory.

#![allow(
    unsafe_code,
    reason = "no safe library shares memory with a child until its exec"
)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use nix::libc;

const STACK_BYTES: usize = 64 * 1024;

/// Interpreter of scripts without one, as with `execvp`.
const SHELL: &CStr = c"/bin/sh";

/// A program to start.
#[derive(Debug)]
pub struct Start {
    path: CString,
    arguments: Vec<CString>,
    env: Vec<CString>,
    working_dir: CString,
    /// Standard descriptors, numbered 3 or above here.
    standard: [OwnedFd; 3],
}

/// A failed start.
#[derive(Debug)]
pub enum Failure {
    Process(io::Error),
    Program(io::Error),
}

/// Memory shared with the child.
struct Told<'a> {
    start: &'a Start,
    arguments: &'a [*const c_char],
    /// Arguments for the shell, if the program is such a script.
    of_shell: &'a [*const c_char],
    env: &'a [*const c_char],
    parent: libc::pid_t,
    errno: c_int,
}

fn text(of: &OsStr) -> io::Result<CString> {
    CString::new(of.as_bytes()).map_err(io::Error::from)
}

/// Returns null-terminated pointers.
fn pointers<'a>(texts: impl Iterator<Item = &'a CString>) -> Vec<*const c_char> {
    let texts = texts.map(|text| text.as_ptr());
    texts.chain([ptr::null()]).collect()
}

/// To 3 or above, since the child overwrites the standard descriptors.
fn aside(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open; the call changes no memory.
    let copy = unsafe { libc::fcntl(of.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    match copy {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just opened the descriptor for this process.
        copy => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
    }
}

impl Start {
    /// Prepares a program with exactly `env`.
    ///
    /// # Errors
    /// A text contains a zero, or no descriptor is left.
    pub fn new(
        path: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        env: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
        working_dir: &Path,
        standard: [BorrowedFd<'_>; 3],
    ) -> io::Result<Self> {
        let path = text(path.as_os_str())?;
        let mut all = vec![path.clone()];
        for argument in arguments {
            all.push(text(argument.as_ref())?);
        }
        let mut variables = Vec::new();
        for (name, value) in env {
            let mut whole = name.as_ref().to_owned();
            whole.push("=");
            whole.push(value);
            variables.push(text(&whole)?);
        }
        let [input, output, errors] = standard;
        Ok(Self {
            path,
            arguments: all,
            env: variables,
            working_dir: text(working_dir.as_os_str())?,
            standard: [aside(input)?, aside(output)?, aside(errors)?],
        })
    }
}

/// Starts a program as a session leader, without blocked signals, killed when the starting thread ends.
/// Returns after the exec.
///
/// # Errors
/// The reason for the failed start.
pub fn start(start: &Start) -> Result<libc::pid_t, Failure> {
    let arguments = pointers(start.arguments.iter());
    let shell = [SHELL.to_owned(), start.path.clone()];
    let of_shell = pointers(shell.iter().chain(start.arguments.iter().skip(1)));
    let env = pointers(start.env.iter());
    let mut told = Told {
        start,
        arguments: &arguments,
        of_shell: &of_shell,
        env: &env,
        // SAFETY: the call has no arguments and cannot fail.
        parent: unsafe { libc::getpid() },
        errno: 0,
    };
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let of_child: *mut Told<'_> = &raw mut told;
    // SAFETY: the stack is aligned, grows down from its end, and outlives its use: `CLONE_VFORK` resumes this
    // thread only after the child's exec or exit. Until then only the child uses `told`, and blocked signals
    // run no handler in this memory.
    let (pid, error) = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity());
        let (mut all, mut before) = (zeroed::<libc::sigset_t>(), zeroed::<libc::sigset_t>());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let pid = libc::clone(child, top.cast(), flags, of_child.cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        (pid, error)
    };
    if pid == -1 {
        return Err(Failure::Process(error));
    }
    if told.errno != 0 {
        // SAFETY: a child of this process; no status is written.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        return Err(Failure::Program(io::Error::from_raw_os_error(told.errno)));
    }
    Ok(pid)
}

/// Runs in the child, without memory allocation or locks.
extern "C" fn child(told: *mut c_void) -> c_int {
    let told = told.cast::<Told<'_>>();
    // SAFETY: the parent is suspended, so this is the only use of its memory.
    let told = unsafe { &mut *told };
    told.errno = becomes(told);
    end_now(127)
}

/// Returns only on failure.
fn becomes(told: &Told<'_>) -> c_int {
    let start = told.start;
    let standard = start.standard.iter().zip(0..);
    // SAFETY: all calls use descriptors and texts held by the parent, or local structures, and none
    // allocates. Their effects are on this process alone.
    unsafe {
        libc::setsid();
        for (from, to) in standard {
            if libc::dup2(from.as_raw_fd(), to) == -1 {
                return errno();
            }
        }
        // Shared with the memory, except in a child before its exec.
        let scored = libc::open(
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        if scored != -1 {
            libc::write(scored, c"0".as_ptr().cast(), 1);
            libc::close(scored);
        }
        if libc::chdir(start.working_dir.as_ptr()) == -1 {
            return errno();
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
            return errno();
        }
        // The parent may have died before prctl.
        if libc::getppid() != told.parent {
            return libc::ESRCH;
        }
        hears_signals();
        let env = told.env.as_ptr();
        libc::execve(start.path.as_ptr(), told.arguments.as_ptr(), env);
        let why = errno();
        if why == libc::ENOEXEC {
            libc::execve(SHELL.as_ptr(), told.of_shell.as_ptr(), env);
        }
        why
    }
}

/// Resets handlers and SIGPIPE, then unblocks all signals.
///
/// # Safety
/// The process is a child that shares no signal state with others.
unsafe fn hears_signals() {
    // SAFETY: local structures; handlers are only removed.
    unsafe {
        let mut found = zeroed::<libc::sigaction>();
        for signal in 1..=libc::SIGRTMAX() {
            let known = libc::sigaction(signal, ptr::null(), &raw mut found) == 0;
            let is_plain = matches!(found.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
            if known && (!is_plain || signal == libc::SIGPIPE) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let mut none = zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

fn errno() -> c_int {
    // SAFETY: this thread's own location.
    unsafe { *libc::__errno_location() }
}

/// Ends this process at once, without flushing or freeing.
pub fn end_now(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn program(&self, path: &str, arguments: &[&str]) -> Start {
            let nothing = File::open("/dev/null").expect("nothing");
            let output = File::create(self.0.path().join("output")).expect("a file");
            let standard = [nothing.as_fd(), output.as_fd(), output.as_fd()];
            let env = [("A", "b")];
            Start::new(Path::new(path), arguments, env, self.0.path(), standard).expect("sound")
        }

        fn run(&self, start: &Start) -> (String, i32) {
            let pid = super::start(start).expect("it runs");
            let mut status = 0;
            // SAFETY: a child of this process, and a local status.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            let text = fs::read_to_string(self.0.path().join("output")).expect("text");
            (text, status)
        }
    }

    #[test]
    fn a_program_has_what_it_is_given_and_nothing_else() {
        let world = World::new();
        let words =
            "env -u PWD -u SHLVL -u _ | sort; pwd; ps -o sid= -p $$ | tr -d ' '; echo $$; exit 3";
        let (text, status) = world.run(&world.program("/bin/sh", &["-c", words]));
        let lines: Vec<_> = text.lines().collect();
        let folder = world.0.path().display().to_string();
        assert_eq!((lines[0], lines[1]), ("A=b", folder.as_str()), "{text}");
        assert_eq!(lines[2], lines[3], "it leads a session of its own");
        assert_eq!(libc::WEXITSTATUS(status), 3);
    }

    #[test]
    fn no_signal_is_blocked_and_a_closed_pipe_ends_it() {
        let world = World::new();
        let words = "grep -E 'SigBlk|SigIgn' /proc/self/status; cat /proc/self/oom_score_adj";
        let (text, _) = world.run(&world.program("/bin/sh", &["-c", words]));
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["SigBlk:", blocked, "SigIgn:", ignored, "0"] = words[..] else {
            panic!("{text}");
        };
        let ignored = u64::from_str_radix(ignored, 16).expect("a number");
        assert_eq!(blocked, "0000000000000000");
        assert_eq!(ignored & (1 << (libc::SIGPIPE - 1)), 0);
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        let world = World::new();
        let missing = super::start(&world.program("/no/such/program", &[]));
        let Err(Failure::Program(error)) = missing else {
            panic!("{missing:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut start = world.program("/bin/true", &[]);
        start.working_dir = c"/no/such/folder".to_owned();
        assert!(matches!(super::start(&start), Err(Failure::Program(_))));
    }

    #[test]
    fn a_text_without_an_interpreter_is_the_shells() {
        let world = World::new();
        // Another test's child may inherit this process's writable descriptors.
        let words = "echo 'echo $0 $1' > script; chmod 755 script";
        world.run(&world.program("/bin/sh", &["-c", words]));
        let path = world.0.path().join("script").display().to_string();
        let (text, _) = world.run(&world.program(&path, &["one"]));
        assert_eq!(text, format!("{path} one\n"));
    }

    #[test]
    fn it_is_killed_when_who_started_it_ends() {
        let world = World::new();
        let start = world.program("/bin/sleep", &["600"]);
        let starting = std::thread::spawn(move || super::start(&start).expect("it runs"));
        let pid = starting.join().expect("it is started");
        let until = Instant::now() + Duration::from_secs(10);
        let mut status = 0;
        // SAFETY: a child of this process, and a local status.
        while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
            assert!(Instant::now() < until, "it runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    }
}
