//! `accounts …`: manages keys at the running brokers.
//!
//! The owner's key folder holds the root key, from which every account derives, and all issued credentials.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use dormouse_messages::events::{KeyCreated, KeyRevoked, KeyRotated};
use dormouse_messages::{Event, TenantId, Writer};
use dormouse_runtime::accounts::{
    AccountError, Accounts, Beginning, Claims, Credentials, Principal, Root, SERVICES,
};
use dormouse_runtime::{Log, LogError, Settings};
use serde_json::{Value, json};

use crate::cli::global::Output;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Make, replace and revoke keys at the brokers, while they run
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse accounts init --keys keys > deploy/nats/accounts.conf\n  dormouse accounts list --keys keys"
)]
pub enum AccountsCommand {
    /// Make a new cluster's root key, its brokers' configuration and its services' credentials
    #[command(
        after_help = "Examples:\n  dormouse accounts init --keys keys > deploy/nats/accounts.conf\n\nkeys/root.nk is what every account follows from: who has it makes any account. Keep it, and sys.creds, with the owner. Each service is given its own file."
    )]
    Init(InitArgs),
    /// Make accounts of agents, gateways and operators on the running brokers, or replace a revoked key
    #[command(
        after_help = "Examples:\n  dormouse accounts add node-n0 node-n1 gateway-g0 --keys keys --server tls://nats-1:4222\n  dormouse accounts add operator-olga --keys keys\n  dormouse accounts add webhook --keys keys      # its key was revoked\n\nWrites keys/NAME.creds, which NAME is given, and makes the reader of the log of an agent or gateway."
    )]
    Add(AddArgs),
    /// List the accounts that the brokers keep, each with its keys
    #[command(after_help = "Examples:\n  dormouse accounts list --keys keys")]
    List(KeysArg),
    /// Replace a key and revoke the former key
    #[command(
        after_help = "Examples:\n  dormouse accounts rotate node-n0 --keys keys\n  dormouse accounts rotate placer --keys keys --keep      # both, until it is rotated again\n\nWrites keys/NAME.creds. Who runs with that file connects again with the new key by itself."
    )]
    Rotate(RotateArgs),
    /// Revoke every key of a name and close its connections
    #[command(after_help = "Examples:\n  dormouse accounts revoke operator-olga --keys keys")]
    Revoke(AccountArgs),
}

/// The owner's key folder.
#[derive(Debug, Clone, Args)]
pub struct KeysArg {
    /// Folder with the cluster's root key and all credentials.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: PathBuf,
}

/// Arguments of `accounts init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub keys: KeysArg,
    /// Folder in which each broker keeps the accounts.
    #[arg(long, default_value = "$DORMOUSE_NATS_ACCOUNTS", value_name = "DIR")]
    pub folder: String,
}

/// Arguments of `accounts add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Such as node-n0, gateway-g0, operator-olga; also a service or tenant-ads with a revoked key.
    #[arg(required = true, value_name = "NAME", value_parser = Holder::with_account)]
    pub names: Vec<Holder>,
    #[command(flatten)]
    pub keys: KeysArg,
}

/// An account's principal and the user in the account.
#[derive(Debug, Clone)]
pub struct Holder {
    pub principal: Principal,
    pub user: String,
}

impl Holder {
    fn with_account(text: &str) -> Result<Self, String> {
        let holder: Self = text.parse()?;
        match holder.principal {
            Principal::System => Err("the brokers' own key is made once; rotate it".to_owned()),
            _ => Ok(holder),
        }
    }
}

impl FromStr for Holder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let principal = match text.strip_prefix("tenant-") {
            _ if text == "sys" => Principal::System,
            _ if SERVICES.contains(&text) => Principal::Control,
            Some(tenant) => Principal::Tenant(TenantId::new(tenant).map_err(|it| it.to_string())?),
            None => Principal::of_cluster(text).map_err(|_| {
                format!("{text:?} is not a service, node-n0, gateway-g0, operator-olga or tenant-ads; for people there is `dormouse tenant user`")
            })?,
        };
        Ok(Self {
            principal,
            user: text.to_owned(),
        })
    }
}

