//! `ledger`: accounts for shares in a time window.

use anyhow::bail;
use clap::Args;
use comfy_table::{Cell, CellAlignment};
use dormouse_messages::{Event, JobId, Recorded, Resource, TenantId};
use dormouse_projections::ReadModel;
use dormouse_replay::history::ledger::{JobRow, Ledger, LedgerTable, PartsRow, UnitMs};

use super::history::{open_at, window};
use super::watched;
use crate::cli::global::OutputArg;
use crate::cli::job_name::job_id;
use crate::cli::list::WatchArg;
use crate::cli::point::{At, PointArgs};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::{Style, date};

/// Account for each tenant's and job's entitlement, use, lent and lost share, to the last unit
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse ledger\n  dormouse ledger --from 2026-11-21 --to 2026-11-22 -o csv > day.csv\n  dormouse ledger --tenant ads -o json\n  dormouse ledger --log log.parquet --from 4712 --job ads/lr\n\n-o csv, -o FILE.csv and -o json have whole numbers: a resource's unit times milliseconds. The tables have hours. Capacity is used + idle + down; what one tenant borrows others have lent."
)]
pub struct LedgerArgs {
    /// Start of the window; default: the start of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// End of the window; default: the end of the log that is read.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
    /// Only this job.
    #[arg(long, value_parser = job_id)]
    pub job: Option<JobId>,
    #[command(flatten)]
    pub watch: WatchArg,
    /// The end of the reading: the loss of an incarnation is known only after the incarnation's end.
    #[command(flatten)]
    pub point: PointArgs,
}

const MOST_JOBS: usize = 40;

/// Runs `ledger`.
///
/// # Errors
/// If the log cannot be read, or the file cannot be written.
pub async fn run(context: &Context, args: &LedgerArgs) -> anyhow::Result<u8> {
    match &context.global().output {
        OutputArg::Format(_) => {}
        _ if args.watch.seconds.is_some() => bail!("--watch prints a table, json or yaml"),
        OutputArg::File(file) if file.as_os_str() == "csv" => {
            print::line(drawn_up(context, args).await?.csv().trim_end())?;
            return Ok(DONE);
        }
        OutputArg::File(file) if file.extension().is_some_and(|it| it == "csv") => {
            let out = context.output_file(file, &args.point.log.read())?;
            out.write_whole(&drawn_up(context, args).await?.csv())?;
            print::aside(format!("written to {}", file.display()));
            return Ok(DONE);
        }
        OutputArg::File(_) => {}
    }
    watched::repeat(context, args.watch, || drawn_up(context, args), text).await
}

async fn drawn_up(context: &Context, args: &LedgerArgs) -> anyhow::Result<LedgerTable> {
    let (from, to) = window(context, args.from, args.to, &args.point.log).await?;
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
    if let Some(tenant) = &args.point.tenant {
        table = table.seen_by(tenant)?;
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
            tenant: args.point.tenant.as_ref(),
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
        "from {from} to {}, read up to event {}\n\n{}\n\n{}\n\n{}{more}{gpus}",
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
