//! Variables for jobs with roles. TensorFlow's cluster (`tf.distribute.ParameterServerStrategy`) has rank 0
//! as `chief`, its `worker`s and its `ps`. The `evaluator` is outside of the cluster.

use std::collections::BTreeMap;

use dormouse_messages::roles::WORKER;
use dormouse_messages::{AuxiliaryRoles, Rank};

use super::{Member, Setting, endpoint};

fn by_role<'a>(
    setting: &'a Setting<'_>,
    auxiliary: &'a AuxiliaryRoles,
) -> BTreeMap<&'a str, Vec<&'a Member>> {
    let mut roles: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in setting.gang {
        let role = auxiliary.at(member.rank).map_or(WORKER, |part| &part.role);
        roles.entry(role).or_default().push(member);
    }
    roles
}

/// Returns the extra variables of a container. Empty for a job without roles.
pub fn variables(setting: &Setting<'_>) -> BTreeMap<String, String> {
    let auxiliary = AuxiliaryRoles::of(setting.spec);
    if auxiliary.is_empty() {
        return BTreeMap::new();
    }
    let own = setting.container.rank;
    let role = auxiliary.at(own).map_or(WORKER, |part| &part.role);
    let roles = by_role(setting, &auxiliary);
    let peers = roles.get(role).map_or(&[][..], Vec::as_slice);
    let place = peers.iter().filter(|member| member.rank < own).count();
    let all = roles.iter().map(|(role, members)| {
        let members: Vec<String> = members.iter().map(|member| endpoint(member)).collect();
        format!("{role}={}", members.join(","))
    });
    let all: Vec<String> = all.collect();
    BTreeMap::from(
        [
            ("DORMOUSE_ROLE", role.to_owned()),
            ("DORMOUSE_ROLE_RANK", place.to_string()),
            ("DORMOUSE_ROLE_SIZE", peers.len().to_string()),
            ("DORMOUSE_ROLE_PEERS", all.join(";")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

/// Returns TensorFlow's cluster and task in the format of its resolver.
pub fn tf_config(setting: &Setting<'_>) -> String {
    let auxiliary = AuxiliaryRoles::of(setting.spec);
    let own = setting.container.rank;
    let mut cluster: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut kind, mut index) = (WORKER, 0);
    for (role, members) in by_role(setting, &auxiliary) {
        for member in members {
            let role = if member.rank == Rank(0) {
                "chief"
            } else {
                role
            };
            let peers = cluster.entry(role).or_default();
            if member.rank == own {
                (kind, index) = (role, peers.len());
            }
            peers.push(endpoint(member));
        }
    }
    cluster.remove("evaluator");
    serde_json::json!({"cluster": cluster, "task": {"type": kind, "index": index}}).to_string()
}
