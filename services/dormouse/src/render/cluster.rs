//! Renders the cluster's overview, and the ledger.

use comfy_table::{Cell, CellAlignment};
use dormouse_messages::quantity::Resource;
use dormouse_projections::queries::{ClusterAnswer, LedgerAnswer};

use super::humanize::{age, count, date, number, share};
use super::style::{Style, phase_cell};
use crate::describe;

/// Renders the cluster's overview.
#[must_use]
#[expect(clippy::too_many_lines, reason = "one line of the page after another")]
pub fn cluster(answer: &ClusterAnswer, style: &Style) -> String {
    let policy = &answer.policy;
    let nodes = &answer.nodes;
    let mut facts = vec![
        ("Policy", describe::policy(policy)),
        (
            "Nodes",
            format!(
                "{} up, {} drained, {}{} lost",
                nodes.up,
                nodes.drained,
                match nodes.quarantined {
                    0 => String::new(),
                    quarantined => format!("{quarantined} quarantined, "),
                },
                nodes.lost
            ),
        ),
        ("Resources", resources(answer)),
        ("Jobs", jobs(answer)),
        (
            "Containers",
            format!("{} started or starting", answer.containers),
        ),
    ];
    if !policy.preemption.is_unbounded() || !policy.priority_classes.is_empty() {
        facts.push(("Preemption", describe::preemption(policy)));
    }
    facts.push((
        "Adjusted",
        format!(
            "{} jobs by choice and {} forced since the beginning; {} allocations decided, {} kept",
            number(answer.adjusted),
            number(answer.forced),
            answer.allocations_decided,
            answer.allocations_kept
        ),
    ));
    if let Some(last) = &answer.allocation {
        // Allocated relates to the usable capacity, running to all capacity.
        let (of_usable, of_all) = match nodes.drained + nodes.quarantined {
            0 => ("", ""),
            _ => (" of the nodes that take containers", " of all"),
        };
        facts.push((
            "Allocation",
            format!(
                "epoch {}: utilization {} of {} allocated{}, {} running{} (the sum over the resources); fairness loss {} (bound {}), adjusted {} jobs (bound {})",
                answer.epoch,
                share(last.utilization.total),
                last.utilization.resources.len(),
                of_usable,
                share(running(answer)),
                of_all,
                share(last.fairness_loss),
                share(last.fairness_loss_bound),
                last.adjusted_jobs,
                last.adjustment_bound
            ),
        ));
        let solver = &last.solver;
        let gap = number(solver.gap * 100.0);
        facts.push((
            "Solver",
            format!(
                "{} {}: {}, gap {gap} % ({})",
                solver.name, solver.version, solver.status, solver.stage
            ),
        ));
    }
    facts.push((
        "Log",
        format!(
            "event {}, {}, {} ago; {} flagged",
            answer.log.head,
            date(answer.log.at),
            age(answer.log.quiet_s),
            answer.log.flagged
        ),
    ));
    if let Some(flagged) = &answer.log.last_flagged {
        facts.push((
            "Flagged",
            format!("event {}: {}", flagged.sequence, flagged.reason),
        ));
    }
    let lines = facts.iter().map(|(name, text)| {
        let name = style.bold(&format!("{name:<11}"));
        format!("{name} {text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn resources(answer: &ClusterAnswer) -> String {
    let parts = answer
        .resources
        .iter()
        .map(|(name, usage)| match Resource::from_name(name) {
            Ok(resource) => format!(
                "{name} {} of {} allocated, {} running",
                resource.display(usage.allocated),
                resource.display(usage.capacity),
                resource.display(usage.running)
            ),
            Err(_) => format!(
                "{name} {} of {} allocated, {} running",
                usage.allocated, usage.capacity, usage.running
            ),
        });
    parts.collect::<Vec<_>>().join("; ")
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn running(answer: &ClusterAnswer) -> f64 {
    let some = answer.resources.values().filter(|usage| usage.capacity > 0);
    some.map(|usage| usage.running as f64 / usage.capacity as f64)
        .sum()
}

fn jobs(answer: &ClusterAnswer) -> String {
    let some = answer.jobs.iter().filter(|(_, count)| **count > 0);
    let mut parts: Vec<String> = some
        .map(|(phase, count)| format!("{count} {phase}"))
        .collect();
    match answer.refused {
        0 => {}
        1 => parts.push("1 refusal".to_owned()),
        count => parts.push(format!("{count} refusals")),
    }
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Renders the ledger.
#[must_use]
pub fn ledger(answer: &LedgerAnswer, style: &Style) -> String {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut jobs = style.table(&[
        "JOB",
        "PHASE",
        "JCT",
        "WAITED",
        "CONTAINER-H",
        "RESIZES",
        "LOST",
        "LOSS",
        "ACCURACY",
    ]);
    for row in &answer.jobs {
        jobs.add_row(vec![
            Cell::new(&row.job),
            phase_cell(row.phase),
            right(or_dash(row.jct_s.map(age))),
            right(age(row.waiting_s)),
            right(format!("{:.2}", row.container_s / 3600.0)),
            right(row.resizes.to_string()),
            right(age(row.resize_lost_s)),
            right(or_dash(row.loss.map(number))),
            right(or_dash(row.accuracy.map(number))),
        ]);
    }
    let mut tenants = style.table(&[
        "TENANT",
        "JOBS",
        "COMPLETED",
        "MEAN JCT",
        "CONTAINER-H",
        "RESIZES",
        "LOST",
    ]);
    for (name, tenant) in &answer.tenants {
        tenants.add_row(vec![
            Cell::new(name),
            right(tenant.jobs.to_string()),
            right(tenant.completed.to_string()),
            right(or_dash(tenant.mean_jct_s.map(age))),
            right(format!("{:.2}", tenant.container_s / 3600.0)),
            right(tenant.resizes.to_string()),
            right(age(tenant.resize_lost_s)),
        ]);
    }
    if answer.jobs.is_empty() {
        return format!(
            "no jobs in {}",
            count(answer.tenants.len() as u64, "tenant")
        );
    }
    format!("{}\n\n{}", style.write(jobs), style.write(tenants))
}
