//! Spans of appends and decisions. An append's span continues the trace of the event's first cause, links the
//! others, and travels in the event: one trace spans a job. Contexts exist without an exporter, for processes
//! that have one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_messages::events::{Key, Writer};
use dormouse_messages::{Event, Sequence, Timestamp};
use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use crate::log::Log;
use crate::sampling::{Sampling, Undecided};
use crate::trace::{self, Cause};

const fn service(writer: Writer) -> &'static str {
    match writer {
        Writer::Operator => "dormouse-operator",
        Writer::Admission => "dormouse-admission",
        Writer::Optimizer => "dormouse-optimizer",
        Writer::Placer => "dormouse-placer",
        Writer::Checkpointer => "dormouse-checkpointer",
        Writer::Node => "dormouse-agent",
        Writer::Autoscaler => "dormouse-autoscaler",
        Writer::Gateway => "dormouse-gateway",
        Writer::Archiver => "dormouse-archiver",
        Writer::Slurm => "dormouse-slurm",
    }
}

pub(crate) struct AppendSpan {
    span: BoxedSpan,
    context: SpanContext,
}

impl AppendSpan {
    pub fn traceparent(&self) -> String {
        trace::format(&self.context)
    }

    pub fn stored(mut self, sequence: u64) {
        let sequence = i64::try_from(sequence).unwrap_or(i64::MAX);
        self.span
            .set_attribute(KeyValue::new("dormouse.sequence", sequence));
    }

    /// Marks the append as failed or in doubt.
    pub fn failed(mut self, why: &str) {
        self.span.set_status(Status::error(why.to_owned()));
    }
}

/// A decision's span, created only if there are events to append.
pub(crate) struct DecideSpan {
    pub context: SpanContext,
}

impl Log {
    pub(crate) fn append_span(
        &self,
        writer: Writer,
        event: &Event,
        causes: &[Sequence],
    ) -> AppendSpan {
        append_span(writer, event, None, self.contexts(causes), None)
    }

    pub(crate) fn contexts(&self, causes: &[Sequence]) -> Vec<Cause> {
        let Ok(traces) = self.inner.traces.lock() else {
            return Vec::new();
        };
        causes
            .iter()
            .filter_map(|cause| traces.get(cause.0))
            .collect()
    }
}

/// The parent is `parent` or the first of `causes`; the others are linked.
pub(crate) fn append_span(
    writer: Writer,
    event: &Event,
    parent: Option<Cause>,
    causes: Vec<Cause>,
    decision: Option<&DecideSpan>,
) -> AppendSpan {
    let mut contexts = parent.into_iter().chain(causes);
    let parent = contexts.next();
    let links = contexts
        .map(|cause| cause.context)
        .chain(decision.map(|decision| decision.context.clone()))
        .map(|context| Link::new(context, Vec::new(), 0))
        .collect();
    let mut attributes = vec![
        KeyValue::new("messaging.system", "nats"),
        KeyValue::new("messaging.operation.type", "send"),
        KeyValue::new("messaging.operation.name", "publish"),
        KeyValue::new("messaging.destination.template", event.subject_name()),
        KeyValue::new("dormouse.type", event.type_name()),
    ];
    match event.key() {
        Key::Job(job) => attributes.push(KeyValue::new("dormouse.job", job.to_string())),
        Key::Node(node) => attributes.push(KeyValue::new("dormouse.node", node.to_string())),
        Key::Gateway(gateway) => {
            attributes.push(KeyValue::new("dormouse.gateway", gateway.to_string()));
        }
        Key::Shard => {}
    }
    // The name follows OpenTelemetry's conventions for messaging.
    let builder = SpanBuilder::from_name(format!("publish {}", event.subject_name()))
        .with_kind(SpanKind::Producer)
        .with_attributes(attributes)
        .with_links(links);
    let (mut span, context) = start(writer, builder, parent);
    if let Some(why) = failure(event) {
        span.set_status(Status::error(why));
    }
    AppendSpan { span, context }
}

/// Returns the failure that an event reports, which marks its span.
fn failure(event: &Event) -> Option<String> {
    match event {
        Event::JobRefused(event) => Some(event.reason.clone()),
        Event::JobFailed(event) => Some(event.reason.clone()),
        Event::PlacementRefused(event) => event.unplaceable.first().map(ToString::to_string),
        Event::CheckpointFailed(event) => Some(event.reason.clone()),
        Event::NodeLost(event) => Some(format!("node {} is lost", event.node)),
        Event::ContainerExited(event) if !event.evicted => match (event.exit_code, event.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("exit code {code}")),
            (None, Some(signal)) => Some(format!("signal {signal}")),
            (None, None) => event.reason.clone(),
        },
        _ => None,
    }
}

pub(crate) fn decide_span(
    writer: Writer,
    started: Timestamp,
    causes: Vec<Cause>,
    proposals: usize,
) -> DecideSpan {
    let mut causes = causes.into_iter();
    let parent = causes.next();
    let links = causes
        .map(|cause| Link::new(cause.context, Vec::new(), 0))
        .collect();
    let proposals = i64::try_from(proposals).unwrap_or(i64::MAX);
    let builder = SpanBuilder::from_name(format!("decide {writer}"))
        .with_start_time(system_time(started))
        .with_attributes([KeyValue::new("dormouse.proposals", proposals)])
        .with_links(links);
    let (mut span, context) = start(writer, builder, parent);
    span.end();
    DecideSpan { context }
}

fn system_time(time: Timestamp) -> SystemTime {
    let micros = u64::try_from(time.as_micros()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_micros(micros)
}

fn start(writer: Writer, builder: SpanBuilder, parent: Option<Cause>) -> (BoxedSpan, SpanContext) {
    let parent_context = match &parent {
        Some(parent) => {
            let context = Context::new().with_remote_span_context(parent.context.clone());
            if parent.decides {
                context
            } else {
                context.with_value(Undecided)
            }
        }
        None => Context::new(),
    };
    let span = global::tracer(service(writer)).build_with_context(builder, &parent_context);
    let context = span.span_context().clone();
    let parent = parent.map(|parent| parent.context);
    if context.is_valid() && parent.as_ref() != Some(&context) {
        return (span, context);
    }
    let ids = RandomIdGenerator::default();
    let trace_id = parent.map_or_else(|| ids.new_trace_id(), |parent| parent.trace_id());
    let sampled = Sampling::own().samples(&parent_context, trace_id);
    let context = SpanContext::new(
        trace_id,
        ids.new_span_id(),
        TraceFlags::default().with_sampled(sampled),
        false,
        TraceState::NONE,
    );
    (span, context)
}
