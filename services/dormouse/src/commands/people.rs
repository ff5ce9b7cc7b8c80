//! `tenant user …`: makes, replaces and revokes the keys of a tenant's people.

use std::str::FromStr;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;
use dormouse_messages::who::{Role, is_user};
use dormouse_runtime::accounts::Principal;

use super::accounts::{KeysArg, coded, connect_to_change, issue, note, revoke, rotate, said};
use crate::context::Context;
use crate::error::Coded;

/// Make, replace and revoke the keys of a tenant's people
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse tenant user add ads/alice --role submitter --keys keys\n  dormouse tenant user revoke ads/alice --keys keys"
)]
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

/// Runs `tenant user …`.
///
/// # Errors
/// If a file cannot be written, or the brokers refuse.
pub async fn run(context: &Context, command: &UserCommand) -> anyhow::Result<u8> {
    match command {
        UserCommand::Add(args) => {
            let person = of(&args.user.person, args.role);
            let folder = &args.user.keys;
            let (accounts, _turn) = connect_to_change(context, folder).await?;
            let tenant = Principal::Tenant(args.user.person.tenant.clone());
            if accounts.claims(&tenant).await.map_err(coded)?.is_none() {
                let tenant = &args.user.person.tenant;
                let message = format!(
                    "there is no tenant {tenant}; `dormouse tenant create {tenant}` makes it"
                );
                return Err(Coded::new("not_found", message).into());
            }
            let name = person.name();
            let (path, created) = issue(&accounts, folder, &person, &name).await?;
            note(context, folder, created).await;
            said(
                context,
                &name,
                &path,
                &format!("{name} is made, a {}", args.role),
            )
        }
        UserCommand::Revoke(args) => {
            let person = of(&args.person, Role::Viewer);
            revoke(context, &args.keys, &person, &person.name()).await
        }
        UserCommand::Rotate(args) => {
            // The role is in the account; this one is a placeholder.
            let person = of(&args.user.person, Role::Viewer);
            let name = person.name();
            rotate(context, &args.user.keys, &person, &name, args.keep).await
        }
    }
}

fn of(person: &Person, role: Role) -> Principal {
    Principal::Person {
        tenant: person.tenant.clone(),
        user: person.user.clone(),
        role,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_roles_are_read_or_refused() {
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
