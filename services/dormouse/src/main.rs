//! The `dormouse` command: a local cluster, the services, and every query about them.
//!
//! - `cli` declares the command line; `commands` has most commands, with their flags.
//! - `up`, `serve`, `web` and `demo` run clusters, services, the page and the demo.
//! - `context` finds the cluster; `print`, `render`, `describe` and `error` make the output.
//! - `pack` packs folders of jobs; `cluster_metrics` and `load` measure; `build_id` names the build.

mod build_id;
mod cli;
mod clock;
mod cluster_metrics;
mod commands;
mod context;
mod demo;
mod describe;
#[cfg(test)]
#[path = "../tests/documents/mod.rs"]
mod documents;
mod error;
mod load;
mod pack;
mod print;
mod render;
mod serve;
mod up;
mod web;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use cli::global::{Output, OutputArg};
use cli::{Cli, Command};
use context::Context;
use dormouse_messages::sanitize;
use dormouse_sandbox::one_shot;
use tokio::runtime::Builder;

/// Events are many small allocations on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The supervisor forks for every container: without runtime threads, and with little memory, whose page
    // tables each fork copies. So it starts before clap describes the command line.
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let [command, folder] = &words[..]
        && command == "supervisor"
        && Path::new(folder).is_absolute()
    {
        let ended = dormouse_sandbox::supervisor::run(Path::new(folder));
        return ended.map_or_else(
            |error| ExitCode::from(error::print(&error.into(), Output::Table)),
            |()| ExitCode::SUCCESS,
        );
    }
    if let [command, flag, orders] = &words[..]
        && command == "supervisor"
        && flag == one_shot::FLAG
    {
        let failed = one_shot::run(&orders.to_string_lossy());
        return ExitCode::from(error::print(&failed.into(), Output::Table));
    }
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = match cli.global.output {
        OutputArg::Format(output) => output,
        OutputArg::File(_) => Output::Table,
    };
    match on_runtime(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(error::print(&error, output)),
    }
}

fn parsed() -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches();
    let mut matches = matches.map_err(|error| {
        let words: Vec<String> = std::env::args().collect();
        cli::others::with_tip(error, &words)
    })?;
    let given = up::former::given(&Cli::command(), &matches);
    let mut cli = Cli::from_arg_matches_mut(&mut matches)?;
    if let Some(Command::Up(args)) = &mut cli.command {
        args.given = given;
    }
    Ok(cli)
}

fn on_runtime(cli: Cli) -> anyhow::Result<u8> {
    if matches!(cli.command, Some(Command::Up(_) | Command::Demo(_))) {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        return actix::System::with_tokio_rt(|| runtime).block_on(run(cli));
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(cli))
}

/// Prints errors in the requested format. The exit code is never clap's 2, which means that a job was
/// accepted.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(error::DONE);
    }
    let words: Vec<String> = std::env::args().collect();
    let wanted = words.windows(2).filter_map(|pair| match pair {
        [flag, form] if flag == "-o" || flag == "--output" => Some(form.as_str()),
        _ => None,
    });
    let joined = words.iter().filter_map(|word| {
        word.strip_prefix("--output=")
            .or_else(|| word.strip_prefix("-o"))
    });
    let set = std::env::var("DORMOUSE_OUTPUT");
    let mut forms = wanted.chain(joined).chain(set.as_deref().ok());
    if forms.any(|form| form == "json") {
        let text = error.render().to_string();
        let text = text.trim_start_matches("error: ").trim_end().to_owned();
        error::print(&error::Coded::new("usage", text).into(), Output::Json);
    } else if words.iter().any(|word| sanitize::shown(word) != *word) {
        let text = error.render().to_string();
        print::aside(sanitize::shortened(text.trim_end()));
    } else {
        let _ = error.print();
    }
    ExitCode::from(error::ERROR)
}

async fn run(cli: Cli) -> anyhow::Result<u8> {
    let context = Context::new(cli.global)?;
    let Some(command) = cli.command else {
        return commands::overview::run(&context).await;
    };
    match command {
        Command::Up(args) => up::run(&context, &args, cli::up_of).await,
        Command::Down(_) => commands::down::run(&context).await,
        Command::Demo(args) => demo::run(&context, &args).await,
        Command::Serve(args) => serve::run(&context, &args).await,
        Command::Submit(args) => commands::submit::run(&context, &args).await,
        Command::Run(args) => commands::run::run(&context, &args).await,
        Command::Jobs(args) => commands::jobs::run(&context, &args).await,
        Command::Job(command) => commands::job::run(&context, &command).await,
        Command::Nodes(args) => commands::nodes::run(&context, args).await,
        Command::Node(command) => commands::node::run(&context, &command).await,
        Command::Tenants(args) => commands::tenants::run(&context, args).await,
        Command::Webhook(command) => commands::webhook::run(&context, &command).await,
        Command::Tenant(command) => commands::tenants::tenant(&context, &command).await,
        Command::Accounts(command) => commands::accounts::run(&context, &command).await,
        Command::Cluster(args) => commands::cluster::run(&context, &args).await,
        Command::Configure(args) => commands::configure::configure(&context, &args).await,
        Command::Log(command) => commands::log::run(&context, &command).await,
        Command::Replay(command) => commands::replay::run(&context, &command).await,
        Command::Solve(args) => commands::solve::run(&context, &args),
        Command::Simulate(args) => commands::simulate::run(&context, &args),
        Command::Timeline(args) => commands::timeline::run(&context, &args).await,
        Command::Explain(args) => commands::explain::run(&context, &args).await,
        Command::Plan(args) => commands::plan::run(&context, &args).await,
        Command::Whatif(args) => commands::whatif::run(&context, &args).await,
        Command::Ledger(args) => commands::ledger::run(&context, &args).await,
        Command::Notebook(command) => commands::notebook::run(&context, &command).await,
        Command::Key(args) => commands::key::run(&context, &args),
        Command::Supervisor(args) => Ok(commands::supervisor::run(&args).await),
        Command::Completion(args) => commands::names::completion(args, &mut Cli::command()),
        Command::Names(args) => commands::names::run(&context, args).await,
        Command::Schema(args) => commands::schema::run(&context, args),
        Command::Version(_) => commands::version::run(&context),
        Command::Doctor(_) => commands::doctor::run(&context).await,
        Command::Top(args) => commands::overview::top(&context, args).await,
    }
}