/// An argument that names a key's owner.
#[derive(Debug, Clone, Args)]
pub struct AccountArgs {
    /// Such as node-n0, gateway-g0, operator-olga, tenant-ads, placer.
    pub name: Holder,
    #[command(flatten)]
    pub keys: KeysArg,
}

/// Arguments of `accounts rotate`.
#[derive(Debug, Clone, Args)]
pub struct RotateArgs {
    #[command(flatten)]
    pub account: AccountArgs,
    /// Keep the former key valid until the next rotation without --keep.
    #[arg(long)]
    pub keep: bool,
}

const ROOT: &str = "root.nk";
const CONNECT: std::time::Duration = std::time::Duration::from_secs(3);

/// Runs `accounts …`.
///
/// # Errors
/// If a file cannot be written, or the brokers refuse.
pub async fn run(context: &Context, command: &AccountsCommand) -> anyhow::Result<u8> {
    match command {
        AccountsCommand::Init(args) => init(context, args),
        AccountsCommand::Add(args) => add(context, args).await,
        AccountsCommand::List(keys) => list(context, keys).await,
        AccountsCommand::Rotate(args) => {
            let holder = &args.account.name;
            let keys = &args.account.keys;
            rotate(context, keys, &holder.principal, &holder.user, args.keep).await
        }
        AccountsCommand::Revoke(args) => {
            revoke(context, &args.keys, &args.name.principal, &args.name.user).await
        }
    }
}

pub(super) fn owner(context: &Context, keys: &KeysArg) -> Context {
    if context.has_key() {
        context.clone()
    } else {
        context.with_creds(keys.keys.join("operator.creds"))
    }
}

fn init(context: &Context, args: &InitArgs) -> anyhow::Result<u8> {
    let folder = &args.keys.keys;
    if folder.join(ROOT).exists() {
        let message = format!(
            "{} holds a root key already: every account follows from it; name another folder",
            folder.display()
        );
        return Err(Coded::new("exists", message).into());
    }
    let root = Root::generate(context.global().prefix.clone())?;
    let beginning = Beginning::of(&root, &args.folder)?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, credentials) in &beginning.credentials {
        write(&file(folder, name), &credentials.text)?;
    }
    write(&folder.join(ROOT), &format!("{}\n", root.seed()))?;
    // The output is redirected into a configuration file, whatever `-o` says.
    print::line(beginning.configuration.trim_end())?;
    Ok(DONE)
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.creds"))
}

/// Writes atomically: clients may read the file at any moment.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    let written = || {
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().with_context(|| path.display().to_string())
}

async fn connect(context: &Context, keys: &KeysArg) -> anyhow::Result<Accounts> {
    let path = keys.keys.join(ROOT);
    let seed = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: `dormouse accounts init` makes it", path.display()))?;
    let root = Root::from_seed(&seed, context.global().prefix.clone())?;
    let system = context.with_creds(file(&keys.keys, "sys"));
    let settings = Settings {
        connect_timeout: CONNECT,
        ..system.settings("dormouse-accounts")
    };
    Ok(Accounts::connect(&settings, root).await?)
}

/// Excludes other commands that change accounts: those with this folder wait for a lock on its root key,
/// those with a copy of the folder for a lease of the cluster.
pub(super) async fn connect_to_change(
    context: &Context,
    keys: &KeysArg,
) -> anyhow::Result<(Accounts, File)> {
    let path = keys.keys.join(ROOT);
    let turn = File::open(&path)
        .with_context(|| format!("{}: `dormouse accounts init` makes it", path.display()))?;
    turn.lock().with_context(|| path.display().to_string())?;
    let accounts = connect(context, keys).await?;
    let owner = context.with_creds(file(&keys.keys, "operator"));
    let settings = Settings {
        connect_timeout: CONNECT,
        ..owner.settings("dormouse-accounts")
    };
    let log = async {
        let log = Log::connect(&settings).await?;
        log.head().await.map(|_| log)
    };
    match log.await {
        Ok(log) => Ok((accounts.in_turn(log), turn)),
        // A new cluster has no log yet.
        Err(LogError::NoLog(_)) => Ok((accounts, turn)),
        Err(error) => {
            print::aside(format!(
                "note: change accounts with no copy of {} now: {error}",
                keys.keys.display()
            ));
            Ok((accounts, turn))
        }
    }
}

