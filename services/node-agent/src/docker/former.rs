//! Ends containers of agents of earlier builds. Two clusters on one engine may share their label, so only
//! containers in this agent's own folder are ended, and none are adopted.

use std::path::{Path, absolute};

use bollard::models::ContainerSummary;

use super::Inner;
use crate::runtime::RuntimeError;

impl Inner {
    pub(super) async fn end_former(&self) -> Result<(), RuntimeError> {
        let Some(former) = &self.config.former_cluster else {
            return Ok(());
        };
        let data = &self.config.data_dir;
        let folder = absolute(data).unwrap_or_else(|_| data.clone());
        for summary in self.labelled(former).await? {
            if !works_in(&summary, &folder) {
                continue;
            }
            if let Some(name) = &summary.id {
                tracing::warn!(
                    name,
                    "an agent of an earlier build has left it; it is ended, and its job goes on elsewhere"
                );
                self.remove_surely(name).await;
            }
        }
        Ok(())
    }
}

fn works_in(summary: &ContainerSummary, folder: &Path) -> bool {
    let mounts = summary.mounts.iter().flatten();
    let mut sources = mounts.filter_map(|mount| mount.source.as_deref());
    sources.any(|source| Path::new(source).starts_with(folder))
}

#[cfg(test)]
mod tests {
    use bollard::models::MountPoint;

    use super::*;

    #[test]
    fn what_works_in_another_agents_folder_is_not_touched() {
        let summary = |sources: &[&str]| {
            let mounts = sources.iter().map(|source| MountPoint {
                source: Some((*source).to_owned()),
                ..MountPoint::default()
            });
            ContainerSummary {
                mounts: Some(mounts.collect()),
                ..ContainerSummary::default()
            }
        };
        let own = Path::new("/var/lib/dormouse");
        assert!(works_in(
            &summary(&["/usr", "/var/lib/dormouse/nodes/n0/x"]),
            own
        ));
        assert!(!works_in(
            &summary(&["/usr", "/var/lib/dormouse-2/nodes/n0/x"]),
            own
        ));
        assert!(!works_in(&summary(&[]), own));
    }
}
