//! `tenants`, `tenant show`, `tenant create`, `tenant set`, `tenant remove`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use dormouse_messages::events::{TenantConfigured, TenantGranted, TenantRemoved};
use dormouse_messages::policy::MAX_PRIORITY;
use dormouse_messages::quantity::lacks_unit;
use dormouse_messages::{Event, Quota, Resource, TenantId};
use dormouse_projections::queries::{
    ClusterAnswer, NodesAnswer, TenantQuery, TenantRow, TenantsAnswer,
};
use dormouse_runtime::Log;
use dormouse_runtime::accounts::Principal;
use serde_json::{Value, json};

use super::accounts::KeysArg;
use super::configure::Change;
use super::grants::GrantArgs;
use super::people::UserCommand;
use super::{accounts, caught_up, configure, grants, key_identity, known, people, query, watched};
use crate::cli::list::WatchArg;
use crate::cli::weight::weight;
use crate::context::{Context, Credentials};
use crate::error::Coded;
use crate::{describe, render};

/// List tenants: what each is entitled to, has, and waits for
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenants\n  dormouse tenants -o wide\n  dormouse tenants --watch\n\nWEIGHT in brackets: not configured, the policy's."
)]
pub struct TenantsArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Show one tenant, or set its entitlement
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse tenant show ads\n  dormouse tenant set ads --weight 3"
)]
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
    #[command(subcommand)]
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

/// Lists tenants.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: TenantsArgs) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    watched::show(context, &log, "tenants", &(), args.watch, render::tenants).await
}

/// Runs `tenant …`.
///
/// # Errors
/// If there is no such tenant, a value is wrong, or the cluster does not answer.
pub async fn tenant(context: &Context, command: &TenantCommand) -> anyhow::Result<u8> {
    match command {
        TenantCommand::Show(args) => show(context, args).await,
        TenantCommand::Set(args) => set(context, args).await,
        TenantCommand::Remove(args) => remove(context, args).await,
        TenantCommand::Create(args) => create(context, args).await,
        TenantCommand::User(command) => people::run(context, command).await,
    }
}

/// Shows one tenant.
///
/// # Errors
/// If there is no such tenant, or the query service does not answer.
pub async fn show(context: &Context, args: &TenantShowArgs) -> anyhow::Result<u8> {
    let name = &args.tenant.name;
    let request = TenantQuery {
        tenant: name.clone(),
    };
    let log = context.connect_as_holder().await?;
    key_identity::only(&log, Some(name.as_str()))?;
    let watch = args.watch;
    watched::show(context, &log, "tenant", &request, watch, render::tenant).await
}

/// Runs `tenant create`.
///
/// # Errors
/// If the tenant exists, a number is wrong, or the brokers refuse.
pub async fn create(context: &Context, args: &TenantCreateArgs) -> anyhow::Result<u8> {
    let tenant = Principal::Tenant(args.set.name.clone());
    let granted = grants::named(&args.set.grants);
    let (mut events, words) = self::events(&args.set, None, true, granted)?;
    let (connected, _turn) = accounts::connect_to_change(context, &args.keys).await?;
    let (path, created) = accounts::issue(&connected, &args.keys, &tenant, &tenant.name()).await?;
    events.insert(0, created);
    let owner = accounts::owner(context, &args.keys);
    let log = owner.connect().await?;
    let words = format!("{words}; its key is {}", path.display());
    configure::append_to(log, &owner, events, &words).await
}

/// Sets a tenant's entitlement; values that are not named stay.
///
/// # Errors
/// If a number is wrong, or the event cannot be appended.
pub async fn set(context: &Context, change: &TenantChangeArgs) -> anyhow::Result<u8> {
    let args = &change.set;
    let entitles = args.weight.or(args.max_job_weight).is_some()
        || args.quota.is_some()
        || args.priority.is_some();
    let grants = grants::named(&args.grants);
    if !entitles && !grants {
        bail!(
            "nothing to set: name --weight, --quota, --max-job-weight, --priority or a grant; `dormouse tenant set --help` lists them"
        );
    }
    let log = context.connect().await?;
    configure::change(context, &log, async || {
        changed(&log, change, entitles, grants).await
    })
    .await
}

