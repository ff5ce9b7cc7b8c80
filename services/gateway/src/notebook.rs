//! Access to notebooks by their own token, and detection of a person's activity.
//!
//! A notebook's agent logs the token's hash (`container.ready`). The token passes without a key: in the
//! address (`?token=`), in `Authorization: token …`, or in a cookie. The notebook checks the token too.

use blake3::Hash;
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};
use http::{HeaderMap, Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::access::is_cross_site;

const COOKIE_NAME: &str = "dormouse-notebook";

/// Result of a token check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// With a cookie if the address held the token.
    Token(Option<HeaderValue>),
    /// The token is missing or wrong, or another site's page sent the token.
    Closed,
}

/// Checks a request's token against `hash`.
#[must_use]
pub fn pass(hash: Option<&Hash>, method: &Method, uri: &Uri, headers: &HeaderMap) -> Pass {
    let Some(hash) = hash else {
        return Pass::Closed;
    };
    let is_right = |token: &str| blake3::hash(token.as_bytes()) == *hash;
    if let Some(token) = in_address(uri).filter(|token| is_right(token)) {
        let token = utf8_percent_encode(&token, NON_ALPHANUMERIC);
        let cookie = format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Lax");
        return Pass::Token(HeaderValue::try_from(cookie).ok());
    }
    if in_header(headers).is_some_and(is_right) {
        return Pass::Token(None);
    }
    let remembered = in_cookie(headers).is_some_and(|token| is_right(&token));
    if remembered && !is_cross_site(method, headers) {
        Pass::Token(None)
    } else {
        Pass::Closed
    }
}

/// Custom tokens may contain reserved characters.
fn in_address(uri: &Uri) -> Option<String> {
    let mut parts = uri.query()?.split('&');
    let token = parts.find_map(|part| part.strip_prefix("token="))?;
    decoded(&token.replace('+', " "))
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    Some(text.into_owned())
}

fn in_header(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = shown.split_once(' ')?;
    let is_token = ["token", "bearer"]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it));
    is_token.then(|| token.trim())
}

fn in_cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).into_iter();
    let mut cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let token =
        cookies.find_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))?;
    decoded(token)
}

/// Reports whether a person makes the request. An open page polls on its own, which must not wake a notebook.
#[must_use]
pub fn is_by_hand(method: &Method, headers: &HeaderMap) -> bool {
    if !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return true;
    }
    let of = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
    match of("sec-fetch-mode") {
        Some(mode) => mode == "navigate",
        None => of("accept").is_some_and(|accepts| accepts.contains("text/html")),
    }
}
