//! `tenant …`.

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;

/// `tenant …`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// What a tenant is entitled to, has and waits for, with the head of its queue
    #[command(
        after_help = "Examples:\n  dormouse tenant show ads\n  dormouse tenant show ads -o json"
    )]
    Show(TenantArg),
    /// Say what a tenant is entitled to; what is not named stays as it is
    #[command(
        after_help = "Examples:\n  dormouse tenant set ads --weight 3\n  dormouse tenant set ads --quota cpu=20,memory=64Gi --max-job-weight 4\n  dormouse tenant set ads --quota gpu=0\n  dormouse tenant set ads --quota none\n\nA quota bounds what the tenant's jobs have together; a job that needs more at the least is refused."
    )]
    Set(TenantSetArgs),
}

/// A tenant.
#[derive(Debug, Clone, Args)]
pub struct TenantArg {
    /// Its name.
    pub name: TenantId,
}

/// `tenant set`.
#[derive(Debug, Clone, Args)]
pub struct TenantSetArgs {
    /// Its name.
    pub name: TenantId,
    /// Its weight beside the other tenants.
    #[arg(long)]
    pub weight: Option<u32>,
    /// The most it may have at one time, such as cpu=20,memory=64Gi; none lifts it.
    #[arg(long, value_name = "AMOUNTS")]
    pub quota: Option<String>,
    /// The largest weight that a job of it may ask for.
    #[arg(long, value_name = "WEIGHT")]
    pub max_job_weight: Option<u32>,
    /// The priority in its queue of jobs that ask for none.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
}