async fn changed(
    log: &Log,
    change: &TenantChangeArgs,
    entitles: bool,
    grants: bool,
) -> anyhow::Result<Change> {
    let args = &change.set;
    caught_up(log).await?;
    let tenants: TenantsAnswer = query(log, "tenants", Value::Null).await?;
    let before = tenants.tenants.iter().find(|row| row.tenant == args.name);
    let (events, said) = events(args, before, entitles, grants)?;
    let new = known::new_tenant(&args.name, &tenants.tenants);
    let mut notes: Vec<String> = new.into_iter().collect();
    if let Some(quota) = events.iter().find_map(quota_of) {
        let nodes: NodesAnswer = query(log, "nodes", json!({"all": true})).await?;
        known::check_quota(quota, &nodes.nodes, change.ahead)?;
        let below = before.filter(|_| args.quota.is_some());
        notes.extend(below.and_then(|row| known::quota_below_use(quota, row)));
    }
    let classes = &args.grants.priority_class;
    if args.weight.is_some() || !classes.is_empty() {
        let cluster: ClusterAnswer = query(log, "cluster", Value::Null).await?;
        let weight = args.weight.is_some().then_some(&cluster.policy);
        notes.extend(weight.and_then(known::weight_without_effect));
        notes.extend(known::undefined_classes(classes, &cluster.policy));
    }
    Ok(Change {
        events,
        said,
        notes,
    })
}

/// Runs `tenant remove`.
///
/// # Errors
/// If there is no such tenant, it has live jobs, or the event cannot be appended.
pub async fn remove(context: &Context, args: &TenantRemoveArgs) -> anyhow::Result<u8> {
    let name = &args.tenant.name;
    let log = context.connect().await?;
    caught_up(&log).await?;
    let request = json!(TenantQuery {
        tenant: name.clone(),
    });
    let row: TenantRow = query(&log, "tenant", request).await?;
    let jobs = row.released_jobs + row.queued_jobs + row.held_jobs;
    if jobs > 0 {
        let why = format!(
            "{name} has jobs that live ({jobs}): wait for them, or cancel them with `dormouse job cancel --tenant {name} --yes`"
        );
        return Err(Coded::new("has_jobs", why).into());
    }
    // A folder without a root key was made by the script.
    let keys = args.keys.as_ref().filter(|keys| accounts::keeps_root(keys));
    let said = match (keys, context.credentials()) {
        (Some(keys), _) => {
            let revoked = accounts::revoke_tenant(context, keys, name).await?;
            let keys = if revoked.is_empty() {
                "it had no key".to_owned()
            } else {
                format!("the keys of {} are revoked", revoked.join(", "))
            };
            format!("{name} is forgotten; {keys}")
        }
        (None, Credentials::Creds) => bail!(
            "the keys of {name} are revoked with it: name the owner's folder of keys with --keys DIR"
        ),
        (None, Credentials::Nkey) => format!(
            "{name} is forgotten; its keys stand in the brokers' file of accounts: write the file without them and reload the brokers"
        ),
        (None, Credentials::None) => format!("{name} is forgotten"),
    };
    let removed = TenantRemoved {
        tenant: name.clone(),
        reason: args.reason.clone(),
    };
    configure::append_to(log, context, vec![Event::from(removed)], &said).await
}

fn quota_of(event: &Event) -> Option<&Quota> {
    match event {
        Event::TenantConfigured(it) => Some(&it.quota),
        _ => None,
    }
}

/// Returns a tenant's events and a description.
///
/// # Errors
/// If a number is wrong, or something cannot be granted.
pub fn events(
    args: &TenantSetArgs,
    before: Option<&TenantRow>,
    entitles: bool,
    grants: bool,
) -> anyhow::Result<(Vec<Event>, String)> {
    let granted = if grants {
        Some(TenantGranted {
            tenant: args.name.clone(),
            grants: grants::granted(
                &args.grants,
                before.map(|row| row.grants.clone()).unwrap_or_default(),
            )?,
        })
    } else {
        None
    };
    let (mut events, mut said) = (Vec::new(), Vec::new());
    if entitles {
        let event = configured(args, before.filter(|row| row.configured))?;
        said.push(entitled(&event));
        events.push(Event::from(event));
    }
    if let Some(event) = granted {
        said.push(format!("granted {}", describe::grants(&event.grants)));
        events.push(Event::from(event));
    }
    Ok((events, format!("{}: {}", args.name, said.join("; "))))
}

