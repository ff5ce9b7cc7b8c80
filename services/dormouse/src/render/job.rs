//! Renders the page of one job.

use comfy_table::{Cell, CellAlignment};
use dormouse_messages::Timestamp;
use dormouse_messages::events::StopReason;
use dormouse_messages::job::JobSpec;
use dormouse_messages::needs::Constraints;
use dormouse_messages::sanitize::listed;
use dormouse_messages::workdir::Workdir;
use dormouse_projections::jobs::{GpuUsed, StoppedFor, TaskCounts};
use dormouse_projections::queries::{IDLE, IncarnationRow, JobDetail, JobRow, Spread};

use super::chart;
use super::humanize::{age, bytes, count, date, number, share};
use super::service;
use super::speed;
use super::style::{Style, phase_colour};
use super::table::{containers, nodes_of, progress};

const NODES: usize = 8;

const DRAWING_ROWS: u16 = 8;

/// Renders the page of one job.
#[must_use]
pub fn job(detail: &JobDetail, style: &Style) -> String {
    let row = &detail.row;
    let phase = if row.code == IDLE {
        IDLE.to_owned()
    } else {
        style.paint(row.phase.as_str(), phase_colour(row.phase))
    };
    let mut page = format!(
        "{}  {phase}  {}\n\n",
        style.bold(row.job.as_str()),
        row.reason
    );
    for (name, text) in facts(detail) {
        page.push_str(&format!("  {name:<11} {text}\n"));
    }
    let figures = detail.service.as_ref();
    if let Some(figures) = figures.and_then(|it| service::figures(it, style)) {
        page.push_str(&format!("\n{figures}"));
    }
    if !detail.incarnations.is_empty() {
        page.push_str(&format!("\n{}\n", style.bold("Incarnations")));
        if detail.incarnations_dropped > 0 {
            let dropped = u64::from(detail.incarnations_dropped);
            page.push_str(&format!("{dropped} earlier ones are left out\n"));
        }
        page.push_str(&incarnations(&detail.incarnations, row, style));
        page.push('\n');
    }
    let drawn = detail
        .containers_timeline
        .series
        .iter()
        .map(|s| s.points.len());
    if drawn.max().unwrap_or(0) > 2 {
        page.push('\n');
        page.push_str(&chart::draw(
            &detail.containers_timeline,
            style,
            DRAWING_ROWS,
        ));
    }
    if let Some(speed) = &detail.speed {
        page.push('\n');
        page.push_str(&speed::draw(speed));
    }
    page.trim_end().to_owned()
}

fn roles(detail: &JobDetail) -> Option<String> {
    let roles = detail.roles.iter().map(|it| {
        let from = it.first_rank;
        let ranks = match it.count {
            1 => format!("rank {from}"),
            count => format!("ranks {from} to {}", from + count - 1),
        };
        format!("{}: {} ({} each), {ranks}", it.role, it.count, it.demand)
    });
    let roles: Vec<String> = roles.collect();
    (!roles.is_empty()).then(|| roles.join("; "))
}

fn facts(detail: &JobDetail) -> Vec<(&'static str, String)> {
    let row = &detail.row;
    let mut facts = vec![("Kind", kind(detail))];
    facts.extend(class(row).map(|class| ("Class", class)));
    facts.push(("Containers", containers_text(detail)));
    facts.extend(row.address.clone().map(|address| ("Address", address)));
    let health = detail.service.iter();
    facts.extend(health.flat_map(|it| service::facts(it, row)));
    let spread = detail.spread.as_ref();
    facts.extend(spread.map(|spread| ("Spread", spread_text(row, spread))));
    let speed = detail.speed.as_ref();
    facts.extend(speed.map(|speed| ("Speed", speed::summary(speed))));
    facts.push(("Demand", format!("{} each", detail.demand)));
    facts.extend(roles(detail).map(|roles| ("Roles", roles)));
    facts.push((
        "Share",
        format!(
            "{} (fair share {}, weight {}, epoch {})",
            share(row.share_now.unwrap_or(row.share)),
            share(row.fair_share),
            row.weight,
            row.epoch
        ),
    ));
    if let (Some(has), Some(queued)) = (row.tenant_share, row.demand_share) {
        let place = row.position.map(|position| format!("place {position}; "));
        facts.push((
            "Queue",
            format!(
                "{}{} has {} of the cluster and {} queued",
                place.unwrap_or_default(),
                row.job.tenant(),
                share(has),
                share(queued)
            ),
        ));
    }
    let tasks = row.tasks.map(|tasks| ("Tasks", tasks_text(tasks)));
    let steps = row.step.map(|_| ("Progress", progress_text(row)));
    facts.extend(tasks.or(steps));
    if let Some(saved) = &detail.checkpoint {
        let size = bytes(saved.bytes);
        let took = std::time::Duration::from_millis(saved.duration_ms).as_secs_f64();
        let took = if took > 0.0 {
            format!(" in {}", age(took))
        } else {
            String::new()
        };
        facts.push((
            "Checkpoint",
            format!(
                "step {}, {size}{took}{}: {}",
                saved.step,
                ago(row, saved.at),
                saved.uri
            ),
        ));
    }
    facts.extend(row.gpu.as_ref().map(|gpu| ("GPU", gpu_text(gpu))));
    facts.push(("Submitted", submitted(detail)));
    facts.extend(row.ended_at.map(|at| ("Ended", ended(detail, at))));
    facts.push(("Cost", cost(row)));
    match &detail.spec {
        Some(spec) => facts.extend(specified(spec)),
        None => {
            let command = Some(&detail.command).filter(|command| !command.is_empty());
            facts.extend(command.map(|command| ("Command", command.clone())));
            facts.extend(detail.workdir.as_ref().map(packed));
        }
    }
    facts
}

