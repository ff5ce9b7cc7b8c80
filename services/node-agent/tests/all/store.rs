//! Tests of checkpoints in an object store: no shared folder, failing, hanging, torn or aborted uploads.
//!
//! - `objects`: a store in memory
//! - `retention`: pruning
//! - `s3`: a real server

mod objects;
mod retention;
mod s3;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use dormouse_messages::events::{CheckpointFailed, CheckpointSaved};
use dormouse_messages::job::JobSpec;
use dormouse_messages::{Event, NodeId, Sequence};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::store::Store;
use objects::{Gate, Gated};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const URL: &str = "s3://checkpoints/a/prefix";

/// Resumed, reports the next step if the files match.
const SAVER: &str = r#"
d=$DORMOUSE_CHECKPOINT_DIR
if [ -n "$DORMOUSE_RESUME_FROM" ]; then
  cd "$DORMOUSE_RESUME_FROM"
  [ "$(cat "opt/a%b ü")" = state ] && [ "$(wc -c <model)" = 20000000 ] && grep -q '"step":42' checkpoint.json &&
    echo '{"step":43}' >>"$DORMOUSE_PROGRESS"
  cd /
fi
save() {
  mkdir -p "$d/opt"; echo state >"$d/opt/a%b ü"; head -c 20000000 /dev/zero >"$d/model"
  echo '{"step":42}' >"$d/.new"; mv "$d/.new" "$d/checkpoint.json"
}
trap 'save; exit 0' TERM
[ -n "$DORMOUSE_RESUME_FROM" ] || echo '{"step":1}' >>"$DORMOUSE_PROGRESS"
while :; do sleep 0.02; done"#;

/// Saves at once, and at SIGTERM.
const TWICE: &str = r#"
d=$DORMOUSE_CHECKPOINT_DIR
save() { echo "{\"step\":$1,\"bytes\":3}" >"$d/.new"; mv "$d/.new" "$d/checkpoint.json"; }
trap 'save 2; exit 0' TERM
save 1
while :; do sleep 0.02; done"#;

pub fn sh(script: &str) -> JobSpec {
    spec(&["/bin/sh", "-c", script])
}

pub struct Node {
    pub folder: TempDir,
    pub name: &'static str,
}

impl Node {
    pub fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, name }
    }

    pub fn config(&self) -> AgentConfig {
        let name: NodeId = self.name.parse().expect("valid");
        local(name, Default::default(), self.folder.path().to_owned())
    }
}

fn in_memory(runtime: &Runtime) -> (Store, Arc<Gated>) {
    let objects = Arc::new(Gated::default());
    let store = Store::over(objects.clone(), URL, runtime.handle().clone());
    (store.expect("a URL"), objects)
}

pub fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

pub fn wait_saved(log: &FakeLog, step: u64) -> CheckpointSaved {
    log.wait("checkpoint.saved", |event| match event {
        Event::CheckpointSaved(saved) if saved.step == step => Some((**saved).clone()),
        _ => None,
    })
}

fn wait_failed(log: &FakeLog) -> CheckpointFailed {
    log.wait("checkpoint.failed", |event| match event {
        Event::CheckpointFailed(failed) => Some((**failed).clone()),
        _ => None,
    })
}

pub fn wait_step(log: &FakeLog, step: u64) {
    log.wait("progress", |event| match event {
        Event::Progress(progress) if progress.step == step => Some(()),
        _ => None,
    });
}

fn place(log: &FakeLog, events: &[Event]) -> Sequence {
    events
        .iter()
        .fold(Sequence(0), |_, event| log.append(event.clone()))
}

/// Processes would outlive the test.
pub fn end(log: &FakeLog, incarnation: u32, ranks: u32) {
    log.append(stop(incarnation));
    for rank in 0..ranks {
        log.wait_exited(&id(incarnation, rank));
    }
}

