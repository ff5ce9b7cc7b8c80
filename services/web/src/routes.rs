//! The routes. Answers are about a moment, the event `at` or the head; with `v`, the version of log and
//! build, they never change.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::access::{Guard, SESSION};
use crate::answers;
use crate::assets;
use crate::error::AnswerError;
use crate::live_events;
use crate::past::Head;
use crate::reply::{self, Reply};
use crate::site::Site;

const MOST_BODY: usize = 4_096;
const LINES: usize = 16;

#[derive(Serialize)]
struct HeadAnswer {
    #[serde(flatten)]
    head: Head,
    version: String,
    build: String,
}

#[derive(Deserialize)]
struct Asked {
    at: Option<u64>,
    /// End of the future that the answer depends on.
    to: Option<String>,
    v: Option<String>,
}

/// Answers a request that passed the guard.
pub async fn route(site: Site, guard: &Guard, request: http::Request<Incoming>) -> Reply {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if path == SESSION {
        return exchange(guard, body).await;
    }
    let Some(question) = path.strip_prefix("/api/") else {
        let found = assets::file(path, &parts.headers);
        let missing = || reply::text(StatusCode::NOT_FOUND, "there is no such page");
        return found.unwrap_or_else(missing);
    };
    site.page.want();
    match question {
        "head" => head(&site),
        "live" => live_events::stream(site.page.past.watch()),
        "state" => moment(site, &parts, answers::state).await,
        "jobs" => moment(site, &parts, answers::jobs).await,
        "job" => moment(site, &parts, answers::job).await,
        "nodes" => moment(site, &parts, answers::nodes).await,
        "node" => moment(site, &parts, answers::node).await,
        "tenant" => moment(site, &parts, answers::tenant).await,
        "timeline" => moment(site, &parts, answers::timeline).await,
        "axis" => moment(site, &parts, answers::axis).await,
        "step" => moment(site, &parts, answers::step).await,
        "events" => moment(site, &parts, answers::events).await,
        "explain" => moment(site, &parts, answers::explain).await,
        "explaining" => growing(site, &parts, answers::explaining).await,
        "difference" => moment(site, &parts, answers::difference).await,
        "whatif" => moment(site, &parts, answers::whatif).await,
        other => AnswerError::not_found(format!("there is no question {other}")).into_reply(),
    }
}

async fn exchange(guard: &Guard, body: Incoming) -> Reply {
    let wrong = || reply::text(StatusCode::UNAUTHORIZED, "this is not the token");
    let Ok(body) = Limited::new(body, MOST_BODY).collect().await else {
        return wrong();
    };
    let token = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let cookie = guard.exchange(&token);
    let cookie = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok());
    let Some(cookie) = cookie else {
        return wrong();
    };
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(SET_COOKIE, cookie);
    reply
}

fn head(site: &Site) -> Reply {
    let head = site.page.past.head();
    let answer = HeadAnswer {
        version: site.version(&head),
        build: site.build.to_string(),
        head,
    };
    reply::json(StatusCode::OK, &answer)
}

fn read<Q: DeserializeOwned>(parts: &Parts) -> Result<Q, AnswerError> {
    let query = parts.uri.query().unwrap_or_default();
    serde_urlencoded::from_str(query).map_err(AnswerError::wrong)
}

/// Computes an answer on a blocking thread.
async fn moment<Q, A>(
    site: Site,
    parts: &Parts,
    answer: fn(&Site, &Q) -> Result<A, AnswerError>,
) -> Reply
where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + 'static,
{
    cached(site, parts, |site, question: Q| async move {
        let worked_out = move || match answer(&site, &question) {
            Ok(answer) => reply::json(StatusCode::OK, &answer),
            Err(error) => error.into_reply(),
        };
        let worked_out = tokio::task::spawn_blocking(worked_out).await;
        let broken = |_| AnswerError::internal("the answer could not be worked out").into_reply();
        worked_out.unwrap_or_else(broken)
    })
    .await
}

/// Streams a growing answer as JSON lines; the last line is complete.
async fn growing<Q, A>(site: Site, parts: &Parts, answer: Grows<Q, A>) -> Reply
where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + 'static,
{
    cached(site, parts, |site, question: Q| async move {
        let (lines, mut told) = mpsc::channel(LINES);
        let worked_out = move || {
            // The search goes on for a closed reader, but is bounded.
            let tell = |answer: &A| drop(lines.blocking_send(Ok(line(answer))));
            if let Err(error) = answer(&site, &question, &tell) {
                drop(lines.blocking_send(Err(error)));
            }
        };
        tokio::task::spawn_blocking(worked_out);
        match told.recv().await {
            Some(Ok(first)) => reply::lines(first, told),
            Some(Err(error)) => error.into_reply(),
            None => AnswerError::internal("the answer could not be worked out").into_reply(),
        }
    })
    .await
}

type Grows<Q, A> = fn(&Site, &Q, &dyn Fn(&A)) -> Result<(), AnswerError>;

fn line(answer: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// Adds an ETag if the moment is fixed.
async fn cached<Q, F>(site: Site, parts: &Parts, work: impl FnOnce(Site, Q) -> F) -> Reply
where
    Q: DeserializeOwned,
    F: Future<Output = Reply>,
{
    let (asked, question) = match (read::<Asked>(parts), read::<Q>(parts)) {
        (Ok(asked), Ok(question)) => (asked, question),
        (Err(error), _) | (_, Err(error)) => return error.into_reply(),
    };
    let head = site.page.past.head();
    let version = site.version(&head);
    if asked.v.as_ref().is_some_and(|asked| *asked != version) {
        return AnswerError::other_log().into_reply();
    }
    // Without `at`, or with an end beyond the head, the answer may change.
    let known = |event: u64| event <= head.head.0;
    let to = asked.to.and_then(|to| to.parse().ok());
    let is_past = asked.at.is_some_and(known) && to.is_none_or(known);
    let upto = if is_past { 0 } else { head.head.0 };
    let named = format!("{version}\n{upto}\n{}", parts.uri);
    let tag = format!("\"{}\"", &blake3::hash(named.as_bytes()).to_hex()[..24]);
    let Ok(tag_value) = HeaderValue::try_from(&tag) else {
        return AnswerError::internal("no tag").into_reply();
    };
    let mut reply = if is_known(&parts.headers, &tag) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        work(site, question).await
    };
    if reply.status().is_success() || reply.status() == StatusCode::NOT_MODIFIED {
        let lasts = if is_past && asked.v.is_some() {
            "private, max-age=86400, immutable"
        } else {
            "private, no-cache"
        };
        let headers = reply.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(lasts));
        headers.insert(ETAG, tag_value);
    }
    reply
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(IF_NONE_MATCH).and_then(|it| it.to_str().ok());
    known.is_some_and(|known| known.split(',').any(|it| it.trim() == tag))
}
