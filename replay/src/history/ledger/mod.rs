//! Computes what every tenant and job was entitled to, used, lent and lost in a time window.
//!
//! 1. The services' own [`ClusterState`] folds the log. Between two events nothing changes, so every
//!    amount is a rate times a time, in integers.
//! 2. [`account`] follows each job's containers per incarnation.
//! 3. [`shares`] compares each tenant's use with its weight's part of the capacity, and splits the
//!    borrowed amounts over the unused ones in proportion. `table` formats the result.
//!
//! Invariants, exact for each resource: capacity = used + idle + down; used = Σ tenants' use = Σ parts;
//! Σ entitled = capacity; Σ unused = Σ borrowed + idle + down; Σ lent = Σ borrowed. The ledgers of
//! adjoining windows add up.

mod account;
mod shares;
mod table;

use std::collections::BTreeMap;

use dormouse_messages::events::ContainerGpuUsed;
use dormouse_messages::{Amounts, Event, Fold, JobId, Recorded, Resource, TenantId, Timestamp};
use dormouse_projections::status::job_of;
use dormouse_state::{ClusterState, NodePhase};

use account::{Account, Window};
pub use account::{GpuRow, Parts};
use shares::{apportion, lent};
pub use table::{CapacityRow, CostRow, JobRow, LedgerTable, PartsRow, TenantRow, UnitMs};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Capacity {
    capacity: u128,
    used: u128,
    idle: u128,
    down: u128,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entitlement {
    entitled: u128,
    used: u128,
    borrowed: u128,
    unused: u128,
    lent: u128,
}

#[derive(Debug, Clone, Default)]
struct Offer {
    /// Includes held amounts of nodes that have shrunk.
    capacity: BTreeMap<Resource, u64>,
    /// The unheld part on unusable nodes.
    down: BTreeMap<Resource, u64>,
}

/// The ledger of one window while reading a log.
pub struct Ledger {
    window: Window,
    cluster: ClusterState,
    now: i64,
    offer: Offer,
    /// True if an unusable node may still hold something.
    delicate: bool,
    using: BTreeMap<TenantId, Amounts>,
    live: BTreeMap<JobId, Account>,
    ended: Vec<(JobId, Account)>,
    capacity: BTreeMap<Resource, Capacity>,
    tenants: BTreeMap<TenantId, BTreeMap<Resource, Entitlement>>,
    gpus: BTreeMap<JobId, GpuRow>,
    gave: BTreeMap<JobId, BTreeMap<String, u64>>,
}

impl Ledger {
    /// Returns an empty ledger from `from` to `to`; `None` is unbounded.
    #[must_use]
    pub fn new(from: Option<Timestamp>, to: Option<Timestamp>) -> Self {
        Self {
            window: Window {
                from: from.map_or(i64::MIN, ms),
                to: to.map_or(i64::MAX, ms),
            },
            cluster: ClusterState::default(),
            now: i64::MIN,
            offer: Offer::default(),
            delicate: false,
            using: BTreeMap::new(),
            live: BTreeMap::new(),
            ended: Vec::new(),
            capacity: BTreeMap::new(),
            tenants: BTreeMap::new(),
            gpus: BTreeMap::new(),
            gave: BTreeMap::new(),
        }
    }

    /// Begins with a snapshot's state.
    #[must_use]
    pub fn starting_from(mut self, cluster: &ClusterState) -> Self {
        self.cluster = cluster.clone();
        self.now = ms(cluster.now);
        self.look_at_nodes();
        for id in self.cluster.queued.keys() {
            self.live.insert(id.clone(), Account::default());
        }
        let jobs: Vec<JobId> = self.cluster.jobs.keys().cloned().collect();
        for id in self.cluster.queued.keys().chain(&jobs) {
            self.using.entry(tenant_of(id)).or_default();
        }
        for id in &jobs {
            self.follow(id);
        }
        self
    }

    /// Reads the next event of the log.
    pub fn read(&mut self, recorded: &Recorded) {
        // The log's time, since stamps may step.
        let at = self.cluster.clock.at(recorded);
        self.pass(ms(at));
        if let Some(Event::AllocationDecided(event)) = recorded.event() {
            self.handed_over(event, at);
        }
        self.cluster.evolve(recorded);
        let Some(event) = recorded.event() else {
            return;
        };
        match event {
            Event::NodeJoined(_)
            | Event::NodeLost(_)
            | Event::NodeFenced(_)
            | Event::NodeRecovered(_)
            | Event::NodeDrained(_)
            | Event::NodeRestored(_)
            | Event::NodeQuarantined(_)
            | Event::NodeReadmitted(_)
            | Event::NodeRemoved(_) => self.follow_all(),
            Event::TenantConfigured(event) => {
                self.using.entry(event.tenant.clone()).or_default();
            }
            Event::PlacementDecided(event) => {
                let jobs: std::collections::BTreeSet<&JobId> =
                    event.create.iter().map(|it| &it.job).collect();
                jobs.into_iter().for_each(|job| self.follow(job));
            }
            Event::JobAdmitted(event) => {
                self.using.entry(tenant_of(&event.job)).or_default();
                self.live.entry(event.job.clone()).or_default();
                self.leave_to_the_ended(&event.job);
                self.follow(&event.job);
            }
            Event::CheckpointSaved(event) => {
                let now = self.now;
                if let Some(account) = self.live.get_mut(&event.job) {
                    account.saved(event.incarnation, now);
                }
            }
            Event::PartitionStopped(event) => {
                let (window, now) = (self.window, self.now);
                if let Some(account) = self.live.get_mut(&event.job) {
                    account.incarnation_ended(event.reason, window, now);
                }
                self.follow(&event.job);
            }
            Event::ContainerGpuUsed(event) => self.gpu_used(event, at),
            Event::JobCompleted(event) => self.end(&event.job, "completed"),
            Event::JobFailed(event) => self.end(&event.job, "failed"),
            Event::JobCancelled(event) => self.end(&event.job, "cancelled"),
            // The most frequent event; changes no container.
            Event::Progress(_) => {}
            event => {
                if let Some(job) = job_of(event) {
                    self.follow(&job.clone());
                }
            }
        }
        if !self.cluster.overfull.is_empty() || self.delicate {
            self.offer = offer(&self.cluster);
        }
    }

    /// Books the current rates up to `to`.
    fn pass(&mut self, to: i64) {
        let from = self.now;
        self.now = from.max(to);
        let time = match from {
            i64::MIN => 0,
            from => self.window.clip(from, to),
        };
        if time > 0 {
            self.book(time);
        }
    }

    fn book(&mut self, time: u128) {
        let weights: Vec<u64> = self
            .using
            .keys()
            .map(|tenant| {
                u64::from(
                    self.cluster
                        .tenants
                        .weight(tenant.as_str(), &self.cluster.policy),
                )
            })
            .collect();
        for (resource, capacity) in &self.offer.capacity {
            let used: Vec<u64> = self.using.values().map(|it| it.get(resource)).collect();
            let in_use: u64 = used.iter().sum();
            let down = self.offer.down.get(resource).copied().unwrap_or(0);
            let row = self.capacity.entry(resource.clone()).or_default();
            row.capacity += u128::from(*capacity) * time;
            row.used += u128::from(in_use) * time;
            row.down += u128::from(down) * time;
            row.idle += u128::from(capacity.saturating_sub(in_use + down)) * time;
            let entitled = apportion(*capacity, &weights);
            let lent = lent(&entitled, &used);
            let rates = entitled.iter().zip(&used).zip(&lent);
            for (tenant, ((entitled, used), lent)) in self.using.keys().zip(rates) {
                let rows = self.tenants.entry(tenant.clone()).or_default();
                let row = rows.entry(resource.clone()).or_default();
                row.entitled += u128::from(*entitled) * time;
                row.used += u128::from(*used) * time;
                row.borrowed += u128::from(used.saturating_sub(*entitled)) * time;
                row.unused += u128::from(entitled.saturating_sub(*used)) * time;
                row.lent += u128::from(*lent) * time;
            }
        }
    }

    fn follow(&mut self, id: &JobId) {
        let Some(job) = self.cluster.job(id) else {
            return;
        };
        let account = self.live.entry(id.clone()).or_default();
        let before = account.held();
        account.follow(job, self.window, self.now);
        let now = account.held();
        let using = self.using.entry(tenant_of(id)).or_default();
        using.subtract(&before, 1);
        using.add(&now, 1);
    }

    fn follow_all(&mut self) {
        let jobs: Vec<JobId> = self.cluster.jobs.keys().cloned().collect();
        jobs.iter().for_each(|id| self.follow(id));
        self.look_at_nodes();
    }

    fn look_at_nodes(&mut self) {
        self.offer = offer(&self.cluster);
        let delicate = |node: &dormouse_state::Node| {
            !node.is_usable() && !matches!(node.phase, NodePhase::Lost { .. })
        };
        self.delicate = self.cluster.nodes.iter().any(|(_, node)| delicate(node));
    }

    fn end(&mut self, id: &JobId, how: &'static str) {
        let Some(mut account) = self.live.remove(id) else {
            return;
        };
        if let Some(using) = self.using.get_mut(id.tenant()) {
            using.subtract(&account.held(), 1);
        }
        account.end(how, self.window, self.now);
        self.ended.push((id.clone(), account));
    }

    /// Moves the amounts that an ended job of the name gave away to that job's account.
    fn leave_to_the_ended(&mut self, id: &JobId) {
        let Some(gave) = self.gave.remove(id) else {
            return;
        };
        let mut ended = self.ended.iter_mut().rev();
        if let Some((_, account)) = ended.find(|(job, _)| job == id) {
            account.gave = gave;
        }
    }

    /// A measured window counts whole, at the time of its report.
    fn gpu_used(&mut self, event: &ContainerGpuUsed, at: Timestamp) {
        if self.window.clip(ms(at), ms(at) + 1) == 0 {
            return;
        }
        let row = self.gpus.entry(event.container.job.clone());
        let row = row.or_insert_with(|| GpuRow::new(&event.container.job));
        for device in &event.devices {
            row.busy_us += device.busy_us;
            row.charged_us += device.charged_us;
            row.waited_us += device.waited_us;
            row.refused += device.refused;
            row.memory_mib_ms += (device.memory_bytes >> 20) * event.window_ms;
        }
    }

    fn handed_over(&mut self, event: &dormouse_messages::events::AllocationDecided, at: Timestamp) {
        if self.window.clip(ms(at), ms(at) + 1) == 0 {
            return;
        }
        let mut gains: BTreeMap<String, u64> = BTreeMap::new();
        for job in &event.jobs {
            let gain = u64::from(job.containers.saturating_sub(job.previous));
            if gain > 0 {
                *gains.entry(job.job.tenant().to_owned()).or_default() += gain;
            }
        }
        let weights: Vec<u64> = gains.values().copied().collect();
        let gained: u64 = weights.iter().sum();
        for job in &event.jobs {
            let given = u64::from(job.previous.saturating_sub(job.containers));
            if given == 0 || gained == 0 {
                continue;
            }
            let row = self.gave.entry(job.job.clone()).or_default();
            for (tenant, count) in gains.keys().zip(apportion(given, &weights)) {
                if count > 0 {
                    *row.entry(tenant.clone()).or_default() += count;
                }
            }
        }
    }
}

/// Returns the nodes' capacity. A lost node counts as down until it is also drained, and then not at
/// all.
fn offer(cluster: &ClusterState) -> Offer {
    let mut offer = Offer::default();
    let held = cluster.held();
    for (name, node) in cluster.nodes.iter() {
        let held = held.get(name);
        let is_up = node.phase == NodePhase::Up;
        if !is_up && node.drained && held.is_none() {
            continue;
        }
        for (resource, capacity) in node.capacity.iter() {
            let held = held.map_or(0, |held| held.get(resource));
            let capacity = capacity.max(held);
            *offer.capacity.entry(resource.clone()).or_default() += capacity;
            if !node.is_usable() {
                *offer.down.entry(resource.clone()).or_default() += capacity - held;
            }
        }
        // Held amounts of resources that a returned node no longer has.
        for (resource, held) in held.into_iter().flat_map(Amounts::iter) {
            if node.capacity.get(resource) == 0 {
                *offer.capacity.entry(resource.clone()).or_default() += held;
            }
        }
    }
    offer
}

fn tenant_of(job: &JobId) -> TenantId {
    TenantId::new(job.tenant()).unwrap_or_else(|_| unreachable!("{job} names its tenant"))
}

fn ms(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1000)
}
