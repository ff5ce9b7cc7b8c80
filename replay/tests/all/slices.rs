//! Slices, traces and bisection on logs of fault trials and of a scenario.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use crate::common::small_cluster;
use dormouse_messages::events::JobAdmitted;
use dormouse_messages::{Envelope, Event, Fold, Recorded, Sequence, TenantId, Timestamp, Writer};
use dormouse_replay::engine::Rates;
use dormouse_replay::history::anonymise::{Anonymiser, Seen};
use dormouse_replay::history::bisect::{Bisect, Found};
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::history::slice::{Before, States};
use dormouse_replay::history::trace::{BEGIN, COUNTER, END, Packet, Trace, TraceWriter};
use dormouse_replay::random::Random;
use dormouse_replay::{LogReader, Verifier};
use dormouse_state::ClusterState;
use prost::Message as _;
use serde_json::{Value, json};

fn trial(seed: u64) -> Vec<Arc<Recorded>> {
    small_cluster(seed, Some(Rates::TORTURE)).0.log().to_vec()
}

fn sliced(log: &[Arc<Recorded>], from: Sequence) -> (States, Vec<Arc<Recorded>>) {
    let mut before = Before::new(from);
    log.iter()
        .filter(|it| it.sequence >= from)
        .for_each(|it| before.read(it));
    let asof = before.sequence();
    let mut states = States::default();
    log.iter()
        .filter(|it| it.sequence <= asof)
        .for_each(|it| states.read(it));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("slice.jsonl");
    let mut file = std::fs::File::create(&path).expect("a file");
    writeln!(
        file,
        "{}",
        states.head("a log", from, "a build").expect("a head")
    )
    .expect("written");
    for recorded in log.iter().filter(|it| it.sequence > asof) {
        writeln!(file, "{}", recorded.to_json("a log").expect("JSON")).expect("written");
    }
    let mut reader = LogReader::open(&path).expect("a log");
    let events: Vec<Arc<Recorded>> = reader
        .by_ref()
        .map(|it| Arc::new(it.expect("an event")))
        .collect();
    let head = reader.head().expect("a head");
    (States::of_head(head).expect("states"), events)
}

#[test]
fn a_slice_verifies_and_answers_as_the_whole_log_does() {
    for seed in 1..=12 {
        let log = trial(seed);
        let mut random = Random::new(seed);
        let from = Sequence(2 + random.below(log.len() as u64 - 1));
        let (states, events) = sliced(&log, from);
        let mut verifier = Verifier::default().starting_from(&states);
        events.iter().for_each(|recorded| verifier.read(recorded));
        let report = verifier.finish();
        assert_eq!(report.findings, [], "seed {seed}, from {from}");
        assert_eq!(report.verified, report.decisions);
        let decided = events.iter().filter(|it| it.sequence >= from);
        let decided = decided.filter(|it| it.event().is_some_and(|event| event.basis().is_some()));
        assert!(
            report.decisions >= decided.count() as u64,
            "seed {seed}: all from {from} on were made again"
        );
        let begin = states.fork.cluster.now;
        let mut end = ClusterState::default();
        log.iter().for_each(|recorded| end.evolve(recorded));
        let end = end.now;
        let ledger = |mut ledger: Ledger, events: &[Arc<Recorded>]| {
            events.iter().for_each(|recorded| ledger.read(recorded));
            let table = ledger.finish(end);
            (table.cluster, table.tenants)
        };
        let whole = ledger(Ledger::new(Some(begin), None), &log);
        let part = Ledger::new(Some(begin), None).starting_from(&states.fork.cluster);
        // The states lack tenants whose jobs ended earlier.
        let part = ledger(part, &events);
        assert_eq!(part.0, whole.0, "seed {seed}, from {from}");
        let last = log.iter().rev().find_map(|it| match it.event() {
            Some(Event::AllocationDecided(event)) if it.sequence >= from => Some(event.epoch),
            _ => None,
        });
        let Some(epoch) = last else { continue };
        let explain = |explainer: Explainer, events: &[Arc<Recorded>]| {
            let mut explainer = explainer;
            events.iter().for_each(|recorded| explainer.read(recorded));
            explainer.explain().expect("it is there")
        };
        let asked = || Explainer::new(Subject::Epoch(epoch), None, 0);
        let part = asked().starting_from(states.fork.clone(), states.model.clone());
        assert_eq!(
            explain(part, &events),
            explain(asked(), &log),
            "seed {seed}"
        );
    }
}

