//! Measures decision latency of one tenant while another floods the intake, under `grants: required` and
//! `grants: open`.
//!
//! `cargo bench -p dormouse --bench flood [seconds] [rate…]`

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dormouse_messages::TenantId;
use dormouse_runtime::tenant::{Encoding, Tenant, TenantError, Wait};
use dormouse_runtime::{LocalBroker, Log, Settings};
use serde_json::{Value, json};

const EVERY: Duration = Duration::from_millis(40);
const BEGINS: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Up {
    fn memory_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }
}

async fn start(data: &std::path::Path, grants: &str) -> (Up, String) {
    let up = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["up", "--nodes", "0", "--data"])
        .arg(data)
        .env("RUST_LOG", "error")
        .stderr(Stdio::null())
        .spawn();
    let up = Up(up.expect("dormouse up starts"));
    let deadline = Instant::now() + PATIENCE;
    let url = loop {
        if let Some(url) = LocalBroker::url_of(&data.join("broker"))
            && let Ok(log) = Log::connect(&Settings::new(url.clone(), "bench")).await
            && log.head().await.is_ok()
        {
            break url;
        }
        assert!(Instant::now() < deadline, "the services did not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let policy = data.join("policy.json");
    let document = json!({"policy": {"grants": grants}});
    std::fs::write(&policy, document.to_string()).expect("writes");
    let configured = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["policy", "set", "--data"])
        .arg(data)
        .arg(&policy)
        .stdout(Stdio::null())
        .status();
    assert!(configured.expect("runs").success());
    (up, url)
}

fn job() -> Value {
    json!({"command": {"start": ["true"]}, "demand": {"cpu": 1}})
}

async fn flood(url: String, rate: u32, stop: Arc<AtomicBool>) -> u64 {
    let client = async_nats::connect(url).await.expect("connects");
    let payload = bytes(&job());
    let (begun, mut sent) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_millis() * u128::from(rate) / 1_000;
        while u128::from(sent) < due {
            let published = client.publish("dormouse.in.flood.submit", payload.clone());
            published.await.expect("published");
            sent += 1;
        }
        client.flush().await.expect("flushed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    sent
}

fn bytes(document: &Value) -> bytes::Bytes {
    document.to_string().into_bytes().into()
}

async fn measure(url: &str, duration: Duration) -> Vec<f64> {
    let settings = Settings::new(url, "bench");
    let tenant = TenantId::new("ads").expect("valid");
    let client = Tenant::connect(&settings, tenant, Encoding::Json, PATIENCE).await;
    let client = client.expect("connects");
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < duration {
        let mut document = job();
        document["name"] = json!(format!("job-{}", took.len()));
        let at = Instant::now();
        match client.submit(&document, Wait::Decided, None).await {
            Err(TenantError::Refused { code, .. }) if code == "too_many_queued" => {}
            decided => drop(decided.expect("admitted")),
        }
        took.push(at.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(EVERY.saturating_sub(at.elapsed())).await;
    }
    took.sort_by(f64::total_cmp);
    took
}

fn quantile(sorted: &[f64], per_cent: usize) -> f64 {
    let place = (sorted.len() * per_cent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

async fn trial(grants: &str, rate: u32, seconds: u64) {
    let data = tempfile::tempdir().expect("a folder");
    let (up, url) = start(data.path(), grants).await;
    let before = up.memory_mb();
    let stop = Arc::new(AtomicBool::new(rate == 0));
    let flooding = tokio::spawn(flood(url.clone(), rate, Arc::clone(&stop)));
    tokio::time::sleep(BEGINS).await;
    let took = measure(&url, Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let sent = flooding.await.expect("joins");
    let after = up.memory_mb();
    println!(
        "grants {grants}, a flood of {rate}/s ({sent} published): {} submissions of another tenant decided after {:.1} ms median, {:.1} p95, {:.1} p99, {:.1} at most; memory {before} MB, then {after}",
        took.len(),
        quantile(&took, 50),
        quantile(&took, 95),
        quantile(&took, 99),
        quantile(&took, 100),
    );
}

fn main() {
    let numbers = std::env::args()
        .skip(1)
        .filter_map(|it| it.parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.collect();
    let (seconds, rates) = match numbers.split_first() {
        Some((seconds, rates)) if !rates.is_empty() => (*seconds, rates.to_vec()),
        first => (
            first.map_or(10, |(seconds, _)| *seconds),
            vec![0, 1_000, 5_000],
        ),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for grants in ["required", "open"] {
        for rate in &rates {
            runtime.block_on(trial(grants, *rate, u64::from(seconds)));
        }
    }
}
