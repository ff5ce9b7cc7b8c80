//! Renders lists of jobs and nodes, and the page of a node.

use std::collections::BTreeMap;

use comfy_table::{Cell, Color, Row};
use dormouse_messages::NodeId;
use dormouse_messages::events::Gpu;
use dormouse_messages::sanitize::listed;
use dormouse_projections::nodes::GpuDoubt;
use dormouse_projections::queries::{
    ContainerCounts, JobRow, JobsAnswer, LOST_LISTED_S, NodeDetail, NodeRow, NodesAnswer,
    RefusedRow,
};

use super::humanize::{age, count, date, number, share, used_of};
use super::style::{Style, node_colour, right, state_cell};

/// Renders the list of jobs, and refused submissions.
#[must_use]
pub fn jobs(answer: &JobsAnswer, style: &Style) -> String {
    let mut parts = Vec::new();
    if !answer.jobs.is_empty() || answer.refused.is_empty() {
        parts.push(job_table(&answer.jobs, style));
    }
    if !answer.refused.is_empty() {
        parts.push(refused_table(&answer.refused, style));
    }
    if answer.more > 0 {
        parts.push(format!("{} more are not listed", answer.more));
    }
    if answer.ended_before > 0 {
        let left_out = count(answer.ended_before as u64, "job");
        parts.push(format!(
            "{left_out} that ended earlier: --all, or --from, lists them"
        ));
    }
    parts.join("\n\n")
}

const JOB_HEADER: [&str; 8] = [
    "JOB",
    "PHASE",
    "CONTAINERS",
    "SHARE",
    "PROGRESS",
    "AGE",
    "DURATION",
    "REASON",
];

/// Dropped on a narrow screen, in this order.
const LEFT_OUT: [&str; 5] = ["SHARE", "DURATION", "PROGRESS", "AGE", "CONTAINERS"];

const JOB_HEADER_WIDE: [&str; 22] = [
    "JOB",
    "KIND",
    "CLASS",
    "EXECUTOR",
    "PHASE",
    "CONTAINERS",
    "WEIGHT",
    "SHARE",
    "FAIR",
    "PLACE",
    "TENANT HAS/QUEUED",
    "EPOCH",
    "INCARNATION",
    "RESIZES",
    "LOST",
    "WAITED",
    "AGE",
    "DURATION",
    "PROGRESS",
    "NODES",
    "ADDRESS",
    "REASON",
];

fn job_table(rows: &[JobRow], style: &Style) -> String {
    if rows.is_empty() {
        return "no jobs".to_owned();
    }
    if !style.wide {
        let rows = rows.iter().map(narrow_row).collect();
        return style.fitted(&JOB_HEADER, rows, &LEFT_OUT);
    }
    let mut table = style.table(&JOB_HEADER_WIDE);
    for row in rows {
        table.add_row(wide_row(row));
    }
    style.write(table)
}

fn duration(row: &JobRow) -> String {
    let started = row.first_started_at;
    started.map_or("-".to_owned(), |_| age(row.age_s - row.waiting_s))
}

fn narrow_row(row: &JobRow) -> Vec<Cell> {
    vec![
        Cell::new(&row.job),
        state_cell(row),
        Cell::new(containers(&row.containers)),
        right(share_of(row)),
        Cell::new(progress(row, false)),
        right(age(row.submitted_ago_s)),
        right(duration(row)),
        Cell::new(&row.reason),
    ]
}

fn wide_row(row: &JobRow) -> Row {
    Row::from(vec![
        Cell::new(&row.job),
        Cell::new(format!("{:?}", row.kind).to_lowercase()),
        Cell::new(row.priority_class.as_ref().map_or("-", |class| &class.name)),
        Cell::new(format!("{:?}", row.executor).to_lowercase()),
        state_cell(row),
        Cell::new(containers(&row.containers)),
        right(row.weight),
        right(share_of(row)),
        right(share(row.fair_share)),
        right(
            row.position
                .map_or("-".to_owned(), |place| place.to_string()),
        ),
        right(tenant_shares(row)),
        right(row.epoch),
        right(row.incarnation),
        right(row.resizes),
        right(age(row.resize_lost_s + row.recovery_lost_s)),
        right(age(row.waiting_s)),
        right(age(row.submitted_ago_s)),
        right(duration(row)),
        Cell::new(progress(row, true)),
        Cell::new(nodes_of(&row.nodes, 3)),
        Cell::new(row.address.as_deref().unwrap_or("-")),
        Cell::new(&row.reason),
    ])
}

