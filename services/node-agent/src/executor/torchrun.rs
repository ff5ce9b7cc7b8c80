//! torchrun, where containers come and go: one of its agents in every container, the meeting point
//! at the chief. The command is `torchrun train.py`; what it would be told by options, it takes from
//! variables (`PET_` and the option's name, `torch/distributed/argparse_util.py`).
//!
//! torchrun restarts the workers of **all** members at every change, by its own design: they go on
//! from what the script itself saves. The members' file is not needed for that.
//! `messages/trainer/python/tests/large/test_torchrun.py` tries it with a real torchrun.

use std::collections::BTreeMap;

use dormouse_messages::Rank;

use super::{Setting, is_loopback};

/// A member that leaves fails the workers of the others once, which counts as a restart of theirs:
/// enough for a day with a change every ten minutes.
const MAX_RESTARTS: u32 = 144;

/// Seconds that a meeting below the most members waits for more: who joins is known.
const LAST_CALL_S: u32 = 1;

/// A member is dead for the meeting point after so many seconds without a sign of life, and after so many of
/// them. By its defaults (5 and 3) those who stay would wait 15 s for one who has left.
const KEEP_ALIVE_S: u32 = 1;
const KEEP_ALIVE_TIMES: u32 = 5;

/// What torchrun reads.
///
/// # Errors
/// When there is no chief.
pub fn variables(setting: &Setting<'_>) -> Result<BTreeMap<String, String>, String> {
    let (chief, containers) = (setting.member(Rank(0))?, setting.spec.containers);
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
        ("RDZV_ENDPOINT", format!("{}:{}", chief.address, chief.port)),
        ("RDZV_ID", id.replace('/', "-")),
        ("RDZV_CONF", conf),
        ("LOCAL_ADDR", own.address.clone()),
        ("MAX_RESTARTS", MAX_RESTARTS.to_string()),
    ];
    let named = variables.map(|(name, value)| (format!("PET_{name}"), value));
    let mut env = BTreeMap::from(named);
    // An agent of torchrun that shares its store with the workers tells their address once, in the first
    // round: who comes in a later one waits for it until all of them give up (seen with 2.15).
    env.insert(
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE".to_owned(),
        "1".to_owned(),
    );
    if is_loopback(&chief.address) {
        // gloo would take the interface of the host's name, which may not reach 127.*.
        env.insert("GLOO_SOCKET_IFNAME".to_owned(), "lo".to_owned());
    }
    Ok(env)
}
