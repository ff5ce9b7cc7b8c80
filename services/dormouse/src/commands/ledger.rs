//! `ledger`: accounts for shares in a time window.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use comfy_table::{Cell, CellAlignment};
use dormouse_messages::{Event, JobId, Recorded, Resource, TenantId};
use dormouse_projections::ReadModel;
use dormouse_replay::history::ledger::{CostRow, JobRow, Ledger, LedgerTable, PartsRow, UnitMs};

use super::common::history::{open_at, window};
use super::common::watched;
use crate::cli::filter::WatchArg;
use crate::cli::global::Form;
use crate::cli::job_name::job_id;
use crate::cli::log_range::{PointArgs, RangeArgs};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::{Style, date};

/// Account for each tenant's and job's entitlement, use, lent and lost share, to the last unit
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse ledger\n  dormouse ledger --from 2026-11-21 --to 2026-11-22 -o csv --file day.csv\n  dormouse ledger --as ads -o json\n  dormouse ledger --log log.parquet --from 4712 --job ads/lr\n  dormouse ledger --from 30d --price gpu=2.1,cpu=0.04\n\n-o csv and -o json have whole numbers: a resource's unit times milliseconds. The tables have hours. Capacity is used + idle + down; what one tenant borrows others have lent."
)]
pub struct LedgerArgs {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Only this job.
    #[arg(long, value_parser = job_id)]
    pub job: Option<JobId>,
    /// Write CSV into this file.
    #[arg(long, value_name = "FILE", conflicts_with = "every")]
    pub file: Option<PathBuf>,
    /// Price of an hour of a CPU, a GPU or a GiB of memory, such as gpu=2.1,cpu=0.04: adds costs.
    #[arg(long, value_name = "PRICES", value_parser = prices)]
    pub price: Option<Prices>,
    #[command(flatten)]
    pub watch: WatchArg,
    /// The end of the reading: the loss of an incarnation is known only after the incarnation's end.
    #[command(flatten)]
    pub point: PointArgs,
}

const MOST_JOBS: usize = 40;

/// Prices of an hour, in thousandths of the currency's unit.
#[derive(Debug, Clone)]
pub struct Prices(BTreeMap<Resource, u64>);

fn prices(text: &str) -> Result<Prices, String> {
    let wrong = || format!("{text:?} is no price list such as gpu=2.1,cpu=0.04,memory=0.005");
    let one = |part: &str| {
        let (resource, price) = part.split_once('=').ok_or_else(wrong)?;
        let resource = Resource::from_name(resource).map_err(|error| error.to_string())?;
        // A price has the form of an amount of CPUs.
        let milli = Resource::Cpu.parse(price).map_err(|_| wrong())?;
        Ok((resource, milli))
    };
    let prices: Result<BTreeMap<Resource, u64>, String> = text.split(',').map(one).collect();
    prices.map(Prices)
}

/// Runs `ledger`.
///
/// # Errors
/// If the log cannot be read, or the file cannot be written.
pub async fn run(context: &Context, args: &LedgerArgs) -> anyhow::Result<u8> {
    let is_csv = context.global().output == Form::Csv;
    if let Some(file) = &args.file {
        if !is_csv {
            bail!("--file {} takes -o csv", file.display());
        }
        let out = context.output_file(file, &args.point.log.read())?;
        out.write_whole(&drawn_up(context, args).await?.csv())?;
        print::aside(format!("written to {}", file.display()));
        return Ok(DONE);
    }
    if is_csv && args.watch.every.is_none() {
        print::line(drawn_up(context, args).await?.csv().trim_end())?;
        return Ok(DONE);
    }
    watched::repeat(context, args.watch, || drawn_up(context, args), text).await
}