fn tenant_shares(row: &JobRow) -> String {
    match (row.tenant_share, row.demand_share) {
        (Some(has), Some(queued)) => format!("{}/{}", share(has), share(queued)),
        _ => "-".to_owned(),
    }
}

fn share_of(row: &JobRow) -> String {
    if row.containers.target == 0 && row.containers.now == 0 {
        "-".to_owned()
    } else {
        share(row.share_now.unwrap_or(row.share))
    }
}

/// `3 of 1–8`; `3→5 of 1–8` during a resize; `3 of 1–8, 1 auxiliary` with a parameter server.
pub(super) fn containers(counts: &ContainerCounts) -> String {
    let workers = |all: u32| all.saturating_sub(counts.auxiliary);
    let now = if counts.now == counts.target || counts.target == 0 {
        workers(counts.now).to_string()
    } else {
        format!("{}→{}", workers(counts.now), workers(counts.target))
    };
    let auxiliary = match counts.auxiliary {
        count if count > 0 && counts.now.max(counts.target) > 0 => format!(", {count} auxiliary"),
        _ => String::new(),
    };
    if counts.min == counts.max {
        format!("{now} of {}{auxiliary}", counts.max)
    } else {
        format!("{now} of {}–{}{auxiliary}", counts.min, counts.max)
    }
}

pub(super) fn progress(row: &JobRow, metrics: bool) -> String {
    let Some(step) = row.step else {
        return "-".to_owned();
    };
    let mut text = match row.steps_total {
        Some(total) => {
            let percent = u128::from(step) * 100 / u128::from(total.max(1));
            format!("{step}/{total} ({percent}%)")
        }
        None => step.to_string(),
    };
    if metrics {
        for (name, value) in &row.metrics {
            text.push_str(&format!(" {name} {}", number(*value)));
        }
    }
    text
}

pub(super) fn nodes_of(nodes: &BTreeMap<NodeId, u32>, named: usize) -> String {
    if nodes.is_empty() {
        return "-".to_owned();
    }
    let parts = nodes
        .iter()
        .map(|(node, count)| format!("{node} ({count})"));
    listed(parts, named)
}

fn refused_table(rows: &[RefusedRow], style: &Style) -> String {
    let mut table = style.table(&["REFUSED", "WHAT", "JOB", "TENANT", "CODE", "REASON"]);
    for row in rows {
        let job = row.job.as_ref().map_or("-", |job| job.as_str());
        let tenant = row.tenant.as_ref().map_or("-", |tenant| tenant.as_str());
        table.add_row(vec![
            Cell::new(date(row.at)),
            Cell::new(&row.verb),
            Cell::new(job),
            Cell::new(tenant),
            Cell::new(&row.code).fg(Color::Red),
            Cell::new(&row.reason),
        ]);
    }
    style.write(table)
}

/// Renders the list of nodes.
#[must_use]
pub fn nodes(answer: &NodesAnswer, style: &Style) -> String {
    if answer.nodes.is_empty() && answer.left_out == 0 {
        return "no node has joined".to_owned();
    }
    let mut table = if style.wide {
        style.table(&[
            "NODE",
            "PHASE",
            "RUNTIME",
            "ADDRESS",
            "CONTAINERS",
            "RUNNING",
            "RESERVED",
            "USED",
            "LABELS",
            "REASON",
        ])
    } else {
        style.table(&["NODE", "PHASE", "CONTAINERS", "USED", "REASON"])
    };
    for row in &answer.nodes {
        table.add_row(node_cells(row, style.wide));
    }
    let mut text = style.write(table);
    if answer.left_out > 0 {
        text.push_str(&format!(
            "\n\n{} lost more than {} ago; --all lists them",
            count(u64::from(answer.left_out), "node"),
            age(f64::from(LOST_LISTED_S))
        ));
    }
    text
}

