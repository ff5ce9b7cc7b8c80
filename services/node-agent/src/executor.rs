//! Executors: map (spec, rank, gang) to command line and environment. Pure.
//!
//! | executor | variables |
//! |---|---|
//! | all | `DORMOUSE_JOB`, `_RANK`, `_WORLD_SIZE`, `_INCARNATION`, `_PROGRESS`, `_CHECKPOINT_DIR`, `_RESUME_FROM` (on a resume), `_PORT`, `_PEERS` |
//! | all, resized in place | `DORMOUSE_MEMBERS`, `_ACK`, `_MEMBER`, `_GENERATION`; ranks, world and peers of the starting change |
//! | notebooks | `JUPYTER_PORT`, `JUPYTER_PORT_RETRIES` (0: no other port), `JUPYTER_CONFIG_PATH`, `JUPYTER_TOKEN` |
//! | mpi, mxnet, Docker with its own network | `DORMOUSE_NETWORK`: see [`crate::network`] |
//! | all, with roles | `DORMOUSE_ROLE` (`worker`, `ps`, `evaluator`), `_ROLE_RANK`, `_ROLE_SIZE`, `_ROLE_PEERS`: `ps=HOST:PORT,…;worker=HOST:PORT,…` |
//! | tensorflow | `TF_CONFIG`: all are workers, worker 0 is chief; with roles see [`roles`] |
//! | torch | `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `LOCAL_RANK` (0: only its own GPUs) |
//! | torch, resized in place | `PET_*`: see [`torchrun`] |
//! | mpi, mxnet | `DORMOUSE_GO`: see [`mpi`] and [`mxnet`] |
//! | task sets | `DORMOUSE_TASK`, `DORMOUSE_TASKS`: see [`tasks`] |

pub mod mpi;
pub mod mxnet;
pub mod roles;
pub mod tasks;
pub mod torchrun;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dormouse_messages::job::{Batch, EnvValue, Executor, JobSpec, Kind};
use dormouse_messages::{ContainerId, Rank};

use crate::jupyter;
use crate::layout;

/// File in a member's directory that allows connections to rank 0. Rank 0's agent verifies that its own
/// container listens ([`crate::listening`]) and reports it. The other agents then write the file.
pub const GO: &str = "go";

/// Reports whether a job's containers wait for [`GO`].
#[must_use]
pub fn waits_for_coordinator(spec: &JobSpec) -> bool {
    matches!(spec.executor, Executor::Mpi | Executor::Mxnet)
}

fn go(setting: &Setting<'_>) -> (&'static str, String) {
    (
        "DORMOUSE_GO",
        setting.directory.join(GO).display().to_string(),
    )
}

/// A member of a gang with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub rank: Rank,
    pub address: String,
    pub port: u16,
}

/// The input of an executor.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    pub spec: &'a JobSpec,
    pub container: &'a ContainerId,
    /// The gang by rank, or the present members of a job resized in place.
    pub gang: &'a [Member],
    pub resumed_from: Option<&'a Path>,
    pub directory: PathBuf,
    pub checkpoint: PathBuf,
    pub in_place: Option<InPlace>,
    /// Marks the network as ready, for the node's address in an own network.
    pub network_ready: Option<PathBuf>,
}

/// The settings of a container that resizes in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InPlace {
    pub members: PathBuf,
    pub ack: PathBuf,
    /// The change that starts the container, or 0.
    pub generation: u32,
}

/// A container's command line and environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, EnvValue>,
}

impl Setting<'_> {
    fn command(&self) -> Result<Vec<String>, String> {
        let command = &self.spec.command;
        let argv = match self.resumed_from {
            Some(_) if !command.resume.is_empty() => &command.resume,
            _ => &command.start,
        };
        if argv.is_empty() {
            return Err("command.start is empty; name a program to run".to_owned());
        }
        Ok(argv.clone())
    }

    fn own(&self) -> Result<&Member, String> {
        self.member(self.container.rank)
    }

    /// Returns the dense position, which is the rank without departures.
    fn position(&self) -> usize {
        let before = |member: &&Member| member.rank < self.container.rank;
        self.gang.iter().filter(before).count()
    }

    fn member(&self, rank: Rank) -> Result<&Member, String> {
        self.gang
            .iter()
            .find(|member| member.rank == rank)
            .ok_or_else(|| format!("rank {rank} is not in the placement of its gang"))
    }
}

