//! Following what a job prints: every container of its present life and of those that come.
//!
//! One task a stream asks its node for the next piece when it has handed over the last one, so
//! each stream comes in order, and a terminal that stands still stops the asking: nothing piles up
//! here, at the broker or at the node.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use dormouse_messages::ids::{ContainerId, Incarnation};
use dormouse_messages::{JobId, NodeId, plain};
use dormouse_node_agent::logs::{LogsQuery, Stream, WAIT};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::JobDetail;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::text::Lines;
use super::{Found, Source, Wanted};
use crate::cli::Output;
use crate::print;

/// Between two looks at the job: a container that joins is seen so late.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A job that has room starts sooner.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Between two looks at what a job waits for.
const NEXT_LOOK: Duration = Duration::from_secs(5);
/// Pieces that wait for the terminal.
const PIECES: usize = 16;
/// Before a node that does not answer, or is busy, is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long an ended job's node is asked again.
const GIVE_UP: Duration = Duration::from_secs(10);

/// How lines are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As they are, each to the output it was printed to.
    AsPrinted,
    /// To the standard output, with the rank before them where there are several.
    Ranks,
    /// JSON, one object a piece.
    Json,
    /// YAML, one document a piece.
    Yaml,
}

impl Style {
    /// For a form of output.
    pub const fn of(output: Output, several: bool) -> Self {
        match (output, several) {
            (Output::Json, _) => Self::Json,
            (Output::Yaml, _) => Self::Yaml,
            (Output::Table | Output::Wide, _) => Self::Ranks,
        }
    }
}

/// Whole lines of one stream.
struct Piece {
    container: ContainerId,
    node: NodeId,
    stream: Stream,
    lines: Vec<u8>,
}

/// What was followed.
pub struct Read {
    /// What became of the job.
    pub detail: JobDetail,
    /// Whether anything was printed.
    pub any: bool,
}

/// Says why the job waits, as long as it lives: not at once, and not with every change of a word.
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
            let reason = plain::shown(&row.reason);
            print::aside(format!("── {id} is {}: {reason}", row.phase));
            said = row.reason;
        }
        pause = match waits {
            true => NEXT_LOOK,
            false => FIRST_LOOK,
        };
    }
}

/// Follows until the job has ended, or the life that was asked for.
///
/// # Errors
/// When there is no such job, the query service does not answer, or the output is closed.
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

/// The first life that is followed.
fn oldest(detail: &JobDetail, wanted: &Wanted) -> Incarnation {
    let mut lives = detail.lives.iter().map(|life| life.incarnation);
    let first = match wanted.all {
        true => lives.next(),
        false => wanted.incarnation.or_else(|| lives.next_back()),
    };
    first.unwrap_or_default()
}

/// The lives that may have containers not seen yet.
fn present(detail: &JobDetail, wanted: &Wanted, from: Incarnation) -> Vec<Incarnation> {
    let lives = detail.lives.iter().map(|life| life.incarnation);
    let taken = |life: &Incarnation| match wanted.incarnation {
        Some(one) => *life == one,
        None => *life >= from,
    };
    lives.filter(taken).collect()
}

fn is_over(detail: &JobDetail, wanted: &Wanted) -> bool {
    let stopped = wanted.incarnation.is_some_and(|one| {
        let mut lives = detail.lives.iter();
        lives.any(|life| life.incarnation == one && life.stopped_at.is_some())
    });
    detail.row.ended_at.is_some() || stopped
}

/// Reads both streams of a container to their ends.
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
