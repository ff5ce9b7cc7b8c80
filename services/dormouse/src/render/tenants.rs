//! Renders the list of tenants and the page of one.

use comfy_table::{Cell, Row};
use dormouse_messages::grants::GrantsRule;
use dormouse_projections::queries::{BudgetRow, TenantDetail, TenantRow, TenantsAnswer};

use super::humanize::{age, date, number, share};
use super::style::{Style, right};
use crate::describe;

const HEADER: [&str; 9] = [
    "TENANT",
    "WEIGHT",
    "SHARE",
    "QUEUED",
    "JOBS",
    "QUEUE",
    "MEAN WAIT",
    "LONGEST",
    "REASON",
];

const HEADER_WIDE: [&str; 16] = [
    "TENANT",
    "WEIGHT",
    "ENTITLED",
    "SHARE",
    "QUEUED",
    "JOBS",
    "QUEUE",
    "HELD",
    "MEAN WAIT",
    "LONGEST",
    "LOSS",
    "HAS",
    "QUOTA",
    "MAX WEIGHT",
    "GRANTED",
    "REASON",
];

const BALANCE: &str = "BALANCE";

const BUDGET: &str = "BUDGET";

/// Renders the list of tenants.
#[must_use]
pub fn tenants(answer: &TenantsAnswer, style: &Style) -> String {
    if answer.tenants.is_empty() {
        return "no tenants".to_owned();
    }
    let header: &[&str] = if style.wide { &HEADER_WIDE } else { &HEADER };
    let is_remembered = answer.tenants.iter().any(|row| row.balance.is_some());
    let mut header = header.to_vec();
    if is_remembered {
        header.insert(2, BALANCE);
    }
    let is_budgeted = answer.tenants.iter().any(|row| row.budget.is_some());
    if is_budgeted {
        header.insert(header.len() - 1, BUDGET);
    }
    let mut table = style.table(&header);
    for row in &answer.tenants {
        let mut cells = if style.wide { wide(row) } else { narrow(row) };
        if is_budgeted {
            let used = row.budget.as_ref();
            let used = used.map_or("-".to_owned(), |it| {
                format!("{} % of {}", it.percent, it.budget)
            });
            cells.insert(cells.len() - 1, Cell::new(used));
        }
        if is_remembered {
            cells.insert(2, right(balance(row)));
        }
        table.add_row(Row::from(cells));
    }
    let rule = match answer.grants {
        GrantsRule::Open => "",
        GrantsRule::Required => "\nWhat is not granted is refused.",
    };
    format!(
        "{}\n\nQueue: {}; unfairness since the beginning: {} share-seconds{rule}",
        style.write(table),
        answer.queue.as_str(),
        number(answer.unfairness_area)
    )
}

fn weight(row: &TenantRow) -> String {
    if row.configured {
        row.weight.to_string()
    } else {
        format!("({})", row.weight)
    }
}

/// Use by due, and the factor of the weight.
fn balance(row: &TenantRow) -> String {
    match (row.balance, row.factor) {
        (Some(balance), Some(factor)) => format!("{}, ×{factor:.2}", share(balance)),
        _ => "-".to_owned(),
    }
}

fn budget(row: &BudgetRow) -> String {
    let then = row.budget.at_limit.words();
    let ends = row
        .ends_at
        .map(|at| format!("; used up at {} at the present use", date(at)));
    let until = row
        .until
        .map(|at| format!("; begins again at {}", date(at)));
    format!(
        "{}: {} of {} {} hours used ({} %), {then}{}{}",
        row.budget,
        row.used,
        row.hours,
        row.resource,
        row.percent,
        ends.unwrap_or_default(),
        until.unwrap_or_default()
    )
}

