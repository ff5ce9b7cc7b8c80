//! `serve slurm`: asks Slurm for allocations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use dormouse_bucket::Place;
use dormouse_runtime::is_local;
use dormouse_slurm::Slurm as SlurmDecider;
use dormouse_slurm_client::{Agents, Allocations, Keys, Options, Slurm};

use super::service::decider;
use super::{DeciderArgs, second};
use crate::context::Context;
use crate::print;

/// Ask Slurm for allocations, as an ordinary user, where jobs wait for them
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve slurm\n  dormouse serve slurm --server tls://login1:4222 --checkpoints /scratch/me/checkpoints\n  dormouse serve slurm --agent-data /local/me/dormouse --agent-arg=--keep-logs=7d\n\n`dormouse alloc add` makes a queue; docs/slurm.md is the guide."
)]
pub struct SlurmArgs {
    /// The program on the nodes. Default: this one, at the same path.
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Broker for the agents. Default: the one of this service.
    #[arg(long, value_name = "URL")]
    pub agent_server: Option<String>,
    /// Folder of the agents, on a disk of each node. Default: /tmp/dormouse-<user>.
    #[arg(long, value_name = "DIR")]
    pub agent_data: Option<String>,
    /// Folder with the nodes' keys, node-<node>.creds or node-<node>.nk.
    #[arg(long, value_name = "DIR")]
    pub agent_keys: Option<PathBuf>,
    /// Further argument of every agent; may be repeated.
    #[arg(long = "agent-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub agent_args: Vec<String>,
    /// Checkpoint storage of the agents: a folder that all nodes share, or s3://BUCKET/PREFIX. Default: below
    /// --data.
    #[arg(long, env = "DORMOUSE_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<Place>,
    /// Time between two looks at Slurm's queue.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = second)]
    pub poll: Duration,
    #[command(flatten)]
    pub decider: DeciderArgs,
}

/// Runs `serve slurm`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, args: &SlurmArgs) -> anyhow::Result<u8> {
    let agents = agents(context, args)?;
    let folder = context.data.join("slurm");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let started = args.decider.common.start(context, "slurm", None).await?;
    let role = args.decider.role(context);
    let poll = args.poll;
    let run = |log: dormouse_runtime::Log, shutdown| async move {
        let options = Options {
            poll,
            folder,
            agents,
            log: log.identity(),
        };
        let allocations = Allocations::start(Slurm, options);
        decider(
            SlurmDecider,
            log,
            &role,
            Some(Box::new(allocations)),
            shutdown,
        )
        .await
    };
    started.run(run).await
}

fn agents(context: &Context, args: &SlurmArgs) -> anyhow::Result<Agents> {
    let program = args.program.clone();
    let program = program.map_or_else(std::env::current_exe, Ok)?;
    let server = args.agent_server.clone();
    let server = server.unwrap_or_else(|| context.settings("slurm").server);
    if is_local(&server) {
        print::aside(format!(
            "note: agents look for the broker at {server}, which only nodes on this machine reach; name another with --agent-server"
        ));
    }
    let checkpoints = match &args.checkpoints {
        None => absolute(&context.data.join("checkpoints"))?,
        Some(Place::Folder(folder)) => absolute(folder)?,
        Some(Place::S3(url)) => url.clone(),
    };
    let mut arguments = vec!["--server".to_owned(), server];
    arguments.extend(["--checkpoints".to_owned(), checkpoints]);
    let global = context.global();
    arguments.extend(["--prefix".to_owned(), global.prefix.as_str().to_owned()]);
    if let Some(ca) = &context.settings("slurm").tls.ca {
        arguments.extend(["--tls-ca".to_owned(), absolute(ca)?]);
    }
    if global.plaintext {
        arguments.push("--plaintext".to_owned());
    }
    arguments.extend(args.agent_args.iter().cloned());
    let user = rustix::process::geteuid().as_raw();
    Ok(Agents {
        program,
        data: args
            .agent_data
            .clone()
            .unwrap_or_else(|| format!("/tmp/dormouse-{user}")),
        keys: args.agent_keys.as_deref().map(keys).transpose()?,
        arguments,
    })
}

fn keys(folder: &Path) -> anyhow::Result<Keys> {
    let files = std::fs::read_dir(folder);
    let files = files.with_context(|| format!("the keys in {}", folder.display()))?;
    let is_creds = |file: std::fs::DirEntry| file.path().extension() == Some("creds".as_ref());
    let are_creds = files.flatten().any(is_creds);
    Ok(Keys {
        folder: std::path::absolute(folder)?,
        are_creds,
    })
}

fn absolute(path: &Path) -> anyhow::Result<String> {
    Ok(std::path::absolute(path)?.display().to_string())
}
