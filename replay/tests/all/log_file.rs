//! A simulated log survives a round trip through the archive.

use std::sync::Arc;

use dormouse_messages::Recorded;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};
use dormouse_replay::{LogReader, LogWriter};

#[test]
fn a_simulated_log_reads_back_as_it_was() {
    let size = Size {
        jobs: 120,
        nodes: 12,
        days: 0.5,
    };
    let scenario = read_value(generate(Kind::Trace, 3, size)).expect("a scenario");
    let mut events: Vec<Arc<Recorded>> = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        events.push(recorded.clone());
        Ok::<(), String>(())
    };
    simulate(&scenario, &Options::default(), each, |_| {}).expect("simulates");
    assert!(events.len() > 2_100, "{}", events.len());
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("log.parquet");
    let mut writer = LogWriter::create(&path, "test").expect("creates");
    for recorded in &events {
        writer.write(recorded).expect("writes");
    }
    writer.finish().expect("finishes");
    let mut read = 0;
    for (recorded, written) in LogReader::open(&path).expect("opens").zip(&events) {
        assert_eq!(recorded.expect("decodes"), **written);
        read += 1;
    }
    assert_eq!(read, events.len());
}
