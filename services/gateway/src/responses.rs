//! The gateway's own answers, as JSON: `{"error": {"code", "message"}}`.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::access::Denied;
use crate::answer::Answer;
use crate::service::Refused;
use crate::target::NoTarget;

#[must_use]
pub fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Answer> {
    let text = json!({"error": {"code": code, "message": message}}).to_string();
    let mut response = Response::new(Answer::Own(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Answers a request that names no service; `path` is the one without a slash.
#[must_use]
pub fn no_target(why: &NoTarget, path: &str) -> Response<Answer> {
    match why {
        NoTarget::BadHost => refusal(
            StatusCode::BAD_REQUEST,
            "bad_host",
            "the request names no host, or one that is none; send one Host header",
        ),
        NoTarget::OtherHost => refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "other_host",
            "this gateway is not reached under that name; its --url says which name is its own",
        ),
        NoTarget::BadPath => refusal(
            StatusCode::NOT_FOUND,
            "no_service",
            "a service is at /<tenant>/<name>/, or at http://<name>.<tenant>.<host>/",
        ),
        NoTarget::NoSlash => {
            let mut response = Response::new(Answer::empty());
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            if let Ok(path) = HeaderValue::try_from(path) {
                response.headers_mut().insert(LOCATION, path);
            }
            response
        }
    }
}

#[must_use]
pub fn unknown() -> Response<Answer> {
    refusal(
        StatusCode::NOT_FOUND,
        "no_service",
        "there is no service of this name, or it has ended; `dormouse jobs` lists them",
    )
}

#[must_use]
pub fn shared_notebook() -> Response<Answer> {
    refusal(
        StatusCode::MISDIRECTED_REQUEST,
        "own_origin",
        "a notebook has an origin of its own: http://<name>.<tenant>.<host>/, with the gateway's host name",
    )
}

/// Answers a denied request; on a service's own origin browsers ask for a password.
#[must_use]
pub fn denied(why: Denied, own: bool) -> Response<Answer> {
    let (status, code, message) = match why {
        Denied::NoKey => (
            StatusCode::UNAUTHORIZED,
            "no_key",
            "this service wants its tenant's key, or its own token: Authorization: Bearer KEY, or X-Dormouse-Key",
        ),
        Denied::WrongKey => (
            StatusCode::UNAUTHORIZED,
            "wrong_key",
            "this is not the key of the service's tenant; `dormouse account key` says it",
        ),
        Denied::CrossSite => (
            StatusCode::FORBIDDEN,
            "cross_site",
            "another site's page may not call this service; access: open lets it",
        ),
    };
    let mut response = refusal(status, code, message);
    if status == StatusCode::UNAUTHORIZED {
        let asks = if own {
            "Basic realm=\"dormouse\", charset=\"UTF-8\""
        } else {
            "Bearer realm=\"dormouse\""
        };
        let headers = response.headers_mut();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(asks));
    }
    response
}

/// Answers an open page of a stopped notebook, which does not restart the notebook.
#[must_use]
pub fn stopped_notebook() -> Response<Answer> {
    let why = "this notebook was ended because nobody used it; open its page to start it again, its files are kept";
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "stopped", why);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
    response
}

#[must_use]
pub fn refused(why: Refused) -> Response<Answer> {
    let (seconds, code, message) = match why {
        Refused::Full => ("1", "overloaded", "too many requests wait for this service"),
        Refused::Deadline { ready: true } => (
            "1",
            "overloaded",
            "no replica was free in time; the service has too few for what it is asked",
        ),
        Refused::Deadline { ready: false } => (
            "5",
            "starting",
            "no replica was ready in time; `dormouse job show` says what it waits for",
        ),
        Refused::Ended => return unknown(),
    };
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, code, message);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    response
}

#[must_use]
pub fn broken(why: &str) -> Response<Answer> {
    let message = format!(
        "the replica broke the connection ({why}); it may have acted on the request, which was not sent again"
    );
    refusal(StatusCode::BAD_GATEWAY, "broken", &message)
}

#[must_use]
pub fn stalled() -> Response<Answer> {
    let why = "the rest of the request's body did not come within 60 s";
    refusal(StatusCode::REQUEST_TIMEOUT, "stalled", why)
}
