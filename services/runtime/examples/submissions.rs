//! Measures submissions per second and decision latency: `submissions URL TENANT [COUNT]`, like `bench` of
//! the other clients.

use std::time::{Duration, Instant};

use dormouse_runtime::Settings;
use dormouse_runtime::tenant::{Encoding, Tenant, Wait};
use futures::StreamExt;
use serde_json::{Value, json};

fn job(name: String) -> Value {
    json!({"name": name, "command": {"start": ["true"]}, "demand": {"cpu": 1000, "memory": "1Gi"}})
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count: usize = words
        .get(2)
        .map_or(10_000, |count| count.parse().expect("a number"));
    let settings = Settings::new(words[0].clone(), "submissions");
    let tenant = words[1].parse().expect("a tenant");
    let client = Tenant::connect(&settings, tenant, Encoding::Json, Duration::from_secs(60));
    let client = client.await.expect("connects");
    let mut decided = Vec::new();
    for index in 0..count / 20 {
        let began = Instant::now();
        // Larger than any node: a refusal is a decision too.
        let _ = client
            .submit(&job(format!("one-{index}")), Wait::Decided, None)
            .await;
        decided.push(began.elapsed());
    }
    decided.sort_unstable();
    let began = Instant::now();
    let all = (0..count).map(|index| {
        let client = &client;
        async move {
            let job = job(format!("many-{index}"));
            client
                .submit(&job, Wait::Accepted, None)
                .await
                .expect("stored");
        }
    });
    let all = futures::stream::iter(all).buffer_unordered(256);
    all.collect::<Vec<()>>().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let median_ms = decided[decided.len() / 2].as_secs_f64() * 1e3;
    println!(
        "rust: {rate:.0} submissions/s acknowledged; decision in {median_ms:.2} ms (median of {})",
        decided.len()
    );
}
