//! Hostile containers: everything that socket and page allow.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, mem, ptr};

use dormouse_gpu_share::page::{Mapped, SLOTS};
use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server};
use dormouse_gpu_share::wire::{self, Message, Takes};

/// Tests count this process's descriptors.
static ONE: Mutex<()> = Mutex::new(());

struct World {
    folder: PathBuf,
    server: Server,
    _one: MutexGuard<'static, ()>,
}

impl World {
    fn new(name: &str) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let server = Server::start(Settings::default()).expect("a server");
        Self {
            folder,
            server,
            _one: one,
        }
    }

    fn share(&self, name: &str) -> PathBuf {
        let socket = self.folder.join(name);
        let terms = Terms {
            request_milli: 500,
            limit_milli: 500,
            weight: 500,
        };
        let part = Part {
            uuid: "GPU-d0000000-0000-0000-0000-000000000000".to_owned(),
            terms,
            cap_bytes: Some(1 << 30),
        };
        let offer = Offer {
            name: name.to_owned(),
            socket: socket.clone(),
            parts: vec![part],
        };
        self.server.share(&offer).expect("shared");
        socket
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("listed").count()
}

fn hello() -> Message {
    Message {
        kind: wire::HELLO,
        value: wire::VERSION,
        ..Message::default()
    }
}

fn greeted(socket: &Path) -> Option<(OwnedFd, Mapped, usize)> {
    let socket = wire::connect(socket).expect("connected");
    wire::send(socket.as_fd(), hello(), None).ok()?;
    let (welcome, page) = wire::receive(socket.as_fd(), true, Takes::OneDescriptor).ok()??;
    let page = Mapped::map(Some(page?.as_fd())).expect("a page");
    Some((
        socket,
        page,
        usize::try_from(welcome.value).expect("a slot"),
    ))
}

fn send_with(socket: &OwnedFd, mut message: Message, descriptors: usize) {
    let mut bytes = libc::iovec {
        iov_base: (&raw mut message).cast(),
        iov_len: mem::size_of::<Message>(),
    };
    let length = u32::try_from(descriptors * 4).expect("few");
    let mut control = vec![0_u64; 64];
    // SAFETY: zeros are a valid header; message and buffer live until the call returns, and the buffer is
    // larger than its contents.
    unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut bytes;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(length) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(length) as _;
        let data = libc::CMSG_DATA(first).cast::<i32>();
        for index in 0..descriptors {
            ptr::write_unaligned(data.add(index), socket.as_raw_fd());
        }
        let sent = libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
        assert!(sent > 0);
    }
}

fn is_closed(socket: &OwnedFd) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        match wire::receive(socket.as_fd(), false, Takes::Nothing) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return true,
        }
    }
    false
}

#[test]
fn descriptors_that_nobody_asked_for_are_never_open_here_and_close_the_connection() {
    let world = World::new("gpu-descriptors");
    let socket = world.share("ads");
    let before = open_descriptors();
    for _ in 0..20 {
        let own = wire::connect(&socket).expect("connected");
        send_with(&own, hello(), 12);
        assert!(is_closed(&own));
    }
    let one = greeted(&socket).expect("one that keeps to the protocol is served");
    drop(one);
    let begun = Instant::now();
    while open_descriptors() > before {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{} stay open",
            open_descriptors() - before
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_takes_one_descriptor_is_given_no_second_one() {
    let world = World::new("gpu-second");
    let (own, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (own, other) = (OwnedFd::from(own), OwnedFd::from(other));
    let before = open_descriptors();
    send_with(&other, hello(), 2);
    let refused = wire::receive(own.as_fd(), true, Takes::OneDescriptor);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(open_descriptors(), before);
    send_with(&other, hello(), 1);
    let taken = wire::receive(own.as_fd(), true, Takes::OneDescriptor).expect("received");
    assert!(matches!(taken, Some((_, Some(_)))));
    drop(world);
}

#[test]
fn a_message_of_another_length_closes_the_connection() {
    let world = World::new("gpu-length");
    let socket = world.share("ads");
    for length in [1, 4096] {
        let own = wire::connect(&socket).expect("connected");
        let bytes = vec![1_u8; length];
        // SAFETY: the buffer has this length.
        let sent = unsafe { libc::send(own.as_raw_fd(), bytes.as_ptr().cast(), length, 0) };
        assert!(sent > 0);
        assert!(is_closed(&own), "{length}");
    }
}

#[test]
fn one_container_has_so_many_connections_and_silent_ones_are_closed() {
    let world = World::new("gpu-connections");
    let (ads, search) = (world.share("ads"), world.share("search"));
    let before = open_descriptors();
    let silent: Vec<_> = (0..3 * SLOTS)
        .map(|_| wire::connect(&ads).expect("connected"))
        .collect();
    let _other = greeted(&search).expect("others are served");
    // Each accepted connection has its socket and its process's descriptor.
    let here = open_descriptors() - before - silent.len() - 3;
    assert!(here <= 2 * SLOTS, "{here}");
    assert!(greeted(&ads).is_none(), "there is no place");
    assert!(silent.iter().all(is_closed));
    greeted(&ads).expect("a place is free again");
}

#[test]
fn counters_that_a_container_writes_are_bounded_by_time_and_never_become_less() {
    let world = World::new("gpu-counters");
    let begun = Instant::now();
    let socket = world.share("ads");
    let clients: Vec<_> = (0..2).map(|_| greeted(&socket).expect("greeted")).collect();
    let write = |number: u64| {
        for (_, page, slot) in &clients {
            let counters = &page.slots[*slot].counters[0];
            for word in [
                &counters.launches,
                &counters.busy_ns,
                &counters.occupied_ns,
                &counters.waits,
                &counters.waited_ns,
                &counters.refusals,
                &page.parts[0].memory_bytes,
                &page.parts[0].cap_bytes,
            ] {
                word.store(number, Relaxed);
            }
        }
    };
    let used = || {
        let usage = world.server.usage("ads").expect("known");
        let passed = u64::try_from(begun.elapsed().as_nanos()).expect("short");
        (usage[0].1, passed)
    };
    write(u64::MAX);
    let (first, passed) = used();
    for number in [
        first.launches,
        first.busy_ns,
        first.occupied_ns,
        first.waits,
        first.refusals,
    ] {
        assert!(
            number > 0 && number <= passed,
            "{first:?}, {passed} ns have passed"
        );
    }
    assert!(first.waited_ns <= passed * SLOTS as u64, "{first:?}");
    assert_eq!(
        (first.memory_bytes, first.cap_bytes),
        (1 << 30, Some(1 << 30))
    );
    write(1);
    let (second, _) = used();
    assert!(second.busy_ns >= first.busy_ns && second.launches >= first.launches);
    // Counters written between grant and return are charged.
    let (own, _, _) = &clients[0];
    let want = Message {
        kind: wire::WANT,
        ..Message::default()
    };
    wire::send(own.as_fd(), want, None).expect("sent");
    let granted = wire::receive(own.as_fd(), true, Takes::Nothing).expect("granted");
    let epoch = granted.expect("a grant").0.epoch;
    write(u64::MAX);
    let back = Message {
        kind: wire::RETURN,
        epoch,
        ..Message::default()
    };
    wire::send(own.as_fd(), back, None).expect("sent");
    drop(clients);
    let (last, passed) = used();
    assert!(last.occupied_ns <= passed, "{last:?}");
    greeted(&socket).expect("the server serves on");
}
