//! `key`: prints the key of a tenant, or the token of a service.

use std::path::Path;

use anyhow::{Context as _, bail};
use dormouse_gateway::{Key, read_secret};
use dormouse_messages::TenantId;
use serde_json::json;

use crate::cli::gateway::{KeyArgs, KeyOf};
use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Runs `key`.
///
/// # Errors
/// If the secret or key file is unusable.
pub fn run(context: &Context, args: &KeyArgs) -> anyhow::Result<u8> {
    let key = match &args.of {
        KeyOf::Tenant(tenant) => match &args.secret {
            Some(secret) => Key::of_tenant(&read_secret(secret)?, tenant),
            None => bail!("a tenant's key follows from the gateways' secret; give --secret FILE"),
        },
        KeyOf::Service(job) => {
            let tenant = TenantId::new(job.tenant())?;
            let key = match (&args.key, &args.secret) {
                (Some(key), _) => read_key(key)?,
                (None, Some(secret)) => Key::of_tenant(&read_secret(secret)?, &tenant),
                (None, None) => bail!(
                    "a service's token follows from its tenant's key; give --key FILE, or the operator's --secret FILE"
                ),
            };
            key.token_of(job)
        }
    };
    match context.output()? {
        Output::Table | Output::Wide => print::line(key)?,
        Output::Json => print::line(json!({"key": key.to_string()}))?,
        Output::Yaml => print::yaml(&json!({"key": key.to_string()}).to_string())?,
    }
    Ok(DONE)
}

pub(super) fn read_key(path: &Path) -> anyhow::Result<Key> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("the key {shown}"))?;
    let key = Key::parse(&text);
    key.with_context(|| format!("{shown} is no key: it is not 64 hexadecimal digits"))
}
