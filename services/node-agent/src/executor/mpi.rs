//! MPICH: rank 0 runs `mpiexec` with the manual launcher, and every container a proxy
//! (`deploy/executors/mpi.sh`). A proxy obeys its peer without a secret, so it waits for [`super::GO`].

use std::collections::BTreeMap;

use dormouse_messages::Rank;

use super::{Setting, go, is_loopback, wrapped};
use crate::network::{LINK, ports};

const SCRIPT: &str = include_str!("../../../../deploy/executors/mpi.sh");

/// Wraps the command line, and sets the variables.
///
/// # Errors
/// If the gang has no rank 0.
pub fn launch(
    setting: &Setting<'_>,
    argv: Vec<String>,
    env: &mut BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let root = setting.member(Rank(0))?;
    let exit = setting.directory.join("mpi-exit");
    let variables = [
        (
            "DORMOUSE_MPI_ROOT",
            format!("{}:{}", root.address, root.port),
        ),
        ("DORMOUSE_EXIT", exit.display().to_string()),
        go(setting),
        // Containers share no memory, even on one node.
        ("MPIR_CVAR_CH4_NETMOD", "ofi".to_owned()),
        ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
        ("FI_PROVIDER", "tcp".to_owned()),
    ];
    env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    if setting.network_ready.is_some() {
        let own = ports(setting.own()?.port);
        let variables = [
            ("FI_TCP_IFACE", LINK.to_owned()),
            ("FI_TCP_PORT_LOW_RANGE", (own.start + 1).to_string()),
            ("FI_TCP_PORT_HIGH_RANGE", (own.end - 1).to_string()),
        ];
        env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    } else if is_loopback(&root.address) {
        env.insert("FI_TCP_IFACE".to_owned(), "lo".to_owned());
    }
    Ok(wrapped(SCRIPT, argv))
}
