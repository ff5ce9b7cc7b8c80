//! One trace leads from a job's submission to its end, through every service, as a collector sees it.

use crate::collector;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Cluster, PATIENCE, count_job, poll};
use dormouse_messages::Event;
use dormouse_runtime::Settings;
use dormouse_runtime::tenant::{Encoding, Tenant, Wait};
use serde_json::json;

const CHAIN: [(&str, &str); 9] = [
    ("dormouse-admission", "publish submission.received"),
    ("dormouse-admission", "publish job.admitted"),
    ("dormouse-admission", "publish job.released"),
    ("dormouse-optimizer", "publish allocation.decided"),
    ("dormouse-placer", "publish placement.decided"),
    ("dormouse-checkpointer", "publish partition.start_requested"),
    ("dormouse-agent", "publish container.started"),
    ("dormouse-checkpointer", "publish partition.started"),
    ("dormouse-checkpointer", "publish job.completed"),
];

#[test]
fn a_job_is_one_trace_through_every_service() {
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let (url, received) = runtime.block_on(collector::collector());
    let mut cluster = Cluster::broker();
    cluster.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let dir = cluster.dir().to_path_buf();
    let services = ["admission", "optimizer", "placer", "checkpointer", "api"];
    for service in services {
        let args = ["serve", service, "--ensure-streams"];
        cluster.start(service, &args, &dir.join(service));
    }
    // An agent needs the log that the services make.
    poll("the services", PATIENCE, || {
        (cluster.run(&["nodes"]).code == 0).then_some(())
    });
    let agent = [
        "serve",
        "agent",
        "--node",
        "n0",
        "--capacity",
        "cpu=4,memory=8Gi",
    ];
    cluster.start("agent", &agent, &dir.join("agent"));
    cluster.wait_for_nodes(1);
    cluster.submit(&count_job("a", 5, (1, 2), &[])).ok();
    cluster.wait_completed("ads/a");

    let missing = || {
        let spans = received.lock().expect("unpoisoned");
        let mut traces: BTreeMap<&[u8], BTreeSet<(&str, &str)>> = BTreeMap::new();
        for (service, span) in spans.iter() {
            let trace = traces.entry(&span.trace_id).or_default();
            trace.insert((service, &span.name));
        }
        // Several traces touch the job; this one has its end.
        let job = traces.values().find(|trace| trace.contains(&CHAIN[8]))?;
        let missing = CHAIN.iter().filter(|step| !job.contains(*step));
        let ids: BTreeSet<&[u8]> = spans.iter().map(|(_, it)| it.span_id.as_slice()).collect();
        // Services send once a second: a parent may come after its child.
        let orphans = spans.iter().any(|(_, span)| {
            let parent = span.parent_span_id.as_slice();
            !parent.is_empty() && !ids.contains(parent)
        });
        Some((missing.count(), orphans))
    };
    poll("the whole trace", PATIENCE, || {
        missing().filter(|found| *found == (0, false))
    });
    let spans = received.lock().expect("unpoisoned");
    let span = |step: &(&str, &str)| {
        let found = spans
            .iter()
            .find(|(service, span)| (service.as_str(), span.name.as_str()) == *step);
        found.expect("it was received").1.clone()
    };
    let ids: BTreeSet<Vec<u8>> = spans.iter().map(|(_, span)| span.span_id.clone()).collect();
    assert!(span(&CHAIN[0]).parent_span_id.is_empty());
    for step in &CHAIN[1..] {
        assert!(ids.contains(&span(step).parent_span_id), "{step:?}");
    }
}

#[test]
fn a_ratio_holds_for_what_commands_begin_and_publishers_decide_for_themselves() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let (url, received) = runtime.block_on(collector::collector());
    let mut cluster = Cluster::new();
    cluster.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    cluster.env("OTEL_TRACES_SAMPLER_ARG", "0");
    cluster.env("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
    cluster.start_up(2, "cpu=2,memory=4Gi");
    cluster.env("OTEL_TRACES_SAMPLER", "");
    cluster.submit(&count_job("a", 10_000, (4, 4), &[])).ok();
    cluster.run(&["node", "drain", "n1"]).ok();
    let drained = poll("what follows from the drain", PATIENCE, || {
        let log = cluster.try_log()?;
        let place = log
            .iter()
            .position(|it| matches!(it.event(), Some(Event::NodeDrained(_))))?;
        let contexts = log[place..]
            .iter()
            .map(|it| it.envelope.traceparent.clone());
        let mut contexts = contexts.map(|it| it.expect("each has one"));
        let drained = contexts.next()?;
        // The version and the trace's id.
        let next = contexts.find(|it| it[..35] == drained[..35])?;
        Some([drained, next])
    });
    assert!(
        drained[0].ends_with("-01"),
        "made by a command: {drained:?}"
    );
    assert!(drained[1].ends_with("-00"), "by the ratio: {drained:?}");
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    cluster.wait_event("the end of the first job", |event| match event {
        Event::JobCancelled(_) => Some(()),
        _ => None,
    });

    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let completed = runtime.block_on(async {
        let settings = Settings::new(cluster.url(), "a publisher");
        let tenant = "ads".parse().expect("a tenant");
        let tenant = Tenant::connect(&settings, tenant, Encoding::Json, PATIENCE).await?;
        let demand = json!({"cpu": 0.1, "memory": "16Mi"});
        let job = json!({"name": "b", "command": {"start": ["true"]}, "demand": demand});
        tenant.submit(&job, Wait::Ended, Some(&parent)).await
    });
    completed.expect("it runs");
    poll("its whole trace", PATIENCE, || {
        let spans = received.lock().expect("unpoisoned");
        let missing = |step: &&(&str, &str)| !spans.iter().any(|(_, span)| span.name == step.1);
        CHAIN.iter().find(missing).is_none().then_some(())
    });
    for (_, span) in received.lock().expect("unpoisoned").iter() {
        let trace: String = span.trace_id.iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(trace, TRACE, "{}", span.name);
    }
}
