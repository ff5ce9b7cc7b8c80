//! Follows the output of a job in its current and later incarnations.
//!
//! One task per stream requests a piece only after handing over the last: streams stay in order, and a
//! blocked terminal stops the requests.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use dormouse_messages::ids::{ContainerId, Incarnation};
use dormouse_messages::{JobId, NodeId, sanitize};
use dormouse_node_agent::logs::{LogsQuery, Stream, WAIT};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::JobDetail;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::text::Lines;
use super::{Found, Source, Wanted};
use crate::cli::global::Output;
use crate::print;

/// A new container is seen with this delay.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A job with free capacity starts sooner.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const NEXT_LOOK: Duration = Duration::from_secs(5);
const PIECES: usize = 16;
const AGAIN: Duration = Duration::from_millis(500);
const GIVE_UP: Duration = Duration::from_secs(10);

/// The form of printed lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    AsPrinted,
    Ranks,
    Json,
    Yaml,
}

impl Style {
    /// Returns the style for an output format.
    pub const fn of(output: Output, several: bool) -> Self {
        match (output, several) {
            (Output::Json, _) => Self::Json,
            (Output::Yaml, _) => Self::Yaml,
            (Output::Table | Output::Wide, _) => Self::Ranks,
        }
    }
}

struct Piece {
    container: ContainerId,
    node: NodeId,
    stream: Stream,
    lines: Vec<u8>,
}

/// The result of following a job.
pub struct Read {
    pub detail: JobDetail,
    pub any: bool,
}

/// Reports the reason of the job's waiting, at most every NEXT_LOOK.
pub async fn say_why_it_waits(source: Source, id: JobId) {
    let (mut said, mut pause) = (String::new(), FIRST_LOOK);
    loop {
        sleep(pause).await;
        let Ok(JobDetail { row, .. }) = source.job(&id).await else {
            continue;
        };
        if row.ended_at.is_some() {
            return;
        }
        let waits = matches!(row.phase, Phase::Queued | Phase::Waiting);
        if waits && row.reason != said {
            let reason = sanitize::shown(&row.reason);
            print::aside(format!("── {id} is {}: {reason}", row.phase));
            said = row.reason;
        }
        pause = if waits { NEXT_LOOK } else { FIRST_LOOK };
    }
}

/// Follows until the job, or the selected incarnation, has ended.
///
/// # Errors
/// If there is no such job, the query service does not answer, or the output is closed.
pub async fn follow(
    source: &Source,
    id: &JobId,
    wanted: &Wanted,
    style: Style,
) -> anyhow::Result<Read> {
    let (pieces, mut printed) = mpsc::channel::<Piece>(PIECES);
    let mut any = false;
    let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
    let mut readers = JoinSet::new();
    let mut first = None;
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(piece) = printed.recv() => {
                any = true;
                show(style, several(&seen), &piece)?;
            }
            _ = look.tick() => {
                let detail = source.job(id).await?;
                let from = *first.get_or_insert_with(|| oldest(&detail, wanted));
                let is_over = is_over(&detail, wanted);
                for incarnation in present(&detail, wanted, from) {
                    let listed = source.containers(&detail, incarnation).await;
                    for why in listed.silent {
                        if told.insert(why.clone()) {
                            print::aside(why);
                        }
                    }
                    for found in listed.found {
                        if wanted.takes(found.container()) && seen.insert(found.container().clone()) {
                            start(&mut readers, source, found, wanted, &pieces);
                        }
                    }
                }
                while readers.try_join_next().is_some() {}
                if is_over && readers.is_empty() {
                    while let Ok(piece) = printed.try_recv() {
                        any = true;
                        show(style, several(&seen), &piece)?;
                    }
                    return Ok(Read { detail, any });
                }
            }
        }
    }
}

fn several(seen: &BTreeSet<ContainerId>) -> bool {
    let ranks: BTreeSet<_> = seen.iter().map(|container| container.rank).collect();
    ranks.len() > 1
}

