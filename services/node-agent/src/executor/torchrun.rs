//! torchrun for jobs that resize in place: one agent per container, with the rendezvous at the coordinator.
//! Options come from variables (`PET_` and the name, `torch/distributed/argparse_util.py`).
//!
//! torchrun restarts **all** workers at every change, and they continue from the script's checkpoints.
//! `messages/trainer/python/tests/large/test_torchrun.py` tests this.

use std::collections::BTreeMap;

use dormouse_messages::Rank;

use super::{Setting, is_loopback};

/// Each departure counts as a restart. The limit lasts a day with a change every ten minutes.
const MAX_RESTARTS: u32 = 144;

/// Seconds to wait for more members, which are known in advance.
const LAST_CALL_S: u32 = 1;

/// Heartbeat interval in seconds, and missed heartbeats of a dead member. The defaults (5 and 3) delay others
/// by 15 s.
const KEEP_ALIVE_S: u32 = 1;
const KEEP_ALIVE_TIMES: u32 = 5;

/// Returns torchrun's variables.
///
/// # Errors
/// If the gang has no rank 0.
pub fn variables(setting: &Setting<'_>) -> Result<BTreeMap<String, String>, String> {
    let (coordinator, containers) = (setting.member(Rank(0))?, setting.spec.containers);
    let is_host = u8::from(setting.container.rank == Rank(0));
    let own = setting.own()?;
    let conf = format!(
        "is_host={is_host},last_call_timeout={LAST_CALL_S},keep_alive_interval={KEEP_ALIVE_S},keep_alive_max_attempt={KEEP_ALIVE_TIMES}"
    );
    let id = format!(
        "{}/{}",
        setting.container.job, setting.container.incarnation
    );
    let least = containers.min.max(1);
    let variables = [
        ("NNODES", format!("{least}:{}", containers.max)),
        ("NPROC_PER_NODE", "1".to_owned()),
        ("RDZV_BACKEND", "c10d".to_owned()),
        (
            "RDZV_ENDPOINT",
            format!("{}:{}", coordinator.address, coordinator.port),
        ),
        ("RDZV_ID", id.replace('/', "-")),
        ("RDZV_CONF", conf),
        ("LOCAL_ADDR", own.address.clone()),
        ("MAX_RESTARTS", MAX_RESTARTS.to_string()),
    ];
    let named = variables.map(|(name, value)| (format!("PET_{name}"), value));
    let mut env = BTreeMap::from(named);
    // A torchrun agent that shares its store announces the address only in the first round, and later members
    // hang (2.15).
    env.insert(
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE".to_owned(),
        "1".to_owned(),
    );
    if is_loopback(&coordinator.address) {
        env.insert("GLOO_SOCKET_IFNAME".to_owned(), "lo".to_owned());
    }
    Ok(env)
}
