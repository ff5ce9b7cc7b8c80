//! Target, access and headers of requests.

use dormouse_gateway::access::{Denied, KEY_HEADER, check};
use dormouse_gateway::headers::{to_client, to_replica, wants_websocket};
use dormouse_gateway::notebook::{Pass, is_by_hand, pass};
use dormouse_gateway::target::{Names, NoTarget, Origin, asked, host};
use dormouse_gateway::{Key, Trust};
use dormouse_messages::TenantId;
use dormouse_messages::service::Access;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use crate::common::job;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().expect("a name");
        (name, HeaderValue::from_str(value).expect("a value"))
    };
    lines.iter().map(line).collect()
}

#[test]
fn a_service_is_named_by_its_host_or_by_the_path() {
    let names = Names::new("serve.example.org", false);
    let own = |host: &str| names.target(host, "/x").expect("a target");
    for host in [
        "model.ads.serve.example.org",
        "model.ads.serve.example.org:8080",
        "MODEL.ads.Serve.Example.org",
    ] {
        let target = own(host);
        assert_eq!((target.job, target.origin), (job("ads/model"), Origin::Own));
    }
    let target = names
        .target("serve.example.org", "/ads/model/v1/predict")
        .expect("a target");
    assert_eq!(target.job, job("ads/model"));
    let uri: Uri = "http://serve.example.org/ads/model/v1/predict?a=/b&c"
        .parse()
        .expect("a URI");
    let asked = asked(&uri, &target.origin).expect("a path");
    assert_eq!(asked.as_str(), "/v1/predict?a=/b&c");
}

#[test]
fn what_means_no_service_is_told_why() {
    let names = Names::new("localhost", true);
    let why = |host: &str, path: &str| names.target(host, path).expect_err("no target");
    assert_eq!(why("localhost", "/"), NoTarget::BadPath);
    assert_eq!(why("localhost", "/ads"), NoTarget::BadPath);
    assert_eq!(why("localhost", "/ads/model"), NoTarget::NoSlash);
    assert_eq!(why("localhost", "/Ads/model/"), NoTarget::BadPath);
    assert_eq!(why("localhost", "/ads/../etc/"), NoTarget::BadPath);
    assert_eq!(why("localhost", "*"), NoTarget::BadPath);
    assert_eq!(why("", "/ads/model/"), NoTarget::BadHost);
    assert_eq!(why("a b", "/ads/model/"), NoTarget::BadHost);
    // A foreign name that resolves to this machine (DNS rebinding).
    assert_eq!(why("evil.example.org", "/ads/model/"), NoTarget::OtherHost);
    assert_eq!(
        why("a.model.ads.localhost", "/ads/model/"),
        NoTarget::OtherHost
    );
    for ours in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]"] {
        assert!(names.target(ours, "/ads/model/").is_ok(), "{ours}");
    }
    // Behind a balancer with another name, keys are required.
    let names = Names::new("serve.example.org", false);
    assert!(names.target("lb-7", "/ads/model/").is_ok());
}

#[test]
fn an_address_has_no_names_below_it() {
    let names = Names::new("10.0.0.1", false);
    let target = names
        .target("model.ads.10.0.0.1", "/ads/other/")
        .expect("by path");
    assert_eq!(target.job, job("ads/other"));
}

const SECRET: [u8; 32] = [7; 32];

