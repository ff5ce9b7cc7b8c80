//! `notebook open`.

use std::time::Duration;

use clap::Args;
use dormouse_messages::JobId;
use dormouse_node_agent::jupyter::{TOKEN_QUERY, TokenQuery};
use dormouse_projections::notebooks::NotebookState;
use dormouse_projections::queries::{NotebookQuery, NotebookRow};
use dormouse_runtime::{ApiError, Log};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::cli::duration::Span;
use crate::cli::global::Output;
use crate::cli::job_name::NamedJob;
use crate::commands::common::{caught_up, key_identity, query as query_service};
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Print a notebook's address with its token; start the notebook first if it has ended
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse notebook open ads/analysis\n  xdg-open \"$(dormouse notebook open ads/analysis)\"\n  dormouse notebook open ads/analysis -o json | jq -r .token\n\nIf the gateway listens on another machine's own address only: ssh -L 8080:localhost:8080 MACHINE, with the gateway's port twice."
)]
pub struct OpenArgs {
    /// Notebook, as TENANT/NAME.
    #[arg(value_name = "ID")]
    pub id: NamedJob,
    /// Longest wait for the notebook to be ready.
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub timeout: Span,
}

const LOOK: Duration = Duration::from_millis(100);

const KNOCK: Duration = Duration::from_secs(2);

/// Runs `notebook open`.
///
/// # Errors
/// If there is no such notebook, or the cluster does not answer.
pub async fn run(context: &Context, args: &OpenArgs) -> anyhow::Result<u8> {
    let log = context.connect_to_submit().await?;
    caught_up(&log).await?;
    let id = key_identity::job(&log, &args.id)?;
    let row = ready(&log, &id, args.timeout).await?;
    let code = |code: &str, message: String| anyhow::Error::from(Coded::new(code, message));
    let Some(address) = row.addresses.first() else {
        return Err(code(
            "no_gateway",
            format!(
                "no gateway serves {} under a name of its own; start one with a host name: dormouse serve gateway --url http://serving.example.org",
                row.job
            ),
        ));
    };
    let token = token(&log, &row).await?;
    match context.output()? {
        Output::Table | Output::Wide => {
            let token = utf8_percent_encode(&token, NON_ALPHANUMERIC);
            print::line(format!("{address}?token={token}"))?;
        }
        output => {
            let opened = Opened { row: &row, token };
            print::ours(output, &opened, |_| String::new())?;
        }
    }
    Ok(DONE)
}

#[derive(Serialize)]
struct Opened<'a> {
    #[serde(flatten)]
    row: &'a NotebookRow,
    token: String,
}

/// Asks the node's agent: the token is never on the log.
async fn token(log: &Log, row: &NotebookRow) -> anyhow::Result<String> {
    let gone = || {
        Coded::new(
            "unavailable",
            format!("{} has just ended; try again", row.job),
        )
    };
    let (Some(node), Some(container)) = (&row.node, &row.container) else {
        return Err(gone().into());
    };
    let query = TokenQuery {
        container: container.clone(),
    };
    let asked = log.ask_node(node, TOKEN_QUERY, None, serde_json::to_vec(&query)?);
    let answered = asked.await.map_err(|error| match error {
        ApiError::Refused { code, message } => Coded::new(code, message),
        other => Coded::new("unavailable", other.to_string()),
    })?;
    Ok(String::from_utf8(answered.payload.to_vec())?)
}

/// Starts an ended notebook through its gateway.
async fn ready(log: &Log, id: &JobId, timeout: Span) -> anyhow::Result<NotebookRow> {
    let query = serde_json::to_value(NotebookQuery { job: id.clone() })?;
    let deadline = Instant::now() + timeout.0;
    let mut knocked = false;
    let (mut failures, mut told) = (None, false);
    loop {
        let row: NotebookRow = query_service(log, "notebook", query.clone()).await?;
        let before = *failures.get_or_insert(row.failures);
        if row.failures > before {
            return Err(not_started(&row).into());
        }
        match row.state {
            NotebookState::Stopped if !knocked => {
                knocked = true;
                for address in &row.addresses {
                    knock(address).await;
                }
            }
            NotebookState::Stopped | NotebookState::Starting => {}
            _ => return Ok(row),
        }
        if row.failures > 0 && !told {
            told = true;
            print::aside(format!(
                "{id} has not started yet: {}; waiting for the next try",
                row.reason
            ));
        }
        if Instant::now() >= deadline {
            let message = format!(
                "{id} is not ready after {timeout}: {}; `dormouse job show {id}` says more",
                row.reason
            );
            return Err(Coded::new("starting", message).into());
        }
        sleep(LOOK).await;
    }
}

fn not_started(row: &NotebookRow) -> Coded {
    let message = format!(
        "{} does not start: {}. Its command must start a Jupyter Server that is installed on its nodes (such as `pip install jupyter-server`), or in its image; `dormouse job logs {}` has what it printed. It is tried again until it is cancelled",
        row.job, row.reason, row.job
    );
    Coded::new("not_started", message)
}

/// A request waiting at a gateway starts the notebook.
async fn knock(address: &str) {
    let Some(authority) = address
        .strip_prefix("http://")
        .map(|it| it.trim_end_matches('/'))
    else {
        return;
    };
    let port = authority
        .rsplit_once(':')
        .map_or("80", |(_, port)| port)
        .to_owned();
    let is_here = authority
        .split(':')
        .next()
        .is_some_and(|host| host.ends_with(".localhost"));
    let host = match is_here {
        true => format!("127.0.0.1:{port}"),
        false if authority.contains(':') => authority.to_owned(),
        false => format!("{authority}:80"),
    };
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {authority}\r\naccept: text/html\r\nuser-agent: dormouse\r\n\r\n"
    );
    let asking = async move {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut begin = [0; 12];
        let _ = timeout(KNOCK, stream.read_exact(&mut begin)).await;
        std::io::Result::Ok(())
    };
    // Closing the connection would withdraw the request.
    tokio::spawn(async move {
        if let Err(error) = asking.await {
            tracing::debug!(%error, "the gateway is not reached from here");
        }
    });
}
