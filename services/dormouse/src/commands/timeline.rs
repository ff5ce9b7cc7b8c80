//! `timeline`.

use anyhow::Context as _;
use dormouse_projections::queries::TimelineQuery;
use dormouse_projections::timelines::Timeline;

use super::history::History;
use crate::cli::TimelineArgs;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Draws a metric.
///
/// # Errors
/// When the query service does not answer, or the file cannot be written.
pub async fn run(context: &Context, args: &TimelineArgs) -> anyhow::Result<u8> {
    let history = match args.job {
        Some(_) => History::open_to_ask(context, &args.log).await?,
        None => History::open_whole(context, &args.log).await?,
    };
    let job = args.job.as_ref().map(|job| history.job(job)).transpose()?;
    let request = TimelineQuery {
        metric: args.metric.clone(),
        job,
        ..TimelineQuery::default()
    };
    let timeline: Timeline = history
        .ask("timeline", serde_json::to_value(request)?)
        .await?;
    if let Some(file) = &args.svg {
        let drawing = render::timeline_svg(&timeline)?;
        std::fs::write(file, drawing).with_context(|| file.display().to_string())?;
        print::aside(format!("drawn into {}", file.display()));
        return Ok(DONE);
    }
    print::value(context.output()?, &timeline, |timeline, wide| {
        render::timeline(timeline, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}
