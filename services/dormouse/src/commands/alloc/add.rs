//! `alloc add`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::SlurmQueueConfigured;
use dormouse_messages::quantity::Resource;
use dormouse_messages::slurm::{QUEUE_NAME_MOST, SlurmQueue};
use dormouse_messages::{Amounts, Event};

use super::QueueArg;
use crate::cli::duration::Limit;
use crate::cli::node::{capacity, label};
use crate::commands::common::operator;
use crate::context::Context;

/// Slurm kills what still runs half a minute after the end.
const DRAIN_LEAST_S: u32 = 10;

/// Make a queue of Slurm allocations, or change one
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse alloc add gpu --partition gpu --account ml --node cpu=32,memory=240Gi,gpu=4 --time-limit 4h --most 8\n  dormouse alloc add wide --node cpu=48,memory=180Gi --nodes 4 --time-limit 1h --backlog 2 --grow\n  dormouse alloc add a100 --node cpu=16,memory=60Gi,gpu=1 --time-limit 1h --option=--constraint=a100 --label gpu-model=a100"
)]
pub struct AddArgs {
    #[command(flatten)]
    pub queue: QueueArg,
    /// Slurm's partition. Default: Slurm's own.
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Account that Slurm charges. Default: the user's own.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Capacity to ask of each node, such as cpu=32,memory=240Gi,gpu=4.
    #[arg(long, value_name = "AMOUNTS", value_parser = capacity)]
    pub node: Amounts,
    /// Number of nodes of an allocation.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub nodes: u32,
    /// Time limit of an allocation; Slurm counts whole minutes.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Limit,
    /// Time before the end at which the nodes are drained.
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub drain: Limit,
    /// Largest number of allocations at a time.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,
    /// Largest number of allocations that wait in Slurm at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backlog: u32,
    /// Time without a container after which an allocation is given back.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub idle: Limit,
    /// Number of failures in a row after which the queue pauses.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub pause_after: u32,
    /// Ask for as much as elastic jobs can use.
    #[arg(long)]
    pub grow: bool,
    /// Further option of sbatch; may be repeated.
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    pub options: Vec<String>,
    /// Label of the nodes for jobs' constraints; may be repeated.
    #[arg(long = "label", value_name = "LABEL=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

impl AddArgs {
    fn settings(&self) -> anyhow::Result<SlurmQueue> {
        let name = &self.queue.queue;
        if name.as_str().len() > QUEUE_NAME_MOST {
            bail!(
                "{name} is too long for the names of its nodes: {QUEUE_NAME_MOST} letters at most"
            );
        }
        let (cores, gpus) = (self.node.get(&Resource::Cpu), self.node.get(&Resource::Gpu));
        if cores < 1000 || !cores.is_multiple_of(1000) || !gpus.is_multiple_of(1000) {
            bail!("Slurm gives whole processors and GPUs; write --node cpu=8,memory=30Gi,gpu=1");
        }
        for option in &self.options {
            if !option.starts_with("--") || option.contains(['\n', '\0']) {
                bail!("{option:?} is no option of sbatch; write --option=--constraint=a100");
            }
        }
        let (limit_s, drain_s) = (self.time_limit.0, self.drain.0);
        if limit_s < 60 {
            bail!("Slurm counts in minutes; write a --time-limit of 1m or more");
        }
        if drain_s < DRAIN_LEAST_S || drain_s >= limit_s {
            bail!(
                "--drain lies between {DRAIN_LEAST_S}s and the time limit; it has to suffice for a checkpoint"
            );
        }
        Ok(SlurmQueue {
            partition: self.partition.clone(),
            account: self.account.clone(),
            options: self.options.clone(),
            node: self.node.clone(),
            labels: self.labels.iter().cloned().collect(),
            nodes: self.nodes,
            time_limit_s: limit_s,
            drain_s,
            most: self.most,
            backlog: self.backlog,
            idle_s: self.idle.0,
            pause_after: self.pause_after,
            grow: self.grow,
            paused: false,
        })
    }
}

/// Runs `alloc add QUEUE`.
///
/// # Errors
/// If the settings make no sense, or the event cannot be appended.
pub async fn run(context: &Context, args: &AddArgs) -> anyhow::Result<u8> {
    let event = SlurmQueueConfigured {
        queue: args.queue.queue.clone(),
        settings: args.settings()?,
    };
    let said = format!(
        "queue {} asks Slurm for up to {} × {} while `dormouse serve slurm` runs",
        event.queue, event.settings.most, event.settings.node
    );
    operator::append(context, Event::from(event), &said).await
}
