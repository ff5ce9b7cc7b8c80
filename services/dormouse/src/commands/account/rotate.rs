//! `account rotate`.

use clap::Args;
use dormouse_messages::events::KeyRotated;
use dormouse_runtime::accounts::{AccountError, Credentials};

use super::holder::{Holder, HolderArg};
use super::keys::{coded, connect_to_change, file, note, said, tenant_of, write};
use crate::context::Context;

/// Replace a key and revoke the former key
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse account rotate node-n0 --keys keys\n  dormouse account rotate ads/alice --keys keys\n  dormouse account rotate placer --keys keys --keep      # both, until it is rotated again\n\nWrites keys/NAME.creds. Processes with that file connect again by themselves."
)]
pub struct RotateArgs {
    #[command(flatten)]
    pub holder: HolderArg,
    /// Keep the former key valid until the next rotation without --keep.
    #[arg(long)]
    pub keep: bool,
}

/// Runs `account rotate`.
///
/// # Errors
/// If the file cannot be written, or the brokers refuse.
pub async fn run(context: &Context, args: &RotateArgs) -> anyhow::Result<u8> {
    let HolderArg { name, keys } = &args.holder;
    let (Holder { principal, user }, keep) = (name, args.keep);
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