fn index(log: &FakeLog, is_it: impl Fn(&Event) -> bool) -> usize {
    log.events().iter().position(is_it).expect("on the log")
}

#[test]
fn what_is_not_stored_has_failed_and_the_save_before_it_stays() {
    let (runtime, node, log) = (runtime(), Node::new(NODE), FakeLog::default());
    let (store, objects) = in_memory(&runtime);
    place(&log, &[admitted(sh(TWICE)), placed(1, 1), start(1, None)]);
    let _agent = Running::with_store(&log, node.config(), &store);
    let first = wait_saved(&log, 1);
    assert!(
        first.uri.starts_with(&format!("{URL}/ads/lr/")) && first.uri.contains("/1-"),
        "{}",
        first.uri
    );
    objects.set(Gate::Broken);
    log.append(save(1));
    let failed = wait_failed(&log);
    assert!(
        failed
            .reason
            .contains("not stored: the store of checkpoints"),
        "{failed:?}"
    );
    assert!(failed.reason.contains("a test"), "{failed:?}");
    log.wait_exited(&id(1, 0));
    objects.set(Gate::Open);
    place(&log, &[placed(2, 1), start(2, Some(&first.uri))]);
    log.wait_started(&id(2, 0));
    end(&log, 2, 1);
}

#[test]
fn an_exit_is_told_after_the_checkpoint_is_stored_also_by_the_next_agent() {
    let (runtime, node, log) = (runtime(), Node::new(NODE), FakeLog::default());
    let (store, objects) = in_memory(&runtime);
    place(&log, &[admitted(sh(TWICE)), placed(1, 1), start(1, None)]);
    let agent = Running::with_store(&log, node.config(), &store);
    wait_saved(&log, 1);
    objects.set(Gate::Shut);
    let pid = log.wait_started(&id(1, 0));
    log.append(save(1));
    // Saved and left; the upload hangs.
    until("the job ends", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    until("an upload", || objects.waiting() > 0);
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerExited(_))),
        0
    );
    drop(agent);
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerExited(_))),
        0
    );
    objects.set(Gate::Open);
    let _agent = Running::with_store(&log, node.config(), &store);
    let saved = wait_saved(&log, 2);
    log.wait_exited(&id(1, 0));
    let stored = index(
        &log,
        |it| matches!(it, Event::CheckpointSaved(s) if s.step == 2),
    );
    let exited = index(&log, |it| matches!(it, Event::ContainerExited(_)));
    assert!(stored < exited, "{:#?}", log.reports());
    assert!(saved.uri.starts_with(URL), "{}", saved.uri);
}

#[test]
fn an_eviction_does_not_wait_for_an_upload() {
    let (runtime, node, log) = (runtime(), Node::new(NODE), FakeLog::default());
    let (store, objects) = in_memory(&runtime);
    objects.set(Gate::Shut);
    place(&log, &[admitted(sh(TWICE)), placed(1, 1), start(1, None)]);
    let _agent = Running::with_store(&log, node.config(), &store);
    log.wait_started(&id(1, 0));
    until("an upload", || objects.waiting() > 0);
    place(&log, &[placed_on(2, &["n1"]), start(2, None)]);
    let exited = log.wait_exited(&id(1, 0));
    assert!(exited.evicted, "{exited:?}");
    assert_eq!(
        log.count(|event| matches!(event, Event::CheckpointSaved(_))),
        0
    );
}

