//! `account file`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use dormouse_runtime::accounts::{Principal, file};
use serde_json::json;

use super::add::role;
use super::holder::Holder;
use super::keys::{random_hex, write};
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Print the accounts of brokers that read them from a file, and make the missing keys
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse account file --keys keys tenant-ads ads/alice:submitter ads/vera:viewer operator-olga node-n0 gateway-g0 > deploy/nats/accounts.conf\n\nWrites keys/NAME.nk, the seed for --nkey (of a person keys/user-TENANT.NAME.nk), keys/NAME.pub, the public key, and with a gateway keys/gateway.secret. Existing keys stay; one of a key's two files is enough. To add or revoke accounts, run it again with all names that stay, and reload the brokers: nats-server --signal reload."
)]
pub struct FileArgs {
    /// All accounts but the services': tenant-ads, ads/alice:submitter, ads/vera:viewer, operator-olga, node-n0, gateway-g0.
    #[arg(value_name = "NAME", value_parser = named)]
    pub names: Vec<Principal>,
    /// Folder of the keys.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: PathBuf,
}

/// Parses `node-n0` or `ads/alice:submitter`.
fn named(text: &str) -> Result<Principal, String> {
    let (name, given) = text.split_once(':').unwrap_or((text, ""));
    match (name.parse::<Holder>()?.principal, given) {
        (Principal::System | Principal::Control, _) => {
            Err(format!("{name} is always in the file; leave it out"))
        }
        (Principal::Person { tenant, user, .. }, given) => match role(given) {
            Ok(role) => Ok(Principal::Person { tenant, user, role }),
            Err(_) => Err(format!("write {name}:viewer or {name}:submitter")),
        },
        (principal, "") => Ok(principal),
        (_, given) => Err(format!("only people have roles; leave out :{given}")),
    }
}

/// Runs `account file`.
///
/// # Errors
/// If a name is given twice, or a key cannot be read or written.
pub fn run(context: &Context, args: &FileArgs) -> anyhow::Result<u8> {
    let mut names = BTreeSet::new();
    let mut given = args.names.iter().map(Principal::name);
    if let Some(twice) = given.find(|name| !names.insert(name.clone())) {
        let message = format!("{twice} is given twice; give it once");
        return Err(Coded::new("usage", message).into());
    }
    let folder = &args.keys;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let prefix = &context.global().prefix;
    let configuration = file::configuration(prefix, &args.names, |user| public_key(folder, user))?;
    let secret = folder.join("gateway.secret");
    let is_gateway = |it: &Principal| matches!(it, Principal::Gateway(_));
    if args.names.iter().any(is_gateway) && !secret.exists() {
        write(&secret, &format!("{}\n", random_hex(32)?))?;
    }
    let answer = json!({"configuration": configuration.trim_end()});
    print::ours(context.output()?, &answer, |_| configuration.clone())?;
    Ok(DONE)
}

/// Returns the public key of a user; makes the key if there is none.
fn public_key(folder: &Path, user: &str) -> anyhow::Result<String> {
    let [seed, public] = ["nk", "pub"].map(|ending| folder.join(format!("{user}.{ending}")));
    if let Some(known) = [&seed, &public].into_iter().find(|it| it.exists()) {
        let read = || anyhow::Ok(file::public_key(&std::fs::read_to_string(known)?)?);
        let advice = || format!("{}: repair it, or remove it for a new key", known.display());
        return read().with_context(advice);
    }
    let made = file::user_key()?;
    write(&seed, &made.text)?;
    write(&public, &format!("{}\n", made.public))?;
    Ok(made.public)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn people_have_roles_and_services_are_not_named() {
        let right = ["tenant-ads", "ads/vera:viewer", "operator-olga", "node-n0"];
        for text in right {
            assert!(named(text).is_ok(), "{text}");
        }
        for text in [
            "ads/vera",
            "ads/vera:operator",
            "ads/*:viewer",
            "node-n0:viewer",
            "node-a>b",
            "placer",
            "sys",
        ] {
            assert!(named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = || public_key(folder.path(), "node-n0");
        let seed = folder.path().join("node-n0.nk");
        let made = key().expect("made");
        let mode = seed.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(key().expect("kept"), made);
        std::fs::rename(&seed, folder.path().join("handed-over")).expect("moved");
        assert_eq!(key().expect("kept"), made);
        std::fs::write(&seed, "nonsense").expect("written");
        assert!(key().is_err());
    }
}
