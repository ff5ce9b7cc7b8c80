//! Decides who holds the token of each GPU, and for how long.
//!
//! 1. Each tenant has an account filled by its request and one filled by its limit; use empties both
//!    ([`account`]).
//! 2. A tenant at its limit waits.
//! 3. Tenants below their request come first, by the largest missing part. The rest is shared by weight.
//! 4. A grant lasts a quantum; a grant of the rest ends early when somebody below its request waits. A holder
//!    chosen again keeps the token.
//! 5. A holder that does not return a revoked token within [`Settings::patience_ns`] forfeits it.
//!
//! Invariant: a device has at most one holder, and a tenant that wants a device and is below its limit gets
//! it. `server` counts processes, `preload` measures use, `page` handles memory.

mod account;
mod protocol;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use account::{Account, Pass};
pub use protocol::{Device, Input, Output, SECOND_NS, Settings, Tenant, Terms};

#[derive(Debug, Clone)]
struct Member {
    wants: bool,
    account: Account,
    /// Among equals, the longest waiting comes first.
    last_epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Free,
    Held { by: Tenant, until_ns: u64 },
    Revoking { by: Tenant, patience_ends_ns: u64 },
}

#[derive(Debug, Clone)]
struct Shared {
    members: BTreeMap<Tenant, Member>,
    hold: Hold,
    epoch: u64,
    /// A returning tenant does not catch up on the rest.
    pass: Pass,
}

/// The tenants and the token of each device.
#[derive(Debug, Clone)]
pub struct Scheduler {
    settings: Settings,
    devices: BTreeMap<Device, Shared>,
}