fn configured(
    args: &TenantSetArgs,
    before: Option<&TenantRow>,
) -> anyhow::Result<TenantConfigured> {
    let weight = args.weight.or(before.map(|row| row.weight)).unwrap_or(1);
    let max_job_weight = args
        .max_job_weight
        .or(before.and_then(|row| row.max_job_weight));
    let quota = match args.quota.as_deref() {
        None => before.map(|row| row.quota.clone()).unwrap_or_default(),
        Some("none") => Quota::new(),
        Some(text) => bounded(
            before.map(|row| row.quota.clone()).unwrap_or_default(),
            text,
        )?,
    };
    let priority = args.priority.or(before.map(|row| row.priority));
    if priority.is_some_and(|priority| !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority)) {
        bail!("--priority must lie between -{MAX_PRIORITY} and {MAX_PRIORITY}");
    }
    Ok(TenantConfigured {
        tenant: args.name.clone(),
        weight,
        quota,
        max_job_weight,
        priority: priority.filter(|priority| *priority != 0),
    })
}

fn entitled(event: &TenantConfigured) -> String {
    let mut said = format!("weight {}", event.weight);
    if event.quota.is_empty() {
        said.push_str(", no quota")
    } else {
        said.push_str(&format!(", quota {}", event.quota))
    }
    if let Some(most) = event.max_job_weight {
        said.push_str(&format!(", a job's weight at most {most}"));
    }
    if let Some(priority) = event.priority {
        said.push_str(&format!(", priority {priority}"));
    }
    said
}

/// `cpu=none` lifts one bound.
fn bounded(before: Quota, text: &str) -> anyhow::Result<Quota> {
    let parts = text.split(',').map(str::trim);
    let (lifted, set): (Vec<&str>, Vec<&str>) = parts
        .filter(|part| !part.is_empty())
        .partition(|part| part.ends_with("=none"));
    let lifted: Vec<Resource> = lifted
        .iter()
        .map(|part| Resource::from_name(part.trim_end_matches("=none")))
        .collect::<Result<_, _>>()?;
    let named: Quota = set.join(",").parse()?;
    let memory = named.iter().find(|it| *it.0 == Resource::Memory);
    if let Some(why) = memory.and_then(|it| lacks_unit(it.1)) {
        bail!("--quota {text}: {why}");
    }
    let distinct: BTreeSet<&Resource> = lifted.iter().chain(named.iter().map(|it| it.0)).collect();
    if distinct.is_empty() || distinct.len() != lifted.len() + set.len() {
        bail!(
            "--quota {text}: name each resource once (one with 0 may not be had; cpu=none lifts a bound, --quota none all of them)"
        );
    }
    let mut quota = Quota::new();
    let stays = before
        .iter()
        .filter(|(resource, _)| !lifted.contains(resource));
    for (resource, most) in stays.chain(named.iter()) {
        quota.set(resource.clone(), most);
    }
    Ok(quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(quota: Option<&str>, weight: Option<u32>) -> TenantSetArgs {
        TenantSetArgs {
            name: "ads".parse().expect("valid"),
            weight,
            quota: quota.map(str::to_owned),
            max_job_weight: None,
            priority: None,
            grants: GrantArgs::default(),
        }
    }

    #[test]
    fn what_is_not_named_has_its_default() {
        let event = configured(&args(Some("cpu=20,memory=64Gi"), None), None).expect("valid");
        assert_eq!(
            (event.weight, event.quota.to_string().as_str()),
            (1, "cpu=20,memory=64Gi")
        );
        assert_eq!((event.max_job_weight, event.priority), (None, None));
    }

    #[test]
    fn bounds_that_are_not_named_stay() {
        let bounds = |before: &str, text| {
            let quota = bounded(before.parse().expect("valid"), text).expect("valid");
            quota.to_string()
        };
        assert_eq!(bounds("cpu=3", "memory=1Gi"), "cpu=3,memory=1Gi");
        assert_eq!(bounds("cpu=3,memory=1Gi", "cpu=5"), "cpu=5,memory=1Gi");
        assert_eq!(
            bounds("cpu=3,memory=1Gi", "cpu=none,gpu=0"),
            "gpu=0,memory=1Gi"
        );
        assert!(bounded(Quota::new(), "cpu=none,cpu=2").is_err());
    }

    #[test]
    fn bad_quotas_are_refused() {
        for quota in ["", "cpu=1,cpu=2", "cpu"] {
            assert!(
                configured(&args(Some(quota), None), None).is_err(),
                "{quota}"
            );
        }
        let lifted = configured(&args(Some("none"), None), None).expect("valid");
        assert!(lifted.quota.is_empty());
    }
}
