//! MPICH: rank 0's container runs `mpiexec` with the manual launcher, every container the proxy
//! that it would have started by ssh. Nothing passes between containers but TCP; they may start
//! in any order. `deploy/executors/mpi.sh` says how.
//!
//! A proxy runs what the other end of its connection says, and MPICH has no secret between the two. So
//! no proxy runs before rank 0's container is known to listen itself: the agent of rank 0 looks
//! ([`crate::listening`]) and says so on the log, and each member's agent then writes [`GO`].

use std::collections::BTreeMap;

use dormouse_messages::Rank;
use dormouse_messages::job::{Executor, JobSpec};

use super::{Setting, is_loopback, wrapped};
use crate::network::{LINK, ports};

/// Run in every container.
const SCRIPT: &str = include_str!("../../../../deploy/executors/mpi.sh");

/// In a container's directory: its agent knows from the log that rank 0's `mpiexec` listens, and the
/// proxy may connect.
pub const GO: &str = "mpi-go";

/// Whether the containers of a job wait for [`GO`].
#[must_use]
pub fn waits_for_coordinator(spec: &JobSpec) -> bool {
    spec.executor == Executor::Mpi
}

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
        (
            "DORMOUSE_MPI_GO",
            setting.directory.join(GO).display().to_string(),
        ),
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
