//! `webhook list|set|remove|secret`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use dormouse_gateway::{Key, read_secret};
use dormouse_messages::events::WebhookConfigured;
use dormouse_messages::{Event, TenantId};
use dormouse_webhook::{Hooks, Secret};
use serde_json::json;

use super::history::History;
use super::key::read_key;
use super::tenants::TenantArg;
use super::{configure, watched};
use crate::cli::list::WatchArg;
use crate::cli::point::LogFileArg;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::Style;

/// Post a tenant's events to an address, signed and in order
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook set ads https://hooks.example.org/dormouse"
)]
pub enum WebhookCommand {
    /// List the tenants with a webhook, and the addresses
    #[command(after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook list -o json")]
    List(WatchArg),
    /// Post a tenant's events to an address, from here on
    #[command(
        after_help = "Examples:\n  dormouse webhook set ads https://hooks.example.org/dormouse\n\n`dormouse serve webhook` posts; docs/webhooks.md says what a receiver checks."
    )]
    Set(WebhookSetArgs),
    /// Stop posting a tenant's events
    #[command(after_help = "Examples:\n  dormouse webhook remove ads")]
    Remove(TenantArg),
    /// Print the secret with which a tenant's receiver checks signatures
    #[command(
        after_help = "Examples:\n  dormouse webhook secret ads --secret gateway.secret     # the operator, for the tenant\n  dormouse webhook secret ads --key ads.key               # the tenant"
    )]
    Secret(WebhookSecretArgs),
}

/// Arguments of `webhook set`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSetArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// Address, https://… or http://….
    pub url: String,
}

/// Arguments of `webhook secret`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSecretArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// File with the gateways' secret (the operator's).
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// File with the tenant's key.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Runs `webhook …`.
///
/// # Errors
/// If the cluster does not answer, or an argument is wrong.
pub async fn run(context: &Context, command: &WebhookCommand) -> anyhow::Result<u8> {
    match command {
        WebhookCommand::List(watch) => list(context, *watch).await,
        WebhookCommand::Set(args) => set(context, args).await,
        WebhookCommand::Remove(args) => remove(context, &args.name).await,
        WebhookCommand::Secret(args) => secret(context, args),
    }
}

async fn configured(context: &Context) -> anyhow::Result<Hooks> {
    let history = History::open(context, &LogFileArg::default()).await?;
    let mut hooks = Hooks::default();
    let read = history.read(1, None, |recorded| {
        hooks.evolve(recorded);
        Ok(())
    });
    read.await?;
    Ok(hooks)
}

type Urls = BTreeMap<TenantId, String>;

async fn list(context: &Context, watch: WatchArg) -> anyhow::Result<u8> {
    let ask = async || {
        let hooks = configured(context).await?;
        let hooks = hooks.iter().map(|(tenant, hook)| (tenant, &hook.url));
        Ok(hooks.map(|(t, url)| (t.clone(), url.clone())).collect())
    };
    watched::repeat(context, watch, ask, table).await
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

async fn set(context: &Context, args: &WebhookSetArgs) -> anyhow::Result<u8> {
    let url = &args.url;
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme))
        .map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => bail!(
            "{url}: name and password in an address would stand on the log; receivers check the signature instead"
        ),
        Some(host) if !host.is_empty() && !url.contains(char::is_whitespace) => {}
        _ => bail!(
            "{url} is no address that can be posted to; write https://HOST/PATH or http://HOST/PATH"
        ),
    }
    let event = WebhookConfigured {
        tenant: args.tenant.clone(),
        url: Some(url.clone()),
    };
    let said = format!(
        "events of {} go to {url} while `dormouse serve webhook` runs somewhere (`up` runs none)",
        args.tenant
    );
    configure::append(context, Event::from(event), &said).await
}

async fn remove(context: &Context, tenant: &TenantId) -> anyhow::Result<u8> {
    if configured(context).await?.get(tenant).is_none() {
        let message = format!("{tenant} has no webhook; `dormouse webhook list` shows who has one");
        return Err(Coded::new("not_found", message).into());
    }
    let event = WebhookConfigured {
        tenant: tenant.clone(),
        url: None,
    };
    let said = format!("events of {tenant} go nowhere");
    configure::append(context, Event::from(event), &said).await
}

fn secret(context: &Context, args: &WebhookSecretArgs) -> anyhow::Result<u8> {
    let key = match (&args.key, &args.secret) {
        (Some(key), _) => read_key(key)?,
        (None, Some(secret)) => {
            let secret = read_secret(secret).context("the gateways' secret")?;
            Key::of_tenant(&secret, &args.tenant)
        }
        (None, None) => bail!(
            "a webhook's secret follows from its tenant's key; give --key FILE, or the operator's --secret FILE"
        ),
    };
    let secret = Secret::new(key.webhook_secret()).to_string();
    print::value(context.output()?, &json!({"secret": secret}), |_, _| {
        secret.clone()
    })?;
    Ok(DONE)
}
