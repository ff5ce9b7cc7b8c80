//! Prometheus metrics of the cluster, from the query service's read model.
//!
//! 1. Gauges, and counters as old as the log, are set every [`SHOW_EVERY`].
//! 2. Durations go into histograms as old as this process.
//!
//! Tenants and services ([`services`]) are labels; batch jobs are too many.

mod services;

use std::time::Duration;

use dormouse_messages::events::ContainerGpuUsed;
use dormouse_messages::{Event, JobId, Recorded, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_projections::nodes::GpuDoubt;
use dormouse_projections::queries::{self, ClusterAnswer, TenantsAnswer};
use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Scrapes are rarely more frequent.
pub const SHOW_EVERY: Duration = Duration::from_secs(5);

const JOBS: &str = "dormouse_jobs";
const ENDED: &str = "dormouse_jobs_ended_total";
const NODES: &str = "dormouse_nodes";
const UTILIZATION: &str = "dormouse_utilization";
const CAPACITY: &str = "dormouse_capacity";
const CONTAINERS: &str = "dormouse_containers";
const LOSS: &str = "dormouse_fairness_loss";
const GAP: &str = "dormouse_allocation_gap";
const ALLOCATIONS: &str = "dormouse_allocations_total";
const ADJUSTED: &str = "dormouse_adjusted_jobs_total";
const FLAGGED: &str = "dormouse_log_flagged_total";
const REFUSED: &str = "dormouse_refused_total";
const HEAD: &str = "dormouse_log_head";
const LAG: &str = "dormouse_archive_lag_seconds";
const SEGMENT: &str = "dormouse_archive_segment_seconds";
const SHARE: &str = "dormouse_tenant_share";
const ENTITLED: &str = "dormouse_tenant_entitled";
const QUEUED: &str = "dormouse_tenant_queued_jobs";
const RELEASED: &str = "dormouse_tenant_released_jobs";
const LONGEST: &str = "dormouse_tenant_longest_wait_seconds";
const WAIT: &str = "dormouse_job_wait_seconds";
const COMPLETION: &str = "dormouse_job_completion_seconds";
const GPU_BUSY: &str = "dormouse_tenant_gpu_busy_milliseconds";
const GPU_WAITED: &str = "dormouse_tenant_gpu_waited_milliseconds";
const GPU_REFUSED: &str = "dormouse_tenant_gpu_refused_allocations";
const GPU_MEMORY: &str = "dormouse_tenant_gpu_memory_mebibyte_seconds";
const GPU_STRANGERS: &str = "dormouse_node_gpu_strangers";
const GPU_BEYOND: &str = "dormouse_node_gpu_containers_beyond_cap";
const STALL: &str = "dormouse_resize_stall_seconds";

const GAUGES: [(&str, Unit, &str); 17] = [
    (
        LAG,
        Unit::Seconds,
        "Age of the newest archived segment's end, or of the log without one",
    ),
    (
        SEGMENT,
        Unit::Seconds,
        "Time after which the policy has a segment archived at the latest",
    ),
    (
        GPU_STRANGERS,
        Unit::Count,
        "Processes that compute on a node's shared GPUs and are under no part of one, by the driver's word",
    ),
    (
        GPU_BEYOND,
        Unit::Count,
        "Containers of a node with more memory of a GPU than their cap, by the driver's word",
    ),
    (JOBS, Unit::Count, "Live jobs, by phase"),
    (NODES, Unit::Count, "Nodes, by state"),
    (
        UTILIZATION,
        Unit::Count,
        "Fraction of the cluster that is allocated to jobs, or running, by resource",
    ),
    (
        CAPACITY,
        Unit::Count,
        "What the nodes that are not lost offer, by resource; thousandths, or bytes of memory",
    ),
    (CONTAINERS, Unit::Count, "Containers that take room"),
    (
        LOSS,
        Unit::Count,
        "Sum of |share - fair share| over the jobs with containers, by the last allocation",
    ),
    (
        GAP,
        Unit::Count,
        "Proven relative gap of the last allocation",
    ),
    (
        HEAD,
        Unit::Count,
        "Last sequence of the log that the query service has read",
    ),
    (
        SHARE,
        Unit::Count,
        "Dominant share of what a tenant has, a fraction of the cluster",
    ),
    (
        ENTITLED,
        Unit::Count,
        "A tenant's part of the weights of all tenants that have or ask for anything",
    ),
    (QUEUED, Unit::Count, "A tenant's queued jobs"),
    (
        RELEASED,
        Unit::Count,
        "A tenant's released jobs that have not ended",
    ),
    (
        LONGEST,
        Unit::Seconds,
        "A tenant's longest wait in the queue so far",
    ),
];
const COUNTERS: [(&str, &str); 9] = [
    (
        GPU_BUSY,
        "Time that work of containers with parts of GPUs took on devices, by tenant, in milliseconds",
    ),
    (
        GPU_WAITED,
        "Time that threads of such containers waited for a device, by tenant, in milliseconds",
    ),
    (
        GPU_REFUSED,
        "Allocations of device memory that a container's cap refused, by tenant",
    ),
    (
        GPU_MEMORY,
        "Device memory of such containers times time, by tenant: its rate is the memory that they have, in MiB",
    ),
    (ENDED, "Jobs that have ended, by how"),
    (
        ALLOCATIONS,
        "Decisions of the optimizer, by whether they changed anything",
    ),
    (
        ADJUSTED,
        "Running jobs that were resized or moved, by choice or forced",
    ),
    (FLAGGED, "Events of the log that were not used"),
    (REFUSED, "Refused submissions, cancellations and revisions"),
];
const HISTOGRAMS: [(&str, &str); 3] = [
    (WAIT, "From the submission of a job to its first start"),
    (COMPLETION, "From the submission of a job to its completion"),
    (STALL, "From the stop of a partition to its next start"),
];

/// Registers the metrics' units and help texts.
pub fn describe() {
    for (name, unit, help) in GAUGES {
        describe_gauge!(name, unit, help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, Unit::Count, help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, help);
    }
    services::describe();
}

/// Observes durations that the event just folded completes.
pub fn observe(model: &ReadModel, recorded: &Recorded) {
    services::observe(model, recorded);
    let at = model.cluster.now;
    let job = |id: &JobId| model.jobs.get(id);
    match recorded.event() {
        Some(Event::PartitionStarted(it)) => {
            let Some(job) = job(&it.job) else { return };
            if job.times.first_started == Some(at) {
                let kind = format!("{:?}", job.kind).to_lowercase();
                histogram!(WAIT, "kind" => kind).record(job.waiting_s(at));
            } else if let [.., before, _] = job.incarnations.as_slice()
                && let Some(stopped) = before.stopped
            {
                histogram!(STALL).record(at.seconds_since(stopped).max(0.0));
            }
        }
        Some(Event::JobCompleted(it)) => {
            if let Some(jct_s) = job(&it.job).and_then(dormouse_projections::jobs::Job::jct_s) {
                histogram!(COMPLETION).record(jct_s);
            }
        }
        Some(Event::ContainerGpuUsed(it)) => gpu_used(it),
        // A gauge outlives its node.
        Some(Event::NodeRemoved(it)) => show_doubts(it.node.as_str(), 0, 0),
        _ => {}
    }
}

fn gpu_used(event: &ContainerGpuUsed) {
    let tenant = event.container.job.tenant().to_owned();
    for device in &event.devices {
        counter!(GPU_BUSY, "tenant" => tenant.clone()).increment(device.busy_us / 1000);
        counter!(GPU_WAITED, "tenant" => tenant.clone()).increment(device.waited_us / 1000);
        counter!(GPU_REFUSED, "tenant" => tenant.clone()).increment(device.refused);
        let mib_s = (device.memory_bytes >> 20) * event.window_ms / 1000;
        counter!(GPU_MEMORY, "tenant" => tenant.clone()).increment(mib_s);
    }
}

fn asked<T: DeserializeOwned>(model: &ReadModel, name: &str, now: Timestamp) -> Option<T> {
    let answer = queries::answer(model, name, Value::Null, now).ok()?;
    serde_json::from_value(answer).ok()
}

/// Sets gauges and counters from the read model.
pub fn show(model: &ReadModel, now: Timestamp) {
    for (resource, allocated, running) in model.timelines.utilization() {
        for (kind, value) in [("allocated", allocated), ("running", running)] {
            gauge!(UTILIZATION, "resource" => resource.to_owned(), "kind" => kind).set(value);
        }
    }
    services::show(model, now);
    for (name, node) in model
        .nodes()
        .filter(|(_, node)| !node.present.gpus.is_empty())
    {
        let sum = |of: fn(&GpuDoubt) -> usize| node.past.gpu_doubts.values().map(of).sum::<usize>();
        let (strangers, beyond) = (sum(|it| it.strangers.len()), sum(|it| it.beyond.len()));
        show_doubts(name.as_str(), strangers, beyond);
    }
    if let Some(cluster) = asked::<ClusterAnswer>(model, "cluster", now) {
        show_cluster(&cluster);
    }
    if let Some(tenants) = asked::<TenantsAnswer>(model, "tenants", now) {
        for row in &tenants.tenants {
            let name = row.tenant.to_string();
            gauge!(SHARE, "tenant" => name.clone()).set(row.share);
            gauge!(ENTITLED, "tenant" => name.clone()).set(row.entitled);
            gauge!(QUEUED, "tenant" => name.clone()).set(number(row.queued_jobs));
            gauge!(RELEASED, "tenant" => name.clone()).set(number(row.released_jobs));
            gauge!(LONGEST, "tenant" => name).set(row.longest_wait_s);
        }
    }
}

fn show_doubts(node: &str, strangers: usize, beyond: usize) {
    let node = node.to_owned();
    gauge!(GPU_STRANGERS, "node" => node.clone()).set(number(strangers as u64));
    gauge!(GPU_BEYOND, "node" => node).set(number(beyond as u64));
}

fn show_cluster(cluster: &ClusterAnswer) {
    for (phase, count) in &cluster.jobs {
        let phase = phase.clone();
        if matches!(phase.as_str(), "completed" | "failed" | "cancelled") {
            counter!(ENDED, "phase" => phase).absolute(*count)
        } else {
            gauge!(JOBS, "phase" => phase).set(number(*count))
        }
    }
    let nodes = &cluster.nodes;
    let states = [
        ("up", nodes.up),
        ("drained", nodes.drained),
        ("quarantined", nodes.quarantined),
        ("lost", nodes.lost),
    ];
    for (state, count) in states {
        gauge!(NODES, "state" => state).set(f64::from(count));
    }
    for (resource, amounts) in &cluster.resources {
        gauge!(CAPACITY, "resource" => resource.clone()).set(number(amounts.capacity));
    }
    gauge!(CONTAINERS).set(number(cluster.containers));
    gauge!(HEAD).set(number(cluster.log.head.0));
    gauge!(LAG).set(cluster.archive.lag_s);
    gauge!(SEGMENT).set(cluster.policy.archive.segment_s());
    if let Some(allocation) = &cluster.allocation {
        gauge!(LOSS).set(allocation.fairness_loss);
        gauge!(GAP).set(allocation.solver.gap);
    }
    counter!(ALLOCATIONS, "outcome" => "decided").absolute(cluster.allocations_decided);
    counter!(ALLOCATIONS, "outcome" => "kept").absolute(cluster.allocations_kept);
    counter!(ADJUSTED, "cause" => "chosen").absolute(whole(cluster.adjusted));
    counter!(ADJUSTED, "cause" => "forced").absolute(whole(cluster.forced));
    counter!(FLAGGED).absolute(cluster.log.flagged);
    counter!(REFUSED).absolute(cluster.refused);
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
const fn number(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, kept as a number of a timeline"
)]
const fn whole(count: f64) -> u64 {
    count.max(0.0) as u64
}
