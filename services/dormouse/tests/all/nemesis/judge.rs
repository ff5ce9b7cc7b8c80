//! Checks the outcome against the log, the brokers' answers, and the records of the jobs' processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Event, JobId, Recorded, Timestamp};
use dormouse_replay::{Audit, Verifier};

use super::faults::{Fault, GIVEN_UP, GIVEN_UP_AFTER_S};
use super::jobs::Submitted;
use super::world::{Done, LEASE_S, SLOTS, Took};

/// A host that wakes up may write before its supervisor has ended the containers.
const WAKING_S: f64 = 2.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub what: String,
    pub token: u64,
    pub rank: u32,
    pub node: String,
    pub up: f64,
}

fn line(text: &str) -> Option<Line> {
    let mut parts = text.split_whitespace();
    Some(Line {
        what: parts.next()?.to_owned(),
        token: parts.next()?.parse().ok()?,
        rank: parts.next()?.parse().ok()?,
        node: parts.next()?.to_owned(),
        up: parts.next()?.parse().ok()?,
    })
}

pub fn records(folder: &Path) -> BTreeMap<String, Vec<Line>> {
    let files = std::fs::read_dir(folder).expect("the folder").flatten();
    let names = files.map(|it| it.file_name().to_string_lossy().into_owned());
    let records = names.filter(|it| !it.contains('.')).map(|name| {
        let text = std::fs::read_to_string(folder.join(&name)).expect("a record");
        let parsed = text.lines().map(|it| line(it).ok_or(it));
        let lines: Result<_, _> = parsed.collect();
        let lines = lines.unwrap_or_else(|it| panic!("no line of {name}: {it:?}"));
        (name, lines)
    });
    records.collect()
}

/// Address, and seconds since the boot.
pub type Still = (String, f64, f64);

/// Finds overlapping processes of one job, and writes with an outdated token.
pub fn doubles(job: &str, record: &[Line], still: &[Still]) -> Vec<String> {
    let excused = |line: &Line| {
        still.iter().any(|(node, from, until)| {
            let held = line.what == "held" && *from <= line.up && line.up <= until + WAKING_S;
            let woke = *node == line.node && *until <= line.up && line.up <= until + WAKING_S;
            held || woke
        })
    };
    let mut newest = 0;
    let mut found = Vec::new();
    for line in record {
        let stale = line.token < newest;
        newest = newest.max(line.token);
        if (stale || line.what == "held") && !excused(line) {
            found.push(format!(
                "{job} ran twice: {line:?}, the newest token is {newest}"
            ));
        }
    }
    found
}

/// Finds nodes with more containers than capacity.
pub fn crowded(records: &BTreeMap<String, Vec<Line>>) -> Vec<String> {
    let mut spans = BTreeMap::new();
    for (job, record) in records {
        for line in record {
            let key = (job, line.token, line.rank, &line.node);
            let span = spans.entry(key).or_insert((line.up, line.up));
            span.1 = line.up;
        }
    }
    let mut changes: BTreeMap<&String, Vec<(f64, i32)>> = BTreeMap::new();
    for ((_, _, _, node), (from, until)) in &spans {
        let changes = changes.entry(node).or_default();
        changes.extend([(*from, 1), (*until, -1)]);
    }
    let mut found = Vec::new();
    for (node, changes) in &mut changes {
        // The kernel counts hundredths of a second, so at equal times the end comes first.
        changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut held = 0;
        for (up, change) in changes {
            held += *change;
            if held > i32::try_from(SLOTS).expect("few") {
                found.push(format!("{node} held {held} containers at {up:.2}"));
            }
        }
    }
    found
}

pub fn decisions(log: &[Arc<Recorded>]) -> BTreeMap<u64, Vec<Option<JobId>>> {
    let mut decided: BTreeMap<u64, Vec<Option<JobId>>> = BTreeMap::new();
    for recorded in log {
        let (sequence, job) = match recorded.event() {
            Some(Event::JobAdmitted(it)) => (it.ingress_sequence, Some(it.job.clone())),
            Some(Event::JobRefused(it)) => (it.ingress_sequence, None),
            _ => continue,
        };
        decided.entry(sequence).or_default().push(job);
    }
    decided
}

pub fn unfinished(log: &[Arc<Recorded>], submitted: &Submitted) -> Vec<String> {
    let mut audit = Audit::default();
    log.iter().for_each(|it| audit.read(it));
    let decided = decisions(log);
    let acknowledged = submitted.acknowledged.iter().map(|it| it.sequence);
    let lost = acknowledged.filter(|it| !decided.contains_key(it));
    let lost = lost.map(|it| format!("the acknowledged submission {it} has no decision"));
    let undecided = audit.undecided();
    let undecided = undecided.map(|it| format!("the received submission {it} has no decision"));
    let open = audit.open_jobs().map(|it| format!("{it} has not ended"));
    lost.chain(undecided).chain(open).collect()
}