pub(super) fn coded(error: AccountError) -> anyhow::Error {
    let code = match &error {
        AccountError::Unknown(_) => "not_found",
        AccountError::Exists(_) => "exists",
        AccountError::Busy => "busy",
        _ => return error.into(),
    };
    Coded::new(code, error.to_string()).into()
}

pub(super) async fn issue(
    accounts: &Accounts,
    keys: &KeysArg,
    of: &Principal,
    user: &str,
) -> anyhow::Result<(PathBuf, Event)> {
    let issued = match of {
        Principal::Control => accounts.add_service(user).await,
        of => accounts.add(of).await,
    };
    let issued = issued.map_err(coded)?;
    let path = file(&keys.keys, &issued.name);
    write(&path, &issued.credentials.text)?;
    let role = match of {
        Principal::Person { role, .. } => Some(*role),
        _ => None,
    };
    let created = KeyCreated {
        name: issued.name,
        tenant: tenant_of(of),
        role,
        key: issued.credentials.public,
    };
    Ok((path, Event::from(created)))
}

fn tenant_of(principal: &Principal) -> Option<TenantId> {
    match principal {
        Principal::Tenant(tenant) | Principal::Person { tenant, .. } => Some(tenant.clone()),
        _ => None,
    }
}

/// Records the brokers' change on the log. A failure is only reported: the change holds, and a new cluster
/// has no log yet.
pub(super) async fn note(context: &Context, keys: &KeysArg, event: Event) {
    let noted = async {
        let log = owner(context, keys).connect().await?;
        log.head().await?;
        log.appender(Writer::Operator, None)
            .append(event, &[])
            .await?;
        anyhow::Ok(())
    };
    if let Err(error) = noted.await {
        print::aside(format!("it is done, but is not on the log: {error:#}"));
    }
}

async fn add(context: &Context, args: &AddArgs) -> anyhow::Result<u8> {
    let (accounts, _turn) = connect_to_change(context, &args.keys).await?;
    for Holder { principal, user } in &args.names {
        let (path, created) = issue(&accounts, &args.keys, principal, user).await?;
        note(context, &args.keys, created).await;
        if matches!(principal, Principal::Node(_) | Principal::Gateway(_)) {
            let log = owner(context, &args.keys).connect().await?;
            log.ensure_readers(std::slice::from_ref(user)).await?;
        }
        said(context, user, &path, &format!("{user} is made"))?;
    }
    Ok(DONE)
}

pub(super) fn said(context: &Context, name: &str, path: &Path, words: &str) -> anyhow::Result<u8> {
    let answer = json!({"name": name, "credentials": path});
    print_one(
        context,
        &answer,
        &format!("{words}; its key is {}", path.display()),
    )
}

fn print_one(context: &Context, answer: &Value, words: &str) -> anyhow::Result<u8> {
    match context.output()? {
        Output::Json => print::line(answer)?,
        Output::Yaml => print::yaml(&answer.to_string())?,
        Output::Table | Output::Wide => print::line(words)?,
    }
    Ok(DONE)
}

