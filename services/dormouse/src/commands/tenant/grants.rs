//! Merges named grants into the existing ones.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_messages::Resource;
use dormouse_messages::classes::is_class;
use dormouse_messages::grants::{Exec, Grants, MountGrant, Network, RunAs, folder};
use dormouse_messages::quantity::lacks_unit;

/// Grants of a tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct GrantsArgs {
    /// User and group, by number, of the tenant's containers.
    #[arg(long, value_name = "UID:GID")]
    pub run_as: Option<String>,
    /// Folder of the nodes that its jobs may mount, with all below it; `:ro`: read-only.
    #[arg(long, value_name = "PATH[:ro]")]
    pub mount: Vec<String>,
    /// Folder of the nodes with the tenant's secrets.
    #[arg(long, value_name = "FOLDER")]
    pub secrets: Option<String>,
    /// Images allowed for its jobs; `*` stands for any text.
    #[arg(long, value_name = "PATTERN")]
    pub image: Vec<String>,
    /// Highest network mode of its containers: none, published or host.
    #[arg(long)]
    pub network: Option<String>,
    /// Priority class allowed for its jobs; added to the existing ones.
    #[arg(long, value_name = "CLASS")]
    pub priority_class: Vec<String>,
    /// Most queued jobs.
    #[arg(long, value_name = "JOBS")]
    pub max_queued: Option<String>,
    /// Most bytes of its queued jobs' specifications together, such as 64Mi.
    #[arg(long, value_name = "SIZE")]
    pub max_queued_bytes: Option<String>,
    /// Most submissions accepted a second.
    #[arg(long, value_name = "PER_SECOND")]
    pub max_rate: Option<String>,
    /// Most containers of its jobs together.
    #[arg(long, value_name = "CONTAINERS")]
    pub max_containers: Option<String>,
    /// Most disk of a node for its files and checkpoints, such as 200Gi; overrides the agents'
    /// `--tenant-storage`.
    #[arg(long, value_name = "SIZE")]
    pub max_storage: Option<String>,
    /// Permission of `job exec` in its containers: allowed or forbidden.
    #[arg(long, value_name = "allowed|forbidden")]
    pub exec: Option<String>,
}

const NONE: &str = "none";

/// True if any grant is named.
#[must_use]
pub fn named(args: &GrantsArgs) -> bool {
    let lists = [&args.mount, &args.image, &args.priority_class];
    let single = [&args.run_as, &args.secrets, &args.network, &args.exec];
    let bounds = [
        &args.max_queued,
        &args.max_queued_bytes,
        &args.max_rate,
        &args.max_containers,
        &args.max_storage,
    ];
    lists.iter().any(|list| !list.is_empty())
        || single.into_iter().chain(bounds).any(Option::is_some)
}

/// Returns the new grants; grants that are not named stay.
///
/// # Errors
/// If a value cannot be granted.
pub fn granted(args: &GrantsArgs, mut grants: Grants) -> anyhow::Result<Grants> {
    set(
        &mut grants.run_as,
        "--run-as",
        args.run_as.as_deref(),
        |text| Ok(text.parse::<RunAs>()?),
    )?;
    for mount in &args.mount {
        if mount == NONE {
            grants.mounts.clear();
            continue;
        }
        let mount: MountGrant = mount.parse().context("--mount")?;
        grants.mounts.retain(|known| known.path != mount.path);
        grants.mounts.push(mount);
    }
    grants.mounts.sort();
    set(
        &mut grants.secrets,
        "--secrets",
        args.secrets.as_deref(),
        |text| Ok(folder(text)?),
    )?;
    for image in &args.image {
        match image.as_str() {
            NONE => grants.images.clear(),
            image if image.is_empty() || image.contains(char::is_control) => {
                bail!("--image {image:?} is not a pattern such as 'registry/ads/*'")
            }
            image if grants.images.iter().any(|known| known == image) => {}
            image => grants.images.push(image.to_owned()),
        }
    }
    if let Some(text) = args.network.as_deref() {
        grants.network = Some(match text {
            "none" => Network::None,
            "published" => Network::Published,
            "host" => Network::Host,
            other => bail!("--network {other} is not none, published or host"),
        });
    }
    bounds(args, &mut grants)?;
    set(&mut grants.exec, "--exec", args.exec.as_deref(), |text| {
        Ok(match text {
            "allowed" => Exec::Allowed,
            "forbidden" => Exec::Forbidden,
            _ => bail!("it is not allowed, forbidden or none"),
        })
    })?;
    classes(&mut grants.priority_classes, &args.priority_class)?;
    Ok(grants)
}