impl Scheduler {
    /// Starts without tenants.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            devices: BTreeMap::new(),
        }
    }

    /// Takes an input at `now_ns` and returns the actions. Times do not go back.
    pub fn step(&mut self, now_ns: u64, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.take_in(now_ns, input);
        for (&device, shared) in &mut self.devices {
            shared.advance(&self.settings, now_ns, device, &mut outputs);
        }
        self.devices.retain(|_, shared| !shared.members.is_empty());
        outputs
    }

    fn take_in(&mut self, now_ns: u64, input: Input) {
        match input {
            Input::Joined {
                tenant,
                device,
                terms,
            } => {
                let settings = self.settings;
                let shared = self.devices.entry(device).or_insert_with(Shared::new);
                let pass = shared.pass;
                let member = shared.members.entry(tenant).or_insert_with(|| Member {
                    wants: false,
                    account: Account::new(now_ns, terms),
                    last_epoch: 0,
                });
                member.account.change(&settings, now_ns, terms);
                member.account.pass = member.account.pass.max(pass);
            }
            Input::Left { tenant } => {
                for shared in self.devices.values_mut() {
                    shared.members.remove(&tenant);
                    shared.let_go(tenant);
                }
            }
            Input::Wanted { tenant, device } => {
                let settings = self.settings;
                if let Some(shared) = self.devices.get_mut(&device)
                    && let Some(member) = shared.members.get_mut(&tenant)
                {
                    member.wants = true;
                    let behind = shared.pass - member.account.step(&settings);
                    member.account.pass = member.account.pass.max(behind);
                }
            }
            Input::Returned { tenant, device } => {
                if let Some(member) = self.member(tenant, device) {
                    member.wants = false;
                }
                if let Some(shared) = self.devices.get_mut(&device) {
                    shared.let_go(tenant);
                }
            }
            Input::Used {
                tenant,
                device,
                used_ns,
            } => {
                let settings = self.settings;
                if let Some(member) = self.member(tenant, device) {
                    member.account.fill(&settings, now_ns);
                    member.account.used(&settings, used_ns);
                }
            }
            Input::Passed => {}
        }
    }

    fn member(&mut self, tenant: Tenant, device: Device) -> Option<&mut Member> {
        self.devices.get_mut(&device)?.members.get_mut(&tenant)
    }

    /// Returns when time alone changes something next.
    #[must_use]
    pub fn next_wake_ns(&self, now_ns: u64) -> Option<u64> {
        let each = self.devices.values();
        each.filter_map(|shared| shared.wake(&self.settings))
            .min()
            .map(|at_ns| at_ns.max(now_ns))
    }

    /// Returns the holder of a device's token.
    #[must_use]
    pub fn holder(&self, device: Device) -> Option<Tenant> {
        match self.devices.get(&device)?.hold {
            Hold::Free => None,
            Hold::Held { by, .. } | Hold::Revoking { by, .. } => Some(by),
        }
    }

    /// True if somebody waits for a device's token.
    #[must_use]
    pub fn contended(&self, device: Device) -> bool {
        let holder = self.holder(device);
        self.devices.get(&device).is_some_and(|shared| {
            let mut members = shared.members.iter();
            members.any(|(tenant, member)| member.wants && Some(*tenant) != holder)
        })
    }

    /// Checks the invariants.
    /// # Errors
    /// If a holder is no member, or a free device has an eligible tenant.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (device, shared) in &self.devices {
            match shared.hold {
                Hold::Held { by, .. } | Hold::Revoking { by, .. } => {
                    if !shared.members.contains_key(&by) {
                        return Err(format!("{device:?} is held by {by:?}, who is gone"));
                    }
                }
                Hold::Free => {
                    if let Some(Chosen { tenant, .. }) = shared.choose(&self.settings) {
                        return Err(format!("{device:?} is free while {tenant:?} waits"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Shared {
    const fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            hold: Hold::Free,
            epoch: 0,
            pass: 0,
        }
    }

    fn let_go(&mut self, tenant: Tenant) {
        match self.hold {
            Hold::Held { by, .. } | Hold::Revoking { by, .. } if by == tenant => {
                self.hold = Hold::Free;
            }
            _ => {}
        }
    }

    fn advance(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        device: Device,
        outputs: &mut Vec<Output>,
    ) {
        for member in self.members.values_mut() {
            member.account.fill(settings, now_ns);
        }
        match self.hold {
            Hold::Held { by, until_ns } if now_ns >= until_ns || self.yields(by, settings) => {
                match self.choose(settings) {
                    Some(chosen) if chosen.tenant == by => {
                        let until_ns = now_ns + chosen.grant_ns;
                        self.give(chosen, until_ns);
                        outputs.push(Output::Extended {
                            tenant: by,
                            device,
                            until_ns,
                        });
                    }
                    _ => {
                        let patience_ends_ns = now_ns + settings.patience_ns;
                        self.hold = Hold::Revoking {
                            by,
                            patience_ends_ns,
                        };
                        outputs.push(Output::Revoked { tenant: by, device });
                    }
                }
            }
            Hold::Revoking {
                by,
                patience_ends_ns,
            } if now_ns >= patience_ends_ns => {
                if let Some(member) = self.members.get_mut(&by) {
                    member.wants = false;
                }
                self.hold = Hold::Free;
                outputs.push(Output::Forfeited { tenant: by, device });
            }
            _ => {}
        }
        if self.hold != Hold::Free {
            return;
        }
        let Some(chosen) = self.choose(settings) else {
            return;
        };
        self.epoch += 1;
        let until_ns = now_ns + chosen.grant_ns;
        self.give(chosen, until_ns);
        outputs.push(Output::Granted {
            tenant: chosen.tenant,
            device,
            epoch: self.epoch,
            until_ns,
        });
    }

    /// Otherwise a program that pauses between bursts would wait a quantum after each.
    fn yields(&self, by: Tenant, settings: &Settings) -> bool {
        let holds_the_rest = |it: &Member| !it.account.by_request;
        let waits = |(tenant, member): (&Tenant, &Member)| {
            let account = &member.account;
            let below = account.lacks(settings) && !account.at_limit(settings);
            *tenant != by && member.wants && below
        };
        self.members.get(&by).is_some_and(holds_the_rest) && self.members.iter().any(waits)
    }

    fn give(&mut self, chosen: Chosen, until_ns: u64) {
        let by = chosen.tenant;
        self.hold = Hold::Held { by, until_ns };
        if let Some(member) = self.members.get_mut(&by) {
            member.last_epoch = self.epoch;
            member.account.by_request = chosen.lacks;
            if !chosen.lacks {
                self.pass = self.pass.max(member.account.pass);
            }
        }
    }

    fn choose(&self, settings: &Settings) -> Option<Chosen> {
        let wanting = self.members.iter().filter(|(_, member)| member.wants);
        let free = wanting.filter(|(_, member)| !member.account.at_limit(settings));
        let (tenant, member) = free.min_by(|(_, a), (_, b)| a.order(b, settings))?;
        Some(Chosen {
            tenant: *tenant,
            lacks: member.account.lacks(settings),
            grant_ns: member.account.quantum_ns(settings),
        })
    }

    fn wake(&self, settings: &Settings) -> Option<u64> {
        match self.hold {
            Hold::Held { until_ns, .. } => Some(until_ns),
            Hold::Revoking {
                patience_ends_ns, ..
            } => Some(patience_ends_ns),
            Hold::Free => {
                let wanting = self.members.values().filter(|it| it.wants);
                wanting
                    .filter_map(|it| it.account.free_at_ns(settings))
                    .min()
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    tenant: Tenant,
    lacks: bool,
    grant_ns: u64,
}

impl Member {
    /// Below the request first, by the largest missing part; then the least use of the rest, by weight; then
    /// the longest wait.
    fn order(&self, other: &Self, settings: &Settings) -> Ordering {
        let (mine, theirs) = (&self.account, &other.account);
        let lacks = mine.lacks(settings);
        let tiers = theirs.lacks(settings).cmp(&lacks);
        let within = if lacks {
            theirs.lacking().cmp(&mine.lacking())
        } else {
            mine.pass.cmp(&theirs.pass)
        };
        let waited = self.last_epoch.cmp(&other.last_epoch);
        tiers.then(within).then(waited)
    }
}
