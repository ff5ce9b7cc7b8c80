//! Describes events of services, gateways, and partitions resized in place.

use dormouse_messages::events::{
    Acknowledged, ContainerExecEnded, ContainerExecStarted, ContainerGpuUsed, ExecBy, GpuUse,
    NodeGpuReconciled, NotebookActivity, NotebookObserved, PartitionResizeRequested, ResizeCause,
    ServiceMeasured,
};
use dormouse_messages::sanitize;
use dormouse_messages::{Event, Rank, Resource};

/// Describes such an event in one line; `None` for other events.
pub fn describe(event: &Event) -> Option<String> {
    Some(match event {
        Event::PartitionResizeRequested(e) => resize(e),
        Event::PartitionLeaveRequested(e) => {
            format!(
                "generation {}: {} stop, {} s to end",
                e.generation,
                ranks(&e.ranks),
                e.grace_s
            )
        }
        Event::PartitionResized(e) => format!(
            "generation {}: {}, {}",
            e.generation,
            sanitize::containers(e.containers),
            cause(e.cause)
        ),
        Event::ContainerReady(e) => format!(
            "{} on {} after {:.1} s",
            e.container,
            e.node,
            seconds(e.after_ms)
        ),
        Event::ContainerUnready(e) => format!("{} on {}: {}", e.container, e.node, e.reason),
        Event::MemberAcknowledged(e) => {
            let says = match e.state {
                Acknowledged::Ready => "ready",
                Acknowledged::Joined => "joined",
                Acknowledged::Left => "left",
                Acknowledged::Refused => "refused",
            };
            format!("{} generation {}: {says}", e.container, e.generation)
        }
        Event::GatewayJoined(e) => format!("{} at {}", e.gateway, e.address),
        Event::GatewayLeft(e) => format!("{} has stopped in order", e.gateway),
        Event::GatewayLost(e) => format!("{} was last seen {}", e.gateway, e.last_seen),
        Event::GatewayUnrouted(e) => match e.closed {
            0 => format!("{} sends nothing to {}", e.gateway, e.container),
            closed => format!(
                "{} sends nothing to {}; {closed} connections closed",
                e.gateway, e.container
            ),
        },
        Event::ServiceMeasured(e) => measured(e),
        Event::ServiceScaled(e) => {
            format!("{} → {} replicas: {}", e.previous, e.replicas, e.reason)
        }
        Event::NotebookWarned(e) => format!("idle since {}, ends at {}", e.idle_since, e.ends_at),
        Event::NotebookObserved(e) => notebook(e),
        Event::ContainerExecStarted(e) => exec_started(e),
        Event::ContainerExecEnded(e) => exec_ended(e),
        Event::ContainerGpuUsed(e) => gpu_used(e),
        Event::NodeGpuReconciled(e) => gpu_reconciled(e),
        _ => return None,
    })
}

fn exec_started(e: &ContainerExecStarted) -> String {
    let by = match e.by {
        ExecBy::Operator => "the operator",
        ExecBy::Tenant => e.container.job.tenant(),
    };
    let terminal = if e.terminal { ", at a terminal" } else { "" };
    let command = e.command.join(" ");
    format!(
        "{} on {}: {by} runs {command}{terminal} (exec {})",
        e.container, e.node, e.exec
    )
}

fn exec_ended(e: &ContainerExecEnded) -> String {
    let how = match (e.exit_code, e.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let reason = e.reason.as_deref().map(|why| format!(": {why}"));
    format!(
        "{} on {}: exec {}: {how}{}",
        e.container,
        e.node,
        e.exec,
        reason.unwrap_or_default()
    )
}

fn gpu_used(e: &ContainerGpuUsed) -> String {
    let window_us = (e.window_ms * 1000).max(1);
    let device = |it: &GpuUse| {
        let share = it.busy_us as f64 * 100.0 / window_us as f64;
        let waited = seconds(it.waited_us / 1000);
        let mut text = format!(
            "{} {share:.1} %, {}, waited {waited:.1} s",
            it.uuid,
            Resource::Memory.display(it.memory_bytes)
        );
        if let Some(bytes) = it.driver_bytes {
            text.push_str(&format!(
                " ({} by the driver)",
                Resource::Memory.display(bytes)
            ));
        }
        if it.refused > 0 {
            text.push_str(&format!(", {} allocations refused", it.refused));
        }
        text
    };
    let devices: Vec<String> = e.devices.iter().map(device).collect();
    format!("{} on {}: {}", e.container, e.node, devices.join("; "))
}

fn gpu_reconciled(e: &NodeGpuReconciled) -> String {
    let strangers = e.strangers.iter().map(|it| {
        let program = it.program.as_deref().unwrap_or("a program");
        let memory = it.memory_bytes.map(|it| Resource::Memory.display(it));
        let memory = memory.map_or_else(String::new, |it| format!(" with {it}"));
        format!("process {} ({program}){memory} is under no part", it.pid)
    });
    let beyond = e.beyond.iter().map(|it| {
        format!(
            "{} has {} of a cap of {}",
            it.container,
            Resource::Memory.display(it.driver_bytes),
            Resource::Memory.display(it.cap_bytes)
        )
    });
    let found: Vec<String> = strangers.chain(beyond).collect();
    if found.is_empty() {
        format!("{}: the driver and the agent agree again", e.uuid)
    } else {
        format!("{}: {}", e.uuid, found.join("; "))
    }
}

fn notebook(e: &NotebookObserved) -> String {
    match e.activity {
        NotebookActivity::Busy => "a kernel works".to_owned(),
        NotebookActivity::Idle => format!("idle for {:.0} s", seconds(e.idle_ms)),
        NotebookActivity::Unknown => {
            let reason = e.reason.as_deref().unwrap_or_default();
            format!("does not say what it does: {reason}")
        }
    }
}

fn resize(e: &PartitionResizeRequested) -> String {
    let part = |what: &str, list: &[Rank]| {
        if list.is_empty() {
            String::new()
        } else {
            format!(", {} {what}", ranks(list))
        }
    };
    let made_for = e.made_for.as_ref();
    let made_for = made_for.map_or(String::new(), |job| format!(", room for {job}"));
    format!(
        "generation {}: {}{}{}{made_for}",
        e.generation,
        cause(e.cause),
        part("join", &e.join),
        part("leave", &e.leave)
    )
}

const fn cause(cause: ResizeCause) -> &'static str {
    match cause {
        ResizeCause::Adjusted => "by the allocation",
        ResizeCause::Lost => "members were lost",
        ResizeCause::Unready => "replicas were not ready",
    }
}

fn ranks(ranks: &[Rank]) -> String {
    let some: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = if ranks.len() > 8 { ", …" } else { "" };
    format!("{}{more}", some.join(", "))
}

fn measured(e: &ServiceMeasured) -> String {
    let window_s = f64::from(e.window_s.max(1));
    #[expect(
        clippy::cast_precision_loss,
        reason = "requests of one window are far below 2^53"
    )]
    let rate = e.requests as f64 / window_s;
    let by = match e.ingress_sequence {
        Some(_) => format!(", said by {}", e.gateway),
        None => String::new(),
    };
    format!(
        "{rate:.1} requests/s, {:.1} under way, {} errors, {} shed, {} ready{by}",
        e.concurrency, e.errors, e.shed, e.ready
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of one start are far below 2^53"
)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
