//! Works with the owner's folder of keys and the accounts on the brokers.
//!
//! The folder holds the root key, from which every account derives, and all issued credentials.

use std::fs::File;
use std::io::{Read as _, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use dormouse_messages::events::{KeyCreated, KeyRevoked};
use dormouse_messages::{Event, TenantId, Writer};
use dormouse_runtime::accounts::{AccountError, Accounts, Principal, Root};
use dormouse_runtime::{Log, LogError, Settings};
use serde_json::{Value, json};

use crate::cli::global::Output;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// The owner's key folder.
#[derive(Debug, Clone, Args)]
pub struct KeysArg {
    /// Folder with the cluster's root key and all credentials.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: PathBuf,
}

/// The file of the root key.
pub const ROOT: &str = "root.nk";

const CONNECT: std::time::Duration = std::time::Duration::from_secs(3);

/// Returns a context with the operator's credentials, if the context has none.
pub fn owner(context: &Context, keys: &KeysArg) -> Context {
    if context.has_key() {
        context.clone()
    } else {
        context.with_creds(keys.keys.join("operator.creds"))
    }
}

/// Returns the path of the credentials of `name`.
pub fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.creds"))
}

/// Writes atomically: clients may read the file at any moment.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    let written = || {
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    written().with_context(|| path.display().to_string())
}

/// Returns random bytes as hexadecimal digits.
///
/// # Errors
/// If the system has no random bytes.
pub fn random_hex(count: usize) -> anyhow::Result<String> {
    let mut bytes = vec![0; count];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Connects with the root key.
///
/// # Errors
/// If the folder has no root key, or the brokers do not answer.
pub async fn connect(context: &Context, keys: &KeysArg) -> anyhow::Result<Accounts> {
    let path = keys.keys.join(ROOT);
    let seed = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: `dormouse cluster init` makes it", path.display()))?;
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
///
/// # Errors
/// Those of [`connect`].
pub async fn connect_to_change(
    context: &Context,
    keys: &KeysArg,
) -> anyhow::Result<(Accounts, File)> {
    let path = keys.keys.join(ROOT);
    let turn = File::open(&path)
        .with_context(|| format!("{}: `dormouse cluster init` makes it", path.display()))?;
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

/// Gives an error of the accounts its code.
pub fn coded(error: AccountError) -> anyhow::Error {
    let code = match &error {
        AccountError::Unknown(_) => "not_found",
        AccountError::Exists(_) => "exists",
        AccountError::Busy => "busy",
        _ => return error.into(),
    };
    Coded::new(code, error.to_string()).into()
}

/// Makes an account or a key, writes the credentials, and returns their path and the event.
///
/// # Errors
/// If the brokers refuse, or the file cannot be written.
pub async fn issue(
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

/// Returns the tenant of a tenant or a person.
pub fn tenant_of(principal: &Principal) -> Option<TenantId> {
    match principal {
        Principal::Tenant(tenant) | Principal::Person { tenant, .. } => Some(tenant.clone()),
        _ => None,
    }
}

/// Records the brokers' change on the log. A failure is only reported: the change holds, and a new cluster
/// has no log yet.
pub async fn note(context: &Context, keys: &KeysArg, event: Event) {
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

/// Prints where a new key is.
///
/// # Errors
/// If the standard output is closed.
pub fn said(context: &Context, name: &str, path: &Path, words: &str) -> anyhow::Result<u8> {
    let answer = json!({"name": name, "credentials": path});
    print_one(
        context,
        &answer,
        &format!("{words}; its key is {}", path.display()),
    )
}

/// Prints one value of a stream.
///
/// # Errors
/// If the standard output is closed.
pub fn print_one(context: &Context, answer: &Value, words: &str) -> anyhow::Result<u8> {
    match context.output()? {
        Output::Json => print::line(answer)?,
        Output::Yaml => print::yaml(&answer.to_string())?,
        Output::Table | Output::Wide => print::line(words)?,
    }
    Ok(DONE)
}

/// Returns the event of revoked keys.
///
/// # Errors
/// If there are too many keys.
pub fn revoked(name: &str, tenant: Option<TenantId>, count: usize) -> anyhow::Result<Event> {
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