#[test]
fn an_anonymous_log_verifies_and_names_nobody() {
    for seed in 1..=12 {
        let log = trial(seed);
        let mut seen = Seen::default();
        log.iter().for_each(|recorded| seen.read(recorded));
        let mut anonymiser = Anonymiser::new(seen);
        let mut verifier = Verifier::default();
        let (mut text, mut allocated) = (String::new(), Vec::new());
        for recorded in &log {
            let Some(renamed) = anonymiser.read(recorded).expect("renamed") else {
                continue;
            };
            verifier.read(&renamed);
            text.push_str(&renamed.to_json("anonymous").expect("JSON"));
            if let Some(Event::AllocationDecided(event)) = renamed.event() {
                allocated.push(
                    event
                        .jobs
                        .iter()
                        .map(|it| it.containers)
                        .collect::<Vec<_>>(),
                );
            }
        }
        let report = verifier.finish();
        assert_eq!(report.findings, [], "seed {seed}");
        assert_eq!(report.verified, report.decisions);
        let was = log.iter().filter_map(|it| match it.event() {
            Some(Event::AllocationDecided(event)) => Some(
                event
                    .jobs
                    .iter()
                    .map(|it| it.containers)
                    .collect::<Vec<_>>(),
            ),
            _ => None,
        });
        assert_eq!(allocated, was.collect::<Vec<_>>(), "seed {seed}");
        for recorded in &log {
            if let Some(Event::JobAdmitted(event)) = recorded.event() {
                let old = format!("\"{}", event.job);
                assert!(!text.contains(&old), "seed {seed}: {old}");
                for word in event.spec.command.start.iter().filter(|it| it.len() > 3) {
                    assert!(!text.contains(&format!("\"{word}\"")), "{word}");
                }
            }
        }
    }
}

#[test]
fn an_anonymous_document_tells_nothing_and_is_admitted() {
    let document = json!({
        "name": "lr", "tenant": "ads", "command": {"start": ["secret-train"]},
        "demand": {"cpu": 1}, "env": {"KEY": "secret-key"},
        "roles": {"ps": {"count": 1, "demand": {"cpu": 1}, "command": {"start": ["secret-serve"]},
            "env": {"KEY": "secret-role"}}},
        "python": {"requirements": ["secret-package==1.0"]},
        "workdir": {"sha256": "5ec4e7".repeat(11)[..64].to_owned(), "bytes": 77},
    });
    let tenant: TenantId = "ads".parse().expect("valid");
    let parse = |document: &Value| {
        let document = serde_json::from_value(document.clone()).expect("a document");
        dormouse_admission::parse_job(document, &tenant, "lr", 0).expect("admitted")
    };
    let (job, spec) = parse(&document);
    let at = Timestamp::from_micros(1_000_000);
    let admitted = JobAdmitted {
        job,
        spec,
        ingress_sequence: 1,
        by: None,
        basis: None,
    };
    let recorded = Recorded {
        sequence: Sequence(1),
        stored_at: at,
        envelope: Envelope::new("e", Writer::Admission, at, None, admitted.into()),
        writer: Writer::Admission,
    };
    let mut seen = Seen::default();
    seen.read(&recorded);
    let renamed = Anonymiser::new(seen).read(&recorded);
    let renamed = renamed.expect("renamed").expect("it stays");
    let text = renamed.to_json("anonymous").expect("JSON");
    assert!(
        !text.contains("secret") && !text.contains("5ec4e7"),
        "{text}"
    );
    let Some(Event::JobAdmitted(event)) = renamed.event() else {
        panic!("{text}");
    };
    let tenant: TenantId = event.spec.tenant.parse().expect("valid");
    let document = serde_json::to_value(&event.spec).expect("JSON");
    let document = serde_json::from_value(document).expect("a document");
    let again = dormouse_admission::parse_job(document, &tenant, "x", 0);
    assert_eq!(again.expect("admitted").1, event.spec);
}

#[test]
fn a_head_of_another_version_says_what_to_do() {
    let states = States::default();
    let head = states.head("a log", Sequence(5), "1.2.3").expect("a head");
    let other = head.replace("{\"slice\":1", "{\"slice\":9");
    let error = States::of_head(&other)
        .expect_err("another version")
        .to_string();
    assert!(
        error.contains("version 9") && error.contains("1.2.3"),
        "{error}"
    );
    let other = head.replacen("\"version\":", "\"version\":9", 1);
    let error = States::of_head(&other)
        .expect_err("another shape")
        .to_string();
    assert!(
        error.contains("use the build that made it, 1.2.3"),
        "{error}"
    );
}

fn traced(log: &[Arc<Recorded>]) -> Vec<Packet> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).expect("written");
    for recorded in log {
        writer.read(recorded).expect("written");
    }
    let (packets, _) = writer.finish().expect("written");
    let trace = Trace::decode(&bytes[..]).expect("a trace");
    assert_eq!(trace.packet.len() as u64, packets);
    trace.packet
}