pub fn log(log: &[Arc<Recorded>], submitted: &Submitted, found: &mut Vec<String>) -> Figures {
    let (mut audit, mut verifier) = (Audit::default(), Verifier::default());
    let mut figures = Figures::default();
    let mut completed = BTreeSet::new();
    for recorded in log {
        audit.read(recorded);
        verifier.read(recorded);
        match recorded.event() {
            Some(Event::JobFailed(it)) => found.push(format!("{} failed: {}", it.job, it.reason)),
            Some(Event::JobCompleted(it)) => drop(completed.insert(it.job.clone())),
            Some(Event::PartitionStarted(_)) => figures.incarnations += 1,
            Some(Event::NodeLost(_)) => figures.losses += 1,
            _ => {}
        }
    }
    let violations = audit.violations().iter();
    found.extend(violations.map(|it| format!("audit: {it:?}")));
    let report = verifier.finish();
    found.extend(report.findings.iter().map(|it| format!("verify: {it:?}")));
    found.extend(unfinished(log, submitted));
    let decided = decisions(log);
    for it in &submitted.acknowledged {
        match decided.get(&it.sequence).map(Vec::as_slice) {
            Some([Some(job)]) if it.real && completed.contains(job) => figures.completed += 1,
            None => {}
            Some([Some(_)]) if it.real => {}
            Some([None]) if !it.real => {}
            Some(other) => found.push(format!("{it:?} is decided as {other:?}")),
        }
    }
    figures.events = log.len();
    figures.decisions = report.decisions;
    figures
}

#[derive(Debug, Default)]
pub struct Figures {
    pub events: usize,
    pub decisions: u64,
    pub incarnations: u32,
    pub losses: u32,
    pub completed: usize,
}

/// Measures from the time at which the node is given up to the start elsewhere; `None` if the node was back
/// before.
fn elsewhere(
    log: &[Arc<Recorded>],
    node: &str,
    (killed, given_up_after_s): (Timestamp, u32),
    back: Timestamp,
) -> Option<(Duration, String)> {
    let given_up = killed.plus_ms(u64::from(given_up_after_s) * 1_000);
    if back < given_up {
        return None;
    }
    let mut ran = BTreeSet::new();
    let mut longest = None;
    let mut story = format!(
        "{node} dead at 0.0 s, back at {:.1} s",
        seconds(killed, back)
    );
    for recorded in log {
        let before = recorded.stored_at < killed;
        let at = seconds(killed, recorded.stored_at);
        match recorded.event() {
            Some(Event::NodeFenced(it))
                if !before && longest.is_none() && it.node.as_str() == node =>
            {
                story += &format!(", fenced at {at:.1} s");
            }
            Some(Event::NodeLost(it))
                if !before && longest.is_none() && it.node.as_str() == node =>
            {
                story += &format!(", lost at {at:.1} s");
            }
            Some(Event::ContainerStarted(it)) if before && it.node.as_str() == node => {
                ran.insert(it.container.job.clone());
            }
            Some(Event::ContainerExited(it)) if before => {
                ran.remove(&it.container.job);
            }
            Some(Event::ContainerStarted(it)) if !before && ran.remove(&it.container.job) => {
                story += &format!(", {} started at {at:.1} s", it.container.job);
                let started = recorded.stored_at.max(given_up);
                let late = Duration::from_micros(started.micros_since(given_up));
                longest = longest.max(Some(late));
            }
            _ => {}
        }
    }
    Some((longest?, story))
}

fn seconds(from: Timestamp, until: Timestamp) -> f64 {
    Duration::from_micros(until.micros_since(from)).as_secs_f64()
}

pub fn fail_overs(log: &[Arc<Recorded>], submitted: &Submitted, done: &[Done]) -> Vec<Took> {
    let took = done.iter().filter_map(|it| {
        let (from, until) = (it.from.at, it.until.at);
        let (what, (time, story), bound_s) = match it.fault {
            Fault::KillBroker { .. } => {
                let gap = submitted.longest_gap(from, until);
                (
                    "answers after a broker was killed",
                    (gap, String::new()),
                    12,
                )
            }
            Fault::StopBroker { .. } => {
                let gap = submitted.longest_gap(from, until);
                let gap = (gap, String::new());
                ("answers while a broker is stopped in order", gap, 2)
            }
            Fault::KillNode { node } => {
                let took = elsewhere(log, node, (from, LEASE_S), until)?;
                ("a dead node's jobs elsewhere, after its lease", took, 5)
            }
            Fault::KillAgent { node } if node == GIVEN_UP => {
                let took = elsewhere(log, node, (from, GIVEN_UP_AFTER_S), until)?;
                (
                    "a dead agent's jobs elsewhere, after it was given up",
                    took,
                    5,
                )
            }
            _ => return None,
        };
        let (what, bound) = (what.to_owned(), Duration::from_secs(bound_s));
        Some(Took {
            what,
            time,
            bound,
            story,
        })
    });
    took.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Vec<Line> {
        text.lines().filter_map(line).collect()
    }

    #[test]
    fn a_double_is_found() {
        let twice = record("begin 1 0 a 1.0\nbegin 2 0 b 2.0\nbeat 1 0 a 2.1");
        assert_eq!(doubles("j", &twice, &[]).len(), 1);
        let still = |until| [("a".to_owned(), 0.01, until)];
        assert_eq!(doubles("j", &twice, &still(2.0)).len(), 0);
        assert_eq!(doubles("j", &twice, &still(0.05)).len(), 1);
        let held = record("begin 1 0 a 1.0\nheld 2 0 b 2.0\nbegin 2 0 b 2.0");
        assert_eq!(doubles("j", &held, &[]).len(), 1);
        let once = record("begin 1 0 a 1.0\nbeat 1 0 a 1.2\nbegin 2 0 b 2.0\nend 2 0 b 2.1");
        assert_eq!(doubles("j", &once, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_crowded_node_is_found() {
        let of = |count: u32| {
            let jobs = (0..count).map(|it| {
                let lines = record("begin 1 0 a 1.0\nend 1 0 a 2.0");
                (format!("j{it}"), lines)
            });
            crowded(&jobs.collect())
        };
        assert_eq!(of(SLOTS), Vec::<String>::new());
        assert_eq!(of(SLOTS + 1).len(), 1);
    }
}
