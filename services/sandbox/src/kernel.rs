//! System calls that no safe crate offers.

#![allow(unsafe_code, reason = "the calls have no safe form")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// Process in which a fork returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The caller, with the new pid.
    Caller(libc::pid_t),
    New,
}

/// Forks a sibling; with `in_namespace`, the init of a new pid namespace. The caller must have one thread.
///
/// # Errors
/// The kernel's.
pub fn fork_sibling(in_namespace: bool) -> io::Result<Forked> {
    let mut flags = libc::CLONE_PARENT | libc::SIGCHLD;
    if in_namespace {
        flags |= libc::CLONE_NEWPID;
    }
    // SAFETY: without CLONE_VM the child works on copies; with one thread no other thread holds a lock in the
    // copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match libc::pid_t::try_from(pid) {
        Ok(-1) | Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(Forked::New),
        Ok(pid) => Ok(Forked::Caller(pid)),
    }
}

/// Detaches the process from the caller's session keyring.
///
/// # Errors
/// The kernel's, except a kernel without keyrings.
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: the call takes a number and changes no memory.
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

/// Restricts an unattached mount tree: no set-user programs, no devices, read-only on request. Later mounts
/// of the node stay out. Needs Linux 5.12.
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
    // SAFETY: the descriptor is open, the path ends with a zero, the size fits.
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
