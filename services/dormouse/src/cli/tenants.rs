//! Arguments of `tenant …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;

use super::accounts::{KeysArg, UserCommand};
use super::list::WatchArg;
use crate::cli::weight::weight;

/// Subcommands of `tenant`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Show a tenant's entitlement, use and queue head
    #[command(
        after_help = "Examples:\n  dormouse tenant show ads\n  dormouse tenant show ads -o json"
    )]
    Show(TenantShowArgs),
    /// Set a tenant's entitlement; values that are not named stay
    #[command(
        after_help = "Examples:\n  dormouse tenant set ads --weight 3\n  dormouse tenant set ads --quota cpu=20,memory=64Gi --max-job-weight 4\n  dormouse tenant set ads --quota gpu=0\n  dormouse tenant set ads --quota none\n  dormouse tenant set ads --run-as 10001:10001 --mount /data:ro --mount /scratch/ads --image 'registry/ads/*'\n  dormouse tenant set ads --mount none --network host --max-queued 500 --max-rate 20\n  dormouse tenant set ads --max-queued-bytes 64Mi --max-storage 200Gi\n  dormouse tenant set ads --priority-class urgent\n\nA quota bounds what the tenant's jobs have together; a job that needs more at the least is refused. Grants say what its containers may have of the nodes. --mount, --image and --priority-class add to those that there are; none lifts a grant."
    )]
    Set(Box<TenantChangeArgs>),
    /// Make a tenant on running brokers: its account, key and grants
    #[command(
        after_help = "Examples:\n  dormouse tenant create ads --keys keys\n  dormouse tenant create ads --weight 2 --max-queued 500 --mount /data:ro --keys keys\n\nWrites keys/tenant-NAME.creds, which the tenant's programs are given; its people have keys of their own (`dormouse tenant user add`). The brokers keep accounts that `dormouse accounts init` has begun."
    )]
    Create(Box<TenantCreateArgs>),
    /// Forget a tenant that has no jobs: revoke its keys; drop its weight, bounds, grants and webhook
    #[command(
        after_help = "Examples:\n  dormouse tenant remove ads --keys keys\n  dormouse tenant remove ads --keys keys --reason 'the team has left'\n\nIts keys and those of its people are revoked first; a cluster whose operator has no key (`dormouse up`) has none. It is then as a tenant that nobody has named: where grants are required its submissions are refused, elsewhere policy.unknown_tenants says what it may."
    )]
    Remove(TenantRemoveArgs),
    /// Make, replace and revoke the keys of a tenant's people
    #[command(
        subcommand,
        after_help = "Examples:\n  dormouse tenant user add ads/alice --role submitter --keys keys\n  dormouse tenant user revoke ads/alice --keys keys"
    )]
    User(UserCommand),
}

/// Arguments of `tenant show`.
#[derive(Debug, Clone, Args)]
pub struct TenantShowArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Arguments of `tenant remove`.
#[derive(Debug, Clone, Args)]
pub struct TenantRemoveArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Reason; on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Folder with the cluster's root key, if the brokers keep accounts.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

/// A tenant argument.
#[derive(Debug, Clone, Args)]
pub struct TenantArg {
    /// Tenant name.
    pub name: TenantId,
}

/// Arguments of `tenant set`.
#[derive(Debug, Clone, Args)]
pub struct TenantChangeArgs {
    #[command(flatten)]
    pub set: TenantSetArgs,
    /// Allow the quota to name resources that no node has yet.
    #[arg(long, requires = "quota")]
    pub ahead: bool,
}

/// Settings of a tenant.
#[derive(Debug, Clone, Args)]
pub struct TenantSetArgs {
    /// Tenant name.
    pub name: TenantId,
    /// Weight among the tenants.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// Quota, such as cpu=20,memory=64Gi; resources that are not named stay, cpu=none lifts one bound, none
    /// all.
    #[arg(long, value_name = "AMOUNTS")]
    pub quota: Option<String>,
    /// Largest weight that a job of the tenant may request.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    pub max_job_weight: Option<u32>,
    /// Priority in its queue of jobs that request none.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
    #[command(flatten)]
    pub grants: GrantArgs,
}

/// Arguments of `tenant create`.
#[derive(Debug, Clone, Args)]
pub struct TenantCreateArgs {
    #[command(flatten)]
    pub set: TenantSetArgs,
    #[command(flatten)]
    pub keys: KeysArg,
}

/// Grants set by `tenant set`.
#[derive(Debug, Clone, Default, Args)]
pub struct GrantArgs {
    /// User and group, by number, of the tenant's containers.
    #[arg(long, value_name = "UID:GID")]
    pub run_as: Option<String>,
    /// Folder of the nodes that the tenant's jobs may mount, with all below it; `:ro` for read-only.
    #[arg(long, value_name = "PATH[:ro]")]
    pub mount: Vec<String>,
    /// Folder of the nodes with the tenant's secrets.
    #[arg(long, value_name = "FOLDER")]
    pub secrets: Option<String>,
    /// Images allowed for its jobs; `*` stands for any text.
    #[arg(long, value_name = "PATTERN")]
    pub image: Vec<String>,
    /// Highest network mode of its containers: none, published or host.
    #[arg(long)]
    pub network: Option<String>,
    /// Priority class allowed for its jobs; added to the existing ones.
    #[arg(long, value_name = "CLASS")]
    pub priority_class: Vec<String>,
    /// Most queued jobs.
    #[arg(long, value_name = "JOBS")]
    pub max_queued: Option<String>,
    /// Most bytes of its queued jobs' specifications together, such as 64Mi.
    #[arg(long, value_name = "SIZE")]
    pub max_queued_bytes: Option<String>,
    /// Most submissions accepted a second.
    #[arg(long, value_name = "PER_SECOND")]
    pub max_rate: Option<String>,
    /// Most containers of its jobs together.
    #[arg(long, value_name = "CONTAINERS")]
    pub max_containers: Option<String>,
    /// Most disk of a node for its containers' files and checkpoints, such as 200Gi; overrides the agents'
    /// `--tenant-storage`.
    #[arg(long, value_name = "SIZE")]
    pub max_storage: Option<String>,
    /// Permission to run programs in its running containers (`job exec`): allowed or forbidden.
    #[arg(long, value_name = "allowed|forbidden")]
    pub exec: Option<String>,
}
