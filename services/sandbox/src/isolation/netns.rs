//! A container's own network namespace, with only a loopback link.

use std::io;

use nix::sched::{CloneFlags, unshare};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// An rtnetlink message for a link's flags: `struct nlmsghdr` and `struct ifinfomsg`, 16 bytes each.
const LENGTH: u32 = 32;
const RTM_NEWLINK: u16 = 16;
/// Flags: request (1) and acknowledge (4).
const REQUEST: u16 = 1 | 4;
const LOOPBACK: i32 = 1;
const IFF_UP: u32 = 1;

/// Type of an acknowledgement. An error number follows its header, and 0 is success.
const NLMSG_ERROR: u16 = 2;

/// Leaves the node's network irrevocably, with later children.
///
/// # Errors
/// Kernel errors.
pub fn leave_the_network() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    loopback_up()
}

fn loopback_up() -> io::Result<()> {
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let to = SocketAddrNetlink::new(0, 0);
    sendto(&kernel, &message, SendFlags::empty(), &to)?;
    let mut answer = [0_u8; 256];
    let (length, _) = recv(&kernel, &mut answer, RecvFlags::empty())?;
    match code(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other(
            "the kernel does not say whether its loopback is there",
        )),
    }
}

fn code(answer: &[u8]) -> Option<i32> {
    let kind: [u8; 2] = answer.get(4..6)?.try_into().ok()?;
    let code: [u8; 4] = answer.get(16..20)?.try_into().ok()?;
    (u16::from_ne_bytes(kind) == NLMSG_ERROR).then(|| i32::from_ne_bytes(code))
}