struct Asked {
    lines: Vec<(&'static str, String)>,
    own: bool,
    method: Method,
}

fn asks(lines: &[(&'static str, String)]) -> Asked {
    Asked {
        lines: lines.to_vec(),
        own: false,
        method: Method::POST,
    }
}

impl Asked {
    fn own(self) -> Self {
        Self { own: true, ..self }
    }

    fn of(&self, trust: &Trust, access: Access) -> (Result<(), Denied>, HeaderMap) {
        let lines = self
            .lines
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let mut headers = headers(&lines.collect::<Vec<_>>());
        let job = job("ads/model");
        let said = check(trust, access, &job, self.own, &self.method, &mut headers);
        (said, headers)
    }

    fn says(&self, access: Access) -> Result<(), Denied> {
        self.of(&Trust::Secret(SECRET), access).0
    }
}

fn key(tenant: &str) -> Key {
    let tenant: TenantId = tenant.parse().expect("valid");
    Key::of_tenant(&SECRET, &tenant)
}

#[test]
fn a_tenants_key_opens_its_services_and_a_token_its_own_one() {
    let bearer = |key: Key| asks(&[("authorization", format!("Bearer {key}"))]);
    let tenant = key("ads");
    let token = tenant.token_of(&job("ads/model"));
    let other = tenant.token_of(&job("ads/other"));
    for (access, with_tenant, with_token) in [
        (Access::Open, Ok(()), Ok(())),
        (Access::Tenant, Ok(()), Err(Denied::WrongKey)),
        (Access::Token, Ok(()), Ok(())),
    ] {
        assert_eq!(bearer(tenant).says(access), with_tenant, "{access:?}");
        assert_eq!(bearer(token).says(access), with_token, "{access:?}");
    }
    for access in [Access::Tenant, Access::Token] {
        for wrong in [key("vision"), other] {
            assert_eq!(bearer(wrong).says(access), Err(Denied::WrongKey));
        }
        for nothing in ["Bearer", "Bearer x", "Bearer ", "Basic !", "Digest a"] {
            let said = asks(&[("authorization", nothing.to_owned())]).says(access);
            assert!(said.is_err(), "{nothing}");
        }
        assert_eq!(asks(&[]).says(access), Err(Denied::NoKey));
    }
}

#[test]
fn no_replica_sees_the_key_and_an_open_service_keeps_its_own_authorization() {
    let trust = Trust::Secret(SECRET);
    let shown = format!("Bearer {}", key("ads"));
    let (said, left) = asks(&[("authorization", shown)]).of(&trust, Access::Tenant);
    assert_eq!((said, left.len()), (Ok(()), 0));
    let both = asks(&[
        ("x-dormouse-key", key("ads").to_string()),
        ("authorization", "Bearer of-the-service".to_owned()),
    ]);
    let (said, left) = both.of(&trust, Access::Tenant);
    assert_eq!(said, Ok(()));
    assert_eq!(
        left.get("authorization").expect("left"),
        "Bearer of-the-service"
    );
    assert!(!left.contains_key(KEY_HEADER));
    let (_, left) = both.of(&trust, Access::Open);
    assert_eq!(left.len(), 1);
}

#[test]
fn a_password_that_a_browser_remembers_opens_only_an_origin_of_its_own_and_no_other_sites_page() {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("ads:{}", key("ads")));
    let line = ("authorization", format!("Basic {encoded}"));
    let plain = asks(std::slice::from_ref(&line));
    assert_eq!(plain.says(Access::Tenant), Err(Denied::NoKey));
    assert_eq!(plain.own().says(Access::Tenant), Ok(()));
    let foreign = ("sec-fetch-site", "cross-site".to_owned());
    let posted = asks(&[line.clone(), foreign.clone()]).own();
    assert_eq!(posted.says(Access::Tenant), Err(Denied::CrossSite));
    let mut followed = asks(&[line, foreign, ("sec-fetch-mode", "navigate".to_owned())]).own();
    assert_eq!(followed.says(Access::Tenant), Err(Denied::CrossSite));
    followed.method = Method::GET;
    assert_eq!(followed.says(Access::Tenant), Ok(()));
}

#[test]
fn on_one_persons_machine_everybody_may_but_other_sites_pages() {
    let says =
        |lines: &[(&'static str, String)]| asks(lines).of(&Trust::Loopback, Access::Tenant).0;
    assert_eq!(says(&[]), Ok(()));
    for site in ["cross-site", "same-site"] {
        let said = says(&[("sec-fetch-site", site.to_owned())]);
        assert_eq!(said, Err(Denied::CrossSite), "{site}");
    }
    let old = |origin: &str| {
        says(&[
            ("host", "localhost:8080".to_owned()),
            ("origin", origin.to_owned()),
        ])
    };
    assert_eq!(old("http://localhost:8080"), Ok(()));
    assert_eq!(old("https://evil.example.org"), Err(Denied::CrossSite));
    assert_eq!(old("null"), Err(Denied::CrossSite));
}

#[test]
fn what_belongs_to_one_connection_is_not_passed_on() {
    let uri: Uri = "/ads/model/v1?q".parse().expect("a URI");
    let mut lines = headers(&[
        ("host", "localhost:8080"),
        ("connection", "keep-alive, X-Mine, host, content-length"),
        ("keep-alive", "timeout=5"),
        ("x-mine", "1"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic x"),
        ("expect", "100-continue"),
        ("content-length", "3"),
        ("cookie", "a=1"),
        ("x-forwarded-for", "10.1.1.1"),
        ("x-forwarded-prefix", "/forged"),
        ("accept", "*/*"),
    ]);
    let shared = Origin::Shared("/ads/model".len());
    to_replica(
        &mut lines,
        &uri,
        &shared,
        "127.0.0.1".parse().expect("an address"),
    );
    let mut left: Vec<String> = lines
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "accept: */*",
            "content-length: 3",
            "host: localhost:8080",
            "x-forwarded-for: 10.1.1.1, 127.0.0.1",
            "x-forwarded-host: localhost:8080",
            "x-forwarded-prefix: /ads/model",
            "x-forwarded-proto: http",
        ]
    );
}

#[test]
fn cookies_pass_only_where_the_origin_is_the_services_own() {
    let uri: Uri = "http://model.ads.localhost/v1".parse().expect("a URI");
    let mut lines = headers(&[("cookie", "a=1"), ("cookie", "b=2")]);
    to_replica(
        &mut lines,
        &uri,
        &Origin::Own,
        "127.0.0.1".parse().expect("an address"),
    );
    assert_eq!(lines.get("cookie").expect("a cookie"), "a=1; b=2");
    assert_eq!(lines.get("host").expect("a host"), "model.ads.localhost");
    let answer = [
        ("set-cookie", "a=1"),
        ("clear-site-data", "*"),
        ("etag", "x"),
    ];
    for (origin, left) in [(Origin::Own, 3), (Origin::Shared(10), 1)] {
        let mut lines = headers(&answer);
        to_client(&mut lines, &origin);
        assert_eq!(lines.len(), left, "{origin:?}");
    }
}

#[test]
fn only_websockets_are_upgraded() {
    let says = |connection: &str, upgrade: &str| {
        wants_websocket(&headers(&[
            ("connection", connection),
            ("upgrade", upgrade),
        ]))
    };
    assert!(says("keep-alive, Upgrade", "WebSocket"));
    assert!(!says("Upgrade, HTTP2-Settings", "h2c"));
    assert!(!says("keep-alive", "websocket"));
}

#[test]
fn a_request_with_two_hosts_names_none() {
    let uri: Uri = "/ads/model/".parse().expect("a URI");
    assert_eq!(host(&uri, &headers(&[("host", "a"), ("host", "b")])), None);
    assert_eq!(host(&uri, &headers(&[("host", "a")])), Some("a"));
    let absolute: Uri = "http://c/ads/model/".parse().expect("a URI");
    assert_eq!(host(&absolute, &headers(&[("host", "a")])), Some("c"));
}

fn passed(token: &str, path: &str, lines: &[(&str, &str)]) -> Pass {
    let hash = blake3::hash(token.as_bytes());
    let uri: Uri = path.parse().expect("a URI");
    pass(Some(&hash), &Method::GET, &uri, &headers(lines))
}

#[test]
fn a_notebook_is_passed_by_its_own_token() {
    let token = "0123456789abcdef";
    let passed = |path: &str, lines: &[(&str, &str)]| passed(token, path, lines);
    let Pass::Token(Some(cookie)) = passed("/?token=0123456789abcdef", &[]) else {
        panic!("the address is not enough");
    };
    let cookie = cookie.to_str().expect("text");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"));
    let kept = cookie.split(';').next().expect("a pair");
    let kept = format!("_xsrf=2; {kept}");
    let here = [("cookie", kept.as_str()), ("sec-fetch-site", "same-origin")];
    assert_eq!(passed("/lab", &here), Pass::Token(None));
    let shown = [("authorization", "token 0123456789abcdef")];
    assert_eq!(passed("/api/kernels", &shown), Pass::Token(None));
    // A page of another service, in an authorised browser.
    let foreign = [("cookie", kept.as_str()), ("sec-fetch-site", "same-site")];
    assert_eq!(passed("/api/kernels", &foreign), Pass::Closed);
    for (path, lines) in [
        ("/", &[][..]),
        ("/?token=", &[]),
        ("/?token=0123456789abcde", &[]),
        ("/", &[("authorization", "token x")]),
        ("/", &[("cookie", "dormouse-notebook=x")]),
    ] {
        assert_eq!(passed(path, lines), Pass::Closed, "{path} {lines:?}");
    }
    let uri: Uri = "/?token=0123456789abcdef".parse().expect("a URI");
    let none = pass(None, &Method::GET, &uri, &headers(&[]));
    assert_eq!(none, Pass::Closed, "no container is ready");
}

/// A token like 32 random bytes in base 64.
#[test]
fn a_token_with_signs_of_an_address_passes() {
    let passed = |path: &str, lines: &[(&str, &str)]| passed("ab+/c;&d==", path, lines);
    let Pass::Token(Some(cookie)) = passed("/?token=ab%2B%2Fc%3B%26d%3D%3D", &[]) else {
        panic!("the address is not enough");
    };
    let cookie = cookie.to_str().expect("text");
    let kept = cookie.split("; ").next().expect("a pair");
    assert_eq!(passed("/lab", &[("cookie", kept)]), Pass::Token(None));
}

#[test]
fn an_open_page_that_asks_on_is_no_work() {
    let by_hand = |method: Method, lines: &[(&str, &str)]| is_by_hand(&method, &headers(lines));
    assert!(by_hand(Method::PUT, &[]));
    assert!(by_hand(Method::GET, &[("sec-fetch-mode", "navigate")]));
    assert!(by_hand(Method::GET, &[("accept", "text/html,*/*")]));
    assert!(!by_hand(Method::GET, &[("accept", "*/*")]));
    assert!(!by_hand(
        Method::GET,
        &[("sec-fetch-mode", "cors"), ("accept", "text/html")]
    ));
    assert!(!by_hand(Method::GET, &[("sec-fetch-mode", "websocket")]));
}
