//! GPUs and tenants on a virtual clock: a holder runs its kernels in sequence.

use std::collections::BTreeMap;

use dormouse_gpu_share::scheduler::{Device, Input, Output, Scheduler, Settings, Tenant, Terms};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub const MS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// Kernels of up to this many ns, without pauses.
    Hungry(u64),
    /// A kernel of that many ns, then a pause.
    LaunchAndSync(u64, u64),
    Idle,
}

#[derive(Debug)]
pub struct Program {
    pub load: Load,
    /// Ignores revocations.
    pub stuck: bool,
    busy_until: Option<u64>,
    busy_from: u64,
    ready_at: u64,
    holds: bool,
    revoked: bool,
    wants: bool,
}

pub type Busy = (Tenant, Device, u64, u64);

pub struct World {
    pub now: u64,
    pub scheduler: Scheduler,
    pub programs: BTreeMap<(Tenant, Device), Program>,
    pub busy: Vec<Busy>,
    random: StdRng,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: 0,
            scheduler: Scheduler::new(Settings::default()),
            programs: BTreeMap::new(),
            busy: Vec::new(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub fn join(&mut self, tenant: u32, device: u32, (request, limit): (u32, u32), load: Load) {
        let (tenant, device) = (Tenant(tenant), Device(device));
        self.programs.insert(
            (tenant, device),
            Program {
                load,
                stuck: false,
                busy_until: None,
                busy_from: 0,
                ready_at: self.now,
                holds: false,
                revoked: false,
                wants: false,
            },
        );
        self.terms(tenant, device, (request, limit));
    }

    pub fn terms(&mut self, tenant: Tenant, device: Device, (request, limit): (u32, u32)) {
        let terms = Terms {
            request_milli: request,
            limit_milli: limit,
            weight: request,
        };
        self.step(Input::Joined {
            tenant,
            device,
            terms,
        });
    }

    pub fn kill(&mut self, tenant: Tenant) {
        self.programs.retain(|(it, device), program| {
            if *it == tenant && program.busy_until.is_some() {
                self.busy
                    .push((tenant, *device, program.busy_from, self.now));
            }
            *it != tenant
        });
        self.step(Input::Left { tenant });
    }

    fn step(&mut self, input: Input) {
        let outputs = self.scheduler.step(self.now, input);
        self.scheduler.check_invariants().expect("invariants");
        for output in outputs {
            self.obey(output);
        }
    }

    fn obey(&mut self, output: Output) {
        let (tenant, device) = match output {
            Output::Granted { tenant, device, .. }
            | Output::Extended { tenant, device, .. }
            | Output::Revoked { tenant, device }
            | Output::Forfeited { tenant, device } => (tenant, device),
        };
        let Some(program) = self.programs.get_mut(&(tenant, device)) else {
            panic!("{output:?} is for a tenant that is gone");
        };
        match output {
            Output::Granted { .. } => {
                program.holds = true;
                program.revoked = false;
            }
            Output::Extended { .. } => assert!(program.holds),
            Output::Revoked { .. } => program.revoked = true,
            Output::Forfeited { .. } => {
                program.holds = false;
                program.wants = false;
            }
        }
    }

    fn advance(&mut self, key: (Tenant, Device)) {
        let (tenant, device) = key;
        let now = self.now;
        let Some(program) = self.programs.get_mut(&key) else {
            return;
        };
        if program.busy_until.is_some_and(|until| now >= until) {
            program.busy_until = None;
            let used_ns = now - program.busy_from;
            self.busy.push((tenant, device, program.busy_from, now));
            if let Load::LaunchAndSync(_, pause) = program.load {
                program.ready_at = now + pause;
            }
            self.step(Input::Used {
                tenant,
                device,
                used_ns,
            });
        }
        let Some(program) = self.programs.get_mut(&key) else {
            return;
        };
        let idle = program.busy_until.is_none() && (now < program.ready_at || program.idle());
        if program.holds
            && !program.stuck
            && (idle || (program.revoked && program.busy_until.is_none()))
        {
            program.holds = false;
            program.wants = false;
            self.step(Input::Returned { tenant, device });
        }
        let Some(program) = self.programs.get_mut(&key) else {
            return;
        };
        let rests = program.idle() || program.stuck;
        let ready = !rests && now >= program.ready_at && program.busy_until.is_none();
        if ready && program.holds && !program.revoked {
            let length = match program.load {
                Load::Hungry(most) => self.random.random_range(most / 4..=most),
                Load::LaunchAndSync(length, _) => length,
                Load::Idle => 0,
            };
            program.busy_from = now;
            program.busy_until = Some(now + length);
        } else if ready && !program.holds && !program.wants {
            program.wants = true;
            self.step(Input::Wanted { tenant, device });
        }
    }

    pub fn run(&mut self, until: u64) {
        while self.now < until {
            let keys: Vec<_> = self.programs.keys().copied().collect();
            for key in keys {
                self.advance(key);
            }
            self.step(Input::Passed);
            let wakes = self.programs.values().filter_map(|it| it.wake(self.now));
            let next = wakes
                .chain(self.scheduler.next_wake_ns(self.now))
                .min()
                .unwrap_or(until);
            // Time passes in every round.
            self.now = next.clamp(self.now + 50_000, until.max(self.now + 50_000));
        }
    }

    pub fn used(&self, tenant: u32, device: u32, from: u64, until: u64) -> u64 {
        let of = |it: &&Busy| it.0 == Tenant(tenant) && it.1 == Device(device);
        let spans = self.busy.iter().filter(of);
        spans
            .map(|it| it.3.min(until).saturating_sub(it.2.max(from)))
            .sum()
    }

    pub fn share(&self, tenant: u32, from: u64, until: u64) -> f64 {
        self.used(tenant, 0, from, until) as f64 * 100.0 / (until - from) as f64
    }

    /// A device never runs two kernels at once.
    pub fn check_busy(&mut self) {
        self.busy.sort_by_key(|it| (it.1, it.2));
        for pair in self.busy.windows(2) {
            assert!(pair[0].1 != pair[1].1 || pair[0].3 <= pair[1].2, "{pair:?}");
        }
    }
}

impl Program {
    fn idle(&self) -> bool {
        matches!(self.load, Load::Idle)
    }

    fn wake(&self, now: u64) -> Option<u64> {
        match self.busy_until {
            Some(until) => Some(until),
            None if self.stuck => None,
            None if self.idle() => self.holds.then_some(now),
            None if self.ready_at > now => Some(self.ready_at),
            None if self.holds => Some(now),
            None => (!self.wants).then_some(now),
        }
    }
}
