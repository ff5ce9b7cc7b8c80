//! `log diff`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use dormouse_messages::Recorded;
use dormouse_replay::history::changes::{Asked, Changes};
use dormouse_replay::history::diff::{DiffAnswer, PolicyDiff, Side, logs};
use dormouse_replay::scenario::settings::Setting;

use crate::cli::log_range::{LogFileArg, PointArgs};
use crate::commands::common::history::open_at;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::date;

/// Find the first decision on which another policy, this build, or another log differs
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log diff --set policy.theta2=0.5 --log log.parquet\n  dormouse log diff --set policy.allocation=drf -o json\n  dormouse log diff --log old.parquet                      # this build against the one that decided\n  dormouse log diff --log old.parquet --against new.parquet  # two logs, allocation by allocation\n  dormouse log diff --set policy.theta2=0.5 --at 4712 --as ads\n\nPolicies are compared at the log's own states; `dormouse whatif` tells what would have followed."
)]
pub struct DiffArgs {
    /// Fields of the other policy: policy.FIELD=VALUE.
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "against")]
    pub settings: Vec<Setting>,
    /// Another log, such as another build's log of the same inputs.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub point: PointArgs,
}

/// Runs `log diff`.
///
/// # Errors
/// If a log cannot be read, or a setting does not fit.
pub async fn run(context: &Context, args: &DiffArgs) -> anyhow::Result<u8> {
    let point = &args.point;
    let answer = match &args.against {
        Some(file) => {
            let log = LogFileArg {
                file: Some(file.clone()),
                ..LogFileArg::default()
            };
            let other = PointArgs {
                log,
                ..point.clone()
            };
            logs(
                &events(context, point).await?,
                &events(context, &other).await?,
            )
        }
        None => policies(context, &args.settings, point).await?,
    };
    let answer = match &point.view.viewer {
        Some(tenant) => answer.seen_by(tenant)?,
        None => answer,
    };
    print::value(context.output()?, &answer, |answer, _| text(answer))?;
    Ok(DONE)
}

async fn events(context: &Context, point: &PointArgs) -> anyhow::Result<Vec<Arc<Recorded>>> {
    let reading = open_at(context, point).await?;
    if reading.states()?.is_some() {
        let message = "two logs are compared from their beginnings; this one is a slice";
        return Err(Coded::new("usage", message).into());
    }
    let mut events = Vec::new();
    let read = reading.read(|recorded| {
        events.push(Arc::clone(recorded));
        Ok(())
    });
    read.await?;
    Ok(events)
}

async fn policies(
    context: &Context,
    settings: &[Setting],
    point: &PointArgs,
) -> anyhow::Result<DiffAnswer> {
    let changes = changes(settings)?;
    let reading = open_at(context, point).await?;
    let mut diff = PolicyDiff::new(&changes);
    if let Some(states) = reading.states()? {
        diff = diff.starting_from(states.fork);
    }
    let read = reading.read(|recorded| {
        let read = diff.read(recorded);
        Ok(read.map_err(|error| Coded::new("bad_change", error.to_string()))?)
    });
    read.await?;
    Ok(diff.finish())
}

fn changes(settings: &[Setting]) -> anyhow::Result<Changes> {
    let asked = Asked {
        settings: settings.to_vec(),
        ..Asked::default()
    };
    let wrong = |what: String| Coded::new("bad_change", what);
    let variants = asked.variants().map_err(|error| wrong(error.to_string()))?;
    let [changes] = variants.as_slice() else {
        return Err(wrong("two policies are compared: give one value of each field".into()).into());
    };
    if !changes.tenants.is_empty() || !changes.jobs.is_empty() {
        let what =
            "policies are compared: set policy.FIELD; for anything else see `dormouse whatif`";
        return Err(wrong(what.to_owned()).into());
    }
    Ok(changes.clone())
}

/// Renders an answer for a terminal.
#[must_use]
pub fn text(answer: &DiffAnswer) -> String {
    let classes: Vec<String> = answer
        .classes
        .iter()
        .map(|(class, count)| format!("{count} {}", class.as_str()))
        .collect();
    let mut text = format!(
        "{} allocations compared: {}",
        answer.compared,
        if classes.is_empty() {
            "none".to_owned()
        } else {
            classes.join(", ")
        }
    );
    let Some(first) = &answer.first else {
        return text;
    };
    text.push_str(&format!(
        "\n\nthe first that differs: event {}, {}",
        first.sequence,
        first.class.as_str()
    ));
    for (name, side) in [("first", &first.left), ("second", &first.right)] {
        text.push_str(&format!("\n  {name}: {}", of(side)));
    }
    for words in &first.explained {
        text.push_str(&format!("\n  {words}"));
    }
    text
}

fn of(side: &Side) -> String {
    let place = side.sequence.map_or_else(
        || "decided now".to_owned(),
        |sequence| format!("event {sequence}"),
    );
    format!(
        "{} ({place}, {}), build {}",
        side.type_name,
        date(side.at),
        side.build
    )
}
