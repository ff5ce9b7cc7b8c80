//! What the agent appends: one event after another, in the order in which things happened.

use std::time::Duration;

use actix::prelude::*;
use tokio::sync::mpsc;

use dormouse_agent_core::Report;
pub use dormouse_agent_core::report::{exited, faulted, started};
use dormouse_messages::events::{
    CheckpointFailed, CheckpointRejected, CheckpointSaved, ContainerExecEnded,
    ContainerExecStarted, ContainerGpuUsed, ContainerReady, ContainerUnready, ExecBy, Gpu,
    GpuStranger, GpuUse, MemberAcknowledged, NodeGpuReconciled, NodeJoined, NotebookObserved,
    Progress, TasksEnded,
};
use dormouse_messages::{ContainerId, NodeId};

use crate::config::AgentConfig;
use crate::exec;
use crate::gpu_doubts::Found;
use crate::jupyter::Doing;
use crate::keeper::words::ExecExit;
use crate::layout;
use crate::members::Answer;
use crate::procfs;
use crate::tasks::Results;
use crate::watch::{Line, Saved};
use crate::wire::{Outlet, OutletError};

/// The report that was sent is stored, or left out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Appended;

/// The agent can append no more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AppendFailed(pub OutletError);

/// The way out: one report at a time, which the agent waits for.
pub struct Reports(mpsc::UnboundedSender<Report>);

impl Reports {
    /// Appends, on a task of its own, until it cannot.
    #[must_use]
    pub fn new(
        mut outlet: Box<dyn Outlet>,
        appended: Recipient<Appended>,
        failed: Recipient<AppendFailed>,
    ) -> Self {
        let (queue, mut queued) = mpsc::unbounded_channel::<Report>();
        actix::spawn(async move {
            while let Some(Report { event, causes }) = queued.recv().await {
                let type_name = event.type_name();
                match outlet.append(event, causes).await {
                    Ok(_) => {}
                    Err(OutletError::Refused(why)) => {
                        tracing::error!(type_name, why, "an event is refused and left out");
                    }
                    Err(error) => {
                        failed.do_send(AppendFailed(error));
                        return;
                    }
                }
                appended.do_send(Appended);
            }
        });
        Self(queue)
    }

    /// Appends a report; answered by [`Appended`].
    pub fn send(&self, report: Report) {
        // Fails only after `AppendFailed`: the agent is on its way out.
        let _ = self.0.send(report);
    }
}

/// `node.joined`, but for the life and what runs.
#[must_use]
pub fn joined(config: &AgentConfig, runtime: &str) -> NodeJoined {
    NodeJoined {
        node: config.node.clone(),
        capacity: config.capacity.clone(),
        labels: config.labels.clone(),
        gpus: match config.gpus.is_empty() {
            true => Gpu::stand_ins(&config.capacity),
            false => config.gpus.clone(),
        },
        incarnation: 0,
        running: Vec::new(),
        address: config.address.clone(),
        runtime: runtime.to_owned(),
        taints: config.taints.clone(),
    }
}

/// `container.ready`.
#[must_use]
pub fn ready(
    container: &ContainerId,
    node: &NodeId,
    after: Duration,
    token: Option<blake3::Hash>,
) -> ContainerReady {
    ContainerReady {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        token_blake3: token.map(|token| token.to_hex().to_string()),
    }
}

/// `notebook.observed`.
#[must_use]
pub fn does(container: &ContainerId, node: &NodeId, doing: Doing) -> NotebookObserved {
    NotebookObserved {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        activity: doing.activity,
        idle_ms: u64::try_from(doing.idle.as_millis()).unwrap_or(u64::MAX),
        kernels: doing.kernels,
        reason: doing.reason,
    }
}

/// `container.unready`.
#[must_use]
pub fn unready(container: &ContainerId, node: &NodeId, reason: String) -> ContainerUnready {
    ContainerUnready {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        reason,
    }
}

/// `container.gpu_used`.
#[must_use]
pub fn gpu_used(
    container: &ContainerId,
    node: &NodeId,
    window: Duration,
    devices: Vec<GpuUse>,
) -> ContainerGpuUsed {
    ContainerGpuUsed {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
        devices,
    }
}

/// `node.gpu_reconciled`.
#[must_use]
pub fn gpu_reconciled(node: &NodeId, uuid: &str, found: Found) -> NodeGpuReconciled {
    let strangers = found.strangers.into_iter().map(|it| GpuStranger {
        pid: it.pid,
        program: procfs::name(it.pid),
        memory_bytes: it.memory_bytes,
    });
    NodeGpuReconciled {
        node: node.clone(),
        uuid: uuid.to_owned(),
        strangers: strangers.collect(),
        beyond: found.beyond,
    }
}

/// `member.acknowledged`.
#[must_use]
pub fn acknowledged(container: &ContainerId, node: &NodeId, answer: &Answer) -> MemberAcknowledged {
    MemberAcknowledged {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        generation: answer.generation,
        state: answer.state,
        step: answer.step,
    }
}

/// `container.exec_started`.
#[must_use]
pub fn exec_started(
    container: &ContainerId,
    node: &NodeId,
    (exec, by): (u64, ExecBy),
    start: &exec::Start,
) -> ContainerExecStarted {
    ContainerExecStarted {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        exec,
        by,
        command: start.command.clone(),
        terminal: start.terminal.is_some(),
    }
}

/// `container.exec_ended`.
#[must_use]
pub fn exec_ended(
    container: &ContainerId,
    node: &NodeId,
    exec: u64,
    exit: ExecExit,
) -> ContainerExecEnded {
    ContainerExecEnded {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        container: container.clone(),
        node: node.clone(),
        exec,
        exit_code: exit.code,
        signal: exit.signal,
        reason: exit.why,
    }
}

/// `checkpoint.saved`.
#[must_use]
pub fn saved(
    container: &ContainerId,
    config: &AgentConfig,
    saved: Saved,
    duration: Duration,
) -> CheckpointSaved {
    let complete = saved.complete;
    let here = || layout::uri(&saved.folder);
    CheckpointSaved {
        job: container.job.clone(),
        incarnation: container.incarnation,
        node: config.node.clone(),
        uri: saved.stored.clone().unwrap_or_else(here),
        step: complete.step,
        bytes: complete.bytes,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    }
}

/// `checkpoint.failed`.
#[must_use]
pub fn save_failed(container: &ContainerId, node: &NodeId, reason: String) -> CheckpointFailed {
    CheckpointFailed {
        job: container.job.clone(),
        incarnation: container.incarnation,
        node: node.clone(),
        reason,
    }
}

/// `checkpoint.rejected`.
#[must_use]
pub fn rejected(
    container: &ContainerId,
    node: &NodeId,
    uri: String,
    reason: String,
) -> CheckpointRejected {
    CheckpointRejected {
        job: container.job.clone(),
        incarnation: container.incarnation,
        node: node.clone(),
        uri,
        reason,
    }
}

/// `progress`.
#[must_use]
pub fn progress(container: &ContainerId, node: &NodeId, containers: u32, line: Line) -> Progress {
    Progress {
        job: container.job.clone(),
        incarnation: container.incarnation,
        node: node.clone(),
        step: line.step,
        steps_total: line.steps_total,
        containers,
        metrics: line.metrics,
    }
}

/// `tasks.ended`.
#[must_use]
pub fn tasks_ended(container: &ContainerId, node: &NodeId, results: Results) -> TasksEnded {
    TasksEnded {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        node: node.clone(),
        completed: results.completed,
        failed: results.failed,
    }
}
