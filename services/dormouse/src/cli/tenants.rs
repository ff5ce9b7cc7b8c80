//! `tenant …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;
use dormouse_messages::policy::MAX_WEIGHT;

use super::accounts::{TenantCreateArgs, UserCommand};
use super::list::WatchArg;

/// `tenant …`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// What a tenant is entitled to, has and waits for, with the head of its queue
    #[command(
        after_help = "Examples:\n  dormouse tenant show ads\n  dormouse tenant show ads -o json"
    )]
    Show(TenantShowArgs),
    /// Say what a tenant is entitled to; what is not named stays as it is
    #[command(
        after_help = "Examples:\n  dormouse tenant set ads --weight 3\n  dormouse tenant set ads --quota cpu=20,memory=64Gi --max-job-weight 4\n  dormouse tenant set ads --quota gpu=0\n  dormouse tenant set ads --quota none\n  dormouse tenant set ads --run-as 10001:10001 --mount /data:ro --mount /scratch/ads --image 'registry/ads/*'\n  dormouse tenant set ads --mount none --network host --max-queued 500 --max-rate 20\n  dormouse tenant set ads --max-queued-bytes 64Mi --max-storage 200Gi\n  dormouse tenant set ads --priority-class urgent\n\nA quota bounds what the tenant's jobs have together; a job that needs more at the least is refused. Grants say what its containers may have of the nodes. --mount, --image and --priority-class add to those that there are; none lifts a grant."
    )]
    Set(Box<TenantChangeArgs>),
    /// Make a tenant on running brokers: its account, its key, and what it is granted
    #[command(
        after_help = "Examples:\n  dormouse tenant create ads --keys keys\n  dormouse tenant create ads --weight 2 --max-queued 500 --mount /data:ro --keys keys\n\nWrites keys/tenant-NAME.creds, which the tenant's programs are given; its people have keys of their own (`dormouse tenant user add`). The brokers keep accounts that `dormouse accounts init` has begun."
    )]
    Create(Box<TenantCreateArgs>),
    /// Forget a tenant that has no jobs: its keys are revoked, its weight, bounds, grants and webhook are gone
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

/// `tenant show`.
#[derive(Debug, Clone, Args)]
pub struct TenantShowArgs {
    /// The tenant.
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Whether it is shown again.
    #[command(flatten)]
    pub watch: WatchArg,
}

/// `tenant remove`.
#[derive(Debug, Clone, Args)]
pub struct TenantRemoveArgs {
    /// The tenant.
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Why; stands on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Folder with the cluster's root key, where the brokers keep accounts.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

/// A tenant.
#[derive(Debug, Clone, Args)]
pub struct TenantArg {
    /// Its name.
    pub name: TenantId,
}

/// `tenant set`.
#[derive(Debug, Clone, Args)]
pub struct TenantChangeArgs {
    /// What is set.
    #[command(flatten)]
    pub set: TenantSetArgs,
    /// The quota may name resources that no node has yet.
    #[arg(long, requires = "quota")]
    pub ahead: bool,
}

/// A weight of a job or a tenant.
pub(super) fn weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok();
    let weight = weight.filter(|weight| (1..=MAX_WEIGHT).contains(weight));
    weight.ok_or_else(|| format!("a weight is a whole number from 1 to {MAX_WEIGHT}"))
}

/// What is said of a tenant.
#[derive(Debug, Clone, Args)]
pub struct TenantSetArgs {
    /// Its name.
    pub name: TenantId,
    /// Its weight beside the other tenants.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// The most it may have at one time, such as cpu=20,memory=64Gi; what is not named stays, cpu=none lifts one bound, none all.
    #[arg(long, value_name = "AMOUNTS")]
    pub quota: Option<String>,
    /// The largest weight that a job of it may ask for.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    pub max_job_weight: Option<u32>,
    /// The priority in its queue of jobs that ask for none.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// What it is granted.
    #[command(flatten)]
    pub grants: GrantArgs,
}

/// What `tenant set` grants.
#[derive(Debug, Clone, Default, Args)]
pub struct GrantArgs {
    /// The user and group, by number, that its containers run as.
    #[arg(long, value_name = "UID:GID")]
    pub run_as: Option<String>,
    /// A folder of the nodes that its jobs may mount, with what is below it; `:ro` for reading only.
    #[arg(long, value_name = "PATH[:ro]")]
    pub mount: Vec<String>,
    /// The folder of the nodes that holds its secrets.
    #[arg(long, value_name = "FOLDER")]
    pub secrets: Option<String>,
    /// Images that its jobs may use; `*` stands for any text.
    #[arg(long, value_name = "PATTERN")]
    pub image: Vec<String>,
    /// The most that its containers may have of the network: none, published or host.
    #[arg(long)]
    pub network: Option<String>,
    /// Priority classes that its jobs may have; added to those that there are.
    #[arg(long, value_name = "CLASS")]
    pub priority_class: Vec<String>,
    /// Jobs that it may have queued.
    #[arg(long, value_name = "JOBS")]
    pub max_queued: Option<String>,
    /// Bytes of the specifications of its queued jobs together, such as 64Mi.
    #[arg(long, value_name = "SIZE")]
    pub max_queued_bytes: Option<String>,
    /// Submissions a second that are taken of it.
    #[arg(long, value_name = "PER_SECOND")]
    pub max_rate: Option<String>,
    /// Containers that its jobs may have together.
    #[arg(long, value_name = "CONTAINERS")]
    pub max_containers: Option<String>,
    /// What it may use of a node's disk, for what its containers leave there and for its checkpoints,
    /// such as 200Gi; in place of the agents' `--tenant-storage`.
    #[arg(long, value_name = "SIZE")]
    pub max_storage: Option<String>,
    /// Whether it may run programs in its containers that run (`job exec`): allowed or forbidden.
    #[arg(long, value_name = "allowed|forbidden")]
    pub exec: Option<String>,
}
