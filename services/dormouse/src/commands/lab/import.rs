//! `lab import`: makes a scenario of the jobs that another cluster ran.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use comfy_table::Cell;
use dormouse_messages::Amounts;
use dormouse_replay::scenario::import::nodes::{Nodes, read_nodes};
use dormouse_replay::scenario::import::{
    Elastic, Format, Import, ImportError, LeftOut, Options, Report, Tenants, import,
};
use dormouse_replay::simulate::Percentiles;

use super::simulate::table::duration;
use crate::cli::node::capacity;
use crate::context::{Context, read_text, shown};
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::{Style, right};

/// Make a scenario of the jobs that another cluster ran
#[derive(Debug, Clone, Args)]
#[command(
    group = ArgGroup::new("cluster").args(["nodes", "node"]),
    after_help = "Examples:\n  sacct --allusers --allocations --parsable2 --starttime=now-30days --format=JobID,User,Account,Submit,Eligible,Start,End,ElapsedRaw,State,AllocTRES,ReqTRES,NNodes,TimelimitRaw > jobs.txt\n  sinfo -N -h -o '%N|%c|%m|%G' > nodes.txt\n  dormouse lab import sacct jobs.txt --nodes nodes.txt --file month.json\n  dormouse lab simulate month.json --policy static,drf,default\n  dormouse lab import sacct jobs.txt --node cpu=64,memory=512Gi,gpu=8 --count 20 --elastic gpu > month.json\n  dormouse lab import openb openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --file openb.json\n  dormouse lab import philly - --tenants user -o json --file philly.json < cluster_log.csv"
)]
pub struct ImportArgs {
    /// Form of the records: sacct (Slurm), openb (Alibaba's pods), philly (a table like Philly's or Helios').
    pub format: Format,
    /// Records; - is standard input.
    pub records: PathBuf,
    /// Write the scenario into this file, and the report to the standard output.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Nodes: the output of sinfo -N -h -o "%N|%c|%m|%G", or Alibaba's table.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Equal nodes of this capacity. Default: the most that a job had on one node.
    #[arg(long, value_name = "CAPACITY", value_parser = capacity)]
    pub node: Option<Amounts>,
    /// Number of the equal nodes. Default: as many as the peak needs.
    #[arg(long, value_name = "N", requires = "node", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: Option<u32>,
    /// The recorded name that becomes a job's tenant: account or user.
    #[arg(long, value_name = "NAME", default_value = "account")]
    pub tenants: Tenants,
    /// Jobs that may be resized: none, or gpu (jobs of several GPUs, from one GPU to all).
    #[arg(long, value_name = "JOBS", default_value = "none")]
    pub elastic: Elastic,
    /// Speeds of 1, 2, … containers of elastic jobs, the last for more; default: linear.
    #[arg(
        long,
        value_name = "SPEED",
        value_delimiter = ',',
        value_parser = speed,
        requires = "elastic"
    )]
    pub speed: Vec<f64>,
    /// Leave out rows that cannot be read, and count them.
    #[arg(long)]
    pub skip_bad: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.trim().parse().ok();
    let speed = speed.filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| format!("{text:?} is no speed above 0; write 1,1.9,2.6"))
}

