//! The ledger as rows for the cluster, tenants and jobs, and as CSV.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use dormouse_messages::budget::HOUR_MS;
use dormouse_messages::{Amounts, JobId, Resource, Sequence, TenantId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::account::{Account, GpuRow, Parts};
use super::{Ledger, ms};
use crate::history::redact::{SeenError, seen_by};

/// An amount in the resource's log unit times milliseconds. Written as a decimal text, since it may
/// exceed the numbers of JSON readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitMs(pub u128);

impl fmt::Display for UnitMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for UnitMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UnitMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// One resource of the cluster: capacity = used + idle + down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRow {
    pub resource: String,
    pub unit: String,
    pub capacity: UnitMs,
    pub used: UnitMs,
    pub idle: UnitMs,
    pub down: UnitMs,
}

/// The use of held and awaited time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsRow {
    /// The sum of the next five.
    pub used: UnitMs,
    pub productive: UnitMs,
    pub starting: UnitMs,
    pub stopping: UnitMs,
    pub redone: UnitMs,
    pub failed: UnitMs,
    pub stopped: UnitMs,
    pub waiting: UnitMs,
}

/// One resource of a tenant: entitled = used − borrowed + unused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRow {
    /// `others` stands for all other tenants when one tenant asks.
    pub tenant: String,
    pub resource: String,
    pub unit: String,
    pub entitled: UnitMs,
    pub borrowed: UnitMs,
    /// Entitlement beyond the use.
    pub unused: UnitMs,
    /// The part of `unused` that others borrowed.
    pub lent: UnitMs,
    #[serde(flatten)]
    pub parts: PartsRow,
}

/// One resource of a job, or its containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    pub job: JobId,
    /// `completed`, `failed` or `cancelled`; empty for a live job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ended: String,
    /// A resource, or `containers`.
    pub resource: String,
    pub unit: String,
    #[serde(flatten)]
    pub parts: PartsRow,
    /// In the row `containers`: containers lost in decisions, by the gaining tenants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gave: BTreeMap<String, u64>,
}

/// The ledger of a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerTable {
    /// `None` is the log's beginning.
    pub from: Option<Timestamp>,
    /// `None` is the last event.
    pub to: Option<Timestamp>,
    /// The last event read; later losses of running incarnations are unknown.
    pub known_to: Sequence,
    pub known_at: Timestamp,
    pub cluster: Vec<CapacityRow>,
    pub tenants: Vec<TenantRow>,
    pub jobs: Vec<JobRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuRow>,
    /// Rows for tenants and jobs; empty without prices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostRow>,
}

/// The price of a tenant's or job's use, in the currency of the price list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostRow {
    /// `tenant` or `job`.
    pub scope: String,
    pub name: String,
    /// In thousandths of the currency's unit.
    pub milli: UnitMs,
}

impl PartsRow {
    fn of(parts: &Parts, each: u64) -> Self {
        let times = |amount: u128| UnitMs(amount * u128::from(each));
        Self {
            used: times(parts.used()),
            productive: times(parts.productive),
            starting: times(parts.starting),
            stopping: times(parts.stopping),
            redone: times(parts.redone),
            failed: times(parts.failed),
            stopped: times(parts.stopped),
            waiting: times(parts.waiting),
        }
    }

    fn add(&mut self, other: &Self) {
        let add = |to: &mut UnitMs, from: UnitMs| to.0 += from.0;
        add(&mut self.used, other.used);
        add(&mut self.productive, other.productive);
        add(&mut self.starting, other.starting);
        add(&mut self.stopping, other.stopping);
        add(&mut self.redone, other.redone);
        add(&mut self.failed, other.failed);
        add(&mut self.stopped, other.stopped);
        add(&mut self.waiting, other.waiting);
    }

    fn columns(&self) -> [UnitMs; 8] {
        let Self {
            used,
            productive,
            starting,
            stopping,
            redone,
            failed,
            stopped,
            waiting,
        } = *self;
        [
            used, productive, starting, stopping, redone, failed, stopped, waiting,
        ]
    }
}

fn unit(resource: &Resource) -> String {
    format!("{}_ms", resource.field())
}

impl Ledger {
    /// Returns the table. The last state holds until `now` or the end of the window.
    #[must_use]
    pub fn finish(mut self, now: Timestamp) -> LedgerTable {
        self.pass(ms(now));
        let now = self.now;
        for account in self.live.values_mut() {
            account.cut(self.window, now);
        }
        table(self)
    }
}

