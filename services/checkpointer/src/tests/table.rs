//! The due step of every phase and event, as a text file for people.
//! `UPDATE_TABLE=1 cargo test -p dormouse-checkpointer` rewrites the file.

use std::fmt::Write as _;

use dormouse_messages::events::{NodeFault, NodeFaulted};

use super::*;

type Phase = (&'static str, fn() -> Given);

type Met = (&'static str, fn(&mut Given));

/// Exceeds every time-out of the job.
const LONG_S: u64 = 1_000;

fn spec() -> Value {
    json!({"min_run_s": 0, "retries": 1})
}

fn stopping() -> Given {
    let mut given = saving();
    given.pass(30);
    given.step(STOP);
    given
}

fn saving() -> Given {
    let mut given = Given::running(spec());
    given.progress();
    given.place(2, "n1");
    given.step(SAVE);
    given
}

fn failed() -> Given {
    let mut given = Given::running(spec());
    given.progress();
    given.exit(0, 1);
    given.step(STOP);
    given.exit(1, 143);
    given.step(&["dormouse.partition.stopped.v1"]);
    given
}

const PHASES: [Phase; 8] = [
    ("starting", || Given::starting(spec())),
    ("half started", || {
        let mut given = Given::starting(spec());
        given.starts(0);
        given
    }),
    ("running", || {
        let mut given = Given::running(spec());
        given.progress();
        given
    }),
    ("saving", saving),
    ("saved, to move", || {
        let mut given = saving();
        given.saved();
        given
    }),
    ("stopping, to move", stopping),
    ("failed once", failed),
    ("placed again", || {
        let mut given = failed();
        given.place(2, "n1");
        given
    }),
];

const MET: [Met; 18] = [
    ("nothing", |_| {}),
    ("container 0 starts", |it| it.starts(0)),
    ("both start", |it| {
        [0, 1].map(|rank| it.starts(rank)).into_iter().collect()
    }),
    ("container 0 exits with 0", |it| it.exit(0, 0)),
    ("container 1 exits with 1", |it| it.exit(1, 1)),
    ("both exit with 0", |it| {
        [0, 1].map(|rank| it.exit(rank, 0)).into_iter().collect()
    }),
    ("both exit with 143", |it| {
        [0, 1].map(|rank| it.exit(rank, 143)).into_iter().collect()
    }),
    ("container 1 is evicted", |it| it.evict(1)),
    ("the node cannot start container 1", |it| {
        it.fold(NodeFaulted {
            node: node("n0"),
            job: job(),
            incarnation: Incarnation(1),
            rank: Rank(1),
            fault: NodeFault::Disk,
            reason: "its disk is full".to_owned(),
        });
        it.evict(1);
    }),
    ("its node is lost", |it| lose(it, "n0")),
    ("another node is lost", |it| lose(it, "n1")),
    ("its node is drained", |it| {
        it.fold(NodeDrained {
            node: node("n0"),
            reason: None,
            deadline_s: None,
        });
    }),
    ("it is placed elsewhere", |it| it.place(3, "n1")),
    ("a cancellation is asked", Given::cancel),
    ("a checkpoint is saved", Given::saved),
    ("a checkpoint fails", Given::not_saved),
    ("progress is reported", Given::progress),
    ("much time passes", |it| it.pass(LONG_S)),
];

fn lose(given: &mut Given, name: &str) {
    given.fold(NodeLost {
        node: node(name),
        incarnation: 1,
        last_seen: given.now,
    });
}

fn due(given: &Given) -> String {
    let decision = given.decide();
    let words = decision.proposals.iter().map(|it| word(&it.event));
    let words: Vec<String> = words.collect();
    match decision.next_wake {
        _ if !words.is_empty() => words.join(", "),
        Some(at) => format!("wait {} s", at.ms_since(given.now) / 1_000),
        None => "wait".to_owned(),
    }
}

fn word(event: &Event) -> String {
    match event {
        Event::PartitionStartRequested(it) => format!("start incarnation {}", it.incarnation),
        Event::PartitionStarted(_) => "started".to_owned(),
        Event::CheckpointRequested(_) => "save".to_owned(),
        Event::PartitionStopRequested(it) => format!("stop: {:?}", it.reason),
        Event::PartitionStopped(it) => {
            format!("stopped: {:?}, attempts {}", it.reason, it.attempts)
        }
        Event::ResizeAbandoned(_) => "kept".to_owned(),
        Event::JobCompleted(_) => "completed".to_owned(),
        Event::JobFailed(it) => format!("failed, attempts {}", it.attempts),
        Event::JobCancelled(_) => "cancelled".to_owned(),
        other => other.type_name().to_owned(),
    }
}

fn table() -> String {
    let mut table = String::new();
    for (phase, given) in PHASES {
        let _ = writeln!(table, "{phase}");
        for (met, happens) in MET {
            let mut given = given();
            happens(&mut given);
            let _ = writeln!(table, "  {met:<36}{}", due(&given));
        }
    }
    table
}

#[test]
fn what_is_due_in_every_phase_after_every_event() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/table.txt");
    let is = table();
    if std::env::var_os("UPDATE_TABLE").is_some() {
        std::fs::write(path, &is).expect("written");
    }
    let should = std::fs::read_to_string(path).expect("the table");
    for (is, should) in is.lines().zip(should.lines()) {
        assert_eq!(is, should);
    }
    assert_eq!(is.lines().count(), should.lines().count());
}
