//! Reads history: the cluster's log, an archive, or an exported log.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use dormouse_archive::{Archive, Start};
use dormouse_messages::{Fold, JobId, LogClock, Recorded, Sequence, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_projections::queries::{self, ClusterAnswer};
use dormouse_replay::history::slice::States;
use dormouse_replay::{LogFileError, LogReader};
use dormouse_runtime::{Log, LogItem};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::archived::{Beginning, read_archive};
use super::{key_identity, query};
use crate::cli::job_name::NamedJob;
use crate::cli::log_range::{At, LogFileArg, PointArgs, RangeArgs};
use crate::clock;
use crate::context::Context;
use crate::error::Coded;
use crate::print;

/// A log to read from its beginning.
pub enum History {
    /// The cluster's log; its trimmed beginning is in the archive.
    Cluster(Log, Option<Box<Beginning>>),
    File {
        first: Option<Recorded>,
        rest: Box<LogReader>,
    },
    Archive {
        archive: Archive,
        log: String,
        start: Box<Start>,
    },
}

impl History {
    /// Opens the selected log.
    ///
    /// # Errors
    /// If the file is missing or is no log, or there is no cluster.
    pub async fn open(context: &Context, log: &LogFileArg) -> anyhow::Result<Self> {
        if let Some(archive) = log.archive()? {
            return Ok(Self::Archive {
                log: archive.log().await?,
                archive,
                start: Box::default(),
            });
        }
        let Some(file) = &log.file else {
            let cluster = context.connect().await?;
            let beginning = Beginning::of(&cluster, log).await?;
            return Ok(Self::Cluster(cluster, beginning));
        };
        let mut rest = Box::new(LogReader::open(file)?);
        Ok(Self::File {
            first: rest.next().transpose()?,
            rest,
        })
    }

    /// Opens the log for a query, which a tenant's key may ask.
    ///
    /// # Errors
    /// Those of [`History::open_whole`].
    pub async fn open_to_ask(context: &Context, log: &LogFileArg) -> anyhow::Result<Self> {
        if log.is_cluster() {
            return Ok(Self::Cluster(context.connect_as_holder().await?, None));
        }
        Self::open_whole(context, log).await
    }

    /// Resolves a job; in a file, a bare name belongs to `default`.
    ///
    /// # Errors
    /// If the key is another tenant's.
    pub fn job(&self, named: &NamedJob) -> anyhow::Result<JobId> {
        match self {
            Self::Cluster(log, _) => key_identity::job(log, named),
            Self::File { .. } | Self::Archive { .. } => Ok(named.id.clone()),
        }
    }

    /// Opens the log for reading from event 1.
    ///
    /// # Errors
    /// Those of [`History::open`], and if a file begins later or is empty.
    pub async fn open_whole(context: &Context, log: &LogFileArg) -> anyhow::Result<Self> {
        let history = Self::open(context, log).await?;
        if let (Self::File { first, .. }, Some(file)) = (&history, &log.file) {
            let file = file.display();
            match first {
                None => bail!("{file} holds no event"),
                Some(_) if history.is_slice() => {}
                Some(first) if first.sequence > Sequence(1) => bail!(
                    "{file} begins with event {}: the state before it is not known; export the log from event 1",
                    first.sequence
                ),
                Some(_) => {}
            }
        }
        Ok(history)
    }

    /// Lets an archive, or a log with one, begin with its newest states that are not after the event or the time.
    ///
    /// # Errors
    /// If the archive is damaged, does not answer, or its states are of another build.
    pub async fn near(mut self, to: Option<u64>, until: Option<Timestamp>) -> anyhow::Result<Self> {
        match &mut self {
            Self::Archive { archive, start, .. } => {
                **start = archive.start(to.map(Sequence), until).await?;
            }
            Self::Cluster(_, Some(beginning)) => {
                let archive = beginning.open()?;
                beginning.start = archive.start(to.map(Sequence), until).await?;
            }
            Self::Cluster(_, None) | Self::File { .. } => {}
        }
        Ok(self)
    }

    /// True for a file that begins with states.
    pub fn is_slice(&self) -> bool {
        matches!(self, Self::File { rest, .. } if rest.head().is_some())
    }

    /// Returns the states of a slice.
    ///
    /// # Errors
    /// If the states are damaged, or of another build.
    pub fn states(&self) -> anyhow::Result<Option<States>> {
        match self {
            Self::File { rest, .. } => Ok(rest.head().map(States::of_head).transpose()?),
            Self::Archive { start, .. } => Ok(start.states.clone()),
            Self::Cluster(_, beginning) => {
                Ok(beginning.as_ref().and_then(|it| it.start.states.clone()))
            }
        }
    }

    fn clock(&self) -> anyhow::Result<LogClock> {
        let states = self.states()?;
        Ok(states.map_or_else(LogClock::default, |states| states.fork.cluster.clock))
    }

    /// Returns the log's identity.
    pub fn identity(&self) -> String {
        match self {
            Self::Cluster(log, _) => log.identity(),
            Self::File { rest, .. } => rest.log().to_owned(),
            Self::Archive { log, .. } => log.clone(),
        }
    }

    /// Calls `each` with the events from `from` to `to`.
    ///
    /// # Errors
    /// If the log cannot be read, or `each` fails.
    pub async fn read(
        self,
        from: u64,
        to: Option<u64>,
        mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let going_on = |recorded: &Arc<Recorded>| each(recorded).map(ControlFlow::Continue);
        self.read_while(from, to, going_on).await
    }

    /// Calls `each` with the events until it breaks.
    ///
    /// # Errors
    /// If the log cannot be read, or `each` fails.
    pub async fn read_while(
        self,
        from: u64,
        to: Option<u64>,
        mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<()> {
        let (first, rest) = match self {
            Self::Cluster(log, beginning) => {
                let mut from = from;
                if let Some(beginning) = beginning {
                    from = from.max(beginning.start.from().0);
                    if from < log.first().0 {
                        let archive = beginning.open()?;
                        let read = read_archive(&archive, &beginning.start, from, to, &mut each);
                        match read.await? {
                            Some(next) => from = next,
                            None => return Ok(()),
                        }
                    }
                }
                return read_log_while(&log, from, to, each).await;
            }
            Self::Archive { archive, start, .. } => {
                read_archive(&archive, &start, from, to, each).await?;
                return Ok(());
            }
            Self::File { first, rest } => (first, rest),
        };
        for recorded in first.map(Ok).into_iter().chain(rest) {
            let recorded = recorded?;
            if to.is_some_and(|to| recorded.sequence.0 > to) {
                break;
            }
            if recorded.sequence.0 >= from && each(&Arc::new(recorded))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Asks the query service; for a file, answers as of its end.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub async fn ask<T: DeserializeOwned>(self, name: &str, request: Value) -> anyhow::Result<T> {
        let near = self.near(None, None).await?;
        let states = near.states()?;
        let mut model = states.map_or_else(ReadModel::default, |states| states.model);
        match near {
            Self::Cluster(log, _) => return query(&log, name, request).await,
            Self::File { first, rest } => {
                let mut fold = |recorded: &Recorded| {
                    model.evolve(recorded);
                    Ok::<(), LogFileError>(())
                };
                first.as_ref().map_or(Ok(()), &mut fold)?;
                rest.look(fold)?;
            }
            archive @ Self::Archive { .. } => {
                let fold = |recorded: &Arc<Recorded>| {
                    model.evolve(recorded);
                    Ok(())
                };
                archive.read(1, None, fold).await?;
            }
        }
        let now = model.cluster.now;
        let answer = queries::answer(&model, name, request, now)
            .map_err(|error| Coded::new(error.code, error.message))?;
        Ok(serde_json::from_value(answer)?)
    }
}

/// Returns the sequence or time at which reading ends.
///
/// # Errors
/// If the end of the log cannot be read.
pub async fn bounds(
    context: &Context,
    at: Option<At>,
    log: &LogFileArg,
) -> anyhow::Result<(Option<u64>, Option<Timestamp>)> {
    const DAY_US: i64 = 86_400_000_000;
    Ok(match at {
        None => (None, None),
        Some(At::Sequence(at)) => (Some(at), None),
        Some(At::Time(time)) => (None, Some(time)),
        Some(At::Ago(ago)) => {
            let now = Times::of(context, log).await?.now;
            let ago = i64::try_from(ago.0.as_micros()).unwrap_or(i64::MAX / 2);
            (None, Some(Timestamp::from_micros(now.as_micros() - ago)))
        }
        Some(At::Clock(clock)) => {
            let last = Times::of(context, log).await?.last;
            let midnight = last.as_micros() - last.as_micros().rem_euclid(DAY_US);
            (None, Some(Timestamp::from_micros(midnight + clock)))
        }
    })
}

/// Returns the first and the last sequence of a range.
///
/// # Errors
/// If the range is empty, or the log cannot be read.
pub async fn sequences(
    context: &Context,
    range: RangeArgs,
    log: &LogFileArg,
) -> anyhow::Result<(u64, Option<u64>)> {
    let (mut first, since) = bounds(context, range.from, log).await?;
    let (mut last, until) = bounds(context, range.to, log).await?;
    in_order(since, until)?;
    let mut extent = None;
    if since.is_some() || until.is_some() {
        let history = History::open_whole(context, log).await?;
        let mut clock = history.clock()?;
        let mut end = 0;
        let read = history.read(1, None, |recorded| {
            let at = clock.pass(recorded);
            end = recorded.sequence.0;
            let (begin, _) = extent.unwrap_or(((end, at), (end, at)));
            extent = Some((begin, (end, at)));
            if since.is_some_and(|since| at >= since) && first.is_none() {
                first = Some(end);
            }
            if until.is_some_and(|until| at <= until) {
                last = Some(end);
            }
            Ok(())
        });
        read.await?;
        first = first.or(since.map(|_| end + 1));
        last = last.or(until.map(|_| 0));
    }
    let first = first.unwrap_or(1);
    if last.is_some_and(|last| last < first) {
        bail!(empty(extent));
    }
    Ok((first, last))
}

/// A sequence, and its time by the log's clock.
type Dated = (u64, Timestamp);

fn empty(extent: Option<(Dated, Dated)>) -> String {
    let Some(((first, began), (last, ended))) = extent else {
        return "the range is empty: --to must not be before --from".to_owned();
    };
    let (began, ended) = (began.to_words(), ended.to_words());
    format!(
        "the log has no event from --from to --to: it begins with event {first} ({began}) and ends with event {last} ({ended})"
    )
}

fn in_order(from: Option<Timestamp>, to: Option<Timestamp>) -> anyhow::Result<()> {
    match (from, to) {
        (Some(from), Some(to)) if to < from => bail!(
            "--to {} is before --from {}",
            to.to_words(),
            from.to_words()
        ),
        _ => Ok(()),
    }
}

/// Returns the times of two places.
///
/// # Errors
/// If the second is before the first, or the log has no such event.
pub async fn window(
    context: &Context,
    range: RangeArgs,
    log: &LogFileArg,
) -> anyhow::Result<(Option<Timestamp>, Option<Timestamp>)> {
    let from = time_of(context, range.from, log).await?;
    let to = time_of(context, range.to, log).await?;
    in_order(from, to)?;
    Ok((from, to))
}

async fn time_of(
    context: &Context,
    at: Option<At>,
    log: &LogFileArg,
) -> anyhow::Result<Option<Timestamp>> {
    let (sequence, time) = bounds(context, at, log).await?;
    let Some(sequence) = sequence else {
        return Ok(time);
    };
    let mut found = None;
    let before = Some(sequence.saturating_sub(1));
    let history = History::open_whole(context, log).await?;
    let history = history.near(before, None).await?;
    let mut clock = history.clock()?;
    let read = history.read(1, Some(sequence), |recorded| {
        let at = clock.pass(recorded);
        found = (recorded.sequence.0 == sequence).then_some(at);
        Ok(())
    });
    read.await?;
    let found = found.with_context(|| format!("the log has no event {sequence}"))?;
    Ok(Some(found))
}

/// Times at the end of a log, by the log's clock.
pub struct Times {
    last: Timestamp,
    /// The end, for a file.
    pub now: Timestamp,
}

impl Times {
    /// Asks the query service, or else reads the log.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn of(context: &Context, log: &LogFileArg) -> anyhow::Result<Self> {
        let history = History::open_to_ask(context, log).await?;
        if let History::Cluster(log, _) = &history
            && log.tenant().is_some()
        {
            let now = clock::now();
            return Ok(Self { last: now, now });
        }
        if let History::Cluster(log, _) = &history
            && let Ok(answer) = query::<ClusterAnswer>(log, "cluster", Value::Null).await
        {
            let last = answer.log.at;
            let quiet = Duration::try_from_secs_f64(answer.log.quiet_s).unwrap_or_default();
            let quiet_ms = u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX);
            let now = last.plus_ms(quiet_ms);
            return Ok(Self { last, now });
        }
        let history = history.near(None, None).await?;
        let mut clock = history.clock()?;
        let is_file = !matches!(history, History::Cluster(..));
        let read = history.read(1, None, |recorded| {
            clock.pass(recorded);
            Ok(())
        });
        read.await?;
        let last = clock.now();
        let now = if is_file {
            last
        } else {
            clock.time_at(clock::now())
        };
        Ok(Self { last, now })
    }
}

/// Warns if the log ends before the requested place; reports whether it does.
pub fn say_end(to: Option<u64>, until: Option<Timestamp>, last: u64) -> bool {
    let words = match (to, until) {
        (Some(at), _) if at > last => format!("the log ends at event {last}, before {at}"),
        (_, Some(until)) if until > clock::now() => {
            format!("{until} has not come yet; this is what the log says so far, to event {last}")
        }
        _ => return false,
    };
    print::aside(words);
    true
}

/// The end of a reading.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub time: Timestamp,
}

/// A log, read up to a place.
pub struct Reading {
    history: History,
    to: Option<u64>,
    until: Option<Timestamp>,
}

/// Opens the log for reading up to the requested place.
///
/// # Errors
/// Those of [`History::open_whole`].
pub async fn open_at(context: &Context, point: &PointArgs) -> anyhow::Result<Reading> {
    let (to, until) = bounds(context, point.at, &point.log).await?;
    Ok(Reading {
        history: History::open_whole(context, &point.log).await?,
        to,
        until,
    })
}

/// Opens the log for reading up to the requested place, an archive from its nearest states.
///
/// # Errors
/// Those of [`open_at`] and [`History::near`].
pub async fn open_near(context: &Context, point: &PointArgs) -> anyhow::Result<Reading> {
    let mut reading = open_at(context, point).await?;
    reading.history = reading.history.near(reading.to, reading.until).await?;
    Ok(reading)
}

impl Reading {
    /// Returns the states of a slice.
    ///
    /// # Errors
    /// If the states are damaged, or of another build.
    pub fn states(&self) -> anyhow::Result<Option<States>> {
        self.history.states()
    }

    /// Calls `each` with every event.
    ///
    /// # Errors
    /// If the log cannot be read, has no event up to there, or `each` fails.
    pub async fn read(
        self,
        mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Place> {
        let going_on = |recorded: &Arc<Recorded>| each(recorded).map(ControlFlow::Continue);
        self.read_while(going_on).await
    }

    /// Calls `each` with the events until it breaks.
    ///
    /// # Errors
    /// Those of [`Reading::read`].
    pub async fn read_while(
        self,
        mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<Place> {
        let (to, until) = (self.to, self.until);
        let mut clock = self.history.clock()?;
        let (mut last, mut is_enough) = (None, false);
        let read = self.history.read_while(1, to, |recorded| {
            let at = clock.pass(recorded);
            if until.is_some_and(|until| at > until) {
                return Ok(ControlFlow::Break(()));
            }
            last = Some((recorded.sequence.0, at));
            let goes_on = each(recorded)?;
            is_enough = goes_on.is_break();
            Ok(goes_on)
        });
        read.await?;
        let Some((end, time)) = last else {
            bail!(
                "the log holds nothing up to there; `dormouse cluster status` says where it begins and ends"
            );
        };
        if !is_enough {
            let _ = say_end(to, until, end);
        }
        Ok(Place {
            time: until.unwrap_or(time),
        })
    }
}

/// Calls `each` with the events from `from` to `to` until it breaks.
///
/// # Errors
/// If the log cannot be read, or `each` fails.
pub async fn read_log_while(
    log: &Log,
    from: u64,
    to: Option<u64>,
    mut each: impl FnMut(&Arc<Recorded>) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<()> {
    let to = match to {
        Some(to) => Sequence(to),
        None => log.head().await?,
    };
    let mut events = log.read(Sequence(from), to).await?;
    while let Some(followed) = events.recv().await {
        match followed {
            LogItem::Event(recorded) => {
                if each(&recorded)?.is_break() {
                    return Ok(());
                }
            }
            LogItem::Flagged { .. } => {}
            LogItem::CaughtUp(_) => return Ok(()),
        }
    }
    anyhow::bail!("the log could not be read to its end; try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_range_says_what_the_log_has() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (began, ended) = (at("2026-11-28T10:00:00Z"), at("2026-11-28T11:00:00Z"));
        let said = empty(Some(((1, began), (4712, ended))));
        assert!(
            said.contains("begins with event 1 (2026-11-28 10:00:00Z)")
                && said.ends_with("ends with event 4712 (2026-11-28 11:00:00Z)"),
            "{said}"
        );
        let wrong = in_order(Some(ended), Some(began)).expect_err("the wrong order");
        let said = "--to 2026-11-28 10:00:00Z is before --from 2026-11-28 11:00:00Z";
        assert_eq!(wrong.to_string(), said);
        assert!(in_order(Some(began), Some(ended)).is_ok() && in_order(None, Some(began)).is_ok());
        assert!(empty(None).contains("--to must not be before --from"));
    }
}
