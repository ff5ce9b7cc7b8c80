//! Access control, before any other handling.
//!
//! 1. The Host header must be a name of this server, with the port, against DNS rebinding.
//! 2. Only `GET`, `HEAD`, and the `POST` that exchanges the token.
//! 3. No requests from other sites (`Sec-Fetch-Site`, `Origin`), except links to the page.
//! 4. With a token, a cookie obtained by it.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Request, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::Access;
use crate::reply::{self, Reply};

/// The page may use its own files and ask its server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Path of the token exchange.
pub const SESSION: &str = "/session";
/// A header that no foreign form can send.
pub const OWN_HEADER: &str = "x-dormouse";

/// The access rules of a server.
#[derive(Debug, Clone)]
pub struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The cookie; `None` if everybody has access.
    session: Option<Session>,
}

#[derive(Debug, Clone)]
struct Session {
    token: String,
    secure: &'static str,
    cookie: String,
    value: String,
}

impl Guard {
    /// Creates the rules of a server.
    #[must_use]
    pub fn new(listens: SocketAddr, names: &[String], access: &Access) -> Arc<Self> {
        let port = listens.port();
        let mut hosts = vec![listens.to_string()];
        if listens.ip().is_loopback() {
            hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}")));
        }
        hosts.extend(names.iter().map(|name| {
            if name.contains(':') {
                name.to_lowercase()
            } else {
                format!("{}:{port}", name.to_lowercase())
            }
        }));
        // Browsers omit the scheme's default port.
        let scheme = match access {
            Access::Loopback | Access::Token { tls: None, .. } => "http",
            Access::Token { tls: Some(_), .. } => "https",
        };
        let plain = if scheme == "http" { ":80" } else { ":443" };
        let short = hosts.iter().filter_map(|host| host.strip_suffix(plain));
        let short: Vec<String> = short.map(str::to_owned).collect();
        hosts.extend(short);
        let session = match access {
            Access::Loopback => None,
            Access::Token { token, tls } => Some(Session {
                token: token.clone(),
                // Browsers send such a cookie only encrypted.
                secure: if tls.is_some() { " Secure;" } else { "" },
                // Cookies ignore ports.
                cookie: format!("dormouse-{port}"),
                value: blake3::derive_key("dormouse page session 1", token.as_bytes())
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            }),
        };
        Arc::new(Self {
            origins: hosts
                .iter()
                .map(|host| format!("{scheme}://{host}"))
                .collect(),
            hosts,
            session,
        })
    }

    /// Returns a refusal, if any.
    #[must_use]
    pub fn refuse<B>(&self, request: &Request<B>) -> Option<Reply> {
        let (status, why) = self.why_not(request)?;
        Some(reply::text(status, why))
    }

    fn why_not<B>(&self, request: &Request<B>) -> Option<(StatusCode, &'static str)> {
        let (headers, path) = (request.headers(), request.uri().path());
        if !self.is_own_host(headers) {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "this server has another name",
            ));
        }
        let exchange = path == SESSION && request.method() == Method::POST;
        if ![Method::GET, Method::HEAD].contains(request.method()) && !exchange {
            return Some((StatusCode::METHOD_NOT_ALLOWED, "the page only reads"));
        }
        if !self.is_own_site(headers, path == "/") {
            return Some((StatusCode::FORBIDDEN, "asked on behalf of another site"));
        }
        if exchange && !headers.contains_key(OWN_HEADER) {
            return Some((StatusCode::FORBIDDEN, "not asked by the page"));
        }
        if path.starts_with("/api/") && !self.knows(headers) {
            return Some((
                StatusCode::UNAUTHORIZED,
                "open the page with #token=… first",
            ));
        }
        None
    }

    fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let own = host.is_some_and(|host| self.hosts.iter().any(|own| own == host));
        own && hosts.next().is_none()
    }

    fn is_own_site(&self, headers: &HeaderMap, is_page: bool) -> bool {
        let text = |name: HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or("?"));
        let is_link = || {
            let says = |name: &'static str, what| text(HeaderName::from_static(name)) == Some(what);
            is_page && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document")
        };
        let site = match text(HeaderName::from_static("sec-fetch-site")) {
            None | Some("same-origin" | "none") => true,
            Some(_) => is_link(),
        };
        let origin = text(ORIGIN);
        site && origin.is_none_or(|origin| self.origins.iter().any(|own| own == origin))
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(session) = &self.session else {
            return true;
        };
        let cookies = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(|it| it.to_str().ok());
        let mut pairs = cookies
            .flat_map(|it| it.split(';'))
            .filter_map(|it| it.trim().split_once('='));
        pairs.any(|(name, value)| name == session.cookie && equal(value, &session.value))
    }

    /// Returns the cookie for a valid token.
    #[must_use]
    pub fn exchange(&self, token: &str) -> Option<String> {
        let session = self
            .session
            .as_ref()
            .filter(|it| equal(token.trim(), &it.token))?;
        let Session {
            cookie,
            value,
            secure,
            ..
        } = session;
        Some(format!(
            "{cookie}={value}; Path=/; Max-Age=43200; HttpOnly;{secure} SameSite=Strict"
        ))
    }

    /// Adds the protective headers.
    pub fn protect(reply: &mut Reply) {
        let headers = reply.headers_mut();
        let fixed = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Compares hashes, so that timing reveals nothing.
fn equal(a: &str, b: &str) -> bool {
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123";

    fn guard(with_token: bool) -> Arc<Guard> {
        let access = if !with_token {
            Access::Loopback
        } else {
            Access::Token {
                token: TOKEN.to_owned(),
                tls: Some((PathBuf::new(), PathBuf::new())),
            }
        };
        let names = [
            "Dormouse.example.org".to_owned(),
            "short.example".to_owned(),
        ];
        let port = if with_token { 443 } else { 8090 };
        Guard::new(SocketAddr::from(([127, 0, 0, 1], port)), &names, &access)
    }

    fn status(guard: &Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        guard
            .refuse(&request)
            .map_or(200, |it| it.status().as_u16())
    }

    #[test]
    fn only_its_own_names_are_answered() {
        let guard = guard(false);
        for host in [
            "127.0.0.1:8090",
            "localhost:8090",
            "[::1]:8090",
            "dormouse.example.org:8090",
        ] {
            assert_eq!(
                status(&guard, "GET", "/api/state", &[("host", host)]),
                200,
                "{host}"
            );
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:8090",
            "localhost:8090.evil.example",
            "",
        ] {
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                assert_eq!(
                    status(&guard, method, "/", &[("host", host)]),
                    421,
                    "{method} {host}"
                );
            }
        }
        assert_eq!(status(&guard, "GET", "/", &[]), 421);
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out() {
        let guard = guard(true);
        for host in ["short.example", "short.example:443"] {
            let asked = [("host", host), ("origin", "https://short.example")];
            assert_eq!(status(&guard, "GET", "/", &asked), 200, "{host}");
        }
        let plain = [
            ("host", "short.example"),
            ("origin", "http://short.example"),
        ];
        assert_eq!(status(&guard, "GET", "/", &plain), 403);
    }

    #[test]
    fn a_token_is_exchanged_for_a_cookie_of_this_port() {
        let guard = guard(true);
        let host = ("host", "localhost:443");
        assert_eq!(status(&guard, "GET", "/app.js", &[host]), 200);
        assert_eq!(status(&guard, "GET", "/api/state", &[host]), 401);
        assert_eq!(status(&guard, "POST", SESSION, &[host]), 403);
        assert_eq!(
            status(&guard, "POST", SESSION, &[host, (OWN_HEADER, "1")]),
            200
        );
        assert_eq!(guard.exchange("another token, as long"), None);
        let cookie = guard.exchange(&format!("{TOKEN}\n")).expect("a cookie");
        for part in ["HttpOnly", "Secure", "SameSite=Strict", "dormouse-443="] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains(TOKEN), "{cookie}");
        let (pair, _) = cookie.split_once(';').expect("attributes");
        let both = format!("other=1; {pair}");
        assert_eq!(
            status(&guard, "GET", "/api/state", &[host, ("cookie", &both)]),
            200
        );
        let wrong = format!("{pair}0");
        assert_eq!(
            status(&guard, "GET", "/api/state", &[host, ("cookie", &wrong)]),
            401
        );
    }
}
