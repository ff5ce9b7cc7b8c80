//! What a process and the scheduler say to each other: messages of fixed size over a Unix socket
//! that keeps their bounds. Numbers are the machine's own.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{io, ptr};

/// The form of page and messages; another one is not understood.
pub const VERSION: u64 = 1;

/// From a process: it is there. `value` is [`VERSION`].
pub const HELLO: u32 = 1;
/// From a process: it has work for `device`.
pub const WANT: u32 = 2;
/// From a process: its work of grant `epoch` is done.
pub const RETURN: u32 = 3;
/// To a process: its slot is `value`; the page's descriptor comes with it.
pub const WELCOME: u32 = 4;
/// To a process: it may launch on `device`, by grant `epoch`.
pub const GRANT: u32 = 5;
/// To a process: give the token of `device` back.
pub const REVOKE: u32 = 6;

/// One message.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub kind: u32,
    /// The part of the page.
    pub device: u32,
    /// The grant.
    pub epoch: u64,
    /// See the kinds.
    pub value: u64,
}

const SIZE: usize = mem::size_of::<Message>();

/// Room for one descriptor with a message, as the kernel aligns it.
#[repr(C, align(8))]
struct Beside([u8; 64]);

/// A descriptor's length in bytes, as the kernel counts it.
const DESCRIPTOR_BYTES: u32 = 4;

/// Descriptors that come with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None: the kernel installs none in this process, however many were sent.
    Nothing,
    /// One at most.
    OneDescriptor,
}

/// A socket's address; a path too long for one is named by its folder's descriptor, which must
/// stay open while the address is used.
fn address(path: &Path) -> io::Result<(libc::sockaddr_un, Option<OwnedFd>)> {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
    let mut folder = None;
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if bytes.len() >= address.sun_path.len() {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("no path of a socket"));
        };
        let parent = std::ffi::CString::new(parent.as_os_str().as_bytes())?;
        // SAFETY: a C string; the descriptor is new.
        let fd = unsafe { libc::open(parent.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new and ours.
        folder = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        bytes = format!("/proc/self/fd/{fd}/").into_bytes();
        bytes.extend(name.as_bytes());
    }
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::other("the socket's name is too long"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Ok((address, folder))
}

fn socket(flags: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no memory is passed; the descriptor is new.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn length() -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(mem::size_of::<libc::sockaddr_un>()).map_err(io::Error::other)
}

/// Connects to the scheduler's socket.
///
/// # Errors
/// If nobody listens there.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (address, _folder) = address(path)?;
    let socket = socket(0)?;
    // SAFETY: `address` is one, of that length.
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length()?) };
    match done {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Listens at `path`, in the place of what is there.
///
/// # Errors
/// If the folder is not there or not writable.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (address, _folder) = address(path)?;
    let socket = socket(libc::SOCK_NONBLOCK)?;
    // SAFETY: as in `connect`.
    let done = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length()?) == 0
            && libc::listen(socket.as_raw_fd(), 64) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    // Who reaches the folder may connect: the folder is the container's.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    Ok(socket)
}

/// Takes a connection.
///
/// # Errors
/// If there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            ptr::null_mut(),
            ptr::null_mut(),
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a message, with a descriptor if one is given.
///
/// # Errors
/// If the other side is gone or does not read.
pub fn send(
    socket: BorrowedFd<'_>,
    message: Message,
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = libc::iovec {
        iov_base: (&raw const message).cast_mut().cast(),
        iov_len: SIZE,
    };
    let mut beside = Beside([0; 64]);
    // SAFETY: zeros are a header without a name.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut bytes;
    header.msg_iovlen = 1;
    if let Some(fd) = with {
        header.msg_control = (&raw mut beside).cast();
        // SAFETY: the room is larger than one descriptor needs; the kernel reads what is written.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            ptr::write_unaligned(libc::CMSG_DATA(first).cast::<i32>(), fd.as_raw_fd());
        }
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: header, bytes and room beside live until it returns.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    match usize::try_from(sent) {
        Ok(SIZE) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a message, and the descriptor that came with it; nothing when the other side is gone. The
/// kernel installs no more descriptors than `takes` says.
///
/// # Errors
/// If there is none (`WouldBlock`), if it has another length, or brings more descriptors than
/// `takes` says: the other side does not speak this protocol.
pub fn receive(
    socket: BorrowedFd<'_>,
    wait: bool,
    takes: Takes,
) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut message = Message::default();
    let mut bytes = libc::iovec {
        iov_base: (&raw mut message).cast(),
        iov_len: SIZE,
    };
    let mut beside = Beside([0; 64]);
    // SAFETY: zeros are a header without a name, and without room for descriptors.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut bytes;
    header.msg_iovlen = 1;
    if takes == Takes::OneDescriptor {
        header.msg_control = (&raw mut beside).cast();
        // Not `CMSG_SPACE`: its padding has room for a second one.
        // SAFETY: a number is computed.
        header.msg_controllen = unsafe { libc::CMSG_LEN(DESCRIPTOR_BYTES) } as _;
    }
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: header, bytes and room for a descriptor live until it returns.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut fd = None;
    // SAFETY: the kernel wrote the header that these macros read; a descriptor in it is this process's.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        if !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS
            && (*first).cmsg_len >= libc::CMSG_LEN(DESCRIPTOR_BYTES) as _
        {
            let raw = ptr::read_unaligned(libc::CMSG_DATA(first).cast::<i32>());
            fd = Some(OwnedFd::from_raw_fd(raw));
        }
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("more descriptors than are taken"));
    }
    let is_whole = header.msg_flags & libc::MSG_TRUNC == 0;
    match usize::try_from(got) {
        Ok(0) => Ok(None),
        Ok(SIZE) if is_whole => Ok(Some((message, fd))),
        _ => Err(io::Error::other("a message of another length")),
    }
}