/// Runs `lab import`.
///
/// # Errors
/// If the records or nodes cannot be read, or the scenario cannot be written.
pub fn run(context: &Context, args: &ImportArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let mut read_files: Vec<&Path> = vec![&args.records];
    read_files.extend(args.nodes.as_deref());
    let file = args.file.as_deref();
    let file = file.map(|file| context.output_file(file, &read_files));
    let file = file.transpose()?;
    let wrong = |path: &Path, error: ImportError| {
        let error = anyhow::Error::from(error);
        Coded::new("bad_records", format!("{}: {error:#}", shown(path)))
    };
    let options = Options {
        format: args.format,
        name: name(args),
        tenants: args.tenants,
        nodes: nodes(args, wrong)?,
        elastic: args.elastic,
        speed: args.speed.clone(),
        skip_bad: args.skip_bad,
    };
    let imported =
        import(open(&args.records)?, &options).map_err(|error| wrong(&args.records, error))?;
    let Some(mut file) = file else {
        print_scenario(&imported)?;
        print::aside(text(&imported.report, None, &Style::plain()));
        return Ok(DONE);
    };
    imported
        .write(&mut file)
        .with_context(|| file.path().display().to_string())?;
    let path = file.path().to_owned();
    file.finish()?;
    print::value(output, &imported.report, |report, wide| {
        text(report, Some(&path), &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

fn print_scenario(imported: &Import) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    imported.write(&mut out)?;
    out.flush()?;
    Ok(())
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(Box::new(file))
}

/// The scenario's name: that of the file.
fn name(args: &ImportArgs) -> String {
    let named = if args.records.as_os_str() == "-" {
        args.file.as_deref()
    } else {
        Some(args.records.as_path())
    };
    let stem = named.and_then(Path::file_stem);
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| args.format.as_str().to_owned())
}

fn nodes(args: &ImportArgs, wrong: impl Fn(&Path, ImportError) -> Coded) -> anyhow::Result<Nodes> {
    if let Some(path) = &args.nodes {
        let listed = read_nodes(&read_text(path)?).map_err(|error| wrong(path, error))?;
        return Ok(Nodes::Listed(listed));
    }
    Ok(match (&args.node, args.count) {
        (Some(capacity), Some(count)) => Nodes::Equal {
            capacity: capacity.clone(),
            count,
        },
        (capacity, _) => Nodes::Peak {
            capacity: capacity.clone(),
        },
    })
}

/// Renders the report; `file` has the scenario.
fn text(report: &Report, file: Option<&Path>, style: &Style) -> String {
    let nodes = report.nodes.iter().map(|group| {
        let model = group.gpu_model.as_ref();
        let model = model.map_or(String::new(), |model| format!(" ({model})"));
        format!("{} of {}{model}", group.count, group.capacity)
    });
    let nodes: Vec<String> = nodes.collect();
    let assumptions = report.assumptions.iter().map(|one| format!("- {one}"));
    let assumptions: Vec<String> = assumptions.collect();
    let scenario = file.map_or("FILE".to_owned(), |file| file.display().to_string());
    let parts = [
        format!(
            "{} of {} rows became jobs{}\nnodes: {}",
            report.jobs,
            report.rows,
            left_out(&report.left_out),
            nodes.join(", ")
        ),
        recorded(report, style),
        format!("Assumptions:\n{}", assumptions.join("\n")),
        format!("Next: dormouse lab simulate {scenario} --policy static,drf,default"),
    ];
    parts.join("\n\n")
}

fn left_out(left_out: &LeftOut) -> String {
    let reasons = [
        (left_out.steps, "are steps of jobs"),
        (left_out.never_started, "never started"),
        (left_out.without_resources, "have no resources"),
        (left_out.too_large, "fit on no nodes"),
        (left_out.unreadable, "cannot be read"),
    ];
    let reasons = reasons.iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<String> = reasons
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    if reasons.is_empty() {
        String::new()
    } else {
        format!("; {}", reasons.join(", "))
    }
}

/// The figures as recorded, with the columns of a simulation's.
fn recorded(report: &Report, style: &Style) -> String {
    let mut table = style.table(&[
        "AS RECORDED",
        "JOBS",
        "UTILIZATION",
        "JCT",
        "P90",
        "WAIT",
        "P90",
        "MAKESPAN",
    ]);
    let recorded = &report.recorded;
    let times = |jct: &Percentiles, wait: &Percentiles| {
        [jct.mean, jct.p90, wait.mean, wait.p90].map(duration)
    };
    let [jct, jct90, wait, wait90] = times(&recorded.jct_s, &recorded.waiting_s);
    let numbers = [
        report.jobs.to_string(),
        format!("{:.3}", recorded.utilization),
        jct,
        jct90,
        wait,
        wait90,
        duration(recorded.makespan_s),
    ];
    let row = std::iter::once(Cell::new("all"));
    table.add_row(row.chain(numbers.into_iter().map(right)));
    if style.wide {
        for (tenant, figures) in &recorded.tenants {
            let [jct, jct90, wait, wait90] = times(&figures.jct_s, &figures.waiting_s);
            let jobs = figures.jobs.to_string();
            let numbers = [jobs, String::new(), jct, jct90, wait, wait90, String::new()];
            let row = std::iter::once(Cell::new(tenant));
            table.add_row(row.chain(numbers.into_iter().map(right)));
        }
    }
    style.write(table)
}