/// Returns the last event read. Losses become known later, so a later ledger of the same window may
/// differ.
fn known_to(ledger: &Ledger) -> (Sequence, Timestamp) {
    (ledger.cluster.sequence, ledger.cluster.now)
}

fn table(ledger: Ledger) -> LedgerTable {
    let (known_to, known_at) = known_to(&ledger);
    let window = ledger.window;
    let time = |ms: i64| Timestamp::from_micros(ms.saturating_mul(1000));
    let cluster = ledger.capacity.iter().map(|(resource, row)| CapacityRow {
        resource: resource.name().to_owned(),
        unit: unit(resource),
        capacity: UnitMs(row.capacity),
        used: UnitMs(row.used),
        idle: UnitMs(row.idle),
        down: UnitMs(row.down),
    });
    let ended = ledger.ended.iter().map(|(id, account)| (id, account));
    let all: Vec<(&JobId, &Account)> = ended.chain(&ledger.live).collect();
    let mut parts: BTreeMap<(&str, &Resource), PartsRow> = BTreeMap::new();
    for (id, account) in &all {
        for (demand, used) in account.uses() {
            for (resource, each) in demand.iter() {
                let row = parts.entry((id.tenant(), resource)).or_default();
                row.add(&PartsRow::of(used, each));
            }
        }
    }
    let tenants = ledger.tenants.iter().flat_map(|(tenant, rows)| {
        let parts = &parts;
        rows.iter().map(move |(resource, row)| TenantRow {
            tenant: tenant.to_string(),
            resource: resource.name().to_owned(),
            unit: unit(resource),
            entitled: UnitMs(row.entitled),
            borrowed: UnitMs(row.borrowed),
            unused: UnitMs(row.unused),
            lent: UnitMs(row.lent),
            parts: parts
                .get(&(tenant.as_str(), resource))
                .copied()
                .unwrap_or_default(),
        })
    });
    LedgerTable {
        from: (window.from > i64::MIN).then(|| time(window.from)),
        to: (window.to < i64::MAX).then(|| time(window.to)),
        known_to,
        known_at,
        cluster: cluster.collect(),
        tenants: tenants.collect(),
        jobs: jobs(&ledger, &all),
        gpus: ledger.gpus.values().cloned().collect(),
        costs: Vec::new(),
    }
}

fn jobs(ledger: &Ledger, all: &[(&JobId, &Account)]) -> Vec<JobRow> {
    let mut rows = Vec::new();
    let newest: BTreeMap<&JobId, usize> = (0..).zip(all).map(|(at, (id, _))| (*id, at)).collect();
    for (at, (id, account)) in (0..).zip(all) {
        let is_newest = newest.get(id) == Some(&at);
        let gave = ledger.gave.get(*id).filter(|_| is_newest);
        let gave = gave.unwrap_or(&account.gave);
        let mut uses = account.uses();
        if uses.all(|(_, used)| *used == Parts::default()) && gave.is_empty() {
            continue;
        }
        let row = |resource: &str, unit: String, each: &dyn Fn(&Amounts) -> u64| {
            let mut parts = PartsRow::default();
            for (demand, used) in account.uses() {
                parts.add(&PartsRow::of(used, each(demand)));
            }
            JobRow {
                job: (*id).clone(),
                ended: account.how().to_owned(),
                resource: resource.to_owned(),
                unit,
                parts,
                gave: BTreeMap::new(),
            }
        };
        let mut containers = row("containers", "containers_ms".to_owned(), &|_| 1);
        containers.gave = gave.clone();
        rows.push(containers);
        let mut demanded = Amounts::new();
        account
            .uses()
            .for_each(|(demand, _)| demanded.add(demand, 1));
        let resources = demanded.iter().map(|(resource, _)| {
            let each = |demand: &Amounts| demand.get(resource);
            row(resource.name(), unit(resource), &each)
        });
        rows.extend(resources);
    }
    rows
}

