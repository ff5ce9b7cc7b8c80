//! `job trace`: shows the spans of a job's trace from Jaeger.

mod jaeger;

use std::collections::BTreeMap;

use dormouse_messages::JobId;
use serde::{Deserialize, Serialize};

use super::history::History;
use super::known::not_found;
use crate::cli::{JobTraceArgs, LogFileArg};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::{self, Style};

pub use jaeger::Span;

/// The answer of `job trace`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    pub job: JobId,
    pub trace_id: String,
    pub spans: Vec<Span>,
    /// Requests by others that affected the job.
    pub others: Vec<Other>,
}

/// Another trace, with the job's first event in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    pub trace_id: String,
    pub sequence: u64,
    pub event: String,
}

/// Runs `job trace`.
///
/// # Errors
/// If the job is unknown, or Jaeger does not answer or has no such trace.
pub async fn run(context: &Context, args: &JobTraceArgs) -> anyhow::Result<u8> {
    let history = History::open(context, &LogFileArg { file: None }).await?;
    let id = &history.job(&args.job.id)?;
    let mut traces = traces_of(history, id).await?;
    let chosen = match &args.trace {
        Some(trace) => trace.to_ascii_lowercase(),
        None => match traces.first() {
            Some(first) => first.trace_id.clone(),
            None => return Err(not_found(id)),
        },
    };
    traces.retain(|other| other.trace_id != chosen);
    let (url, trace) = (args.jaeger.clone(), chosen.clone());
    let spans = tokio::task::spawn_blocking(move || jaeger::spans(&url, &trace)).await??;
    if spans.is_empty() {
        return Err(Coded::new(
            "not_found",
            format!(
                "{} has no trace {chosen}; were the services started with OTEL_EXPORTER_OTLP_ENDPOINT, and is this the Jaeger that they send to?",
                args.jaeger
            ),
        )
        .into());
    }
    let trace = Trace {
        job: id.clone(),
        trace_id: chosen,
        spans: in_order(spans),
        others: traces,
    };
    print::value(context.output()?, &trace, |trace, wide| {
        render::trace(trace, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

async fn traces_of(history: History, id: &JobId) -> anyhow::Result<Vec<Other>> {
    let mut found: Vec<Other> = Vec::new();
    let read = history.read(1, None, |recorded| {
        let event = recorded.event().filter(|event| concerns(event, id));
        let context = recorded.envelope.traceparent.as_deref();
        let trace = context.and_then(|context| context.split('-').nth(1));
        if let (Some(event), Some(trace)) = (event, trace)
            && found.iter().all(|other| other.trace_id != trace)
        {
            found.push(Other {
                trace_id: trace.to_owned(),
                sequence: recorded.sequence.0,
                event: event.subject_name().to_owned(),
            });
        }
        Ok(())
    });
    read.await?;
    Ok(found)
}

/// A span whose parent is missing (the client sends no spans) becomes a root.
fn in_order(spans: Vec<Span>) -> Vec<Span> {
    let known: Vec<String> = spans.iter().map(|span| span.span_id.clone()).collect();
    let mut below: BTreeMap<Option<String>, Vec<Span>> = BTreeMap::new();
    for span in spans {
        let parent = span.parent.clone().filter(|it| known.contains(it));
        below.entry(parent).or_default().push(span);
    }
    for spans in below.values_mut() {
        spans.sort_by(|a, b| (a.start_us, &a.span_id).cmp(&(b.start_us, &b.span_id)));
        spans.reverse();
    }
    let mut ordered = Vec::with_capacity(known.len());
    let mut path: Vec<Option<String>> = vec![None];
    while let Some(parent) = path.last() {
        let Some(mut span) = below.get_mut(parent).and_then(Vec::pop) else {
            path.pop();
            continue;
        };
        span.depth = path.len() - 1;
        path.push(Some(span.span_id.clone()));
        ordered.push(span);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: Option<&str>, start_us: u64) -> Span {
        Span {
            span_id: id.to_owned(),
            parent: parent.map(str::to_owned),
            depth: 0,
            service: "dormouse-admission".to_owned(),
            name: "publish job.admitted".to_owned(),
            start_us,
            took_us: 1,
            sequence: None,
            links: 0,
            error: None,
        }
    }

    #[test]
    fn a_parent_stands_before_its_children_and_they_by_their_start() {
        let spans = vec![
            span("d", Some("b"), 9),
            span("c", Some("a"), 5),
            span("b", Some("a"), 2),
            span("a", Some("of a client that sends none"), 0),
        ];
        let ordered = in_order(spans);
        let shown: Vec<(&str, usize)> = ordered
            .iter()
            .map(|span| (span.span_id.as_str(), span.depth))
            .collect();
        assert_eq!(shown, [("a", 0), ("b", 1), ("d", 2), ("c", 1)]);
    }
}
