//! `log bisect`.

use std::ops::ControlFlow;

use clap::Args;
use dormouse_replay::history::bisect::{Bisect, Found, Looked, Predicate};

use crate::cli::log_range::PointArgs;
use crate::commands::common::history::open_at;
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{Coded, DONE};
use crate::print;

/// Find the first event after which a condition holds
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log bisect ads/lr=running\n  dormouse log bisect ads/lr.containers=4 --log log.parquet\n  dormouse log bisect 'utilization>0.9'\n  dormouse log bisect 'fairness-loss>0.5' -o json\n  dormouse log bisect broken --log log.parquet     # an invariant of the services\n  dormouse log bisect broken --some              # some place, looked for by halving\n\nMetrics: utilization, fairness-loss, waiting, running. Lasting conditions (a job was seen, has ended) are found by halving, others by a look after every event, so that the place is the first."
)]
pub struct BisectArgs {
    /// JOB=PHASE, JOB=seen, JOB.containers=N, METRIC>VALUE, METRIC<VALUE or broken.
    pub predicate: Predicate,
    /// Check every 4,096th event and bisect: finds some change, not always the first.
    #[arg(long)]
    pub some: bool,
    #[command(flatten)]
    pub point: PointArgs,
}

/// Runs `log bisect`.
///
/// # Errors
/// If the log cannot be read, or there is no such place.
pub async fn run(context: &Context, args: &BisectArgs) -> anyhow::Result<u8> {
    let viewer = args.point.view.viewer.as_ref();
    if let (Some(job), Some(viewer)) = (args.predicate.job(), viewer)
        && job.tenant() != viewer.as_str()
    {
        let message = format!("{viewer} has no job {job}; ask about one of its own");
        return Err(Coded::new("not_found", message).into());
    }
    let reading = open_at(context, &args.point).await?;
    let mut bisect = Bisect::new(args.predicate.clone());
    if args.some {
        bisect = bisect.some();
    }
    let mut unknown = args.predicate.job();
    if let Some(states) = reading.states()? {
        unknown.take_if(|job| states.model.jobs.get(job).is_some());
        bisect = bisect.starting_from(states);
    }
    let read = reading.read_while(|recorded| {
        let event = recorded.event();
        unknown.take_if(|job| event.is_some_and(|event| concerns(event, job)));
        if bisect.read(recorded) {
            Ok(ControlFlow::Break(()))
        } else {
            Ok(ControlFlow::Continue(()))
        }
    });
    read.await?;
    let (found, events) = bisect.finish();
    let found = match (found, viewer) {
        (Some(found), Some(tenant)) => Some(found.seen_by(tenant)?),
        (found, _) => found,
    };
    let Some(found) = found else {
        let message = match unknown {
            Some(job) => format!(
                "there is no job {job} in {events} events; `dormouse jobs --all` lists those that are known"
            ),
            None => format!("it never is so in {events} events"),
        };
        return Err(Coded::new("not_found", message).into());
    };
    print::value(context.output()?, &found, |it, _| self::found(it))?;
    Ok(DONE)
}

/// Describes the place found.
#[must_use]
pub fn found(found: &Found) -> String {
    let place = if found.exact {
        "the first such place"
    } else {
        "some such place, perhaps not the first"
    };
    let how = match found.looked {
        Looked::Before => {
            return format!(
                "event {}, {}: {} at the beginning of the slice; look in the whole log for when it became so",
                found.sequence,
                crate::render::date(found.at),
                found.after
            );
        }
        Looked::OneByOne => format!("{} events folded one by one", found.folds),
        Looked::Halving => format!(
            "{} events folded, and the block with it halved {} times",
            found.folds, found.halves
        ),
    };
    format!(
        "event {} ({} of {}, {}): {} before, {} since; {place}, {how}",
        found.sequence,
        found.event,
        found.subject,
        crate::render::date(found.at),
        found.before,
        found.after
    )
}