/// Returns a container's command line and environment.
///
/// # Errors
/// The reason why the container cannot start, for a person.
pub fn launch(setting: &Setting<'_>) -> Result<Launch, String> {
    let argv = setting.command()?;
    let mut env = common(setting)?;
    let argv = match setting.spec.executor {
        Executor::Plain => match setting.spec.tasks {
            Some(set) => tasks::launch(setting, set, argv, &mut env),
            None => argv,
        },
        Executor::Tensorflow => {
            let config = if setting.spec.roles.is_empty() {
                tf_config(setting)
            } else {
                roles::tf_config(setting)
            };
            env.insert("TF_CONFIG".to_owned(), config);
            argv
        }
        Executor::Torch if setting.in_place.is_some() => {
            env.extend(torchrun::variables(setting)?);
            argv
        }
        Executor::Torch => {
            env.extend(torch(setting)?);
            argv
        }
        Executor::Mpi => mpi::launch(setting, argv, &mut env)?,
        Executor::Mxnet => mxnet::launch(setting, argv, &mut env)?,
    };
    // The job's own variables override all others.
    let mut env: BTreeMap<_, _> = env
        .into_iter()
        .map(|(name, value)| (name, EnvValue::Plain(value)))
        .collect();
    env.extend(setting.spec.env.clone());
    Ok(Launch { argv, env })
}

fn common(setting: &Setting<'_>) -> Result<BTreeMap<String, String>, String> {
    let ContainerId {
        job,
        incarnation,
        rank,
    } = setting.container;
    let peers: Vec<_> = setting.gang.iter().map(endpoint).collect();
    let progress = layout::progress_in(&setting.directory);
    let mut env = BTreeMap::from(
        [
            ("DORMOUSE_JOB", job.to_string()),
            ("DORMOUSE_RANK", setting.position().to_string()),
            ("DORMOUSE_WORLD_SIZE", setting.gang.len().to_string()),
            ("DORMOUSE_INCARNATION", incarnation.to_string()),
            ("DORMOUSE_PROGRESS", progress.display().to_string()),
            (
                "DORMOUSE_CHECKPOINT_DIR",
                setting.checkpoint.display().to_string(),
            ),
            ("DORMOUSE_PORT", setting.own()?.port.to_string()),
            ("DORMOUSE_PEERS", peers.join(",")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    if setting.spec.kind == Kind::Notebook {
        let folder = setting.in_place.as_ref().and_then(|it| it.members.parent());
        let folder = folder.map(|folder| folder.display().to_string());
        env.extend(jupyter::variables(setting.own()?.port, folder));
    }
    if let Some(it) = &setting.in_place {
        let variables = [
            ("DORMOUSE_MEMBERS", it.members.display().to_string()),
            ("DORMOUSE_ACK", it.ack.display().to_string()),
            ("DORMOUSE_MEMBER", rank.to_string()),
            ("DORMOUSE_GENERATION", it.generation.to_string()),
        ];
        env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    }
    if let Some(Batch { min, max }) = setting.spec.batch {
        let variables = [("MIN", min), ("MAX", max)];
        env.extend(
            variables.map(|(end, size)| (format!("DORMOUSE_BATCH_{end}"), size.to_string())),
        );
    }
    env.extend(roles::variables(setting));
    if let Some(ready) = &setting.network_ready {
        env.insert("DORMOUSE_NETWORK".to_owned(), ready.display().to_string());
    }
    if let Some(path) = setting.resumed_from {
        env.insert(
            "DORMOUSE_RESUME_FROM".to_owned(),
            path.display().to_string(),
        );
    }
    Ok(env)
}

fn endpoint(member: &Member) -> String {
    format!("{}:{}", member.address, member.port)
}

fn tf_config(setting: &Setting<'_>) -> String {
    let workers: Vec<_> = setting.gang.iter().map(endpoint).collect();
    serde_json::json!({
        "cluster": {"worker": workers},
        "task": {"type": "worker", "index": setting.position()},
    })
    .to_string()
}

fn torch(setting: &Setting<'_>) -> Result<BTreeMap<String, String>, String> {
    let master = setting.member(Rank(0))?;
    let mut env = BTreeMap::from(
        [
            ("MASTER_ADDR", master.address.clone()),
            ("MASTER_PORT", master.port.to_string()),
            ("RANK", setting.position().to_string()),
            ("WORLD_SIZE", setting.gang.len().to_string()),
            ("LOCAL_RANK", "0".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    if is_loopback(&master.address) {
        // gloo's default, the host name's interface, may not reach 127.*.
        env.insert("GLOO_SOCKET_IFNAME".to_owned(), "lo".to_owned());
    }
    Ok(env)
}

pub(crate) fn is_loopback(address: &str) -> bool {
    let ip = address.parse::<std::net::IpAddr>();
    ip.is_ok_and(|ip| ip.is_loopback()) || address == "localhost"
}

fn wrapped(script: &str, argv: Vec<String>) -> Vec<String> {
    let shell = ["/bin/sh", "-c", script, "dormouse"].map(str::to_owned);
    shell.into_iter().chain(argv).collect()
}
