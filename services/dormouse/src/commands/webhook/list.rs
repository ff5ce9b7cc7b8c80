//! `webhook list`.

use std::collections::BTreeMap;

use clap::Args;
use dormouse_messages::TenantId;
use dormouse_state::hooks::Hooks;

use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render::Style;

/// List the tenants with a webhook, and the addresses
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook list -o json")]
pub struct ListArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Reads the webhooks from the log.
///
/// # Errors
/// If the log cannot be read.
pub async fn configured(context: &Context) -> anyhow::Result<Hooks> {
    let log = context.connect().await?;
    Ok(log.folded::<Hooks>().await?.state)
}

type Urls = BTreeMap<TenantId, String>;

/// Runs `webhook list`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<u8> {
    let ask = async || {
        let hooks = configured(context).await?;
        let hooks = hooks.iter().map(|(tenant, hook)| (tenant, &hook.url));
        Ok(hooks.map(|(t, url)| (t.clone(), url.clone())).collect())
    };
    watched::repeat(context, args.watch, ask, table).await
}

fn table(hooks: &Urls, style: &Style) -> String {
    if hooks.is_empty() {
        return "no webhooks; `dormouse webhook set TENANT URL` configures one".to_owned();
    }
    let mut table = style.table(&["TENANT", "URL"]);
    for (tenant, url) in hooks {
        table.add_row(vec![tenant.to_string(), url.clone()]);
    }
    style.write(table)
}