fn oldest(detail: &JobDetail, wanted: &Wanted) -> Incarnation {
    let mut incarnations = detail.incarnations.iter().map(|it| it.incarnation);
    let first = if wanted.all {
        incarnations.next()
    } else {
        wanted.incarnation.or_else(|| incarnations.next_back())
    };
    first.unwrap_or_default()
}

fn present(detail: &JobDetail, wanted: &Wanted, from: Incarnation) -> Vec<Incarnation> {
    let incarnations = detail.incarnations.iter().map(|it| it.incarnation);
    let taken = |it: &Incarnation| match wanted.incarnation {
        Some(one) => *it == one,
        None => *it >= from,
    };
    incarnations.filter(taken).collect()
}

fn is_over(detail: &JobDetail, wanted: &Wanted) -> bool {
    let stopped = wanted.incarnation.is_some_and(|one| {
        let mut incarnations = detail.incarnations.iter();
        incarnations.any(|it| it.incarnation == one && it.stopped_at.is_some())
    });
    detail.row.ended_at.is_some() || stopped
}

fn start(
    readers: &mut JoinSet<()>,
    source: &Source,
    found: Found,
    wanted: &Wanted,
    pieces: &mpsc::Sender<Piece>,
) {
    for stream in [Stream::Stdout, Stream::Stderr] {
        let query = wanted.query(found.container(), stream);
        let (source, node, pieces) = (source.clone(), found.node.clone(), pieces.clone());
        readers.spawn(async move { read(&source, node, query, &pieces).await });
    }
}

async fn read(source: &Source, node: NodeId, mut query: LogsQuery, pieces: &mpsc::Sender<Piece>) {
    query.wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
    let mut lines = Lines::default();
    let mut answered = Instant::now();
    loop {
        let piece = |lines| Piece {
            container: query.container.clone(),
            node: node.clone(),
            stream: query.stream,
            lines,
        };
        match source.chunk(&node, &query).await {
            Ok(chunk) => {
                answered = Instant::now();
                let missed = query
                    .offset
                    .map_or(0, |from| chunk.offset.saturating_sub(from));
                if missed > 0 {
                    let (container, stream) = (&query.container, query.stream.name());
                    print::aside(format!(
                        "── {missed} bytes of {container}, {stream}, are no longer kept"
                    ));
                }
                let whole = lines.take(&chunk.bytes);
                if !whole.is_empty() && pieces.send(piece(whole)).await.is_err() {
                    return;
                }
                if chunk.is_last {
                    let rest = lines.last();
                    if !rest.is_empty() {
                        let _ = pieces.send(piece(rest)).await;
                    }
                    return;
                }
                query.offset = Some(chunk.next);
            }
            Err(error) if error.code == "not_found" => return print::aside(error.to_string()),
            Err(error) if answered.elapsed() > GIVE_UP && error.code != "busy" => {
                return print::aside(error.to_string());
            }
            Err(_) => sleep(AGAIN).await,
        }
    }
}

fn show(style: Style, several: bool, piece: &Piece) -> anyhow::Result<()> {
    match style {
        Style::AsPrinted if piece.stream == Stream::Stderr => {
            print::program_errors(&mut piece.lines.as_slice())
        }
        Style::AsPrinted => print::program_output(&mut piece.lines.as_slice()),
        Style::Ranks if several => {
            let mut text = Vec::with_capacity(piece.lines.len() * 2);
            for line in piece.lines.split_inclusive(|byte| *byte == b'\n') {
                write!(text, "{} │ ", piece.container.rank)?;
                text.extend_from_slice(line);
            }
            print::program_output(&mut text.as_slice())
        }
        Style::Ranks => print::program_output(&mut piece.lines.as_slice()),
        Style::Json | Style::Yaml => {
            let value = json!({
                "container": piece.container,
                "node": piece.node,
                "stream": piece.stream.name(),
                "text": String::from_utf8_lossy(&piece.lines),
            });
            let value = value.to_string();
            match style {
                Style::Yaml => print::yaml(&value),
                _ => print::line(value),
            }
        }
    }
}
