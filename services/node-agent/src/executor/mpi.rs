//! MPICH: rank 0's container runs `mpiexec` with the manual launcher, every container the proxy
//! that it would have started by ssh. Nothing passes between containers but TCP; they may start
//! in any order. `deploy/executors/mpi.sh` says how.
//!
//! A proxy runs what the other end of its connection says, and MPICH has no secret between the two: it
//! waits for [`super::GO`].

use std::collections::BTreeMap;

use dormouse_messages::Rank;

use super::{Setting, go, is_loopback, wrapped};
use crate::network::{LINK, ports};

/// Run in every container.
const SCRIPT: &str = include_str!("../../../../deploy/executors/mpi.sh");

/// The wrapped command line, and what the script and MPICH read.
///
/// # Errors
/// When the gang has no rank 0.
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
        // Ranks of one node talk by TCP too: containers share no memory.
        ("MPIR_CVAR_CH4_NETMOD", "ofi".to_owned()),
        ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
        ("FI_PROVIDER", "tcp".to_owned()),
    ];
    env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    if setting.network_ready.is_some() {
        let own = ports(setting.own()?.port);
        // The first is mpiexec's.
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
