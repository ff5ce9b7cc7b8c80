//! The link to the scheduler: socket and page, or a private page where no agent answers.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use dormouse_gpu_share::page::{Counters, Mapped, Page, uuid_numbers};
use dormouse_gpu_share::wire::{self, Message, Takes};

#[derive(Debug)]
pub struct Link {
    pub page: Mapped,
    pub slot: usize,
    pub socket: Option<OwnedFd>,
}

impl Link {
    #[must_use]
    pub fn connect(path: &OsString) -> Option<Self> {
        let socket = wire::connect(Path::new(path)).ok()?;
        let hello = Message {
            kind: wire::HELLO,
            value: wire::VERSION,
            ..Message::default()
        };
        wire::send(socket.as_fd(), hello, None).ok()?;
        let (welcome, fd) = loop {
            match wire::receive(socket.as_fd(), true, Takes::OneDescriptor) {
                Ok(Some(it)) => break it,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        };
        let slot = usize::try_from(welcome.value).ok()?;
        if welcome.kind != wire::WELCOME || slot >= dormouse_gpu_share::page::SLOTS {
            return None;
        }
        let page = Mapped::map(Some(fd?.as_fd())).ok()?;
        Some(Self {
            page,
            slot,
            socket: Some(socket),
        })
    }

    /// Takes request and cap from the environment.
    #[must_use]
    pub fn alone() -> Option<Self> {
        let page = Mapped::map(None).ok()?;
        let text = |name: &str| std::env::var(name).unwrap_or_default();
        let milli = |name: &str| {
            text(name)
                .parse::<f64>()
                .map_or(0, |it| (it * 1000.0) as u32)
        };
        let devices = text("DORMOUSE_GPUS");
        let parts = page.parts.iter().zip(devices.split(','));
        for (part, uuid) in parts {
            let [first, second] = uuid_numbers(uuid);
            part.uuid[0].store(first, Relaxed);
            part.uuid[1].store(second, Relaxed);
            let request = milli("DORMOUSE_GPU_REQUEST");
            part.request_milli.store(request, Relaxed);
            let limit = milli("DORMOUSE_GPU_LIMIT").max(request);
            part.limit_milli.store(limit, Relaxed);
            let cap = text("DORMOUSE_GPU_MEMORY").parse().unwrap_or(u64::MAX);
            part.cap_bytes.store(cap, Relaxed);
            part.shared.store(1, Relaxed);
        }
        Some(Self {
            page,
            slot: 0,
            socket: None,
        })
    }

    #[must_use]
    pub fn counters(&self, part: usize) -> &Counters {
        &self.page.slots[self.slot].counters[part]
    }

    /// Returns false if nobody receives the message.
    pub fn say(&self, kind: u32, part: usize, epoch: u64) -> bool {
        let message = Message {
            kind,
            device: u32::try_from(part).unwrap_or(u32::MAX),
            epoch,
            value: 0,
        };
        let socket = self.socket.as_ref();
        socket.is_some_and(|it| wire::send(it.as_fd(), message, None).is_ok())
    }

    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }
}