fn packed(folder: &Workdir) -> (&'static str, String) {
    let size = bytes(folder.bytes);
    let text = format!("{size} packed, sha256 {}", folder.sha256);
    ("Workdir", text)
}

fn specified(spec: &JobSpec) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Command", spec.command.start.join(" "))];
    facts.extend(spec.workdir.as_ref().map(packed));
    if let Some(python) = &spec.python {
        let packages = python
            .requirements
            .iter()
            .map(|it| match it.split_once(" --hash") {
                Some((package, _)) => package,
                None => it,
            });
        facts.push(("Packages", packages.collect::<Vec<_>>().join(", ")));
    }
    facts.extend(spec.image.as_ref().map(|image| ("Image", image.clone())));
    let limit = |limit_s: u32| age(f64::from(limit_s));
    facts.extend(spec.time_limit_s.map(|it| ("Time limit", limit(it))));
    facts.extend(spec.queue_limit_s.map(|it| ("Queue limit", limit(it))));
    if spec.priority != 0 {
        facts.push(("Priority", spec.priority.to_string()));
    }
    if !spec.constraints.is_empty() {
        facts.push(("Constraints", constraints(&spec.constraints)));
    }
    facts
}

fn constraints(of: &Constraints) -> String {
    let required = Some(of.to_string()).filter(|text| !text.is_empty());
    let prefers = of.prefer.iter();
    let prefers = prefers.map(|(label, rule)| format!("prefers {label}: {rule}"));
    let spread = of.spread.iter().map(|label| format!("spread over {label}"));
    let packed = of.pack.iter().map(|label| format!("packed by {label}"));
    let parts = required
        .into_iter()
        .chain(prefers)
        .chain(spread)
        .chain(packed);
    parts.collect::<Vec<_>>().join(", ")
}

fn containers_text(detail: &JobDetail) -> String {
    let row = &detail.row;
    let has = containers(&row.containers);
    if !row.nodes.is_empty() {
        return format!("{has} on {}", nodes_of(&row.nodes, NODES));
    }
    let last = detail.incarnations.last().filter(|it| !it.on.is_empty());
    let Some(last) = last.filter(|_| row.ended_at.is_some()) else {
        return has;
    };
    let number = count(u64::from(last.containers), "container");
    format!("{has}; at last {number} on {}", listed(&last.on, NODES))
}

fn spread_text(row: &JobRow, spread: &Spread) -> String {
    let why = if spread.measured {
        "measured"
    } else {
        "by objective.crossing"
    };
    format!(
        "on {} nodes it counts as {:.1} containers on one: it loses {:.0} % there, {why}",
        row.nodes.len(),
        spread.works_as,
        spread.crossing * 100.0
    )
}

fn gpu_text(gpu: &GpuUsed) -> String {
    let seconds = |us: u64| std::time::Duration::from_micros(us).as_secs_f64();
    let mut text = format!(
        "{:.1} % of a device and {} at last; {} in all, {} waited for",
        std::time::Duration::from_millis(gpu.last_milli).as_secs_f64() * 100.0,
        bytes(gpu.last_bytes),
        age(seconds(gpu.busy_us)),
        age(seconds(gpu.waited_us)),
    );
    if let Some(driver) = gpu.last_driver_bytes {
        text.push_str(&format!("; {} by the driver", bytes(driver)));
    }
    if gpu.last_beyond_bytes > 0 {
        let beyond = bytes(gpu.last_beyond_bytes);
        text.push_str(&format!(
            ", {beyond} beyond its cap: its programs go around the library"
        ));
    }
    if gpu.refused > 0 {
        text.push_str(&format!("; {} refused", count(gpu.refused, "allocation")));
    }
    text
}

fn class(row: &JobRow) -> Option<String> {
    let class = row.priority_class.as_ref().map(|class| {
        let preempts = if class.preempts { ", preempts" } else { "" };
        format!("{} ({}{preempts})", class.name, class.value)
    });
    let preempted = match row.preempted {
        0 => None,
        1 => Some("preempted once".to_owned()),
        times => Some(format!("preempted {times} times")),
    };
    match (class, preempted) {
        (Some(class), Some(preempted)) => Some(format!("{class}; {preempted}")),
        (class, preempted) => class.or_else(|| preempted.map(|it| format!("none; {it}"))),
    }
}