/// A fence reports no single container.
#[test]
fn in_a_trace_the_containers_of_a_fenced_node_end_with_it() {
    let mut history = dormouse_state::history::History::default();
    history.join("n0", 1).run("ads/lr", 2);
    history.push(dormouse_messages::events::NodeFenced {
        node: "n0".parse().expect("a node"),
        incarnation: 1,
        reason: "replaced".to_owned(),
    });
    let fenced = history.now();
    history.join("n1", 1).join("n2", 1);
    let log: Vec<Arc<Recorded>> = history.log.into_iter().map(Arc::new).collect();
    let packets = traced(&log);
    let is_rank = |it: &&Packet| {
        let notes = it.track_event.iter().flat_map(|it| &it.debug_annotations);
        notes
            .into_iter()
            .any(|note| note.name.as_deref() == Some("rank"))
    };
    let tracks = packets.iter().filter(is_rank);
    let tracks: Vec<_> = tracks
        .map(|it| it.track_event.as_ref().and_then(|it| it.track_uuid))
        .collect();
    let ends = packets.iter().filter(|it| {
        let event = it.track_event.as_ref();
        event.is_some_and(|event| event.kind == Some(END) && tracks.contains(&event.track_uuid))
    });
    let ends: Vec<_> = ends.filter_map(|it| it.timestamp).collect();
    let fenced = u64::try_from(fenced.as_micros()).expect("after 1970") * 1000;
    assert_eq!(ends, [fenced, fenced]);
}

#[test]
fn a_trace_is_well_formed_and_holds_every_container() {
    for seed in 1..=12 {
        let log = trial(seed);
        let mut open: BTreeMap<u64, i64> = BTreeMap::new();
        let (mut begun, mut last) = (0, 0);
        let mut known = std::collections::BTreeSet::new();
        for packet in traced(&log) {
            assert_eq!(packet.trusted_packet_sequence_id, Some(1));
            if let Some(track) = packet.track_descriptor {
                assert!(
                    known.insert(track.uuid.expect("a number")),
                    "a track is described once"
                );
                assert!(
                    track
                        .parent_uuid
                        .is_none_or(|parent| known.contains(&parent))
                );
                continue;
            }
            let at = packet.timestamp.expect("a time");
            assert!(at >= last, "times do not go back");
            last = at;
            let event = packet.track_event.expect("an event");
            let track = event.track_uuid.expect("a track");
            assert!(known.contains(&track));
            let depth = open.entry(track).or_default();
            match event.kind.expect("a kind") {
                BEGIN => {
                    *depth += 1;
                    begun += u64::from(
                        event
                            .debug_annotations
                            .iter()
                            .any(|it| it.name.as_deref() == Some("rank")),
                    );
                }
                END => *depth -= 1,
                COUNTER => assert!(event.double_counter_value.is_some()),
                _ => {}
            }
            assert!(
                (0..=1).contains(depth),
                "seed {seed}: slices of a track follow each other"
            );
        }
        assert!(
            open.values().all(|depth| *depth == 0),
            "seed {seed}: every slice ends"
        );
        let started: std::collections::BTreeSet<_> = log
            .iter()
            .filter_map(|it| match it.event() {
                Some(Event::ContainerStarted(event)) => Some(event.container.clone()),
                _ => None,
            })
            .collect();
        assert!(
            begun >= started.len() as u64,
            "seed {seed}: {begun} of {}",
            started.len()
        );
    }
}

fn first(log: &[Arc<Recorded>], predicate: &str) -> Option<Found> {
    let mut bisect = Bisect::new(predicate.parse().expect("a predicate"));
    log.iter().for_each(|recorded| {
        bisect.read(recorded);
    });
    bisect.finish().0
}

#[test]
fn the_first_place_is_the_one_on_the_log() {
    let mut asked = 0;
    for seed in 1..=20 {
        let log = trial(seed);
        let mut started: BTreeMap<String, Sequence> = BTreeMap::new();
        let mut completed: BTreeMap<String, Sequence> = BTreeMap::new();
        for recorded in &log {
            match recorded.event() {
                Some(Event::PartitionStarted(event)) => {
                    started
                        .entry(event.job.to_string())
                        .or_insert(recorded.sequence);
                }
                Some(Event::JobCompleted(event)) => {
                    completed
                        .entry(event.job.to_string())
                        .or_insert(recorded.sequence);
                }
                _ => {}
            }
        }
        for (phase, places) in [("running", started), ("completed", completed)] {
            for (job, sequence) in places {
                let found = first(&log, &format!("{job}={phase}")).expect("it was so");
                assert_eq!(
                    (found.sequence, found.exact),
                    (sequence, true),
                    "seed {seed}, {job} {phase}"
                );
                asked += 1;
            }
        }
        assert_eq!(first(&log, "broken"), None, "seed {seed}");
    }
    assert!(asked >= 100, "{asked}");
}

#[test]
fn of_two_crossings_the_first_is_found() {
    let log = trial(3);
    let values: Vec<(Sequence, f64)> = log
        .iter()
        .filter_map(|it| match it.event() {
            Some(Event::AllocationDecided(event)) => {
                Some((it.sequence, event.outcome.utilization.total))
            }
            Some(Event::AllocationUnchanged(event)) => {
                Some((it.sequence, event.outcome.utilization.total))
            }
            _ => None,
        })
        .collect();
    let above = values
        .iter()
        .find(|(_, value)| *value > 0.4)
        .expect("it is used");
    let found = first(&log, "utilization>0.4").expect("found");
    assert_eq!(found.sequence, above.0);
    assert_eq!(found.at.max(Timestamp::default()), found.at);
}
