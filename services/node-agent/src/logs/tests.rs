//! Tests of reading during output and rotation.

use std::io::Write;

use dormouse_messages::Timestamp;

use super::*;
use crate::rotate::{LogBounds, rotate};

fn printed() -> (tempfile::TempDir, Printed, ContainerId) {
    let at = tempfile::tempdir().expect("a folder");
    let node: NodeId = "n0".parse().expect("valid");
    let config = AgentConfig::local(node, Default::default(), at.path().to_owned());
    let container: ContainerId = "ads/lr/1/0".parse().expect("valid");
    let printed = Printed::new(&config, Alive::default());
    printed.alive.know();
    let below = printed.layout.container_below(&container);
    below.make().expect("made");
    (at, printed, container)
}

fn query(container: &ContainerId) -> LogsQuery {
    LogsQuery {
        container: container.clone(),
        stream: Stream::Stdout,
        offset: None,
        tail: None,
        since: None,
        limit_bytes: CHUNK_BYTES,
        wait_ms: 0,
    }
}

#[tokio::test]
async fn a_reader_goes_on_where_it_was_across_cuts_and_learns_what_is_gone() {
    let (_at, printed, container) = printed();
    let below = printed.layout.container_below(&container);
    let mut file = below.open().expect("there").append(STDOUT).expect("made");
    let bounds = LogBounds {
        bytes: 100,
        files: 3,
    };
    let (mut all, mut read) = (Vec::new(), Vec::new());
    let mut next = 0;
    for number in 0..200 {
        let line = format!("line {number}\n");
        file.write_all(line.as_bytes()).expect("written");
        all.extend(line.into_bytes());
        rotate(&below, bounds, Timestamp::default()).expect("looked");
        let chunk = printed
            .chunk(LogsQuery {
                offset: Some(next),
                limit_bytes: 7,
                ..query(&container)
            })
            .await;
        let chunk = chunk.expect("read");
        if chunk.offset > next {
            read.resize(usize::try_from(chunk.offset).expect("small"), b'?');
        }
        next = chunk.next;
        read.extend(chunk.bytes);
    }
    let missed = read.iter().filter(|byte| **byte == b'?').count();
    assert!(missed > 0, "it reads seven bytes of nine");
    let same = read.iter().zip(&all).all(|(a, b)| a == b || *a == b'?');
    assert!(same, "{}", String::from_utf8_lossy(&read));
}

#[tokio::test]
async fn a_tail_begins_with_a_line_and_an_end_is_said() {
    let (_at, printed, container) = printed();
    let below = printed.layout.container_below(&container);
    let mut file = below.open().expect("there").append(STDOUT).expect("made");
    file.write_all(b"one\ntwo\nthree\n").expect("written");
    for (tail, expected) in [
        (0, ""),
        (1, "three\n"),
        (2, "two\nthree\n"),
        (9, "one\ntwo\nthree\n"),
    ] {
        let asked = LogsQuery {
            tail: Some(tail),
            ..query(&container)
        };
        let chunk = printed.chunk(asked).await.expect("read");
        assert_eq!(String::from_utf8_lossy(&chunk.bytes), expected);
        assert_eq!(chunk.next, 14);
    }
    let end = LogsQuery {
        offset: Some(14),
        ..query(&container)
    };
    assert!(printed.chunk(end.clone()).await.expect("read").is_last);
    printed.alive.insert(&container);
    assert!(!printed.chunk(end.clone()).await.expect("read").is_last);
    let waiting = LogsQuery {
        wait_ms: 3_000,
        ..end
    };
    let asked = tokio::spawn({
        let printed = printed.clone();
        async move { printed.chunk(waiting).await }
    });
    tokio::task::yield_now().await;
    file.write_all(b"four\n").expect("written");
    let chunk = asked.await.expect("ends").expect("read");
    assert_eq!(chunk.bytes, b"four\n");
}

#[tokio::test]
async fn a_tenant_reads_its_own_and_no_links() {
    let (_at, printed, container) = printed();
    let asked = |tenant: &str| Asked {
        after: None,
        name: LOGS.to_owned(),
        tenant: Some(tenant.to_owned()),
        request: serde_json::to_vec(&query(&container))
            .expect("encodes")
            .into(),
    };
    assert!(printed.answer(&asked("ads")).await.is_ok());
    let refused = printed
        .answer(&asked("search"))
        .await
        .expect_err("another's");
    assert_eq!(refused.0, "not_found");
    let below = printed.layout.container_below(&container);
    let folder = below.open().expect("there");
    folder.write("secret", b"s").expect("written");
    std::os::unix::fs::symlink("secret", below.path().join(STDOUT)).expect("linked");
    let refused = printed.answer(&asked("ads")).await.expect_err("a link");
    assert!(refused.1.contains("a link"), "{refused:?}");
}
