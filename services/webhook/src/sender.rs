//! Posts one tenant's events.

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Recorded, Sequence, TenantId};
use dormouse_projections::status::StatusView;
use dormouse_runtime::{Clock, Log, LogItem, SystemClock, forever};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::LEASE;
use crate::job_queues::JobQueues;
use crate::post::{self, Post};
use crate::signature::Secret;
use dormouse_state::hooks::Hook;

/// Concurrent posts of one tenant.
const AT_ONCE: usize = 8;
/// Bound on open posts, beyond which the log is not read further.
const WAITING: usize = 1_000;
/// Interval of noting the position.
const NOTE: Duration = Duration::from_secs(1);

/// Posts until `stop`, or until the log ends.
pub async fn run(log: Log, tenant: TenantId, hook: Hook, secret: Secret, stop: CancellationToken) {
    let reader = format!("{LEASE}.{tenant}");
    let from = tokio::select! {
        from = begin(&log, &reader, &hook) => from,
        () = stop.cancelled() => return,
    };
    tracing::info!(%tenant, url = hook.url, %from, "posting events");
    let to = Arc::new(To {
        agent: post::agent(),
        url: hook.url,
        secret,
        tenant: tenant.clone(),
    });
    // The log may be trimmed beyond a receiver that was away for longer than the policy keeps events.
    let first = log.first();
    if from.next() < first {
        tracing::warn!(%tenant, %from, %first, "the events between are trimmed and not posted");
    }
    let from = from.max(Sequence(first.0 - 1));
    let mut events = log.follow(from.next());
    let (mut view, mut lanes) = (StatusView::default(), JobQueues::new(from));
    let mut posting: JoinSet<String> = JoinSet::new();
    let mut noted = from;
    let mut note = tokio::time::interval(NOTE);
    note.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        while let Some((lane, post)) = lanes.next(AT_ONCE) {
            posting.spawn(Arc::clone(&to).until_taken(lane, post));
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = posting.join_next() => match ended {
                Ok(lane) => lanes.done(&lane),
                Err(error) => {
                    tracing::error!(%tenant, %error, "a post broke off; posting stops");
                    break;
                }
            },
            _ = note.tick(), if lanes.position() > noted => {
                let position = lanes.position();
                if log.note(&reader, position).await {
                    noted = position;
                }
            }
            followed = events.recv(), if lanes.open() < WAITING => match followed {
                Some(LogItem::Event(recorded)) => {
                    show(&mut view, &log, &tenant, &recorded, &mut lanes);
                    lanes.read(recorded.sequence);
                }
                Some(LogItem::Flagged { sequence, .. }) => lanes.read(sequence),
                Some(LogItem::CaughtUp(_)) => {}
                None => break,
            },
        }
    }
    // A post in flight may arrive and be repeated with an equal id.
    posting.shutdown().await;
    log.note(&reader, lanes.position()).await;
}

/// Starts at the noted position, but not before the tenant had an address.
async fn begin(log: &Log, reader: &str, hook: &Hook) -> Sequence {
    let unknown = |why: String| tracing::debug!(why, "where to go on is not known yet");
    let noted = forever(NOTE, unknown, || log.noted(reader)).await;
    noted.unwrap_or_default().max(hook.since)
}

fn show(
    view: &mut StatusView,
    log: &Log,
    tenant: &TenantId,
    recorded: &Recorded,
    lanes: &mut JobQueues<Post>,
) {
    for shown in view.show(recorded) {
        // An event under two subjects (a refusal of a named job) is posted once.
        let Some(subject) = shown.subjects.first() else {
            continue;
        };
        let mut tokens = subject.split('.');
        let (of, job) = (tokens.next(), tokens.next().unwrap_or_default());
        if of != Some(tenant.as_str()) {
            continue;
        }
        match shown.to_json(recorded, &log.identity()) {
            Ok(body) => {
                let post = Post {
                    // Each job gets its own part of an allocation.
                    id: format!("{}.{job}", shown.envelope.id),
                    body,
                };
                lanes.push(job.to_owned(), recorded.sequence, post);
            }
            Err(error) => tracing::warn!(%error, sequence = %recorded.sequence, "not in JSON"),
        }
    }
}

struct To {
    agent: ureq::Agent,
    url: String,
    secret: Secret,
    tenant: TenantId,
}

impl To {
    /// Posts until success or the give-up; returns the lane.
    async fn until_taken(self: Arc<Self>, lane: String, post: Post) -> String {
        let began = Instant::now();
        let post = Arc::new(post);
        for tries in 1.. {
            let why = match self.attempt(&post).await {
                Ok(()) => {
                    counted("taken");
                    break;
                }
                Err(why) => why,
            };
            counted("failed");
            let tenant = &self.tenant;
            let Some(pause) = post::pause(tries, began.elapsed()) else {
                tracing::warn!(%tenant, id = post.id, why, "given up after a day; the event is on the log");
                counted("given_up");
                break;
            };
            tracing::info!(%tenant, id = post.id, tries, why, again_s = pause.as_secs(), "not taken");
            tokio::time::sleep(pause).await;
        }
        lane
    }

    async fn attempt(self: &Arc<Self>, post: &Arc<Post>) -> Result<(), String> {
        let (to, post) = (Arc::clone(self), Arc::clone(post));
        let now = SystemClock.now().as_micros() / 1_000_000;
        let posting = move || post::once(&to.agent, &to.url, &to.secret, &post, now);
        let posted = tokio::task::spawn_blocking(posting).await;
        posted.unwrap_or_else(|error| Err(error.to_string()))
    }
}

fn counted(outcome: &'static str) {
    metrics::counter!("dormouse_webhook_posts_total", "outcome" => outcome).increment(1);
}