impl LedgerTable {
    /// Keeps the tenant's own rows, and sums all other tenants.
    ///
    /// # Errors
    /// A name cannot be removed.
    pub fn seen_by(mut self, tenant: &TenantId) -> Result<Self, SeenError> {
        self.jobs.retain(|row| row.job.tenant() == tenant.as_str());
        self.gpus.retain(|row| row.job.tenant() == tenant.as_str());
        for row in &mut self.jobs {
            let own = row.gave.remove(tenant.as_str());
            let others = row.gave.values().sum::<u64>();
            row.gave = BTreeMap::new();
            row.gave
                .extend(own.map(|count| (tenant.to_string(), count)));
            if others > 0 {
                row.gave.insert("others".to_owned(), others);
            }
        }
        let (own, others): (Vec<TenantRow>, Vec<TenantRow>) = std::mem::take(&mut self.tenants)
            .into_iter()
            .partition(|row| row.tenant == tenant.as_str());
        let mut sums: BTreeMap<String, TenantRow> = BTreeMap::new();
        for row in others {
            match sums.get_mut(&row.resource) {
                Some(sum) => {
                    sum.entitled.0 += row.entitled.0;
                    sum.borrowed.0 += row.borrowed.0;
                    sum.unused.0 += row.unused.0;
                    sum.lent.0 += row.lent.0;
                    sum.parts.add(&row.parts);
                }
                None => {
                    let others = "others".to_owned();
                    sums.insert(
                        row.resource.clone(),
                        TenantRow {
                            tenant: others,
                            ..row
                        },
                    );
                }
            }
        }
        self.tenants = own.into_iter().chain(sums.into_values()).collect();
        seen_by(self, Some(tenant))
    }

    /// Adds the costs by prices of an hour, in thousandths of the currency's unit: of a CPU, a GPU, a GiB.
    pub fn price(&mut self, prices: &BTreeMap<Resource, u64>) {
        let cost = |resource: &str, used: UnitMs| {
            let resource = Resource::from_name(resource).ok()?;
            let unit = match resource {
                Resource::Memory => 1 << 30,
                _ => 1000,
            };
            Some(used.0 * u128::from(*prices.get(&resource)?) / unit / u128::from(HOUR_MS))
        };
        let mut sums: BTreeMap<(&str, String), u128> = BTreeMap::new();
        for row in &self.tenants {
            let sum = sums.entry(("tenant", row.tenant.clone())).or_default();
            *sum += cost(&row.resource, row.parts.used).unwrap_or(0);
        }
        for row in &self.jobs {
            let sum = sums.entry(("job", row.job.to_string())).or_default();
            *sum += cost(&row.resource, row.parts.used).unwrap_or(0);
        }
        let row = |((scope, name), milli): ((&str, String), u128)| CostRow {
            scope: scope.to_owned(),
            name,
            milli: UnitMs(milli),
        };
        self.costs = sums.into_iter().map(row).collect();
    }

    /// Returns all rows as CSV with a header; an inapplicable cell is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "scope,name,resource,unit,capacity,idle,down,entitled,borrowed,unused,lent,used,productive,starting,stopping,redone,failed,stopped,waiting\n",
        );
        let mut line = |scope: &str, name: &str, resource: &str, unit: &str, cells: &[String]| {
            // Names, resources and units contain no comma and no quotation mark.
            let _ = writeln!(text, "{scope},{name},{resource},{unit},{}", cells.join(","));
        };
        let empty = |count: usize| vec![String::new(); count];
        let texts = |cells: &[UnitMs]| cells.iter().map(UnitMs::to_string).collect::<Vec<_>>();
        for row in &self.cluster {
            let known = texts(&[row.capacity, row.idle, row.down]);
            let used = vec![row.used.to_string()];
            let cells = [known, empty(4), used, empty(7)].concat();
            line("cluster", "", &row.resource, &row.unit, &cells);
        }
        for row in &self.tenants {
            let shares = texts(&[row.entitled, row.borrowed, row.unused, row.lent]);
            let cells = [empty(3), shares, texts(&row.parts.columns())].concat();
            line("tenant", &row.tenant, &row.resource, &row.unit, &cells);
        }
        for row in &self.jobs {
            let cells = [empty(7), texts(&row.parts.columns())].concat();
            line("job", row.job.as_str(), &row.resource, &row.unit, &cells);
        }
        for row in &self.costs {
            let cells = [empty(7), vec![row.milli.to_string()], empty(7)].concat();
            line(&row.scope, &row.name, "cost", "milli", &cells);
        }
        text
    }
}
