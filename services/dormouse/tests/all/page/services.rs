//! A service on the page: latency, objective, replicas.

use serde_json::json;

use super::browser::Theme;
use super::{Served, dormouse, tools};

fn simulated(folder: &std::path::Path) -> std::path::PathBuf {
    let (scenario, log) = (folder.join("scenario.json"), folder.join("log.parquet"));
    let document = json!({
        "scenario": "rising", "horizon_s": 1800,
        "nodes": [{"name": "n0", "capacity": {"cpu": 4}}],
        "jobs": [
            {"at_s": 0, "spec": {
                "name": "model", "tenant": "ads", "kind": "inference",
                "command": {"start": ["serve"]},
                "demand": {"cpu": 1}, "containers": {"min": 1, "max": 3},
                "service": {"objective": {"latency_ms": 400, "percentile": 99}}},
             "model": {
                "clients": {"rate": [5, 24], "every_s": 300, "work_ms": 100},
                "costs": {"ready_s": 20}}},
            {"at_s": 60, "model": {"work_container_s": 100}, "spec": {
                "name": "train", "tenant": "ads", "command": {"start": ["train"]},
                "demand": {"cpu": 1}, "containers": {"min": 1, "max": 1}}},
        ],
    });
    std::fs::write(&scenario, document.to_string()).expect("written");
    let said = dormouse()
        .args(["simulate", "--log"])
        .args([&log, &scenario])
        .output()
        .expect("it ends");
    assert!(said.status.success(), "{said:?}");
    log
}

#[test]
fn a_service_is_drawn_against_its_objective() {
    let Some((browser, axe)) = tools() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = simulated(folder.path());
    let served = Served::of(folder, log, &[]);
    let line = served.json("/api/timeline?metric=latency&job=ads/model&points=200");
    assert_eq!(line["series"][0]["name"], "p99", "{line}");
    assert_eq!(line["series"][1]["summary"]["last"], 400.0, "{line}");
    let head = served.json("/api/head")["head"].as_u64().expect("a head");
    browser.look(1440, 900, Theme::Light);
    browser.open(&format!("{}#job=ads/model&at={}", served.url(), head / 2));
    let title = "document.querySelector('#chart-latency figcaption').textContent";
    browser.wait(&format!("{title}.endsWith(': ads/model')"));
    for chart in ["latency", "attainment", "request-rate", "replicas"] {
        browser.wait(&format!("document.querySelector('#chart-{chart} canvas')"));
    }
    let figures = browser.value("document.querySelector('#chart-latency .values').textContent");
    let figures = figures.as_str().expect("text");
    assert!(
        figures.contains("p99") && figures.contains("400 ms"),
        "{figures}"
    );
    let about = "document.querySelector('#details dl')?.textContent";
    browser.wait(&format!("{about}?.includes('within the objective')"));
    let about = browser.value(about);
    let about = about.as_str().expect("text");
    assert!(
        about.contains("requests/s") && about.contains("in all"),
        "{about}"
    );
    browser.run("document.getElementById('chart-latency').scrollIntoView()");
    browser.picture("service");
    assert_eq!(browser.audit(&axe), [""; 0]);
    browser.run("location.hash = '#job=ads/train'");
    browser.wait(&format!("!{title}.includes(':')"));
    let figures = "document.querySelector('#chart-replicas .values').textContent";
    browser.wait(&format!("{figures}.includes('ads/model')"));
}