async fn drawn_up(context: &Context, args: &LedgerArgs) -> anyhow::Result<LedgerTable> {
    let (from, to) = window(context, args.range, &args.point.log).await?;
    let reading = open_at(context, &args.point).await?;
    let mut ledger = Ledger::new(from, to);
    let mut known = Known::new(args);
    if let Some(states) = reading.states()? {
        known.starting_from(&states.model);
        ledger = ledger.starting_from(&states.fork.cluster);
    }
    let place = reading.read(|recorded| {
        ledger.read(recorded);
        known.read(recorded);
        Ok(())
    });
    let place = place.await?;
    known.check()?;
    let mut table = ledger.finish(place.time);
    if let Some(tenant) = &args.point.view.viewer {
        table = table.seen_by(tenant)?;
    }
    if let Some(Prices(prices)) = &args.price {
        table.price(prices);
    }
    if let Some(job) = &args.job {
        table.jobs.retain(|row| row.job == *job);
    }
    Ok(table)
}

struct Known<'a> {
    job: Option<&'a JobId>,
    tenant: Option<&'a TenantId>,
}

impl<'a> Known<'a> {
    const fn new(args: &'a LedgerArgs) -> Self {
        Self {
            job: args.job.as_ref(),
            tenant: args.point.view.viewer.as_ref(),
        }
    }

    fn starting_from(&mut self, model: &ReadModel) {
        self.job.take_if(|job| model.jobs.get(job).is_some());
        let queues = &model.queues;
        self.tenant.take_if(|tenant| {
            let name = tenant.as_str();
            queues.tenants.contains_key(name) || queues.cluster.tenants.get(name).is_some()
        });
    }

    fn read(&mut self, recorded: &Recorded) {
        let Some(event) = recorded.event() else {
            return;
        };
        self.job.take_if(|job| concerns(event, job));
        self.tenant.take_if(|tenant| match event {
            Event::JobAdmitted(it) => it.job.tenant() == tenant.as_str(),
            Event::TenantConfigured(it) => it.tenant == **tenant,
            Event::TenantGranted(it) => it.tenant == **tenant,
            Event::TenantRemoved(it) => it.tenant == **tenant,
            _ => false,
        });
    }

    fn check(&self) -> Result<(), Coded> {
        let message = match (self.job, self.tenant) {
            (Some(job), _) => {
                format!("there is no job {job} on that log; `dormouse jobs --all` lists them")
            }
            (None, Some(tenant)) => {
                format!("there is no tenant {tenant} on that log; `dormouse tenants` lists them")
            }
            (None, None) => return Ok(()),
        };
        Err(Coded::new("not_found", message))
    }
}

fn hours(amount: UnitMs, resource: &str) -> String {
    const HOUR_MS: f64 = 3_600_000.0;
    let unit = match Resource::from_name(resource) {
        _ if resource == "containers" => 1.0,
        Ok(Resource::Memory) => 1024.0 * 1024.0 * 1024.0,
        _ => 1000.0,
    };
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    let hours = amount.0 as f64 / unit / HOUR_MS;
    match hours {
        0.0 => "-".to_owned(),
        hours if hours < 0.1 => format!("{hours:.4}"),
        hours if hours < 100.0 => format!("{hours:.2}"),
        hours => format!("{hours:.0}"),
    }
}

fn unit(resource: &str) -> String {
    match Resource::from_name(resource) {
        Ok(Resource::Memory) => "memory GiB·h".to_owned(),
        _ => format!("{resource}·h"),
    }
}

fn row(name: &str, resource: &str, cells: &[UnitMs]) -> Vec<Cell> {
    let names = [Cell::new(name), Cell::new(unit(resource))];
    let amounts = cells
        .iter()
        .map(|cell| Cell::new(hours(*cell, resource)).set_alignment(CellAlignment::Right));
    names.into_iter().chain(amounts).collect()
}

fn parts(row: &PartsRow) -> [UnitMs; 8] {
    [
        row.used,
        row.productive,
        row.starting,
        row.stopping,
        row.redone,
        row.failed,
        row.stopped,
        row.waiting,
    ]
}

fn of_gpus(table: &LedgerTable, style: &Style) -> comfy_table::Table {
    let mut gpus = style.table(&[
        "JOB",
        "GPU BUSY S",
        "CHARGED S",
        "WAITED S",
        "REFUSED",
        "GIB S",
    ]);
    let seconds = |us: u64| format!("{:.1}", std::time::Duration::from_micros(us).as_secs_f64());
    for it in &table.gpus {
        let times = [it.busy_us, it.charged_us, it.waited_us].map(seconds);
        let mut cells = vec![it.job.to_string()];
        cells.extend(times);
        cells.push(it.refused.to_string());
        let gib = std::time::Duration::from_millis(it.memory_mib_ms / 1024);
        cells.push(format!("{:.1}", gib.as_secs_f64()));
        gpus.add_row(cells);
    }
    gpus
}

