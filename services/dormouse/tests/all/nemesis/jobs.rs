//! Submits without a break, and counts the brokers' acknowledgements. Refused submissions cost a decision but
//! no process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_messages::{TenantId, Timestamp};
use dormouse_runtime::{Clock, Log, SystemClock};
use serde_json::{Value, json};

const UNANSWERED: usize = 64;

#[derive(Debug, Clone)]
pub struct Acknowledged {
    /// Position in the ingress stream.
    pub sequence: u64,
    pub real: bool,
    pub at: Timestamp,
}

#[derive(Debug, Default)]
pub struct Submitted {
    pub acknowledged: Vec<Acknowledged>,
    /// Sent without a reply: may be on the log.
    pub doubtful: u32,
}

pub struct Submitter {
    stopping: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Submitted>,
}

fn document(number: u32, each: u32, folder: &Path, script: &Path) -> (Value, bool) {
    let name = format!("w{number}");
    if !number.is_multiple_of(each) {
        return (json!({"name": name, "tenant": "ads", "command": 7}), false);
    }
    let count = number / each;
    let (beats, record) = (4 + count * 7 % 21, folder.join(&name));
    let shared = folder.display().to_string();
    let start = [
        "/bin/sh".to_owned(),
        script.display().to_string(),
        record.display().to_string(),
        beats.to_string(),
    ];
    let mut job = json!({
        "name": name, "tenant": "ads", "image": "dormouse/empty",
        "command": {"start": start, "resume": start},
        "demand": {"cpu": 1, "memory": "32Mi"}, "containers": {"min": 1, "max": 1},
        "mounts": [{"source": shared, "target": shared}],
        "retries": 1_000, "min_run_s": 0,
    });
    if count % 2 == 1 {
        job["checkpoint"] = json!({"mode": "exit", "signal": "SIGTERM", "grace_s": 5});
    }
    if count % 5 == 3 {
        job["containers"] = json!({"min": 1, "max": 3});
    }
    (job, true)
}

impl Submitter {
    pub fn start(
        runtime: &tokio::runtime::Runtime,
        log: Log,
        folder: PathBuf,
        rate: u32,
        each: u32,
    ) -> Self {
        let script = folder.join("work.sh");
        std::fs::write(&script, include_str!("work.sh")).expect("written");
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let task = runtime.spawn(async move {
            let mut submitted = Submitted::default();
            let mut sent = tokio::task::JoinSet::new();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (document, real) = document(number, each, &folder, &script);
                let log = log.clone();
                sent.spawn(async move {
                    let tenant = TenantId::new("ads").expect("valid");
                    let payload = document.to_string().into_bytes().into();
                    let stored =
                        log.publish_ingress(&tenant, "submit", "application/json", payload);
                    let sequence = stored.await.ok()?;
                    let at = SystemClock.now();
                    Some(Acknowledged { sequence, real, at })
                });
                tokio::time::sleep(Duration::from_secs(1) / rate).await;
                while sent.len() >= UNANSWERED {
                    submitted.take(sent.join_next().await);
                }
                while let Some(done) = sent.try_join_next() {
                    submitted.take(Some(done));
                }
            }
            while let Some(done) = sent.join_next().await {
                submitted.take(Some(done));
            }
            submitted
        });
        Self { stopping, task }
    }

    pub fn stop(self, runtime: &tokio::runtime::Runtime) -> Submitted {
        self.stopping.store(true, Ordering::Relaxed);
        runtime.block_on(self.task).expect("submits")
    }
}

impl Submitted {
    fn take(&mut self, done: Option<Result<Option<Acknowledged>, tokio::task::JoinError>>) {
        match done.expect("one was sent").expect("no panic") {
            Some(acknowledged) => self.acknowledged.push(acknowledged),
            None => self.doubtful += 1,
        }
    }

    pub fn longest_gap(&self, from: Timestamp, until: Timestamp) -> Duration {
        let mut times: Vec<Timestamp> = self.acknowledged.iter().map(|it| it.at).collect();
        times.sort_unstable();
        let pairs = times
            .windows(2)
            .filter(|pair| pair[1] >= from && pair[0] <= until);
        let gaps = pairs.map(|pair| pair[1].micros_since(pair[0].max(from)));
        Duration::from_micros(gaps.max().unwrap_or(0))
    }
}
