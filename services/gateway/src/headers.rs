//! What a proxy changes in the headers, on the way there and back (RFC 9110, section 7.6).

use std::net::IpAddr;

use http::header::{
    self, CONNECTION, COOKIE, Entry, HOST, HeaderName, HeaderValue, SET_COOKIE, UPGRADE,
};
use http::{HeaderMap, Uri};

use crate::target::{self, Origin};

/// Of one connection only, whether `Connection` lists them or not.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    UPGRADE,
];

/// What an answer may not say for an origin that it shares with others.
const OF_THE_ORIGIN: [HeaderName; 6] = [
    SET_COOKIE,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    header::STRICT_TRANSPORT_SECURITY,
    header::ALT_SVC,
    HeaderName::from_static("report-to"),
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Takes out what belongs to one connection only.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            // Who lists `Host` or the length would have us forget whose request this is.
            .filter(|name| *name != HOST && *name != header::CONTENT_LENGTH)
            .collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Whether a request asks for a WebSocket. Other protocols are not passed on: HTTP/2 over an
/// upgrade would carry requests past every check.
#[must_use]
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|it| it.to_str().ok());
    let connection = headers.get_all(CONNECTION).into_iter();
    let listed = connection
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    listed && upgrade.is_some_and(|it| it.eq_ignore_ascii_case("websocket"))
}

/// Marks a message as the upgrade to a WebSocket.
pub fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Makes a request's headers what the replica is to see.
pub fn to_replica(headers: &mut HeaderMap, uri: &Uri, origin: &Origin, client: IpAddr) {
    strip_hop_by_hop(headers);
    // The body follows at once: it was asked for when it was first read here.
    headers.remove(header::EXPECT);
    let host = target::host(uri, headers).and_then(|host| HeaderValue::from_str(host).ok());
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host.clone());
        headers.insert(HOST, host);
    }
    forwarded_for(headers, client);
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static("http"));
    match origin {
        Origin::Own => {
            headers.remove(FORWARDED_PREFIX);
            join_cookies(headers);
        }
        Origin::Shared(prefix) => {
            let prefix = uri.path().get(..*prefix).unwrap_or_default();
            if let Ok(prefix) = HeaderValue::from_str(prefix) {
                headers.insert(FORWARDED_PREFIX, prefix);
            }
            headers.remove(COOKIE);
        }
    }
}

/// Makes an answer's headers what the client is to see.
pub fn to_client(headers: &mut HeaderMap, origin: &Origin) {
    strip_hop_by_hop(headers);
    if matches!(origin, Origin::Shared(_)) {
        for name in &OF_THE_ORIGIN {
            headers.remove(name);
        }
    }
}

fn forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let before = headers.get(FORWARDED_FOR).and_then(|it| it.to_str().ok());
    let chain = match before {
        Some(before) => format!("{before}, {client}"),
        None => client.to_string(),
    };
    if let Ok(chain) = HeaderValue::try_from(chain) {
        headers.insert(FORWARDED_FOR, chain);
    }
}

/// HTTP/2 sends each cookie by itself; HTTP/1.1 allows one header (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if let Entry::Occupied(entry) = headers.entry(COOKIE) {
        let cookies: Vec<&[u8]> = entry.iter().map(HeaderValue::as_bytes).collect();
        if cookies.len() > 1
            && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
        {
            headers.insert(COOKIE, joined);
        }
    }
}
