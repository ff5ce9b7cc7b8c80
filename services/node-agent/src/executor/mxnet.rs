//! MXNet: a worker in every container, a server in the first two, the scheduler at rank 0
//! (`deploy/executors/mxnet.sh`). Members obey peers that the scheduler names, so they wait for
//! [`super::GO`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use dormouse_messages::Rank;

use super::{Setting, go, wrapped};

const SCRIPT: &str = include_str!("../../../../deploy/executors/mxnet.sh");

/// Two servers share the keys of a large model. Each costs 0.6 s of CPU and 150 MB.
const MOST_SERVERS: usize = 2;

/// Wraps the command line, and sets the variables.
///
/// # Errors
/// If rank 0's address is not an IP. ps-lite's scheduler would exit, and the others hang.
pub fn launch(
    setting: &Setting<'_>,
    argv: Vec<String>,
    env: &mut BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let root = setting.member(Rank(0))?;
    if root.address.parse::<IpAddr>().is_err() {
        return Err(format!(
            "MXNet needs the IP of rank 0's node, not {:?}; start its agent with --address IP",
            root.address
        ));
    }
    let workers = setting.gang.len();
    let variables = [
        ("DMLC_PS_ROOT_URI", root.address.clone()),
        ("DMLC_PS_ROOT_PORT", root.port.to_string()),
        ("DMLC_NUM_WORKER", workers.to_string()),
        ("DMLC_NUM_SERVER", workers.min(MOST_SERVERS).to_string()),
        ("DMLC_NODE_HOST", setting.own()?.address.clone()),
        ("OMP_NUM_THREADS", "1".to_owned()),
        go(setting),
    ];
    env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    Ok(wrapped(SCRIPT, argv))
}
