//! `cluster init`.

use anyhow::Context as _;
use clap::Args;
use dormouse_runtime::accounts::{Beginning, Root};
use serde_json::json;

use crate::commands::account::keys::{KeysArg, ROOT, file, write};
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Make a new cluster's root key, broker configuration and services' credentials
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster init --keys keys > deploy/nats/accounts.conf\n\nEvery account follows from keys/root.nk: keep it and sys.creds with the owner. Give each service its own file."
)]
pub struct InitArgs {
    #[command(flatten)]
    pub keys: KeysArg,
    /// Folder in which each broker keeps the accounts.
    #[arg(long, default_value = "$DORMOUSE_NATS_ACCOUNTS", value_name = "DIR")]
    pub folder: String,
}

/// Runs `cluster init`.
///
/// # Errors
/// If the folder has a root key, or a file cannot be written.
pub fn run(context: &Context, args: &InitArgs) -> anyhow::Result<u8> {
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
    let answer = json!({"configuration": beginning.configuration.trim_end()});
    print::ours(context.output()?, &answer, |_| {
        beginning.configuration.clone()
    })?;
    Ok(DONE)
}
