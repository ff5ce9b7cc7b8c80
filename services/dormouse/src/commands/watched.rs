//! Lists that are shown again as they change.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use dormouse_runtime::Log;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::query;
use crate::cli::{Output, WatchArg};
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::Style;

/// Clears a terminal: home, then all below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Asks the query service and prints its answer; where that is asked, again and again: on a
/// terminal in the same place, else whenever the answer is another one.
///
/// # Errors
/// Its refusal, or that nothing answers.
pub async fn show<T: Serialize + DeserializeOwned>(
    context: &Context,
    log: &Log,
    name: &str,
    request: &impl Serialize,
    watch: WatchArg,
    render: fn(&T, &Style) -> String,
) -> anyhow::Result<u8> {
    let request = serde_json::to_value(request)?;
    let ask = || query(log, name, request.clone());
    repeat(context, watch, ask, render).await
}

/// The same, of what `ask` finds out.
///
/// # Errors
/// Its own.
pub async fn repeat<T: Serialize + DeserializeOwned>(
    context: &Context,
    watch: WatchArg,
    ask: impl AsyncFn() -> anyhow::Result<T>,
    render: fn(&T, &Style) -> String,
) -> anyhow::Result<u8> {
    let output = context.output()?;
    let print = |answer: &T| {
        print::value(output, answer, |answer, wide| {
            render(answer, &Style::of_stdout(wide))
        })
    };
    let Some(seconds) = watch.seconds else {
        print(&ask().await?)?;
        return Ok(DONE);
    };
    let screen = std::io::stdout().is_terminal() && matches!(output, Output::Table | Output::Wide);
    let mut last = String::new();
    loop {
        let answer = ask().await?;
        let now = serde_json::to_string(&answer)?;
        if screen {
            let mut out = std::io::stdout();
            out.write_all(CLEAR.as_bytes())?;
            out.flush()?;
        }
        if screen || now != last {
            print(&answer)?;
            last = now;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(DONE),
        }
    }
}