fn bounds(args: &GrantsArgs, grants: &mut Grants) -> anyhow::Result<()> {
    let number = |text: &str| -> anyhow::Result<u32> {
        match text.parse() {
            Ok(0) | Err(_) => bail!("it must be a number above 0, or none"),
            Ok(number) => Ok(number),
        }
    };
    let size = |text: &str| -> anyhow::Result<u64> {
        match Resource::Memory.parse(text)? {
            0 => bail!("it must be a size above 0, such as 64Mi, or none"),
            bytes => match lacks_unit(bytes) {
                Some(_) => {
                    bail!("{bytes} is {bytes} bytes; with a unit it is {bytes}Gi or {bytes}Mi")
                }
                None => Ok(bytes),
            },
        }
    };
    let most = args.max_queued.as_deref();
    set(&mut grants.max_queued, "--max-queued", most, number)?;
    let most = args.max_queued_bytes.as_deref();
    set(
        &mut grants.max_queued_bytes,
        "--max-queued-bytes",
        most,
        size,
    )?;
    let most = args.max_rate.as_deref();
    set(&mut grants.max_rate, "--max-rate", most, number)?;
    let most = args.max_containers.as_deref();
    set(&mut grants.max_containers, "--max-containers", most, number)?;
    let most = args.max_storage.as_deref();
    set(&mut grants.max_storage, "--max-storage", most, size)
}

fn classes(granted: &mut BTreeSet<String>, named: &[String]) -> anyhow::Result<()> {
    for name in named {
        match name.as_str() {
            NONE => granted.clear(),
            name if !is_class(name) => bail!(
                "--priority-class {name:?} cannot be a class; its name has a-z, 0-9 and - only"
            ),
            name => drop(granted.insert(name.to_owned())),
        }
    }
    Ok(())
}

fn set<T>(
    place: &mut Option<T>,
    flag: &'static str,
    text: Option<&str>,
    read: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    match text {
        None => {}
        Some(NONE) => *place = None,
        Some(text) => *place = Some(read(text).with_context(|| format!("{flag} {text}"))?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn what_is_named_is_added_and_none_lifts_it() {
        let args = GrantsArgs {
            mount: texts(&["/data:ro", "/scratch"]),
            image: texts(&["a/*"]),
            run_as: Some("10001:10001".to_owned()),
            max_queued: Some("7".to_owned()),
            max_queued_bytes: Some("64Mi".to_owned()),
            max_storage: Some("200Gi".to_owned()),
            priority_class: texts(&["urgent", "early"]),
            ..GrantsArgs::default()
        };
        assert!(named(&args) && !named(&GrantsArgs::default()));
        let first = granted(&args, Grants::default()).expect("valid");
        assert_eq!((first.mounts.len(), first.max_queued), (2, Some(7)));
        assert_eq!(first.priority_classes.len(), 2);
        let sizes = (first.max_queued_bytes, first.max_storage);
        assert_eq!(sizes, (Some(64 << 20), Some(200 << 30)));
        let args = GrantsArgs {
            mount: texts(&["none", "/data"]),
            image: texts(&["none"]),
            priority_class: texts(&["none", "late"]),
            max_queued: Some("none".to_owned()),
            max_storage: Some("none".to_owned()),
            ..GrantsArgs::default()
        };
        let second = granted(&args, first).expect("valid");
        let mounts: Vec<String> = second.mounts.iter().map(ToString::to_string).collect();
        assert_eq!(mounts, ["/data"]);
        assert!(second.images.is_empty() && second.run_as.is_some());
        assert_eq!((second.max_queued, second.max_storage), (None, None));
        assert_eq!(second.max_queued_bytes, Some(64 << 20));
        assert_eq!(second.priority_classes, BTreeSet::from(["late".to_owned()]));
    }

    #[test]
    fn what_cannot_be_granted_is_refused() {
        let wrong = |args: GrantsArgs| granted(&args, Grants::default()).expect_err("wrong");
        let error = wrong(GrantsArgs {
            run_as: Some("0:0".to_owned()),
            ..GrantsArgs::default()
        });
        assert!(format!("{error:#}").contains("root"), "{error:#}");
        wrong(GrantsArgs {
            mount: texts(&["data"]),
            ..GrantsArgs::default()
        });
        wrong(GrantsArgs {
            network: Some("all".to_owned()),
            ..GrantsArgs::default()
        });
        wrong(GrantsArgs {
            priority_class: texts(&["Urgent"]),
            ..GrantsArgs::default()
        });
        wrong(GrantsArgs {
            max_rate: Some("0".to_owned()),
            ..GrantsArgs::default()
        });
        for size in ["0", "64MB", "much", "-1Mi"] {
            wrong(GrantsArgs {
                max_storage: Some(size.to_owned()),
                ..GrantsArgs::default()
            });
        }
    }
}