fn node_cells(row: &NodeRow, wide: bool) -> Row {
    let name = Cell::new(&row.node);
    let state = Cell::new(format!("{:?}", row.state).to_lowercase()).fg(node_colour(row.state));
    let used = Cell::new(used_of(&row.used, &row.capacity));
    let reason = Cell::new(&row.reason);
    if !wide {
        return Row::from(vec![name, state, right(row.containers), used, reason]);
    }
    let labels = row
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let taints = row.taints.iter().map(|taint| format!("!{taint}"));
    let labels = labels.chain(taints).collect::<Vec<_>>().join(",");
    Row::from(vec![
        name,
        state,
        Cell::new(&row.runtime),
        Cell::new(&row.address),
        right(row.containers),
        right(row.running),
        right(row.reserved),
        used,
        Cell::new(if labels.is_empty() { "-" } else { &labels }),
        reason,
    ])
}

/// Renders the page of one node.
#[must_use]
pub fn node(detail: &NodeDetail, style: &Style) -> String {
    let row = &detail.row;
    let state = format!("{:?}", row.state).to_lowercase();
    let mut text = format!(
        "{}  {}  {}\n\n  {} ({}); {} reserved\n  {} at {}",
        style.bold(row.node.as_str()),
        style.paint(&state, node_colour(row.state)),
        row.reason,
        used_of(&row.used, &row.capacity),
        count(u64::from(row.containers), "container"),
        row.reserved,
        if row.runtime.is_empty() {
            "containers"
        } else {
            &row.runtime
        },
        if row.address.is_empty() {
            "-"
        } else {
            &row.address
        },
    );
    for (name, value) in &row.labels {
        text.push_str(&format!("\n  {name}={value}"));
    }
    for taint in &row.taints {
        text.push_str(&format!("\n  taint {taint}"));
    }
    for gpu in &detail.gpus {
        text.push_str(&format!("\n  {}", device(gpu)));
    }
    for (uuid, doubt) in &detail.gpu_doubts {
        text.push_str(&doubts(uuid, doubt, style));
    }
    if !detail.placed.is_empty() {
        let mut table = style.table(&["JOB", "INCARNATION", "RANK", "PHASE"]);
        for container in &detail.placed {
            table.add_row(vec![
                Cell::new(&container.job),
                right(container.incarnation),
                right(container.rank),
                Cell::new(format!("{:?}", container.state).to_lowercase()),
            ]);
        }
        text.push_str("\n\n");
        text.push_str(&style.write(table));
    }
    text
}

/// Stand-ins have neither a model nor a size.
fn device(gpu: &Gpu) -> String {
    let memory = match gpu.memory_bytes {
        0 => String::new(),
        bytes => super::humanize::bytes(bytes),
    };
    let parts = [&gpu.model, &memory, &gpu.uuid].map(String::as_str);
    let known: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    known.join(" ")
}

fn doubts(uuid: &str, doubt: &GpuDoubt, style: &Style) -> String {
    let since = doubt.since.to_words();
    let mut text = String::new();
    let mut say = |what: String| {
        let line = format!("{uuid}: {what}, since {since}");
        text.push_str(&format!("\n  {}", style.paint(&line, Color::Yellow)));
    };
    for stranger in &doubt.strangers {
        let program = stranger.program.as_deref().unwrap_or("unknown");
        let memory = stranger.memory_bytes.map(super::humanize::bytes);
        let memory = memory.map_or_else(String::new, |it| format!(" with {it}"));
        say(format!(
            "process {} ({program}){memory} is under no part of it",
            stranger.pid
        ));
    }
    for beyond in &doubt.beyond {
        say(format!(
            "{} has {} there, its cap is {}",
            beyond.container,
            super::humanize::bytes(beyond.driver_bytes),
            super::humanize::bytes(beyond.cap_bytes)
        ));
    }
    text
}
