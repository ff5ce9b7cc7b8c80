//! The scheduler's server: one socket a container, one thread for all of them.
//!
//! 1. A process connects, says hello and gets a slot of its container's page.
//! 2. It asks for a device; a grant and later a revocation follow. The token belongs to the container: all of
//!    its processes are admitted, and the token is back when all have returned it.
//! 3. Use is read from the page when a grant ends.
//! 4. A process that ends, by its connection or descriptor, returns its tokens; uncounted use is charged as
//!    the time of holding.

mod clients;
mod tenant;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{io, ptr, thread};

use crate::page::now_ns;
use crate::scheduler::{Device, Input, Output, Scheduler, Settings, Tenant, Terms};
use clients::Client;
use tenant::Shared;

/// A container's part of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub uuid: String,
    pub terms: Terms,
    pub cap_bytes: Option<u64>,
}

/// A container that shares devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub name: String,
    /// Lies in a folder that the processes see.
    pub socket: PathBuf,
    /// At most [`crate::page::DEVICES`] parts.
    pub parts: Vec<Part>,
}

/// The use of a device by a container's processes, ended ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub launches: u64,
    pub busy_ns: u64,
    /// Includes pauses too short for another container.
    pub occupied_ns: u64,
    pub memory_bytes: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub refusals: u64,
    pub processes: u64,
    /// `None` for no cap.
    pub cap_bytes: Option<u64>,
}

/// An error of the token server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the scheduler of GPU tokens could not start")]
    Start(#[source] io::Error),
    #[error("container {name}: no socket for its GPU tokens at {}: is the folder there, and writable?", socket.display())]
    Share {
        /// Name of the container.
        name: String,
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("container {0} shares more devices than a page holds ({max})", max = crate::page::DEVICES)]
    TooMany(String),
}

/// Eighty containers with fifty processes each.
const MOST_CLIENTS: usize = 4096;

pub(crate) struct Inner {
    scheduler: Scheduler,
    tenants: BTreeMap<Tenant, Shared>,
    clients: BTreeMap<u64, Client>,
    devices: Vec<String>,
    next_tenant: u32,
    next_client: u64,
    wake: OwnedFd,
    most_clients: usize,
    /// Until then no connection is accepted.
    deaf_until_ns: u64,
    stopping: bool,
}

/// Each connection takes two descriptors, and half of the limit stays for everything else.
fn most_clients() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur / 4).map_or(MOST_CLIENTS, |it| it.min(MOST_CLIENTS))
}

