//! Messages between a process and the scheduler: fixed size, native byte order, over a Unix socket with
//! message boundaries.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{io, ptr};

/// Version of page and messages; others are refused.
pub const VERSION: u64 = 1;

/// From a process: a greeting; `value` is [`VERSION`].
pub const HELLO: u32 = 1;
/// From a process: there is work for `device`.
pub const WANT: u32 = 2;
/// From a process: the work of grant `epoch` is done.
pub const RETURN: u32 = 3;
/// To a process: `value` is its slot; the page's descriptor is attached.
pub const WELCOME: u32 = 4;
/// To a process: launches on `device` are allowed by grant `epoch`.
pub const GRANT: u32 = 5;
/// To a process: return the token of `device`.
pub const REVOKE: u32 = 6;

/// A message of fixed size.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Message {
    pub kind: u32,
    pub device: u32,
    pub epoch: u64,
    pub value: u64,
}

const SIZE: usize = mem::size_of::<Message>();

#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

const DESCRIPTOR_BYTES: u32 = 4;

/// The descriptors that a receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// The kernel installs none, however many were sent.
    Nothing,
    OneDescriptor,
}

/// A path that is too long goes through its folder's descriptor, which must stay open while the address is in
/// use.
fn address(path: &Path) -> io::Result<(libc::sockaddr_un, Option<OwnedFd>)> {
    // SAFETY: zeros are a valid address.
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
        // SAFETY: new and owned.
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
    // SAFETY: new and owned.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn length() -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(mem::size_of::<libc::sockaddr_un>()).map_err(io::Error::other)
}

/// Connects to the scheduler's socket.
/// # Errors
/// If nobody listens there.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (address, _folder) = address(path)?;
    let socket = socket(0)?;
    // SAFETY: `address` is valid and has this length.
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length()?) };
    match done {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Listens at `path`, replacing an existing socket.
/// # Errors
/// If the folder is missing or not writable.
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
    // The folder is the container's.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    Ok(socket)
}

/// Accepts a connection.
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
    // SAFETY: new and owned.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a message, with an optional descriptor.
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
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: zeros are a header without a name.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut bytes;
    header.msg_iovlen = 1;
    if let Some(fd) = with {
        header.msg_control = (&raw mut control).cast();
        // SAFETY: the buffer is larger than one descriptor needs; the kernel reads the written part.
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
    // SAFETY: header, bytes and buffer live until the call returns.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    match usize::try_from(sent) {
        Ok(SIZE) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives a message and its descriptor; `None` if the other side is gone. The kernel installs no more
/// descriptors than `takes` allows.
/// # Errors
/// If there is none (`WouldBlock`), or if length or descriptors violate the protocol.
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
    let mut control = ControlBuffer([0; 64]);
    // SAFETY: zeros are a header without a name, and without room for descriptors.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut bytes;
    header.msg_iovlen = 1;
    if takes == Takes::OneDescriptor {
        header.msg_control = (&raw mut control).cast();
        // Not `CMSG_SPACE`: its padding could hold a second descriptor. SAFETY: a number is computed.
        header.msg_controllen = unsafe { libc::CMSG_LEN(DESCRIPTOR_BYTES) } as _;
    }
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: header, bytes and buffer live until the call returns.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut fd = None;
    // SAFETY: the kernel wrote the header that these macros read; its descriptor belongs to this process.
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
