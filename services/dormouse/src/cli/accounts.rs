//! Arguments of `accounts …` and `tenant user …`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dormouse_messages::who::is_user;
use dormouse_messages::{Role, TenantId};
use dormouse_runtime::accounts::{Principal, SERVICES};

/// Subcommands of `accounts`.
#[derive(Debug, Subcommand)]
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

/// Subcommands of `tenant user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a person's account and key
    #[command(
        after_help = "Examples:\n  dormouse tenant user add ads/alice --role submitter --keys keys\n  dormouse tenant user add ads/vera --role viewer --keys keys\n\nWrites keys/user-TENANT.NAME.creds, which the person is given."
    )]
    Add(UserAddArgs),
    /// Revoke every key of a person and close the connections
    #[command(after_help = "Examples:\n  dormouse tenant user revoke ads/alice --keys keys")]
    Revoke(UserArgs),
    /// Replace a person's key and revoke the former key
    #[command(after_help = "Examples:\n  dormouse tenant user rotate ads/alice --keys keys")]
    Rotate(UserRotateArgs),
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

/// A person of a tenant, written TENANT/NAME.
#[derive(Debug, Clone)]
pub struct Person {
    pub tenant: TenantId,
    pub user: String,
}

impl FromStr for Person {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tenant, user) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not of the form ads/alice"))?;
        if !is_user(user) {
            return Err(format!(
                "{user:?} cannot be a person's name; it has lower-case letters, digits and `-`"
            ));
        }
        Ok(Self {
            tenant: TenantId::new(tenant).map_err(|error| error.to_string())?,
            user: user.to_owned(),
        })
    }
}

/// An argument that names a person.
#[derive(Debug, Clone, Args)]
pub struct UserArgs {
    /// Person.
    #[arg(value_name = "TENANT/NAME")]
    pub person: Person,
    #[command(flatten)]
    pub keys: KeysArg,
}

/// Arguments of `tenant user add`.
#[derive(Debug, Clone, Args)]
pub struct UserAddArgs {
    #[command(flatten)]
    pub user: UserArgs,
    /// viewer: queries and watches; submitter: also submits, revises and cancels.
    #[arg(long, value_parser = role)]
    pub role: Role,
}

/// Arguments of `tenant user rotate`.
#[derive(Debug, Clone, Args)]
pub struct UserRotateArgs {
    #[command(flatten)]
    pub user: UserArgs,
    /// Keep the former key valid until the next rotation without --keep.
    #[arg(long)]
    pub keep: bool,
}

fn role(text: &str) -> Result<Role, String> {
    match text.parse() {
        Ok(role @ (Role::Viewer | Role::Submitter)) => Ok(role),
        _ => Err(format!("{text:?} is not viewer or submitter")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_and_people_are_read_or_refused() {
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
        let alice: Person = "ads/alice".parse().expect("valid");
        assert_eq!(
            (alice.tenant.as_str(), alice.user.as_str()),
            ("ads", "alice")
        );
        for wrong in ["alice", "ads/", "ads/a.b", "a.b/c", "ads/Alice"] {
            assert!(wrong.parse::<Person>().is_err(), "{wrong}");
        }
        assert!(role("operator").is_err() && role("viewer").is_ok());
    }
}
