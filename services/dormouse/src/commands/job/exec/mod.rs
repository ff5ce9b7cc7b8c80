//! `job exec`: runs a program in a container, attached through the node's agent.
//!
//! One task requests the output, another sends the input (`input`); `terminal` sets this terminal. Bytes have
//! offsets, so requests can be repeated.

mod input;
mod program;
mod terminal;

use std::io::{IsTerminal as _, Write as _};

use anyhow::bail;
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::{JobId, NodeId};
use dormouse_node_agent::NO_PROGRAM;
use dormouse_node_agent::exec::{EXEC, EXEC_READ, Piece, Read, Start, Started, WAIT};
use dormouse_node_agent::logs::Stream;

use super::logs::Source;
use crate::cli::job_name::NamedJob;
use crate::commands::common::key_identity;
use crate::context::Context;
use crate::error::Coded;
use clap::Args;
use program::Program;
use terminal::Raw;

/// Run a program in a job's container: as the job's user, in its sandbox, recorded on the log
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job exec ads/lr -- ps -ef\n  dormouse job exec ads/lr --rank 1 -t -- bash\n  dormouse job exec ads/lr -- sh -c 'cat > notes' < notes\n\nStandard input, output, error and exit code are the program's: 128 and the signal's number after a signal; 127: no such program. ^C is passed on; the third one kills."
)]
pub struct ExecArgs {
    /// Job: tenant/name.
    pub id: NamedJob,
    /// Container rank; default: the first running container.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Attach this terminal, with its size and keys.
    #[arg(long, short)]
    pub terminal: bool,
    /// Ask as this tenant, as its own key does.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

const BY_SIGNAL: i32 = 128;

/// Runs `job exec`.
///
/// # Errors
/// If the job has no such running container, or the program cannot be run.
pub async fn run(context: &Context, args: &ExecArgs) -> anyhow::Result<u8> {
    let tenant = args
        .of
        .as_deref()
        .map(dormouse_messages::TenantId::new)
        .transpose()?;
    let log = context.connect_to_submit().await?;
    let id = key_identity::job(&log, &args.id)?;
    let source = Source::new(log, tenant);
    if args.terminal && !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        bail!("--terminal needs one: the standard input and output are none; leave it out");
    }
    let (node, container) = running(&source, &id, args).await?;
    let start = Start {
        container,
        command: args.command.clone(),
        terminal: args.terminal.then(terminal::this),
    };
    let started = source.ask(&node, EXEC, &start).await;
    let started = started.map_err(|error| {
        if error.message.ends_with(NO_PROGRAM) {
            Coded::new("no_program", error.message)
        } else {
            error
        }
    })?;
    let started: Started = serde_json::from_slice(&started.payload)?;
    let program = Program {
        source,
        node,
        exec: started.exec,
    };
    let raw = args.terminal.then(Raw::begin).transpose()?;
    let given = tokio::spawn(input::give(program.clone(), args.terminal));
    let ended = follow(&program).await;
    given.abort();
    drop(raw);
    ended
}

async fn running(
    source: &Source,
    id: &JobId,
    args: &ExecArgs,
) -> anyhow::Result<(NodeId, ContainerId)> {
    let detail = source.job(id).await?;
    let row = &detail.row;
    let Some(last) = detail.incarnations.last() else {
        bail!(
            "{} has had no container yet; it is {}: {}",
            row.job,
            row.phase,
            row.reason
        );
    };
    let listed = source.containers(&detail, last.incarnation).await;
    let is_meant = |rank: Rank| args.rank.is_none_or(|meant| Rank(meant) == rank);
    let found = listed
        .found
        .iter()
        .find(|found| found.printed.running && is_meant(found.container().rank));
    if let Some(found) = found {
        return Ok((found.node.clone(), found.container().clone()));
    }
    if !listed.silent.is_empty() {
        return Err(Coded::new("unavailable", listed.silent.join("; ")).into());
    }
    let which = match args.rank {
        Some(rank) => format!("no container of rank {rank}"),
        None => "no container".to_owned(),
    };
    let message = format!(
        "{} has {which} that runs; it is {}: {}",
        row.job, row.phase, row.reason
    );
    Err(Coded::new("not_running", message).into())
}

async fn follow(program: &Program) -> anyhow::Result<u8> {
    let mut offset = 0;
    loop {
        let read = Read {
            exec: program.exec,
            offset,
            wait_ms: u32::try_from(WAIT.as_millis())?,
        };
        let answered = program.ask(EXEC_READ, &read).await?;
        let piece = Piece::received(|name| answered.header(name), answered.payload.clone());
        let piece = piece.map_err(|why| {
            Coded::new("internal", format!("the answer of {}: {why}", program.node))
        })?;
        match piece.stream {
            Stream::Stderr => std::io::stderr().write_all(&piece.bytes)?,
            _ => {
                let mut out = std::io::stdout();
                out.write_all(&piece.bytes)?;
                out.flush()?;
            }
        }
        offset = piece.next;
        let Some(ended) = piece.ended else {
            continue;
        };
        let code = match (ended.code, ended.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) if ended.why.is_none() => BY_SIGNAL + signal,
            _ => {
                let why = ended.why.unwrap_or_else(|| "it has ended".to_owned());
                return Err(Coded::new("ended", why).into());
            }
        };
        return Ok(u8::try_from(code).unwrap_or(u8::MAX));
    }
}
