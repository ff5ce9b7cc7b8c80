//! `accounts …`, and the parts of `tenant …` that make and revoke keys.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dormouse_messages::who::is_user;
use dormouse_messages::{Role, TenantId};
use dormouse_runtime::accounts::{Principal, SERVICES};

use super::tenants::TenantSetArgs;

/// `accounts …`.
#[derive(Debug, Subcommand)]
pub enum AccountsCommand {
    /// Make a new cluster's root key, its brokers' configuration and its services' credentials
    #[command(
        after_help = "Examples:\n  dormouse accounts init --keys keys > deploy/nats/accounts.conf\n\nkeys/root.nk is what every account follows from: who has it makes any account. Keep it, and sys.creds, with the owner. Each service is given its own file."
    )]
    Init(InitArgs),
    /// Make accounts of agents, gateways and operators on the running brokers, or a key that was revoked
    #[command(
        after_help = "Examples:\n  dormouse accounts add node-n0 node-n1 gateway-g0 --keys keys --server tls://nats-1:4222\n  dormouse accounts add operator-olga --keys keys\n  dormouse accounts add webhook --keys keys      # its key was revoked\n\nWrites keys/NAME.creds, which NAME is given, and makes the reader of the log of an agent or gateway."
    )]
    Add(AddArgs),
    /// List the accounts that the brokers keep, each with its keys
    #[command(after_help = "Examples:\n  dormouse accounts list --keys keys")]
    List(KeysArg),
    /// Make another key, and take the one before away
    #[command(
        after_help = "Examples:\n  dormouse accounts rotate node-n0 --keys keys\n  dormouse accounts rotate placer --keys keys --keep      # both, until it is rotated again\n\nWrites keys/NAME.creds. Who runs with that file connects again with the new key by itself."
    )]
    Rotate(RotateArgs),
    /// Take every key of a name away: its connections are closed
    #[command(after_help = "Examples:\n  dormouse accounts revoke operator-olga --keys keys")]
    Revoke(AccountArgs),
}

/// `tenant user …`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a person's account and key
    #[command(
        after_help = "Examples:\n  dormouse tenant user add ads/alice --role submitter --keys keys\n  dormouse tenant user add ads/vera --role viewer --keys keys\n\nWrites keys/user-TENANT.NAME.creds, which the person is given."
    )]
    Add(UserAddArgs),
    /// Take every key of a person away: the connections are closed
    #[command(after_help = "Examples:\n  dormouse tenant user revoke ads/alice --keys keys")]
    Revoke(UserArgs),
    /// Make another key for a person, and take the one before away
    #[command(after_help = "Examples:\n  dormouse tenant user rotate ads/alice --keys keys")]
    Rotate(UserRotateArgs),
}

/// Where the owner keeps the keys.
#[derive(Debug, Clone, Args)]
pub struct KeysArg {
    /// Folder with the cluster's root key and all credentials.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: PathBuf,
}

/// `accounts init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Where they are kept.
    #[command(flatten)]
    pub keys: KeysArg,
    /// Where each broker keeps the accounts.
    #[arg(long, default_value = "$DORMOUSE_NATS_ACCOUNTS", value_name = "DIR")]
    pub folder: String,
}

/// `accounts add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Such as node-n0, gateway-g0, operator-olga; a service or tenant-ads, whose key was revoked.
    #[arg(required = true, value_name = "NAME", value_parser = Holder::with_account)]
    pub names: Vec<Holder>,
    /// Where they are kept.
    #[command(flatten)]
    pub keys: KeysArg,
}

/// A name that has keys.
#[derive(Debug, Clone)]
pub struct Holder {
    /// Whose account.
    pub principal: Principal,
    /// The user in it.
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

/// A name that has keys.
#[derive(Debug, Clone, Args)]
pub struct AccountArgs {
    /// Such as node-n0, gateway-g0, operator-olga, tenant-ads, placer.
    pub name: Holder,
    /// Where they are kept.
    #[command(flatten)]
    pub keys: KeysArg,
}

/// `accounts rotate`.
#[derive(Debug, Clone, Args)]
pub struct RotateArgs {
    /// Whose.
    #[command(flatten)]
    pub account: AccountArgs,
    /// The key before stays valid, until the next time without this.
    #[arg(long)]
    pub keep: bool,
}

/// A person of a tenant.
#[derive(Debug, Clone)]
pub struct Person {
    /// The tenant.
    pub tenant: TenantId,
    /// The name.
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

/// A person.
#[derive(Debug, Clone, Args)]
pub struct UserArgs {
    /// TENANT/NAME.
    #[arg(value_name = "TENANT/NAME")]
    pub person: Person,
    /// Where they are kept.
    #[command(flatten)]
    pub keys: KeysArg,
}

/// `tenant user add`.
#[derive(Debug, Clone, Args)]
pub struct UserAddArgs {
    /// Who.
    #[command(flatten)]
    pub user: UserArgs,
    /// viewer: asks and watches; submitter: submits, revises and cancels too.
    #[arg(long, value_parser = role)]
    pub role: Role,
}

/// `tenant user rotate`.
#[derive(Debug, Clone, Args)]
pub struct UserRotateArgs {
    /// Who.
    #[command(flatten)]
    pub user: UserArgs,
    /// The key before stays valid, until the next time without this.
    #[arg(long)]
    pub keep: bool,
}

/// `tenant create`.
#[derive(Debug, Clone, Args)]
pub struct TenantCreateArgs {
    /// What it is entitled to and granted.
    #[command(flatten)]
    pub set: TenantSetArgs,
    /// Where keys are kept.
    #[command(flatten)]
    pub keys: KeysArg,
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