/// Returns another node's events on resuming.
fn resumed_elsewhere(spoil: impl FnOnce(&Gated)) -> (FakeLog, CheckpointSaved, Vec<Event>) {
    let (runtime, log) = (runtime(), FakeLog::default());
    let (first, second) = (Node::new(NODE), Node::new("n1"));
    let (store, objects) = in_memory(&runtime);
    place(
        &log,
        &[
            joined_as("n1"),
            admitted(sh(TWICE)),
            placed(1, 1),
            start(1, None),
        ],
    );
    let agent = Running::with_store(&log, first.config(), &store);
    let saved = wait_saved(&log, 1);
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    drop(agent);
    let saved_last = wait_saved(&log, 2);
    assert_ne!(saved.uri, saved_last.uri);
    spoil(&objects);
    let head = log.events().len();
    place(
        &log,
        &[placed_on(2, &["n1"]), start(2, Some(&saved_last.uri))],
    );
    let _agent = Running::with_store(&log, second.config(), &store);
    log.wait("a start or an exit", |event| match event {
        Event::ContainerStarted(it) if it.container.incarnation.0 == 2 => Some(()),
        Event::ContainerExited(it) if it.container.incarnation.0 == 2 => Some(()),
        _ => None,
    });
    let later = log.events().split_off(head);
    (log, saved_last, later)
}

#[test]
fn what_is_torn_or_altered_is_rejected_and_what_cannot_be_reached_is_the_nodes_fault() {
    type Spoils = fn(&Gated);
    let torn = |objects: &Gated| objects.remove("manifest.json");
    let altered = |objects: &Gated| objects.alter("files/checkpoint.json");
    let renamed = |objects: &Gated| objects.alter("manifest.json");
    let missing = |objects: &Gated| objects.remove("files/checkpoint.json");
    let spoilers: [(&str, Spoils); 4] = [
        ("has no manifest", torn),
        ("is not what was stored", altered),
        ("manifest is not what was stored", renamed),
        ("has no checkpoint.json", missing),
    ];
    for (expected, spoil) in spoilers {
        let (_, saved, later) = resumed_elsewhere(spoil);
        let rejected = later.iter().find_map(|event| match event {
            Event::CheckpointRejected(rejected) => Some(rejected),
            _ => None,
        });
        let rejected = rejected.unwrap_or_else(|| panic!("{expected}: {later:#?}"));
        assert_eq!(rejected.uri, saved.uri);
        assert!(rejected.reason.contains(expected), "{}", rejected.reason);
    }
    let (_, _, later) = resumed_elsewhere(|objects| objects.set(Gate::Broken));
    let is_rejected = |event: &Event| matches!(event, Event::CheckpointRejected(_));
    assert!(!later.iter().any(is_rejected), "{later:#?}");
    let is_fault = |event: &Event| matches!(event, Event::NodeFaulted(_));
    assert!(later.iter().any(is_fault), "{later:#?}");
}

#[test]
fn a_node_keeps_what_it_saved_and_fetches_it_again_where_that_was_written_to() {
    let (runtime, node, log) = (runtime(), Node::new(NODE), FakeLog::default());
    let (store, objects) = in_memory(&runtime);
    let job = r#"[ -z "$DORMOUSE_RESUME_FROM" ] || cat "$DORMOUSE_RESUME_FROM/checkpoint.json" >>"$DORMOUSE_PROGRESS""#;
    let script = format!("{job}\n{TWICE}");
    place(&log, &[admitted(sh(&script)), placed(1, 1), start(1, None)]);
    let _agent = Running::with_store(&log, node.config(), &store);
    let saved = wait_saved(&log, 1);
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    let read = objects.read();
    place(&log, &[placed(2, 1), start(2, Some(&saved.uri))]);
    wait_step(&log, 1);
    assert_eq!(objects.read(), read, "nothing is fetched");
    log.append(stop(2));
    log.wait_exited(&id(2, 0));
    let name = saved.uri.rsplit('/').next().expect("a name");
    let kept = checkpoints(node.folder.path()).join(name);
    fs::write(kept.join("checkpoint.json"), "{\"step\":7}").expect("written");
    place(&log, &[placed(3, 1), start(3, Some(&saved.uri))]);
    log.wait_started(&id(3, 0));
    assert!(objects.read() > read, "it is fetched");
    let text = fs::read_to_string(kept.join("checkpoint.json")).expect("read");
    assert!(text.contains("\"step\":1"), "{text}");
    end(&log, 3, 1);
}
