//! Starts a program without a copy of the process that starts it, and ends a process at once.
//!
//! A fork copies the tables of the parent's pages, the child and then the parent copy what they write
//! to, and all of that is thrown away at the exec: of the processor time that a container of a short
//! program costs, a tenth. [`start`] is what `posix_spawn` does (`clone` with `CLONE_VM` and
//! `CLONE_VFORK`: the child works in the parent's memory, which stands still until the child is another
//! program or gone), with what that lacks: a session of its own, a life that ends with the parent's, and
//! a score with which the kernel looks for memory.
//!
//! 1. Everything that needs memory is made before ([`Start::new`]); the child only asks the kernel. No
//!    signal reaches it before it has none of the parent's handlers.
//! 2. Where the child cannot become the program, it leaves the reason in the parent's memory and goes.

pub mod kernel;

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// What the child needs of it is a few calls deep.
const STACK_BYTES: usize = 64 * 1024;

/// Where programs without an interpreter of their own go, as with `execvp`.
const SHELL: &CStr = c"/bin/sh";

/// A program to start.
#[derive(Debug)]
pub struct Start {
    path: CString,
    arguments: Vec<CString>,
    env: Vec<CString>,
    working_dir: CString,
    /// Its three standard descriptors, none of which is one of the three here.
    standard: [OwnedFd; 3],
}

/// What kept a child from being the program.
#[derive(Debug)]
pub enum Failure {
    /// There is no process for it.
    Process(io::Error),
    /// It cannot be run.
    Program(io::Error),
}

/// What the child is told, and tells.
struct Told<'a> {
    start: &'a Start,
    arguments: &'a [*const c_char],
    /// The same for the shell, if the program is a text without an interpreter.
    of_shell: &'a [*const c_char],
    env: &'a [*const c_char],
    parent: libc::pid_t,
    errno: c_int,
}

fn text(of: &OsStr) -> io::Result<CString> {
    CString::new(of.as_bytes()).map_err(io::Error::from)
}

/// The addresses of texts, with the null behind them that ends them.
fn pointers<'a>(texts: impl Iterator<Item = &'a CString>) -> Vec<*const c_char> {
    let texts = texts.map(|text| text.as_ptr());
    texts.chain([ptr::null()]).collect()
}

/// A descriptor that is none of the standard three: those are written over one after the other.
fn aside(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open as long as it is borrowed; the call changes no memory.
    let copy = unsafe { libc::fcntl(of.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    match copy {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just opened it for this process, and nobody else knows it.
        copy => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
    }
}

impl Start {
    /// The program at `path`, with its arguments (the first of which is the path), nothing but this
    /// environment, in this folder, with these as its standard input, output and error output.
    ///
    /// # Errors
    /// A text has a zero in it, or there is no descriptor left.
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

/// Starts a program, as the leader of a session of its own, with no signal blocked, ended by a pipe that
/// nobody reads, and killed when the thread that starts it ends; returns when it is one.
///
/// # Errors
/// Why it does not run.
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
        // SAFETY: it has no arguments, and cannot fail.
        parent: unsafe { libc::getpid() },
        errno: 0,
    };
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let of_child: *mut Told<'_> = &raw mut told;
    // SAFETY: the stack is aligned, grows down from its end, and is there until this returns; the child
    // has left it by then, since the kernel lets this thread go on (`CLONE_VFORK`) only when the child
    // has become another program or has ended. Until then the child alone uses `told`. With all signals
    // blocked, which it inherits, it runs no handler of this process in this process's memory.
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
        // SAFETY: it is a child of this process; nothing is to be written.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        return Err(Failure::Program(io::Error::from_raw_os_error(told.errno)));
    }
    Ok(pid)
}

/// The child's whole life: it calls nothing that takes memory or a lock.
extern "C" fn child(told: *mut c_void) -> c_int {
    let told = told.cast::<Told<'_>>();
    // SAFETY: it is the parent's, which stands still; nobody else uses it.
    let told = unsafe { &mut *told };
    told.errno = becomes(told);
    end_now(127)
}

/// Returns only where it fails: the error's number.
fn becomes(told: &Told<'_>) -> c_int {
    let start = told.start;
    let standard = start.standard.iter().zip(0..);
    // SAFETY: every call gets descriptors and texts that the parent holds, or structures of this
    // function; none of them takes memory. What they change is this process's alone: its session, its
    // signals, its descriptors, its folder.
    unsafe {
        libc::setsid();
        for (from, to) in standard {
            if libc::dup2(from.as_raw_fd(), to) == -1 {
                return errno();
            }
        }
        // The kernel has one for the whole of a memory, but for a child that is not another program yet.
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
        // It may have died before.
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

/// Gives the child the signals as a program expects them: none of the parent's handlers, a closed pipe
/// that ends it, and only then none blocked.
///
/// # Safety
/// The process is a child that shares nothing of its signals with others.
unsafe fn hears_signals() {
    // SAFETY: the structures are this function's; handlers are only taken away.
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
    // SAFETY: it is this thread's.
    unsafe { *libc::__errno_location() }
}

/// Ends this process at once: nothing is written any more, and what it holds is the kernel's to free.
/// Who has been copied by a fork and exits as usual first frees its memory piece by piece.
pub fn end_now(code: i32) -> ! {
    // SAFETY: the call ends the process, and takes a number.
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

        /// What it prints until it ends, and how that is.
        fn run(&self, start: &Start) -> (String, i32) {
            let pid = super::start(start).expect("it runs");
            let mut status = 0;
            // SAFETY: a child of this process, and a number to write to.
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
        // Written by a program: what this process has open to write, a child of another test may have, too.
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
        // SAFETY: a child of this process, and a number to write to.
        while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
            assert!(Instant::now() < until, "it runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    }
}
