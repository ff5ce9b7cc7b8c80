//! Garbage on every writer's subjects disturbs no job, and is not taken for a second agent.

use crate::common::{Cluster, count_job};
use dormouse_messages::Writer;

fn strew(url: &str, rounds: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(url).await.expect("connects");
        for round in 0..rounds {
            for writer in Writer::ALL {
                let own = match writer {
                    Writer::Node => "n0",
                    Writer::Gateway => "g0",
                    _ => "0",
                };
                for event in ["container.started", "allocation.decided", "nothing"] {
                    let subject = format!("dormouse.log.{writer}.{own}.{event}");
                    let bytes = [&b"garbage"[..], b"", &[0xff; 100], b"{}"][round % 4];
                    let stored = client.request(subject, bytes.into()).await;
                    let stored: serde_json::Value =
                        serde_json::from_slice(&stored.expect("answered").payload).expect("JSON");
                    assert!(stored["seq"].is_u64(), "{stored}");
                }
            }
        }
    });
}

#[test]
fn bytes_on_the_writers_subjects_end_nothing() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    strew(&cluster.url(), 8);
    cluster.submit(&count_job("after", 2, (1, 1), &[])).ok();
    strew(&cluster.url(), 8);
    cluster.wait_completed("ads/after");
    strew(&cluster.url(), 1);
    cluster.submit(&count_job("last", 2, (1, 1), &[])).ok();
    cluster.wait_completed("ads/last");
    cluster.check();
}
