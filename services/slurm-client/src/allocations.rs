//! The decider's input: carries out the log's requests to Slurm, and observes Slurm.
//!
//! 1. `observe` shows the folded allocations to a task, and returns news for the log.
//! 2. The task lists the jobs of the log at Slurm, submits missing jobs, cancels others, and lists again later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_messages::events::{
    NodeRemoved, SlurmEnded, SlurmEstimated, SlurmGranted, SlurmRefused, SlurmSubmitted,
};
use dormouse_messages::slurm::SlurmQueue;
use dormouse_messages::{Event, QueueId, Timestamp};
use dormouse_runtime::{Inputs, Observation};
use dormouse_state::{ClusterState, SlurmAllocation, SlurmPhase};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::commands::{Slurm, SlurmError, Submission, shortened};
use crate::listing::{Listed, Standing};
use crate::script::Agents;

/// Limits the warnings about a Slurm that does not answer.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Slurm's estimates move all the time; smaller changes are of no use to anybody.
const ESTIMATE_MS: u64 = 60_000;

/// Slurm forgets an ended job after five minutes at the least, and lists a new one at once.
const UNLISTED: Duration = Duration::from_secs(10);

/// The end of an allocation's output that the log shows.
const LAST_WORDS: usize = 2_000;

/// Settings of the input.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two looks at Slurm.
    pub poll: Duration,
    /// Folder of scripts and outputs, which the nodes share.
    pub folder: PathBuf,
    pub agents: Agents,
    /// The log's identity: Slurm's jobs are named by it.
    pub log: String,
}

impl Options {
    fn prefix(&self) -> String {
        let digest = blake3::hash(self.log.as_bytes()).to_hex();
        format!("dormouse-{}-", digest.get(..8).unwrap_or_default())
    }
}

type Key = (QueueId, u64);

/// An allocation in Slurm's view.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Job(u64, Standing),
    Refused(String),
    /// Given back before it was submitted.
    Dropped,
}

/// An allocation that the log asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    settings: SlurmQueue,
    slot: u32,
    nodes: u32,
    slurm_job: Option<u64>,
    released: bool,
}

type AllWanted = BTreeMap<Key, Wanted>;
type AllSeen = Arc<Mutex<BTreeMap<Key, Seen>>>;

/// Submits, cancels and observes allocations.
pub struct Allocations {
    wanted: watch::Sender<AllWanted>,
    seen: AllSeen,
    changed: Arc<Notify>,
    task: AbortHandle,
}

impl Allocations {
    /// Starts the task.
    #[must_use]
    pub fn start(slurm: Slurm, options: Options) -> Self {
        let (wanted, wishes) = watch::channel(AllWanted::new());
        let (seen, changed) = (AllSeen::default(), Arc::new(Notify::new()));
        let work = Work {
            slurm,
            options,
            wanted: wishes,
            seen: Arc::clone(&seen),
            changed: Arc::clone(&changed),
            submitted: BTreeMap::new(),
        };
        let task = tokio::spawn(work.run()).abort_handle();
        Self {
            wanted,
            seen,
            changed,
            task,
        }
    }
}

impl Drop for Allocations {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inputs<ClusterState> for Allocations {
    fn observe(&mut self, state: &ClusterState) -> Vec<Observation> {
        let wanted = wanted(state);
        self.wanted.send_if_modified(|before| {
            let is_new = *before != wanted;
            *before = wanted;
            is_new
        });
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        for (name, queue) in state.slurm.iter() {
            for (number, allocation) in &queue.allocations {
                let key = (name.clone(), *number);
                if let Some(seen) = seen.get(&key) {
                    events.extend(news(key, allocation, seen));
                }
                if allocation.phase == SlurmPhase::Ended {
                    let nodes = allocation.node_names(name);
                    let gone = nodes.filter(|node| state.may_forget(node));
                    events.extend(gone.map(|node| Event::from(NodeRemoved { node })));
                }
            }
        }
        let news = events.into_iter().map(|event| Observation {
            event,
            traceparent: None,
        });
        news.collect()
    }

    fn waits(&self) -> bool {
        true
    }

    fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

fn wanted(state: &ClusterState) -> AllWanted {
    let mut wanted = AllWanted::new();
    for (name, queue) in state.slurm.iter() {
        let live = queue.allocations.iter();
        let live = live.filter(|(_, it)| it.phase != SlurmPhase::Ended);
        for (number, allocation) in live {
            let is_wanted = Wanted {
                settings: queue.settings.clone(),
                slot: allocation.slot,
                nodes: allocation.nodes,
                slurm_job: allocation.slurm_job,
                released: allocation.released && state.is_vacated(name, allocation),
            };
            wanted.insert((name.clone(), *number), is_wanted);
        }
    }
    wanted
}

/// Returns what the log lacks about an allocation.
fn news((queue, number): Key, known: &SlurmAllocation, seen: &Seen) -> Option<Event> {
    let ended = |state: &str, reason: &str| {
        let event = SlurmEnded {
            queue: queue.clone(),
            number,
            state: state.to_owned(),
            reason: reason.to_owned(),
        };
        (known.phase != SlurmPhase::Ended).then(|| Event::from(event))
    };
    let (slurm_job, standing) = match seen {
        Seen::Dropped => return ended("CANCELLED", "it was given back before it was submitted"),
        Seen::Refused(reason) => {
            let event = SlurmRefused {
                queue: queue.clone(),
                number,
                reason: reason.clone(),
            };
            return (known.phase == SlurmPhase::Requested).then(|| Event::from(event));
        }
        Seen::Job(slurm_job, standing) => (*slurm_job, standing),
    };
    if known.slurm_job.is_none() {
        return Some(Event::from(SlurmSubmitted {
            queue,
            number,
            slurm_job,
        }));
    }
    match standing {
        Standing::Waits { reason, starts_at } => {
            let is_news = match &known.phase {
                SlurmPhase::Waiting {
                    reason: before,
                    starts_at: estimate,
                } => before != reason || has_moved(*estimate, *starts_at),
                _ => false,
            };
            is_news.then(|| {
                Event::from(SlurmEstimated {
                    queue,
                    number,
                    reason: reason.clone(),
                    starts_at: *starts_at,
                })
            })
        }
        Standing::Runs { hosts, ends_at } => known.is_pending().then(|| {
            Event::from(SlurmGranted {
                queue,
                number,
                hosts: hosts.clone(),
                ends_at: *ends_at,
            })
        }),
        Standing::Ended { state, reason } => ended(state, reason),
    }
}

fn has_moved(before: Option<Timestamp>, after: Option<Timestamp>) -> bool {
    match (before, after) {
        (None, None) => false,
        (Some(before), Some(after)) => {
            before.ms_since(after) >= ESTIMATE_MS || after.ms_since(before) >= ESTIMATE_MS
        }
        _ => true,
    }
}

struct Work {
    slurm: Slurm,
    options: Options,
    wanted: watch::Receiver<AllWanted>,
    seen: AllSeen,
    changed: Arc<Notify>,
    /// Jobs that this process submitted, and when.
    submitted: BTreeMap<Key, (u64, Instant)>,
}

impl Work {
    async fn run(mut self) {
        let mut said: Option<Instant> = None;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if !wanted.is_empty()
                && let Err(error) = self.look(&wanted).await
                && said.is_none_or(|said| said.elapsed() > SAY_EVERY)
            {
                said = Some(Instant::now());
                tracing::warn!(%error, "Slurm is not asked; trying again");
            }
            self.forget(&wanted);
            let wait = tokio::time::timeout(self.options.poll, self.wanted.changed());
            if matches!(wait.await, Ok(Err(_))) {
                return;
            }
        }
    }

