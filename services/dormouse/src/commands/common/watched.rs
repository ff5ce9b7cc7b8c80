//! Lists that are refreshed as they change.

use std::future::pending;
use std::io::IsTerminal;
use std::pin::pin;

use dormouse_runtime::Log;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::query;
use super::screen::{self, Screen};
use crate::cli::filter::WatchArg;
use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::Style;
use crate::serve::asked_to_stop;

/// Prints the query service's answer; with --watch repeatedly: on a terminal until `q` or `^C`, elsewhere on
/// every change.
///
/// # Errors
/// A refusal, or no answer.
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

/// Prints results of `ask` like [`show`].
///
/// # Errors
/// Those of `ask`.
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
    let print_fitting = |answer: &T| {
        print::value(output, answer, |answer, wide| {
            screen::fitting(&render(answer, &Style::of_stdout(wide)))
        })
    };
    let Some(every) = watch.every else {
        print(&ask().await?)?;
        return Ok(DONE);
    };
    let is_shown =
        std::io::stdout().is_terminal() && matches!(output, Output::Table | Output::Wide);
    // An error must not vanish with the alternate screen.
    let mut answer = ask().await?;
    let mut screen = is_shown.then(Screen::enter).transpose()?;
    let mut stop = pin!(asked_to_stop());
    let mut last = String::new();
    loop {
        let now = serde_json::to_string(&answer)?;
        if let Some(screen) = &screen {
            screen.clear()?;
            print_fitting(&answer)?;
        } else if now != last {
            print(&answer)?;
            last = now;
        }
        let quit = async {
            match &mut screen {
                Some(screen) => screen.quit().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = quit => return Ok(DONE),
            () = &mut stop => return Ok(DONE),
        }
        answer = ask().await?;
    }
}
