//! Resolves a job's mounts. A link in a tenant's folder must stay within the grants. The sandbox opens the
//! result without links, so a later link is refused.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dormouse_messages::grants::Granted;
use dormouse_messages::job::Mount;

use crate::container_plan::ContainerPlan;

/// Returns the plan's mounts with resolved sources, within the grants. Blocking.
///
/// # Errors
/// A mount that is missing or leads out of the grants.
pub fn real(plan: &ContainerPlan) -> Result<Vec<Mount>, String> {
    let mounts = plan.mounts.iter();
    mounts
        .map(|mount| real_source(&plan.granted, mount))
        .collect()
}

fn real_source(granted: &Granted, mount: &Mount) -> Result<Mount, String> {
    let source = &mount.source;
    let real = match std::fs::canonicalize(source) {
        // An engine may see more than a containerised agent.
        Err(_) if granted.trusts_mounts() => return Ok(mount.clone()),
        real => {
            real.map_err(|error| format!("{source} is not on this node ({error}); see mounts"))?
        }
    };
    let real = real.to_str();
    let real = real.ok_or_else(|| format!("{source} is not a name in UTF-8; see mounts"))?;
    let mount = Mount {
        source: real.to_owned(),
        ..mount.clone()
    };
    let mut granted = granted.clone();
    for grant in &mut granted.grants.mounts {
        if let Some(path) = canonical(&grant.path) {
            grant.path = path;
        }
    }
    match granted.mount(&mount) {
        Ok(()) => Ok(mount),
        Err(_) if real == source.as_str() => {
            Err(format!("{source} is not granted to {}", granted.tenant))
        }
        Err(_) => Err(format!(
            "{source} leads to {real}, which is not granted to {}; mount the folder itself",
            granted.tenant
        )),
    }
}

/// Resolves a granted folder if only root or the agent can exchange its links. Otherwise the path counts as
/// named.
fn canonical(path: &str) -> Option<String> {
    let own = nix::unistd::geteuid().as_raw();
    let is_operators = |it: &Path| {
        std::fs::symlink_metadata(it).is_ok_and(|found| {
            let is_closed = found.is_symlink() || found.mode() & 0o022 == 0;
            // In a sticky folder only the owner exchanges a file.
            let is_sticky = found.mode() & 0o1000 != 0;
            (found.uid() == 0 || found.uid() == own) && (is_closed || is_sticky)
        })
    };
    let path = Path::new(path);
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
    let is_own = !is_link || is_operators(path);
    if !is_own || !path.ancestors().skip(1).all(is_operators) {
        return None;
    }
    let real = std::fs::canonicalize(path).ok()?;
    Some(real.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_messages::grants::{Grants, GrantsRule};

    #[test]
    fn a_link_leads_no_further_than_the_grant() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir_all(path("ads/deep")).expect("made");
        std::fs::create_dir_all(path("search")).expect("made");
        std::os::unix::fs::symlink(path("search"), path("ads/out")).expect("linked");
        std::os::unix::fs::symlink(path("ads/deep"), path("ads/in")).expect("linked");
        std::os::unix::fs::symlink(path("ads"), path("alias")).expect("linked");
        let granted = |to: &str| Granted {
            tenant: "ads".to_owned(),
            rule: GrantsRule::Required,
            grants: Grants {
                mounts: vec![path(to).parse().expect("a folder")],
                ..Grants::default()
            },
        };
        let looked = |to: &str, source: &str| {
            let mount = Mount {
                source: path(source),
                target: "/data".to_owned(),
                read_only: false,
            };
            real_source(&granted(to), &mount).map(|mount| mount.source)
        };
        assert_eq!(looked("ads", "ads/in"), Ok(path("ads/deep")));
        assert_eq!(looked("alias", "ads/deep"), Ok(path("ads/deep")));
        let error = looked("ads", "ads/out").expect_err("it leads out");
        assert!(error.contains("leads to"), "{error}");
        assert!(looked("ads", "search").is_err());
        assert!(looked("ads", "ads/missing").is_err());
    }

    #[test]
    fn a_granted_folder_that_its_tenant_made_a_link_leads_nowhere() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir_all(path("ads")).expect("made");
        std::fs::create_dir_all(path("search")).expect("made");
        std::os::unix::fs::symlink(path("search"), path("ads/inner")).expect("linked");
        // The tenant may exchange root's link.
        std::os::unix::fs::chown(path("ads"), Some(200_001), Some(200_001)).expect("given");
        let granted = Granted {
            tenant: "ads".to_owned(),
            rule: GrantsRule::Required,
            grants: Grants {
                mounts: vec![path("ads/inner").parse().expect("a folder")],
                ..Grants::default()
            },
        };
        let mount = Mount {
            source: path("ads/inner"),
            target: "/data".to_owned(),
            read_only: false,
        };
        assert!(real_source(&granted, &mount).is_err());
    }
}
