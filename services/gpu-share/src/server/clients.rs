//! Connected processes: identity, wants and holds.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::{io, mem};

use super::Inner;
use super::tenant::Grant;
use crate::page::{DEVICES, SLOTS, now_ns};
use crate::scheduler::{Device, Input, SECOND_NS, Tenant};
use crate::wire::{self, Message};

/// Processes say hello at once.
const SILENT_NS: u64 = 5 * SECOND_NS;

/// Pause of accepting after descriptors ran out.
const DEAF_NS: u64 = SECOND_NS / 10;

/// A connected process.
pub struct Client {
    pub tenant: Tenant,
    socket: OwnedFd,
    pub pid: Option<u32>,
    /// Signals the end even while a child holds the socket.
    process: Option<OwnedFd>,
    since_ns: u64,
    pub slot: Option<usize>,
    wants: [bool; DEVICES],
    holds: [Option<u64>; DEVICES],
}

impl Client {
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + use<> {
        let process = self.process.as_ref().map(AsRawFd::as_raw_fd);
        std::iter::once(self.socket.as_raw_fd()).chain(process)
    }

    fn tell(&self, kind: u32, part: usize, epoch: u64) {
        let message = Message {
            kind,
            device: u32::try_from(part).unwrap_or(u32::MAX),
            epoch,
            value: 0,
        };
        // A process that does not read ends, or forfeits the token.
        let _ = wire::send(self.socket.as_fd(), message, None);
    }
}

fn number_of(socket: &OwnedFd) -> Option<u32> {
    // SAFETY: zeros are valid credentials.
    let mut who: libc::ucred = unsafe { mem::zeroed() };
    let mut length = libc::socklen_t::try_from(mem::size_of::<libc::ucred>()).ok()?;
    // SAFETY: `who` has that length.
    let known = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    let number = u32::try_from(who.pid).ok();
    number.filter(|pid| known == 0 && *pid > 0)
}