fn kind(detail: &JobDetail) -> String {
    let row = &detail.row;
    let kind = format!("{:?} with the {:?} executor", row.kind, row.executor).to_lowercase();
    match &detail.spec {
        Some(spec) if spec.adjustable() => format!("{kind}; resizable"),
        Some(_) => format!("{kind}; never adjusted while it runs (it has no checkpoint)"),
        None => kind,
    }
}

fn tasks_text(tasks: TaskCounts) -> String {
    let mut text = format!("{} of {} completed", tasks.completed, tasks.count);
    let parts = [
        (tasks.failed, "failed"),
        (tasks.retried, "failures tried again"),
        (tasks.assigned, "handed out"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {what}"));
    }
    text
}

fn progress_text(row: &JobRow) -> String {
    let mut text = progress(row, false);
    for (name, value) in &row.metrics {
        text.push_str(&format!(", {name} {}", number(*value)));
    }
    text + &row.progress_at.map(|at| ago(row, at)).unwrap_or_default()
}

fn ago(row: &JobRow, at: Timestamp) -> String {
    if row.ended_at.is_some() {
        return format!(", {}", date(at));
    }
    // The answer's own time, not the local clock.
    let ago_s = row.age_s - at.seconds_since(row.submitted_at);
    format!(", {} ago", age(ago_s))
}

fn ended(detail: &JobDetail, at: Timestamp) -> String {
    let jct = detail.row.jct_s.map(age).unwrap_or_default();
    let by = detail.cancelled_by.as_ref();
    let by = by.map_or_else(String::new, |by| format!("; cancelled by {by}"));
    format!("{}, {jct} after its submission (JCT){by}", date(at))
}

fn submitted(detail: &JobDetail) -> String {
    let row = &detail.row;
    let mut text = date(row.submitted_at);
    if let Some(by) = &detail.submitted_by {
        text.push_str(&format!(" by {by}"));
    }
    if row.ended_at.is_none() {
        text.push_str(&format!(", {} ago", age(row.age_s)));
    }
    match (row.first_started_at, row.released_at) {
        (Some(_), _) => text.push_str(&format!(
            "; waited {} for its first start",
            age(row.waiting_s)
        )),
        (None, Some(released)) => {
            let queued_s = released.seconds_since(row.submitted_at);
            text.push_str(&format!("; released after {}", age(queued_s)));
        }
        (None, None) => {}
    }
    text
}

fn cost(row: &JobRow) -> String {
    let mut text = format!("{:.2} container-hours", row.container_s / 3600.0);
    if row.resizes > 0 {
        let resizes = count(u64::from(row.resizes), "resize");
        text.push_str(&format!("; {resizes} took {}", age(row.resize_lost_s)));
    }
    if row.restarts > 0 {
        let restarts = count(u64::from(row.restarts), "restart");
        let lost = age(row.recovery_lost_s);
        text.push_str(&format!("; {restarts} after failures took {lost}"));
    }
    if row.attempts > 0 {
        let failed = if row.attempts == 1 {
            "1 incarnation".to_owned()
        } else {
            format!("{} incarnations", row.attempts)
        };
        text.push_str(&format!("; {failed} ended in a failure of its own"));
    }
    text
}

fn incarnations(rows: &[IncarnationRow], row: &JobRow, style: &Style) -> String {
    let mut table = style.table(&[
        "INCARNATION",
        "EPOCH",
        "CONTAINERS",
        "NODES",
        "FROM STEP",
        "STARTED",
        "RAN",
        "END",
    ]);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    for (index, it) in rows.iter().enumerate() {
        let last = index + 1 == rows.len();
        let from = match it.resumed_step {
            Some(step) => step.to_string(),
            None if it.incarnation.0 == 1 => "start".to_owned(),
            None => "-".to_owned(),
        };
        table.add_row(vec![
            right(it.incarnation.to_string()),
            right(it.epoch.to_string()),
            right(it.containers.to_string()),
            right(it.nodes.to_string()),
            right(from),
            Cell::new(it.started_at.map_or_else(|| "-".to_owned(), date)),
            right(age(it.ran_s)),
            Cell::new(end(it, row, last)),
        ]);
    }
    style.write(table)
}

fn end(of: &IncarnationRow, row: &JobRow, last: bool) -> String {
    let text = match of.stop_reason {
        Some(StopReason::Adjusted) => match of.stopped_for {
            Some(StoppedFor::Preemption) => "preempted",
            Some(StoppedFor::Hold) => "put on hold, or requeued",
            None => "adjusted",
        },
        Some(StopReason::Cancelled) => "cancelled",
        Some(StopReason::Failed) => "a container failed; started again",
        // The reason says whether tasks or containers failed.
        Some(StopReason::GaveUp) if row.tasks.is_some() => "it failed; no retries left",
        Some(StopReason::GaveUp) => "a container failed; no retries left",
        Some(StopReason::NodeLost) => "a node was lost",
        Some(StopReason::TimeLimit) => "its time was over",
        Some(StopReason::Completed) => "the coordinator succeeded",
        None if last => row.phase.as_str(),
        None => "ended",
    };
    text.to_owned()
}
