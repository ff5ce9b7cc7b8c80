//! `account add`.

use clap::Args;
use dormouse_messages::who::Role;
use dormouse_runtime::accounts::Principal;

use super::holder::Holder;
use super::keys::{KeysArg, coded, connect_to_change, issue, note, owner, said};
use crate::context::Context;
use crate::error::{Coded, DONE};

/// Make accounts of agents, gateways, operators and people on the running brokers, or replace a revoked key
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse account add node-n0 node-n1 gateway-g0 --keys keys --server tls://nats-1:4222\n  dormouse account add operator-olga --keys keys\n  dormouse account add ads/alice --role submitter --keys keys\n  dormouse account add webhook --keys keys      # its key was revoked\n\nWrites keys/NAME.creds (of a person keys/user-TENANT.NAME.creds), and makes an agent's or gateway's reader of the log."
)]
pub struct AddArgs {
    /// Such as node-n0, gateway-g0, operator-olga, or ads/alice for a person; also a service or tenant-ads
    /// with a revoked key.
    #[arg(required = true, value_name = "NAME", value_parser = with_account)]
    pub names: Vec<Holder>,
    /// Role of people. viewer: queries and watches; submitter: also submits, changes and cancels.
    #[arg(long, value_parser = role)]
    pub role: Option<Role>,
    #[command(flatten)]
    pub keys: KeysArg,
}

fn with_account(text: &str) -> Result<Holder, String> {
    let holder: Holder = text.parse()?;
    match holder.principal {
        Principal::System => Err("the brokers' own key is made once; rotate it".to_owned()),
        _ => Ok(holder),
    }
}

/// Parses the role of a person.
pub fn role(text: &str) -> Result<Role, String> {
    match text.parse() {
        Ok(role @ (Role::Viewer | Role::Submitter)) => Ok(role),
        _ => Err(format!("{text:?} is not viewer or submitter")),
    }
}

/// Gives people the role of the command line.
fn with_role(holder: &Holder, given: Option<Role>) -> anyhow::Result<Principal> {
    match (&holder.principal, given) {
        (Principal::Person { tenant, user, .. }, Some(role)) => Ok(Principal::Person {
            tenant: tenant.clone(),
            user: user.clone(),
            role,
        }),
        (Principal::Person { .. }, None) => {
            let message = format!("{} needs a role: --role viewer or submitter", holder.user);
            Err(Coded::new("usage", message).into())
        }
        (principal, _) => Ok(principal.clone()),
    }
}

/// Runs `account add`.
///
/// # Errors
/// If a file cannot be written, or the brokers refuse.
pub async fn run(context: &Context, args: &AddArgs) -> anyhow::Result<u8> {
    let named = args.names.iter();
    let named = named.map(|holder| Ok((with_role(holder, args.role)?, &holder.user)));
    let named: Vec<(Principal, &String)> = named.collect::<anyhow::Result<_>>()?;
    let (accounts, _turn) = connect_to_change(context, &args.keys).await?;
    for (principal, user) in &named {
        let mut made = format!("{user} is made");
        if let Principal::Person { tenant, role, .. } = principal {
            let of = Principal::Tenant(tenant.clone());
            if accounts.claims(&of).await.map_err(coded)?.is_none() {
                let message = format!(
                    "there is no tenant {tenant}; `dormouse tenant create {tenant}` makes it"
                );
                return Err(Coded::new("not_found", message).into());
            }
            made = format!("{made}, a {role}");
        }
        let (path, created) = issue(&accounts, &args.keys, principal, user).await?;
        note(context, &args.keys, created).await;
        if matches!(principal, Principal::Node(_) | Principal::Gateway(_)) {
            let log = owner(context, &args.keys).connect().await?;
            log.ensure_readers(std::slice::from_ref(*user)).await?;
        }
        said(context, user, &path, &made)?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_have_roles() {
        assert!(role("operator").is_err() && role("viewer").is_ok());
        let alice = "ads/alice".parse().expect("a person");
        assert!(with_role(&alice, None).is_err());
        let named = with_role(&alice, Some(Role::Submitter)).expect("a role");
        assert!(matches!(
            named,
            Principal::Person {
                role: Role::Submitter,
                ..
            }
        ));
    }
}