fn process_of(pid: u32) -> Option<OwnedFd> {
    // SAFETY: numbers only; the descriptor is new.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor is new and owned.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Inner {
    pub(super) fn connected(&mut self, tenant: Tenant) {
        let Some(shared) = self.tenants.get(&tenant) else {
            return;
        };
        let socket = match wire::accept(shared.listener.as_fd()) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptor is left, and the listener stays readable.
                self.deaf_until_ns = now_ns() + DEAF_NS;
                return;
            }
        };
        if !self.has_place(tenant) {
            // The process limits itself to the container's request.
            return;
        }
        let pid = number_of(&socket);
        let client = Client {
            tenant,
            pid,
            process: pid.and_then(process_of),
            socket,
            since_ns: now_ns(),
            slot: None,
            wants: [false; DEVICES],
            holds: [None; DEVICES],
        };
        self.clients.insert(self.next_client, client);
        self.next_client += 1;
    }

    /// When all places are taken, the largest container's newest process gives way to a smaller container.
    fn has_place(&mut self, tenant: Tenant) -> bool {
        let count = |tenant| {
            self.clients
                .values()
                .filter(|it| it.tenant == tenant)
                .count()
        };
        let own = count(tenant);
        if own >= SLOTS {
            return false;
        }
        if self.clients.len() < self.most_clients {
            return true;
        }
        let most = self.tenants.keys().map(|it| (count(*it), *it)).max();
        let Some((_, largest)) = most.filter(|(theirs, _)| *theirs > own + 1) else {
            return false;
        };
        let its = self.clients.iter().filter(|(_, it)| it.tenant == largest);
        if let Some(newest) = its.map(|(id, _)| *id).max() {
            self.lost(newest);
        }
        true
    }

    pub(super) fn close_silent(&mut self, now_ns: u64) -> Option<u64> {
        let silent = self.clients.iter().filter(|(_, it)| it.slot.is_none());
        let ends = silent.map(|(id, it)| (it.since_ns.saturating_add(SILENT_NS), *id));
        let (over, waiting): (Vec<_>, Vec<_>) = ends.partition(|(at, _)| *at <= now_ns);
        for (_, id) in over {
            self.lost(id);
        }
        waiting.into_iter().map(|(at, _)| at).min()
    }

    pub(super) fn heard(&mut self, fd: RawFd) {
        let mut clients = self.clients.iter();
        let Some((&id, client)) = clients.find(|(_, it)| it.descriptors().any(|its| its == fd))
        else {
            return;
        };
        if client.socket.as_raw_fd() != fd {
            self.lost(id);
            return;
        }
        match wire::receive(client.socket.as_fd(), false, wire::Takes::Nothing) {
            Ok(Some((message, _))) => self.said(id, message),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => self.lost(id),
        }
    }

    fn said(&mut self, id: u64, message: Message) {
        let part = message.device as usize;
        match message.kind {
            wire::HELLO if message.value == wire::VERSION && !self.is_greeted(id) => {
                self.greeted(id);
            }
            wire::WANT if part < DEVICES => self.wanted(id, part),
            wire::RETURN if part < DEVICES => self.returned(id, part, message.epoch),
            _ => self.lost(id),
        }
    }

    fn is_greeted(&self, id: u64) -> bool {
        self.clients.get(&id).is_some_and(|it| it.slot.is_some())
    }

    fn greeted(&mut self, id: u64) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let tenant = client.tenant;
        let others = self.clients.values().filter(|it| it.tenant == tenant);
        let taken: Vec<usize> = others.filter_map(|it| it.slot).collect();
        let free = (0..SLOTS).find(|slot| !taken.contains(slot));
        let (Some(slot), Some(shared)) = (free, self.tenants.get(&tenant)) else {
            // The process limits itself to the container's request.
            self.lost(id);
            return;
        };
        let message = Message {
            kind: wire::WELCOME,
            value: slot as u64,
            ..Message::default()
        };
        let with = Some(shared.page_fd.as_fd());
        let sent = wire::send(client.socket.as_fd(), message, with);
        if let Some(client) = self.clients.get_mut(&id) {
            client.slot = Some(slot);
        }
        if sent.is_err() {
            self.lost(id);
        }
    }

    fn wanted(&mut self, id: u64, part: usize) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let tenant = client.tenant;
        let Some(shared) = self.tenants.get(&tenant) else {
            return;
        };
        let Some(&device) = shared.devices.get(part) else {
            return;
        };
        match shared.grants[part] {
            Some(grant) if !grant.revoked => {
                client.holds[part] = Some(grant.epoch);
                client.tell(wire::GRANT, part, grant.epoch);
            }
            Some(_) => client.wants[part] = true,
            None => {
                client.wants[part] = true;
                self.step(Input::Wanted { tenant, device });
            }
        }
    }

    fn returned(&mut self, id: u64, part: usize, epoch: u64) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let tenant = client.tenant;
        if client.holds[part] != Some(epoch) {
            return;
        }
        client.holds[part] = None;
        self.charge(tenant, part, 0);
        self.let_go(tenant, part);
    }

    fn let_go(&mut self, tenant: Tenant, part: usize) {
        let mut clients = self.clients.values().filter(|it| it.tenant == tenant);
        if clients.any(|it| it.holds[part].is_some()) {
            return;
        }
        let mut clients = self.clients.values().filter(|it| it.tenant == tenant);
        let wanted = clients.any(|it| it.wants[part]);
        let Some(shared) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let Some(&device) = shared.devices.get(part) else {
            return;
        };
        let had = shared.grants[part].take().is_some();
        if had || !wanted {
            self.step(Input::Returned { tenant, device });
        }
        if wanted {
            self.step(Input::Wanted { tenant, device });
        }
    }

    fn lost(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let now = now_ns();
        for part in 0..DEVICES {
            if client.holds[part].is_none() {
                continue;
            }
            self.charge(client.tenant, part, 0);
            let grants = self.tenants.get(&client.tenant).map(|it| it.grants[part]);
            if let Some(Some(grant)) = grants {
                let held_ns = now.saturating_sub(grant.since_ns);
                let uncounted_ns = held_ns.saturating_sub(grant.charged_ns);
                self.charge(client.tenant, part, uncounted_ns);
            }
        }
        if let (Some(slot), Some(shared)) = (client.slot, self.tenants.get_mut(&client.tenant)) {
            shared.clear(slot);
        }
        for part in 0..DEVICES {
            if client.holds[part].is_some() || client.wants[part] {
                self.let_go(client.tenant, part);
            }
        }
    }

    /// Includes `more_ns`.
    fn charge(&mut self, tenant: Tenant, part: usize, more_ns: u64) {
        let Some(shared) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let Some(&device) = shared.devices.get(part) else {
            return;
        };
        let occupied_ns = shared.occupied_ns(part);
        // A process can lower its counters: that refunds nothing.
        let counted_ns = occupied_ns.saturating_sub(shared.charged_ns[part]);
        let used_ns = counted_ns.saturating_add(more_ns);
        shared.charged_ns[part] = occupied_ns.max(shared.charged_ns[part]);
        if let Some(grant) = &mut shared.grants[part] {
            grant.charged_ns = grant.charged_ns.saturating_add(used_ns);
        }
        if used_ns > 0 {
            self.step(Input::Used {
                tenant,
                device,
                used_ns,
            });
        }
    }

    /// Called before time advances.
    pub(super) fn charge_all(&mut self) {
        let holders: Vec<(Tenant, usize)> = self
            .tenants
            .iter()
            .flat_map(|(tenant, shared)| {
                let held = shared.grants.iter().enumerate();
                let held = held.filter(|(_, grant)| grant.is_some());
                held.map(|(part, _)| (*tenant, part))
            })
            .collect();
        for (tenant, part) in holders {
            self.charge(tenant, part, 0);
        }
    }

    pub(super) fn granted(&mut self, tenant: Tenant, device: Device, epoch: u64, until_ns: u64) {
        let Some(shared) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let Some(part) = shared.part(device) else {
            return;
        };
        shared.grants[part] = Some(Grant {
            epoch,
            since_ns: now_ns(),
            charged_ns: 0,
            revoked: false,
        });
        shared.page.parts[part].epoch.store(epoch, Relaxed);
        shared.deadline(device, until_ns);
        let clients = self.clients.values_mut();
        for client in clients.filter(|it| it.tenant == tenant && it.wants[part]) {
            client.wants[part] = false;
            client.holds[part] = Some(epoch);
            client.tell(wire::GRANT, part, epoch);
        }
    }

    pub(super) fn revoked(&mut self, tenant: Tenant, device: Device) {
        let Some(shared) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let Some(part) = shared.part(device) else {
            return;
        };
        if let Some(grant) = &mut shared.grants[part] {
            grant.revoked = true;
        }
        let clients = self.clients.values().filter(|it| it.tenant == tenant);
        for client in clients.filter(|it| it.holds[part].is_some()) {
            client.tell(wire::REVOKE, part, client.holds[part].unwrap_or(0));
        }
    }

    /// The grant is charged, and late returns are ignored.
    pub(super) fn forfeited(&mut self, tenant: Tenant, device: Device) {
        let Some(shared) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let Some(part) = shared.part(device) else {
            return;
        };
        let grant = shared.grants[part].take();
        let clients = self.clients.values_mut();
        for client in clients.filter(|it| it.tenant == tenant) {
            client.holds[part] = None;
        }
        let held_ns = grant.map_or(0, |it| {
            let held_ns = now_ns().saturating_sub(it.since_ns);
            held_ns.saturating_sub(it.charged_ns)
        });
        self.charge(tenant, part, held_ns);
        // Waiting processes still wait.
        let mut clients = self.clients.values().filter(|it| it.tenant == tenant);
        if clients.any(|it| it.wants[part]) {
            self.step(Input::Wanted { tenant, device });
        }
    }
}