fn of_costs(table: &LedgerTable, style: &Style) -> String {
    if table.costs.is_empty() {
        return String::new();
    }
    let mut costs = style.table(&["COST OF", "", "COST"]);
    let shown = |it: &&CostRow| style.wide || it.scope == "tenant";
    for it in table.costs.iter().filter(shown) {
        let cost = format!("{}.{:02}", it.milli.0 / 1000, it.milli.0 % 1000 / 10);
        costs.add_row(vec![
            Cell::new(&it.scope),
            Cell::new(&it.name),
            Cell::new(cost).set_alignment(CellAlignment::Right),
        ]);
    }
    format!("\n\n{}", style.write(costs))
}

/// Renders the ledger as tables of hours.
#[must_use]
pub fn text(table: &LedgerTable, style: &Style) -> String {
    let mut cluster = style.table(&["CLUSTER", "OF", "CAPACITY", "USED", "IDLE", "DOWN"]);
    for it in &table.cluster {
        cluster.add_row(row(
            "",
            &it.resource,
            &[it.capacity, it.used, it.idle, it.down],
        ));
    }
    let mut tenants = style.table(&[
        "TENANT", "OF", "ENTITLED", "USED", "BORROWED", "UNUSED", "LENT",
    ]);
    for it in &table.tenants {
        let cells = [it.entitled, it.parts.used, it.borrowed, it.unused, it.lent];
        tenants.add_row(row(&it.tenant, &it.resource, &cells));
    }
    let mut jobs = style.table(&[
        "JOB",
        "OF",
        "USED",
        "PRODUCTIVE",
        "STARTING",
        "STOPPING",
        "REDONE",
        "FAILED",
        "STOPPED",
        "WAITING",
        "GAVE TO",
    ]);
    // Each amount is the containers times the demand.
    let of_jobs = table.jobs.iter();
    let of_jobs = of_jobs.filter(|it| style.wide || it.resource == "containers");
    let mut of_jobs: Vec<&JobRow> = of_jobs.collect();
    if !style.wide {
        of_jobs.sort_by_key(|it| std::cmp::Reverse(it.parts.used.0 + it.parts.waiting.0));
    }
    let more = of_jobs.len().saturating_sub(MOST_JOBS);
    let shown = if style.wide { of_jobs.len() } else { MOST_JOBS };
    for it in of_jobs.into_iter().take(shown) {
        let mut cells = row(it.job.as_str(), &it.resource, &parts(&it.parts));
        let gave = it
            .gave
            .iter()
            .map(|(tenant, count)| format!("{tenant} {count}"));
        cells.push(Cell::new(gave.collect::<Vec<_>>().join(", ")));
        jobs.add_row(cells);
    }
    let costs = of_costs(table, style);
    let gpus = if table.gpus.is_empty() {
        String::new()
    } else {
        format!("\n\n{}", style.write(of_gpus(table, style)))
    };
    let from = table
        .from
        .map_or_else(|| "the log's beginning".to_owned(), date);
    let to = table.to.unwrap_or(table.known_at);
    let more = match more {
        more if more == 0 || style.wide => String::new(),
        more => format!("\n\n… and {more} jobs that used less; -o wide, csv or json have them all"),
    };
    format!(
        "from {from} to {}, read up to event {}\n\n{}\n\n{}\n\n{}{more}{costs}{gpus}",
        date(to),
        table.known_to,
        style.write(cluster),
        style.write(tenants),
        style.write(jobs)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_in_hours() {
        assert_eq!(hours(UnitMs(2_000 * 3_600_000), "cpu"), "2.00");
        assert_eq!(hours(UnitMs((8 << 30) * 3_600_000), "memory"), "8.00");
        assert_eq!(hours(UnitMs(3_600_000 / 2), "containers"), "0.50");
        assert_eq!(hours(UnitMs(0), "cpu"), "-");
    }
}
