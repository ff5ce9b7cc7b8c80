//! `lab simulate serving:TRACE`: compares scaling rules.

use comfy_table::Cell;
use dormouse_replay::serving::compare::{Row, compare};
use dormouse_replay::serving::traces::Kind;

use super::runs;
use crate::commands::lab::simulate::args::SimulateArgs;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{Style, right};

/// Runs the comparison.
///
/// # Errors
/// If a simulation gives no figures, or the answer cannot be printed.
pub fn run(context: &Context, args: &SimulateArgs, traces: &[Kind]) -> anyhow::Result<u8> {
    let output = context.output()?;
    let seeds: Vec<u64> = args.seeds.0.clone().collect();
    let rows = compare(traces, &args.starts, &seeds, runs::threads(args))?;
    print::ours(output, &rows, |wide| text(&rows, &Style::of_stdout(wide)))?;
    Ok(DONE)
}

fn text(rows: &[Row], style: &Style) -> String {
    let mut table = style.table(&[
        "TRACE",
        "START",
        "RULE",
        "IN TIME",
        "WORST SEED",
        "REPLICAS",
        "OF ORACLE",
        "CHANGES",
        "REACTION",
    ]);
    for row in rows {
        let percent = |part: f64| format!("{:.2} %", part * 100.0);
        let reaction = row.reaction_s;
        let numbers = [
            percent(row.attainment),
            percent(row.worst),
            format!("{:.2}", row.replicas),
            format!("{:.2}", row.of_oracle),
            format!("{:.1}", row.changes),
            reaction.map_or("-".to_owned(), |it| format!("{it:.1} s")),
        ];
        let start = right(format!("{} s", row.start_s));
        let named = [Cell::new(row.trace), start, Cell::new(row.rule)];
        table.add_row(named.into_iter().chain(numbers.into_iter().map(right)));
    }
    style.write(table)
}
