//! Header changes of a proxy, in both directions (RFC 9110, section 7.6).

use std::net::IpAddr;

use http::header::{
    self, CONNECTION, COOKIE, Entry, HOST, HeaderName, HeaderValue, SET_COOKIE, UPGRADE,
};
use http::{HeaderMap, Uri};

use crate::target::{self, Origin};

/// Headers of a single connection, even if `Connection` omits them.
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

/// Forbidden in answers of a shared origin.
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

/// Removes per-connection headers.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            // A client must not make the gateway drop these.
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

/// Reports whether a request asks for a WebSocket, the only upgrade: HTTP/2 would bypass every check.
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

/// Marks a message as a WebSocket upgrade.
pub fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Rewrites a request's headers for the replica.
pub fn to_replica(headers: &mut HeaderMap, uri: &Uri, origin: &Origin, client: IpAddr) {
    strip_hop_by_hop(headers);
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

/// Rewrites an answer's headers for the client.
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

/// HTTP/1.1 allows only one header (RFC 9113, section 8.2.3).
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