    async fn look(&mut self, wanted: &AllWanted) -> Result<(), SlurmError> {
        let prefix = self.options.prefix();
        let listed = self.slurm.list(&prefix).await?;
        // The newer of two jobs with one name counts.
        let listed: BTreeMap<&str, &Listed> =
            listed.iter().map(|it| (it.name.as_str(), it)).collect();
        for (key, wish) in wanted {
            let name = format!("{prefix}{}-{}", key.0, key.1);
            let known = wish.slurm_job;
            let known = known.or_else(|| self.submitted.get(key).map(|(job, _)| *job));
            let job = match (listed.get(name.as_str()), known) {
                (Some(listed), _) => Seen::Job(listed.slurm_job, listed.standing.clone()),
                (None, Some(slurm_job)) => match self.unlisted(key, slurm_job) {
                    Some(seen) => seen,
                    None => continue,
                },
                (None, None) if wish.released => Seen::Dropped,
                (None, None) => self.submit(key, wish, &name).await?,
            };
            let job = self.in_full(key, job);
            if let Seen::Job(slurm_job, Standing::Waits { .. } | Standing::Runs { .. }) = job
                && wish.released
            {
                // A job may end in between; the next list says so.
                if let Err(error) = self.slurm.cancel(slurm_job).await {
                    tracing::debug!(slurm_job, %error, "not cancelled; trying again");
                }
            }
            self.see(key, job);
        }
        Ok(())
    }

    /// A job that Slurm lists no longer has ended.
    fn unlisted(&self, key: &Key, slurm_job: u64) -> Option<Seen> {
        let submitted = self.submitted.get(key);
        let is_new = submitted.is_some_and(|(_, at)| at.elapsed() < UNLISTED);
        (!is_new).then(|| {
            let standing = Standing::Ended {
                state: "UNKNOWN".to_owned(),
                reason: "Slurm lists it no longer".to_owned(),
            };
            Seen::Job(slurm_job, standing)
        })
    }

    async fn submit(&mut self, key: &Key, wish: &Wanted, name: &str) -> Result<Seen, SlurmError> {
        let (script, output) = self.files(key);
        let text = self
            .options
            .agents
            .script(&key.0, &wish.settings, wish.slot);
        let written = async {
            tokio::fs::create_dir_all(&self.options.folder).await?;
            tokio::fs::write(&script, text).await
        };
        if let Err(why) = written.await {
            let place = script.display();
            return Ok(Seen::Refused(format!("{place} cannot be written: {why}")));
        }
        let submission = Submission {
            name,
            settings: &wish.settings,
            nodes: wish.nodes,
            script: Some(&script),
            output: &output,
        };
        match self.slurm.submit(&submission).await {
            Ok(slurm_job) => {
                self.submitted
                    .insert(key.clone(), (slurm_job, Instant::now()));
                tracing::info!(queue = %key.0, number = key.1, slurm_job, "submitted an allocation");
                let standing = Standing::Waits {
                    reason: String::new(),
                    starts_at: None,
                };
                Ok(Seen::Job(slurm_job, standing))
            }
            Err(refusal) if refusal.is_refusal() => {
                tracing::warn!(queue = %key.0, number = key.1, %refusal, "Slurm takes no allocation");
                Ok(Seen::Refused(refusal.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns script and output of an allocation.
    fn files(&self, (queue, number): &Key) -> (PathBuf, PathBuf) {
        let file = |end: &str| self.options.folder.join(format!("{queue}-{number}.{end}"));
        (file("sh"), file("out"))
    }

    /// Adds the last words of an allocation that did not end well.
    fn in_full(&self, key: &Key, seen: Seen) -> Seen {
        match seen {
            Seen::Job(slurm_job, Standing::Ended { state, reason })
                if !matches!(state.as_str(), "COMPLETED" | "CANCELLED" | "TIMEOUT") =>
            {
                let (_, output) = self.files(key);
                let words = last_words(&output);
                let reason = [reason, words].join(" ").trim().to_owned();
                Seen::Job(slurm_job, Standing::Ended { state, reason })
            }
            seen => seen,
        }
    }

    fn see(&self, key: &Key, now: Seen) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(key) != Some(&now) {
            seen.insert(key.clone(), now);
            self.changed.notify_one();
        }
    }

    fn forget(&mut self, wanted: &AllWanted) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|key, _| wanted.contains_key(key));
        self.submitted.retain(|key, _| wanted.contains_key(key));
    }
}

fn last_words(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let last = text.get(text.len().saturating_sub(LAST_WORDS)..);
    let last = String::from_utf8_lossy(last.unwrap_or_default()).into_owned();
    let lines: Vec<&str> = last.lines().rev().take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    shortened(&lines.join(" "))
}
