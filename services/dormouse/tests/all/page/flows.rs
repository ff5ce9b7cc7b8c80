//! The page in a browser.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::browser::{Browser, Theme};
use super::{Served, dormouse, simulate, tools};
use crate::common::{Cluster, count_job, free_port, poll};

const SHOWN: &str = "Number(document.body.dataset.at)";

#[test]
fn the_page_is_the_cluster_at_every_moment() {
    let Some((browser, axe)) = tools() else {
        return;
    };
    let served = Served::start();
    let head = served.json("/api/head")["head"].as_u64().expect("a head");
    browser.look(1440, 900, Theme::Light);
    browser.open(&served.url());
    // The page opens at a time with running jobs.
    browser.wait("Number(document.querySelector('[data-key=phase-running] b')?.textContent) > 0");
    browser.run("document.querySelector('[data-key=live]').click()");
    browser.wait(&format!("{SHOWN} === {head}"));
    a_drag_shows_another_moment(&browser, &served, head);
    keys_step(&browser, head);
    jobs_are_searched_and_explained(&browser);
    moments_are_compared(&browser);
    a_whatif_stands_beside_the_history(&browser, &axe, &served);
    everybody_can_use_it(&browser, &axe, &served.url());
    let foreign = "performance.getEntriesByType('resource').map((it) => it.name).filter((it) => !it.startsWith(location.origin))";
    assert_eq!(browser.value(foreign), serde_json::json!([]));
    let said = browser.said();
    let wrong: Vec<_> = said.iter().filter(|it| !it.contains("favicon")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn a_drag_shows_another_moment(browser: &Browser, served: &Served, head: u64) {
    browser.run("const s = document.getElementById('slider'); s.value = 600; s.dispatchEvent(new Event('input', {bubbles: true}));");
    let at = browser.wait(&format!("{SHOWN} < {head} && {SHOWN}"));
    let at = at.as_u64().expect("a sequence");
    let state = served.json(&format!("/api/state?at={at}"));
    let running = state["cluster"]["jobs"]["running"].to_string();
    let shown = browser.value("document.querySelector('[data-key=phase-running] b').textContent");
    assert_eq!(shown.as_str(), Some(running.as_str()));
    let output = dormouse()
        .args([
            "log",
            "state",
            "-o",
            "json",
            "--at",
            &at.to_string(),
            "--log",
        ])
        .arg(&served.log)
        .output()
        .expect("it ends");
    let replayed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(replayed["cluster"]["nodes"], state["cluster"]["nodes"]);
    let link = browser.value("location.hash");
    assert!(
        link.as_str()
            .is_some_and(|it| it.contains(&format!("at={at}"))),
        "{link}"
    );
    browser.open(&format!(
        "{}?again{}",
        served.url(),
        link.as_str().expect("text")
    ));
    browser.wait(&format!("{SHOWN} === {at}"));
}

fn keys_step(browser: &Browser, head: u64) {
    let at = browser.value(SHOWN).as_u64().expect("a sequence");
    browser.run("document.getElementById('slider').focus()");
    browser.press("{right}");
    browser.wait(&format!("{SHOWN} === {}", at + 1));
    browser.press("{left}");
    browser.wait(&format!("{SHOWN} === {at}"));
    browser.press("{pagedown}");
    let before = browser.wait(&format!("{SHOWN} < {at} && {SHOWN}"));
    let text = browser.wait("document.getElementById('slider').getAttribute('aria-valuetext')");
    let before = before.as_u64().expect("a sequence");
    assert!(
        text.as_str()
            .is_some_and(|it| it.starts_with(&format!("event {before}, "))),
        "{text}"
    );
    browser.press("{end}");
    browser.wait(&format!("{SHOWN} === {head}"));
    browser.press("{home}");
    browser.wait(&format!("{SHOWN} === 1"));
    browser.run("document.querySelector('[data-key=live]').click()");
    browser.wait(&format!("{SHOWN} === {head}"));
}

fn jobs_are_searched_and_explained(browser: &Browser) {
    let middle = "const s = document.getElementById('slider'); s.value = 500; s.dispatchEvent(new Event('input', {bubbles: true}));";
    browser.run(middle);
    browser.wait("document.querySelectorAll('.jobs tbody tr').length > 5");
    browser.run("document.getElementById('phase').value = 'running'; document.getElementById('phase').dispatchEvent(new Event('change'));");
    browser.wait("document.querySelectorAll('.jobs tbody tr').length && [...document.querySelectorAll('.jobs td:nth-child(2)')].every((it) => it.textContent === 'running')");
    let first = browser.value("document.querySelector('.jobs tbody tr a').textContent");
    let first = first.as_str().expect("a job").to_owned();
    browser.run("document.body.focus()");
    browser.press("/");
    browser.wait("document.activeElement.id === 'search'");
    browser.press(&first);
    browser.wait(&format!("document.querySelectorAll('.jobs tbody tr').length === 1 && document.querySelector('.jobs tbody a').textContent === '{first}'"));
    browser.click(".jobs tbody a");
    browser.wait("document.querySelectorAll('#details .incarnations .incarnation').length > 0");
    browser.click("#details [data-key=why]");
    browser.wait("document.querySelector('#details .code')");
    browser.picture("explained");
    browser.press("{escape}");
    browser.wait("document.getElementById('details').hidden");
}

fn moments_are_compared(browser: &Browser) {
    browser.run("location.hash = '#at=200&from=100'");
    browser.wait("document.querySelector('#details h2')?.textContent === 'Differences'");
    browser.wait("document.querySelectorAll('#details tbody tr').length > 7");
    browser.picture("differences");
}

fn a_whatif_stands_beside_the_history(browser: &Browser, axe: &str, served: &Served) {
    browser.run("location.hash = '#at=200'");
    browser.wait(&format!("{SHOWN} === 200"));
    browser.click("#whatif");
    browser.wait("document.getElementById('changes')");
    let typed = "document.getElementById('changes').value = 'policy.theta2=0.9'; document.querySelector('[data-key=whatif]').click();";
    browser.run(typed);
    browser.wait("document.querySelectorAll('#details .why canvas').length === 3");
    browser.picture("whatif");
    assert_eq!(browser.audit(axe), [""; 0], "what-if");
    let link = browser.value("location.hash");
    let link = link.as_str().expect("text").to_owned();
    assert!(
        link.contains("fork=200") && link.contains("theta2"),
        "{link}"
    );
    let head = served.json("/api/head")["head"].as_u64().expect("a head");
    let path = |changes: &str| format!("/api/whatif?at=200&to={head}&changes={changes}");
    let answer = served.json(&path("policy.theta2%3D0.9"));
    let output = dormouse()
        .args(["whatif", "--set", "policy.theta2=0.9", "--at", "200"])
        .args(["--draws", "4", "-o", "json", "--log"])
        .arg(&served.log)
        .output()
        .expect("it ends");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["variants"], said["variants"]);
    assert_eq!(answer["identity"], said["identity"]);
    assert_eq!(
        answer["lines"][0]["series"].as_array().map(Vec::len),
        Some(3)
    );
    let (status, why) = served.get(&path("policy.theta9%3D1"));
    assert_eq!(status, 400, "{why}");
    assert!(why.contains("theta9"), "{why}");
    browser.press("{escape}");
    browser.wait("document.getElementById('details').hidden");
}

fn everybody_can_use_it(browser: &Browser, axe: &str, url: &str) {
    for (width, height) in [(1440, 900), (420, 800)] {
        for theme in [Theme::Light, Theme::Dark] {
            browser.look(width, height, theme);
            browser.open(&format!("{url}?{width}{theme:?}#at=400"));
            browser.wait(&format!("{SHOWN} === 400"));
            browser.wait("document.querySelectorAll('#charts canvas').length === 6");
            browser.picture(&format!("{width}-{theme:?}"));
            assert_eq!(browser.audit(axe), [""; 0], "{width} {theme:?}");
            let wide = browser.value("document.documentElement.scrollWidth - innerWidth");
            assert!(wide.as_i64() <= Some(0), "{width}: {wide} too wide");
            browser.click(".jobs tbody a");
            browser.wait(
                "document.querySelectorAll('#details .incarnations .incarnation').length > 0",
            );
            browser.picture(&format!("{width}-{theme:?}-job"));
            assert_eq!(browser.audit(axe), [""; 0], "{width} {theme:?}, a job");
            browser.click("[data-key=nodes-table]");
            browser.wait("document.querySelector('#nodes table')");
            browser.press("{escape}");
            browser.wait("document.getElementById('details').hidden");
            assert_eq!(browser.audit(axe), [""; 0], "{width} {theme:?}, nodes");
        }
    }
}

fn with_gpus(log: &std::path::Path) -> String {
    simulate(log);
    let mut text = std::fs::read_to_string(log).expect("a log");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = lines.map(|it| it.expect("an event")).collect();
    let started = "dormouse.partition.started.v1";
    // Even at the partition's start, as the last event, GPU use is shown.
    let runs = events.iter().rposition(|it| it["type"] == started);
    let runs = runs.expect("a partition that starts");
    let kept: Vec<&str> = text.lines().take(runs + 1).collect();
    text = kept.join("\n") + "\n";
    let last = &events[runs];
    let job = last["data"]["job"].as_str().expect("a job").to_owned();
    let began = "dormouse.container.started.v1";
    let begin = format!("{job}/");
    let of_it = |it: &&Value| {
        let container = it["data"]["container"].as_str();
        it["type"] == began && container.is_some_and(|it| it.starts_with(&begin))
    };
    let container = events[..runs].iter().rev().find(of_it);
    let container = container.expect("a container")["data"].clone();
    let number = last["sequence"]
        .as_str()
        .and_then(|it| it.parse::<u64>().ok());
    let at = last["storedat"].as_str().expect("a time");
    let at: dormouse_messages::Timestamp = at.parse().expect("a time");
    for (step, milli) in [(1, 300), (2, 600), (3, 0)] {
        let (sequence, at) = (number.expect("a number") + step, at.plus_ms(step * 10_000));
        let window = serde_json::json!({
            "specversion": "1.0", "id": format!("gpus-{step}"), "source": format!("/dormouse/node/{}", container["node"].as_str().expect("a name")),
            "type": "dormouse.container.gpu_used.v1", "subject": container["node"], "time": at,
            "log": last["log"], "sequence": sequence.to_string(), "storedat": at,
            "data": {
                "container": container["container"], "node": container["node"], "window_ms": 10_000,
                "devices": [{
                    "uuid": "GPU-0", "busy_us": milli * 10_000, "charged_us": milli * 10_000,
                    "launches": 9, "waits": 2, "waited_us": 4_000_000, "memory_bytes": 1_u64 << 30,
                    "refused": 1
                }]
            }
        });
        text.push_str(&format!("{window}\n"));
    }
    let (sequence, at) = (number.expect("a number") + 4, at.plus_ms(40_000));
    let curve = serde_json::json!({
        "specversion": "1.0", "id": "curve", "source": "/dormouse/optimizer",
        "type": "dormouse.job.speed_fitted.v1", "subject": job, "time": at,
        "log": last["log"], "sequence": sequence.to_string(), "storedat": at,
        "data": {
            "job": job, "curve": {"a": 0.1, "b": 0.3, "c": 0.01}, "error": 0.02, "source": "measured",
            "points": [{"containers": 2, "step_s": 0.26, "seconds": 50.0}]
        }
    });
    text.push_str(&format!("{curve}\n"));
    std::fs::write(log, text).expect("written");
    job
}

#[test]
fn shares_of_gpus_and_a_speed_are_drawn_on_the_page() {
    let Some((browser, axe)) = tools() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let job = with_gpus(&log);
    let served = Served::of(folder, log, &[]);
    let line = served.json("/api/timeline?metric=gpu-use&points=100");
    let points = line["series"][0]["points"].as_array().expect("points");
    let values: Vec<f64> = points.iter().filter_map(|it| it[1].as_f64()).collect();
    assert_eq!(values, [0.3, 0.6, 0.0], "{line}");
    browser.look(1440, 900, Theme::Light);
    browser.open(&format!("{}#job={job}", served.url()));
    browser.wait("document.querySelector('#chart-gpu-use canvas')");
    assert_eq!(
        browser.value("document.getElementById('chart-gpu-use').hidden"),
        false
    );
    browser.wait("document.querySelector('#details .curve circle')");
    let told = browser.value("document.querySelector('#details .curve + p').textContent");
    let told = told.as_str().expect("text");
    assert!(
        told.starts_with("measured, error 2 %; fastest with "),
        "{told}"
    );
    let figures = browser.value("document.querySelector('#chart-gpu-use .values').textContent");
    let figures = figures.as_str().expect("text");
    assert!(
        figures.contains(&job) && figures.contains("60.0 %"),
        "{figures}"
    );
    browser.wait("document.querySelector('#details').textContent.includes('of a device last')");
    let about = browser.value("document.querySelector('#details dl').textContent");
    let about = about.as_str().expect("text");
    assert!(about.contains("3 allocations refused"), "{about}");
    browser.run("document.getElementById('chart-gpu-use').scrollIntoView()");
    browser.picture("gpus");
    assert_eq!(browser.audit(&axe), [""; 0]);
}

#[test]
fn text_from_the_log_stays_text() {
    let Some((browser, _)) = tools() else {
        return;
    };
    let cluster = Cluster::up(1, "cpu=4,memory=8Gi");
    let mut job = count_job("looped", 30, (1, 2), &[]);
    job["command"] =
        serde_json::json!({"start": ["/no/<img src=x onerror=document.title='owned'>"]});
    job["retries"] = serde_json::json!(0);
    cluster.submit(&job);
    let said = cluster.run(&["job", "wait", "ads/looped"]);
    assert_eq!(said.code, 3, "{said:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let file = log.to_str().expect("a name");
    cluster.run_with(&["log", "export"], &["--file", file]).ok();
    let served = Served::of(folder, log, &[]);
    browser.look(1440, 900, Theme::Light);
    browser.open(&format!("{}#job=ads/looped", served.url()));
    browser.wait("document.querySelector('#details').textContent.includes('<img src=x')");
    assert_eq!(
        browser.value("document.querySelectorAll('#details img').length"),
        0
    );
    assert_eq!(browser.value("document.title"), "Dormouse");
}

#[test]
fn the_page_of_a_cluster_is_live() {
    let Some((browser, _)) = tools() else {
        return;
    };
    let cluster = Cluster::up(2, "cpu=4,memory=8Gi");
    let port = std::fs::read_to_string(cluster.dir().join("page-port")).expect("a page");
    browser.look(1440, 900, Theme::Dark);
    browser.open(&format!("http://127.0.0.1:{}/", port.trim()));
    browser.wait("document.querySelector('#nodes h2')?.textContent.includes('2 up')");
    cluster.submit(&count_job("shown", 20, (1, 2), &[])).ok();
    browser.wait("[...document.querySelectorAll('.jobs tbody a')].some((it) => it.textContent === 'ads/shown')");
    cluster.wait_completed("ads/shown");
    browser.wait("document.querySelector('.jobs .phase.completed')");
    browser.picture("live");
}

#[test]
fn a_token_opens_the_page() {
    let Some((browser, _)) = tools() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (token, certificate, key) = (path("token"), path("cert.pem"), path("key.pem"));
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").expect("written");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"])
        .args(["subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let port = free_port();
    let log = folder.path().join("log.parquet");
    simulate(&log);
    let mut child = dormouse()
        .args(["serve", "web", "--page", &format!("0.0.0.0:{port}")])
        .args(["--page-host", "localhost", "--page-token", &token])
        .args(["--page-cert", &certificate, "--page-key", &key, "--log"])
        .arg(&log)
        .spawn()
        .expect("it starts");
    poll("the page listens", Duration::from_secs(60), || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    browser.look(1440, 900, Theme::Light);
    let url = format!("https://localhost:{port}/");
    browser.open(&url);
    browser.wait("document.getElementById('note').textContent.includes('needs its token')");
    browser.open(&format!("{url}?#token=0123456789abcdef0123456789abcdef"));
    browser.wait("document.querySelectorAll('.jobs tbody tr').length > 0");
    assert_eq!(browser.value("location.hash"), "#at=4539");
    assert_eq!(browser.value("document.cookie"), "");
    child.kill().expect("killed");
    child.wait().expect("ended");
}
