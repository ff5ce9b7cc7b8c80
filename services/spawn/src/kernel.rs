//! System calls of the sandbox that need unsafe code and that no safe crate offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which of the two processes a fork has returned in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The caller, with the new process's number.
    Caller(libc::pid_t),
    /// The new process.
    New,
}

/// Forks a process that is a child of the caller's parent, not of the caller; the first one of a
/// namespace of processes where `in_namespace` says so. The caller must have one thread.
///
/// # Errors
/// The kernel's.
pub fn fork_sibling(in_namespace: bool) -> io::Result<Forked> {
    let mut flags = libc::CLONE_PARENT | libc::SIGCHLD;
    if in_namespace {
        flags |= libc::CLONE_NEWPID;
    }
    // SAFETY: without CLONE_VM the new process works on a copy of this memory and of this stack, as
    // after a fork; with one thread nobody else holds a lock that the copy would miss.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match libc::pid_t::try_from(pid) {
        Ok(-1) | Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(Forked::New),
        Ok(pid) => Ok(Forked::Caller(pid)),
    }
}

/// Gives this process a session keyring of its own: the keys of the caller's session are out of reach.
///
/// # Errors
/// The kernel's; that there are no keyrings is none.
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: the call takes a number and no name, and changes no memory of this process.
    let joined = unsafe {
        let join = libc::c_long::from(libc::KEYCTL_JOIN_SESSION_KEYRING);
        libc::syscall(libc::SYS_keyctl, join, 0_usize)
    };
    match joined {
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

/// Restricts a mount that is not attached yet, and those below it: no set-user programs, no devices,
/// and no writing where `read_only` says so. What the node mounts below them later does not reach them: it
/// would come with the node's own flags. Needs Linux 5.12.
///
/// # Errors
/// The kernel's.
pub fn restrict_mount(tree: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let mut attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    if read_only {
        attributes.attr_set |= libc::MOUNT_ATTR_RDONLY;
    }
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the descriptor is open, the path ends with a zero, and the structure is as long as is said.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if set == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