fn narrow(row: &TenantRow) -> Vec<Cell> {
    vec![
        Cell::new(row.tenant.as_str()),
        right(weight(row)),
        right(share(row.share)),
        right(share(row.demand_share)),
        right(row.released_jobs),
        right(row.queued_jobs + row.held_jobs),
        right(age(row.mean_start_wait_s)),
        right(age(row.longest_start_wait_s)),
        Cell::new(&row.reason),
    ]
}

fn wide(row: &TenantRow) -> Vec<Cell> {
    vec![
        Cell::new(row.tenant.as_str()),
        right(weight(row)),
        right(share(row.entitled)),
        right(share(row.share)),
        right(share(row.demand_share)),
        right(row.released_jobs),
        right(row.queued_jobs),
        right(row.held_jobs),
        right(age(row.mean_start_wait_s)),
        right(age(row.longest_start_wait_s)),
        right(share(row.fairness_loss)),
        Cell::new(or_dash(row.runs.to_string())),
        Cell::new(or_dash(row.quota.to_string())),
        right(
            row.max_job_weight
                .map_or("-".to_owned(), |most| most.to_string()),
        ),
        Cell::new(describe::grants(&row.grants)),
        Cell::new(&row.reason),
    ]
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// Renders the page of one tenant.
#[must_use]
pub fn tenant(detail: &TenantDetail, style: &Style) -> String {
    let row = &detail.row;
    let mut page = format!("{}  {}\n\n", style.bold(row.tenant.as_str()), row.reason);
    let unconfigured = " (not configured; the policy's)";
    let configured = if row.configured { "" } else { unconfigured };
    let most = row.max_job_weight;
    let most = most.map_or(String::new(), |most| format!("; a job's at most {most}"));
    let priority = match row.priority {
        0 => String::new(),
        priority => format!("; its jobs' priority {priority}"),
    };
    let facts = [
        (
            "Weight",
            format!("{}{configured}{most}{priority}", row.weight),
        ),
        ("Balance", balance(row)),
        ("Quota", or_dash(row.quota.to_string())),
        (
            "Budget",
            row.budget.as_ref().map(budget).unwrap_or_default(),
        ),
        ("Granted", describe::grants(&row.grants)),
        (
            "Has",
            format!(
                "{} in {} jobs: {} of the cluster, entitled to {}",
                or_dash(row.runs.to_string()),
                row.released_jobs,
                share(row.share),
                share(row.entitled)
            ),
        ),
        (
            "Queued",
            format!(
                "{} in {} jobs: {} of the cluster; {} wait for others",
                or_dash(row.queued.to_string()),
                row.queued_jobs,
                share(row.demand_share),
                row.held_jobs
            ),
        ),
        (
            "Waits",
            format!(
                "{} on average from a submission to the first start, {} at the longest; of it in the queue {} and {}",
                age(row.mean_start_wait_s),
                age(row.longest_start_wait_s),
                age(row.mean_wait_s),
                age(row.longest_wait_s)
            ),
        ),
        ("Loss", share(row.fairness_loss)),
    ];
    let shown = |(name, text): &(&str, String)| match *name {
        "Balance" => row.balance.is_some(),
        "Budget" => !text.is_empty(),
        _ => true,
    };
    for (name, text) in facts.into_iter().filter(shown) {
        page.push_str(&format!("  {name:<11} {text}\n"));
    }
    if !detail.queue.is_empty() {
        page.push_str(&format!("\n{}", queue(detail, style)));
    }
    page.trim_end().to_owned()
}

fn queue(detail: &TenantDetail, style: &Style) -> String {
    let mut table = style.table(&["PLACE", "JOB", "CLASS", "PRIORITY", "NEEDS", "WAITED"]);
    for job in &detail.queue {
        table.add_row(Row::from(vec![
            right(job.position),
            Cell::new(&job.job),
            Cell::new(job.priority_class.as_deref().unwrap_or("-")),
            right(job.priority),
            Cell::new(job.needs.to_string()),
            right(age(job.waited_s)),
        ]));
    }
    style.write(table)
}