/// The running server; dropping it stops it.
pub struct Server {
    inner: Arc<Mutex<Inner>>,
    /// One container is admitted at a time.
    sharing: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts the server without containers.
    /// # Errors
    /// If the kernel has no descriptor or thread for it.
    pub fn start(settings: Settings) -> Result<Self, ServerError> {
        // SAFETY: no memory is passed; the descriptor is new.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(ServerError::Start(io::Error::last_os_error()));
        }
        let inner = Arc::new(Mutex::new(Inner {
            scheduler: Scheduler::new(settings),
            tenants: BTreeMap::new(),
            clients: BTreeMap::new(),
            devices: Vec::new(),
            next_tenant: 0,
            next_client: 0,
            // SAFETY: the descriptor is new and owned.
            wake: unsafe { OwnedFd::from_raw_fd(fd) },
            most_clients: most_clients(),
            deaf_until_ns: 0,
            stopping: false,
        }));
        let served = Arc::clone(&inner);
        let thread = thread::Builder::new()
            .name("gpu-tokens".to_owned())
            .spawn(move || serve(&served))
            .map_err(ServerError::Start)?;
        Ok(Self {
            inner,
            sharing: Mutex::new(()),
            thread: Some(thread),
        })
    }

    /// Lets a container share devices, or changes its terms.
    /// # Errors
    /// If the container's socket cannot be made.
    pub fn share(&self, offer: &Offer) -> Result<(), ServerError> {
        if offer.parts.len() > crate::page::DEVICES {
            return Err(ServerError::TooMany(offer.name.clone()));
        }
        let _alone = self.sharing.lock();
        let is_known = lock(&self.inner).tenant(&offer.name).is_some();
        // File operations run outside the shared lock.
        let made = if is_known {
            None
        } else {
            let made = Shared::new(&offer.name, &offer.socket);
            Some(made.map_err(|source| ServerError::Share {
                name: offer.name.clone(),
                socket: offer.socket.clone(),
                source,
            })?)
        };
        let mut inner = lock(&self.inner);
        let devices: Vec<Device> = offer
            .parts
            .iter()
            .map(|it| inner.device(&it.uuid))
            .collect();
        let tenant = match (made, inner.tenant(&offer.name)) {
            (None, None) => return Ok(()),
            (None, Some(tenant)) => tenant,
            (Some(made), _) => {
                let tenant = Tenant(inner.next_tenant);
                inner.next_tenant += 1;
                inner.tenants.insert(tenant, made);
                tenant
            }
        };
        if let Some(shared) = inner.tenants.get_mut(&tenant) {
            shared.terms(&offer.parts, &devices);
        }
        for (part, device) in offer.parts.iter().zip(devices) {
            inner.step(Input::Joined {
                tenant,
                device,
                terms: part.terms,
            });
        }
        inner.wake();
        Ok(())
    }

    /// Forgets a container: its processes get no more messages.
    pub fn forget(&self, name: &str) {
        let mut inner = lock(&self.inner);
        let Some(tenant) = inner.tenant(name) else {
            return;
        };
        inner.clients.retain(|_, client| client.tenant != tenant);
        inner.tenants.remove(&tenant);
        inner.step(Input::Left { tenant });
        inner.wake();
    }

    /// Returns the pids of a container's connected processes, as this process sees them.
    #[must_use]
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let inner = lock(&self.inner);
        let known = inner.tenant(name);
        let clients = inner.clients.values();
        let its = clients.filter(|it| Some(it.tenant) == known);
        its.filter_map(|it| it.pid).collect()
    }

    /// Returns a container's use of each device, in the order of its parts; `None` if unknown.
    #[must_use]
    pub fn usage(&self, name: &str) -> Option<Vec<(String, Usage)>> {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let mut tenants = inner.tenants.iter_mut();
        let (tenant, shared) = tenants.find(|(_, it)| it.name == name)?;
        let clients = inner.clients.values();
        let slots: Vec<usize> = clients
            .filter(|it| it.tenant == *tenant)
            .filter_map(|it| it.slot)
            .collect();
        let names = |device: &Device| inner.devices.get(device.0 as usize).cloned();
        let names: Vec<_> = shared.devices.iter().map(names).collect();
        let usage = names.into_iter().enumerate();
        let usage =
            usage.map(|(part, name)| (name.unwrap_or_default(), shared.usage(part, &slots)));
        Some(usage.collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        {
            let mut inner = lock(&self.inner);
            inner.stopping = true;
            inner.wake();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn tenant(&self, name: &str) -> Option<Tenant> {
        let known = self.tenants.iter().find(|(_, it)| it.name == name);
        known.map(|(tenant, _)| *tenant)
    }

    fn device(&mut self, uuid: &str) -> Device {
        let known = self.devices.iter().position(|it| it == uuid);
        let index = known.unwrap_or_else(|| {
            self.devices.push(uuid.to_owned());
            self.devices.len() - 1
        });
        Device(u32::try_from(index).unwrap_or(u32::MAX))
    }

    fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of `one`.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn step(&mut self, input: Input) {
        let outputs = self.scheduler.step(now_ns(), input);
        for output in outputs {
            self.obey(output);
        }
    }

    fn obey(&mut self, output: Output) {
        match output {
            Output::Granted {
                tenant,
                device,
                epoch,
                until_ns,
            } => self.granted(tenant, device, epoch, until_ns),
            Output::Extended {
                tenant,
                device,
                until_ns,
            } => {
                if let Some(shared) = self.tenants.get(&tenant) {
                    shared.deadline(device, until_ns);
                }
            }
            Output::Revoked { tenant, device } => self.revoked(tenant, device),
            Output::Forfeited { tenant, device } => self.forfeited(tenant, device),
        }
    }

    fn tell_contended(&self) {
        for shared in self.tenants.values() {
            for (part, device) in shared.devices.iter().enumerate() {
                shared.contended(part, self.scheduler.contended(*device));
            }
        }
    }

    fn listener(&self, fd: RawFd) -> Option<Tenant> {
        let mut tenants = self.tenants.iter();
        let found = tenants.find(|(_, it)| it.listener.as_raw_fd() == fd);
        found.map(|(tenant, _)| *tenant)
    }

    fn ready(&mut self, fd: RawFd) {
        if fd == self.wake.as_raw_fd() {
            let mut count = 0_u64;
            // SAFETY: eight bytes of `count`.
            unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
        } else if let Some(tenant) = self.listener(fd) {
            self.connected(tenant);
        } else {
            self.heard(fd);
        }
    }

    fn descriptors(&self, now_ns: u64) -> Vec<libc::pollfd> {
        let hears = now_ns >= self.deaf_until_ns;
        let listeners = self.tenants.values().filter(|_| hears);
        let listeners = listeners.map(|it| it.listener.as_raw_fd());
        let clients = self.clients.values().flat_map(Client::descriptors);
        let all = std::iter::once(self.wake.as_raw_fd()).chain(listeners);
        all.chain(clients)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect()
    }
}

fn serve(inner: &Mutex<Inner>) {
    loop {
        let (mut fds, wake_ns) = {
            let mut inner = lock(inner);
            if inner.stopping {
                return;
            }
            let now = now_ns();
            let silent = inner.close_silent(now);
            inner.tell_contended();
            let wake = inner.scheduler.next_wake_ns(now);
            let deaf = Some(inner.deaf_until_ns).filter(|at| *at > now);
            let wake = [wake, silent, deaf].into_iter().flatten().min();
            (
                inner.descriptors(now),
                wake.map(|at| at.saturating_sub(now)),
            )
        };
        let timeout = wake_ns.map(|ns| libc::timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(1),
            // Below a second the remainder fits.
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
        // SAFETY: descriptors and timeout live until the call returns.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, ptr::null()) };
        let mut inner = lock(inner);
        for fd in fds.iter().filter(|it| it.revents != 0) {
            inner.ready(fd.fd);
        }
        inner.charge_all();
        inner.step(Input::Passed);
    }
}
