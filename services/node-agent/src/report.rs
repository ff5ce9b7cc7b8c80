//! The agent's reports: builds events, and appends them in order.

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
use dormouse_sandbox::procfs;
use dormouse_sandbox::protocol::ExecExit;

use crate::config::AgentConfig;
use crate::exec;
use crate::gpu_doubts::Found;
use crate::jupyter::Doing;
use crate::layout;
use crate::members::Answer;
use crate::tasks::Results;
use crate::watch::{Line, Saved};
use crate::wire::{Outlet, OutletError};

/// Notice that the report is stored or skipped.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Appended;

/// Notice that no report can be appended any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AppendFailed(pub OutletError);

/// The queue of reports. The agent waits for each one.
pub struct Reports(mpsc::UnboundedSender<Report>);

impl Reports {
    /// Starts a task that appends reports until a failure.
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

    /// Appends a report. [`Appended`] is the answer.
    pub fn send(&self, report: Report) {
        // Fails only after `AppendFailed`, when the agent is leaving.
        let _ = self.0.send(report);
    }
}

/// Builds `node.joined` without incarnation and running containers.
#[must_use]
pub fn joined(config: &AgentConfig, runtime: &str) -> NodeJoined {
    NodeJoined {
        node: config.node.clone(),
        capacity: config.capacity.clone(),
        labels: config.labels.clone(),
        gpus: if config.gpus.is_empty() {
            Gpu::stand_ins(&config.capacity)
        } else {
            config.gpus.clone()
        },
        incarnation: 0,
        running: Vec::new(),
        address: config.address.clone(),
        runtime: runtime.to_owned(),
        taints: config.taints.clone(),
    }
}

/// Builds `container.ready`.
#[must_use]
pub fn ready(
    container: &ContainerId,
    node: &NodeId,
    after: Duration,
    token: Option<blake3::Hash>,
) -> ContainerReady {
    ContainerReady {
        container: container.clone(),
        node: node.clone(),
        after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        token_blake3: token.map(|token| token.to_hex().to_string()),
    }
}

/// Builds `notebook.observed`.
#[must_use]
pub fn does(container: &ContainerId, node: &NodeId, doing: Doing) -> NotebookObserved {
    NotebookObserved {
        container: container.clone(),
        node: node.clone(),
        activity: doing.activity,
        idle_ms: u64::try_from(doing.idle.as_millis()).unwrap_or(u64::MAX),
        kernels: doing.kernels,
        reason: doing.reason,
    }
}

/// Builds `container.unready`.
#[must_use]
pub fn unready(container: &ContainerId, node: &NodeId, reason: String) -> ContainerUnready {
    ContainerUnready {
        container: container.clone(),
        node: node.clone(),
        reason,
    }
}

/// Builds `container.gpu_used`.
#[must_use]
pub fn gpu_used(
    container: &ContainerId,
    node: &NodeId,
    window: Duration,
    devices: Vec<GpuUse>,
) -> ContainerGpuUsed {
    ContainerGpuUsed {
        container: container.clone(),
        node: node.clone(),
        window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
        devices,
    }
}

/// Builds `node.gpu_reconciled`.
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

/// Builds `member.acknowledged`.
#[must_use]
pub fn acknowledged(container: &ContainerId, node: &NodeId, answer: &Answer) -> MemberAcknowledged {
    MemberAcknowledged {
        container: container.clone(),
        node: node.clone(),
        generation: answer.generation,
        state: answer.state,
        step: answer.step,
    }
}

/// Builds `container.exec_started`.
#[must_use]
pub fn exec_started(
    container: &ContainerId,
    node: &NodeId,
    (exec, by): (u64, ExecBy),
    start: &exec::Start,
) -> ContainerExecStarted {
    ContainerExecStarted {
        container: container.clone(),
        node: node.clone(),
        exec,
        by,
        command: start.command.clone(),
        terminal: start.terminal.is_some(),
    }
}

/// Builds `container.exec_ended`.
#[must_use]
pub fn exec_ended(
    container: &ContainerId,
    node: &NodeId,
    exec: u64,
    exit: ExecExit,
) -> ContainerExecEnded {
    ContainerExecEnded {
        container: container.clone(),
        node: node.clone(),
        exec,
        exit_code: exit.code,
        signal: exit.signal,
        reason: exit.why,
    }
}

/// Builds `checkpoint.saved`.
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

/// Builds `checkpoint.failed`.
#[must_use]
pub fn save_failed(container: &ContainerId, node: &NodeId, reason: String) -> CheckpointFailed {
    CheckpointFailed {
        job: container.job.clone(),
        incarnation: container.incarnation,
        node: node.clone(),
        reason,
    }
}

/// Builds `checkpoint.rejected`.
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

/// Builds a `progress` event.
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

/// Builds `tasks.ended`.
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
