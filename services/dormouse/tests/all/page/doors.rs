//! Answers and refusals of the page's server.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::browser::http;
use super::{Served, dormouse};
use crate::common::{Cluster, free_port, poll};

#[test]
fn answers_of_a_moment_do_not_change_and_others_are_asked_again() {
    let served = Served::start();
    let version = served.json("/api/head")["version"].clone();
    let version = version.as_str().expect("a version");
    let path = format!("/api/state?at=100&v={version}");
    let (_, headers, body) = served.ask("GET", &path, &[], "");
    assert!(headers.contains("immutable"), "{headers}");
    let tag = headers
        .lines()
        .find_map(|it| it.strip_prefix("etag: "))
        .expect("a tag");
    let (status, _, empty) = served.ask("GET", &path, &[("if-none-match", tag.trim())], "");
    assert_eq!((status, empty.as_str()), (304, ""));
    assert_eq!(served.ask("GET", &path, &[], "").2, body);
    let (_, headers, _) = served.ask("GET", "/api/state", &[], "");
    assert!(
        headers.contains("no-cache") && !headers.contains("immutable"),
        "{headers}"
    );
    let (status, body) = served.get("/api/state?at=100&v=of-another-log");
    assert_eq!((status, body.contains("other_log")), (409, true));
    let page = served.json("/api/jobs?at=1500&limit=3&offset=2&sort=job");
    let names: Vec<&str> = page["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .filter_map(|it| it["job"].as_str())
        .collect();
    assert_eq!(names.len(), 3);
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
#[allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "a table of requests"
)]
fn hostile_requests_are_refused() {
    let served = Served::start();
    let own = format!("127.0.0.1:{}", served.port);
    let two = [("host", own.as_str()), ("host", "evil.example")];
    let port = served.port.to_string();
    let other_port = format!("127.0.0.1:{}", served.port ^ 1);
    let evil_port = format!("evil.example:{port}");
    let refused: [(&str, &str, &str, &[(&str, &str)], u16); 16] = [
        (
            "a rebound name",
            "GET",
            "/api/state",
            &[("host", &evil_port)],
            421,
        ),
        (
            "a rebound name, behind a proxy's header",
            "GET",
            "/api/state",
            &[("host", &evil_port), ("x-forwarded-host", &own)],
            421,
        ),
        ("another port", "GET", "/", &[("host", &other_port)], 421),
        ("two hosts", "GET", "/api/state", &two, 421),
        (
            "a rebound name, another method",
            "DELETE",
            "/api/state",
            &[("host", "evil.example")],
            421,
        ),
        ("POST", "POST", "/api/state", &[], 405),
        ("PUT", "PUT", "/api/jobs", &[], 405),
        ("DELETE", "DELETE", "/api/jobs", &[], 405),
        ("a method of one's own", "FROB", "/", &[], 405),
        (
            "asked by another site",
            "GET",
            "/api/state",
            &[("sec-fetch-site", "cross-site")],
            403,
        ),
        (
            "asked by a neighbour",
            "GET",
            "/api/live",
            &[("sec-fetch-site", "same-site")],
            403,
        ),
        (
            "another origin",
            "GET",
            "/api/state",
            &[("origin", "https://evil.example")],
            403,
        ),
        (
            "no origin at all",
            "GET",
            "/api/state",
            &[("origin", "null")],
            403,
        ),
        (
            "a form of another site",
            "POST",
            "/session",
            &[("content-type", "text/plain")],
            403,
        ),
        (
            "a way out of the folder",
            "GET",
            "/../../etc/passwd",
            &[],
            404,
        ),
        (
            "an encoded way out",
            "GET",
            "/vendor/%2e%2e/%2e%2e/etc/passwd",
            &[],
            404,
        ),
    ];
    for (what, method, path, headers, wanted) in refused {
        let (status, said, body) = served.ask(method, path, headers, "");
        assert_eq!(status, wanted, "{what}: {body}");
        assert!(
            said.contains("content-security-policy: default-src 'none'"),
            "{what}: {said}"
        );
        assert!(!body.contains("root:"), "{what}");
    }
    for (path, wanted) in [
        ("/api/job?id=%3Cscript%3Ealert(1)%3C/script%3E", 404),
        ("/api/node?id=no-such-node", 404),
        ("/api/explain?kind=job&id=ads/nobody", 404),
        ("/api/jobs?sort=everything", 400),
        ("/api/timeline?metric=secrets", 400),
        ("/api/state?at=-1", 400),
    ] {
        let (status, headers, body) = served.ask("GET", path, &[], "");
        assert_eq!(status, wanted, "{path}: {body}");
        assert!(!headers.contains("text/html"), "{path}: {headers}");
    }
    let navigated = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(
        served.ask("GET", "/", &navigated, "").0,
        200,
        "a link may be followed"
    );
    assert_eq!(
        served.ask("GET", "/api/head", &navigated, "").0,
        403,
        "but no answer shown"
    );
}

#[test]
fn connections_that_are_held_open_keep_nobody_out() {
    let served = Served::start();
    let open = || std::net::TcpStream::connect(("127.0.0.1", served.port)).expect("connects");
    let silent: Vec<_> = (0..600).map(|_| open()).collect();
    let halves: Vec<_> = (0..50).map(|_| open()).collect();
    for mut half in &halves {
        let _ = half.write_all(b"GET /api/head HTTP/1.1\r\nhost:");
    }
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(served.get("/api/head").0, 200);
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "{:?}",
            asked.elapsed()
        );
    }
    drop((silent, halves));
}

/// Other users and tenants' jobs share the machine.
#[test]
fn the_page_of_a_cluster_asks_for_its_token() {
    let cluster = Cluster::up(1, "cpu=2,memory=2Gi");
    let port = free_port();
    let said = cluster.dir().join("page.said");
    let mut child = dormouse()
        .args(["serve", "web", "--page", &format!("127.0.0.1:{port}")])
        .arg("--server")
        .arg(cluster.url())
        .stderr(std::fs::File::create(&said).expect("a file"))
        .spawn()
        .expect("it starts");
    let token = poll("its address", Duration::from_secs(60), || {
        let said = std::fs::read_to_string(&said).ok()?;
        let (_, token) = said.split_once(&format!("http://127.0.0.1:{port}/#token="))?;
        token.split_whitespace().next().map(str::to_owned)
    });
    let ask = |method: &str, path: &str, headers: &str, body: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{headers}");
        http(port, &head, body)
    };
    poll("the page answers", Duration::from_secs(60), || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    assert_eq!(ask("GET", "/api/head", "", "").0, 401);
    let own = "x-dormouse: 1\r\n";
    assert_ne!(ask("POST", "/session", own, "0123456789abcdef0123").0, 204);
    let (_, headers, _) = ask("POST", "/session", own, &token);
    let cookie = headers
        .lines()
        .find_map(|it| it.strip_prefix("set-cookie: "));
    let cookie = cookie
        .and_then(|it| it.split(';').next())
        .expect("a cookie");
    let cookie = format!("cookie: {cookie}\r\n");
    assert_eq!(ask("GET", "/api/head", &cookie, "").0, 200);
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn a_page_that_others_reach_needs_a_token_and_tls() {
    let output = dormouse()
        .args(["serve", "web", "--page", "0.0.0.0:0", "--log", "Cargo.toml"])
        .stderr(Stdio::piped())
        .output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--page-token") && said.contains("--page-cert"),
        "{said}"
    );
}
