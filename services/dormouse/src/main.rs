//! The `dormouse` command: a local cluster, the services, and every query about them.
//!
//! - `cli` declares the command line; `commands` has most commands, with their flags, by noun and verb.
//! - `up`, `serve` and `demo` run clusters, services and the demo.
//! - `context` finds the cluster; `print`, `render`, `describe` and `error` make the output.
//! - `pack` packs folders of jobs; `cluster_metrics` measures; `build_id` names the build.

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
mod pack;
mod print;
mod render;
mod serve;
mod up;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use cli::global::Output;
use cli::{Cli, Command};
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
    let output = cli.global.format().unwrap_or(Output::Table);
    match on_runtime(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(error::print(&error, output)),
    }
}

fn parsed() -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches();
    let mut matches = matches.map_err(|error| cli::words::with_tip(error, &Cli::command()))?;
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
        return actix::System::with_tokio_rt(|| runtime).block_on(cli::run(cli));
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(cli::run(cli))
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