pub(super) async fn rotate(
    context: &Context,
    keys: &KeysArg,
    principal: &Principal,
    user: &str,
    keep: bool,
) -> anyhow::Result<u8> {
    let (accounts, _turn) = connect_to_change(context, keys).await?;
    let path = file(&keys.keys, user);
    let written =
        |credentials: &Credentials| write(&path, &credentials.text).map_err(Rotated::File);
    let issued = accounts.rotate(principal, user, keep, written).await;
    let issued = issued.map_err(|error| match error {
        Rotated::Account(error) => coded(error),
        Rotated::File(error) => error,
    })?;
    let rotated = KeyRotated {
        name: user.to_owned(),
        tenant: tenant_of(principal),
        key: issued.credentials.public.clone(),
        revoked: u32::try_from(issued.revoked)?,
    };
    note(context, keys, rotated.into()).await;
    let words = match (issued.revoked, keep) {
        (_, true) => format!("{user} has another key; the one before stays valid"),
        (count, false) => format!("{user} has another key, instead of {count}"),
    };
    said(context, user, &path, &words)
}

enum Rotated {
    Account(AccountError),
    File(anyhow::Error),
}

impl From<AccountError> for Rotated {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

pub(super) async fn revoke(
    context: &Context,
    keys: &KeysArg,
    principal: &Principal,
    user: &str,
) -> anyhow::Result<u8> {
    if matches!(principal, Principal::System) {
        bail!("without the brokers' own key no account could be changed any more; rotate it");
    }
    let (accounts, _turn) = connect_to_change(context, keys).await?;
    let count = accounts.revoke(principal, user).await.map_err(coded)?;
    let revoked = revoked(user, tenant_of(principal), count)?;
    note(context, keys, revoked).await;
    let answer = json!({"name": user, "revoked": count});
    let keys = if count == 1 { "key" } else { "keys" };
    print_one(
        context,
        &answer,
        &format!("{user}: {count} {keys} revoked, its connections are closed"),
    )
}

fn revoked(name: &str, tenant: Option<TenantId>, count: usize) -> anyhow::Result<Event> {
    Ok(Event::from(KeyRevoked {
        name: name.to_owned(),
        tenant,
        revoked: u32::try_from(count)?,
    }))
}

/// True if the folder holds a root key.
#[must_use]
pub fn keeps_root(keys: &Path) -> bool {
    keys.join(ROOT).exists()
}

/// Revokes every key of a tenant and its people; returns the keys' owners.
///
/// # Errors
/// If the brokers refuse.
pub async fn revoke_tenant(
    context: &Context,
    keys: &Path,
    tenant: &TenantId,
) -> anyhow::Result<Vec<String>> {
    let keys = KeysArg {
        keys: keys.to_owned(),
    };
    let (accounts, _turn) = connect_to_change(context, &keys).await?;
    let mut names = Vec::new();
    for (name, count) in accounts.revoke_tenant(tenant).await.map_err(coded)? {
        let event = revoked(&name, Some(tenant.clone()), count)?;
        note(context, &keys, event).await;
        names.push(name);
    }
    Ok(names)
}

async fn list(context: &Context, keys: &KeysArg) -> anyhow::Result<u8> {
    let accounts = connect(context, keys).await?.list().await.map_err(coded)?;
    let row = |name: &str, user: &str, claims: &Claims| {
        let valid = claims.keys.iter().filter(|key| key.user == user).count();
        json!({"account": name, "name": user, "role": claims.role, "keys": valid})
    };
    for (name, claims) in &accounts {
        let mut users: Vec<&str> = claims.keys.iter().map(|key| key.user.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        if users.is_empty() {
            users.push(name);
        }
        for user in users {
            let row = row(name, user, claims);
            let role = claims.role.as_deref().unwrap_or("");
            let keys = match row["keys"].as_u64() {
                Some(0) => "revoked".to_owned(),
                Some(1) => "1 key".to_owned(),
                count => format!("{} keys", count.unwrap_or_default()),
            };
            print_one(context, &row, &format!("{user:<28} {keys:<10} {role}"))?;
        }
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_or_refused() {
        for name in [
            "sys",
            "placer",
            "operator",
            "node-n0",
            "operator-olga",
            "tenant-ads",
        ] {
            let holder: Holder = name.parse().expect(name);
            assert_eq!(holder.user, name);
        }
        for wrong in ["user-ads.alice", "n0", "tenant-", "tenant-a.b"] {
            assert!(wrong.parse::<Holder>().is_err(), "{wrong}");
        }
    }
}
