//! `lab …`: runs the services without a cluster, a file or folder each command.

pub mod import;
pub mod simulate;
pub mod solve;

use clap::Subcommand;

use crate::context::Context;

/// Run the services without a cluster: in a simulation, or once on a problem; import another cluster's records
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse lab simulate scenario.json\n  dormouse lab solve problem.json\n  dormouse lab import sacct jobs.txt --file month.json"
)]
pub enum LabCommand {
    Simulate(Box<simulate::args::SimulateArgs>),
    Solve(solve::SolveArgs),
    Import(Box<import::ImportArgs>),
}

/// Runs `lab …`.
///
/// # Errors
/// Those of the command.
pub fn run(context: &Context, command: &LabCommand) -> anyhow::Result<u8> {
    match command {
        LabCommand::Simulate(args) => simulate::run(context, args),
        LabCommand::Solve(args) => solve::run(context, args),
        LabCommand::Import(args) => import::run(context, args),
    }
}
