//! The content of an explanation: sentences for people, and the facts as data.

use dormouse_messages::sanitize::containers;
use dormouse_messages::{By, Sequence, Timestamp};
use dormouse_projections::keys::KeyHolder;
use serde::{Deserialize, Serialize};

/// The reason codes in order of precedence; the first that applies is dominant.
pub const CODES: [&str; 27] = [
    "refused",
    "on_hold",
    "dependency",
    "no_such_resource",
    "never_fits",
    "no_allowed_nodes",
    "constraints",
    "above_quota",
    "above_max_containers",
    "quota",
    "budget",
    "fragmentation",
    "queue_turn",
    "reserved",
    "behind",
    "resources",
    "adjustment_bound",
    "fairness_bound",
    "preemption_bound",
    "not_adjustable",
    "in_transit",
    "not_ready",
    "preempted",
    "own_max",
    "not_resized",
    "replicas",
    "price",
];

/// The decision behind an explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRef {
    pub sequence: Sequence,
    /// `None` if the allocation was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    pub build: String,
    /// This build's decision from the same basis: `equal` or `differs`.
    pub remade: String,
    pub causes: Vec<Cause>,
}

/// An event that required a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    pub sequence: Sequence,
    /// The type without prefix and version.
    pub event: String,
    pub subject: String,
    /// The user, if the broker vouches for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// A reason for a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// One of [`CODES`].
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The missing amount, in the resource's log unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    pub words: String,
}

/// A queued job's place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePlace {
    pub position: u64,
    pub before: Vec<String>,
    pub of_others: u64,
    pub policy: String,
    /// Dominant share of the tenant's running jobs.
    pub share: f64,
    /// Dominant share of the tenant's queued jobs.
    pub demand_share: f64,
}

/// A job that holds resources another job waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldBy {
    pub job: String,
    pub resource: String,
    /// The amount that the job cannot be made to give back, in the resource's log unit.
    pub keeps: u64,
    /// The end by the time limit, for a running job with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
}

/// A job that would have to give up containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gives {
    pub job: String,
    pub from: u32,
    pub to: u32,
    /// Seconds lost in the restart, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loses_s: Option<f64>,
}

/// The proof of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifiedBy {
    pub objective: f64,
    pub gap: f64,
    /// `proven` (optimal), `within_gap`, or `limit` (the search was cut short).
    pub proof: String,
}

/// The least change of its kind that would have admitted or enlarged the job, as decided by the real
/// services.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// `theta1`, `theta2`, `min`, `max`, `demand`, `checkpoint`, `quota`, `nodes`, `others_give`.
    pub kind: String,
    /// In the syntax of `--set` or `--add-node`.
    pub change: String,
    pub from: String,
    pub to: String,
    /// True if a job without containers would get some.
    pub admitted: bool,
    pub becomes: u32,
    pub verified_by: VerifiedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_at: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gives: Vec<Gives>,
}

/// A resize of the job on the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastResize {
    pub sequence: Sequence,
    pub at: Timestamp,
    pub epoch: u64,
    pub from: u32,
    pub to: u32,
    /// The service or higher-class job that needed the resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
    pub causes: Vec<Cause>,
    pub gained: Vec<Gives>,
    /// Seconds from the request to save or stop until the job ran again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_s: Option<f64>,
    /// True if members changed while the job ran.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub in_place: bool,
    /// The reason if the resize was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// Another possible decision, optimised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// `no change at all`, `ads/lr keeps 8`, or `ads/lr waits`.
    pub what: String,
    /// The unchanged job; `None` if all are unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
    /// The reason for the loss: `fewer_jobs`, `fairness_bound`, `not_possible`, `objective`; or without
    /// a loss: `within_gap`, `better`.
    pub code: String,
    /// `None` if the alternative is not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_loss: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_jobs: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    pub words: String,
}

/// An explanation of a job, a tenant, a node or a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The subject: a job, `tenant NAME`, `node NAME` or `epoch/N`.
    pub about: String,
    pub at: Sequence,
    pub time: Timestamp,
    /// `refused`, `held`, `queued`, `waiting`, `starting`, `running`, `completed`, … of a job; `up`,
    /// `drained`, … of a node.
    pub state: String,
    pub words: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// Dominant share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Weighted DRF share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant: Option<Reason>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Reason>,
    /// A minimal set of constraint groups that forbid more containers together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflict: Vec<String>,
    /// The smallest sets of groups whose removal would allow more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxations: Vec<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePlace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Correction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_searched: Vec<String>,
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub solves: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resizes: Vec<PastResize>,
    /// The jobs of a tenant, a node or a decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobLine>,
    /// A tenant's keys made while the brokers ran, and its users' keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyLine>,
}

/// A key in the explanation of its tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyLine {
    pub name: String,
    #[serde(flatten)]
    pub holder: KeyHolder,
}

/// A job in the explanation of another subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    pub containers: u32,
    pub share: f64,
    pub fair_share: f64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Explanation {
    /// Returns an empty explanation.
    #[must_use]
    pub fn of(about: String, at: Sequence, time: Timestamp, state: &str) -> Self {
        Self {
            about,
            at,
            time,
            state: state.to_owned(),
            words: Vec::new(),
            decision: None,
            has: None,
            share: None,
            fair_share: None,
            dominant: None,
            all: Vec::new(),
            conflict: Vec::new(),
            relaxations: Vec::new(),
            held_by: Vec::new(),
            alternatives: Vec::new(),
            queue: None,
            corrections: Vec::new(),
            not_searched: Vec::new(),
            solves: 0,
            resizes: Vec::new(),
            jobs: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Orders the reasons by code and picks the dominant one.
    pub fn rank(&mut self) {
        let place = |reason: &Reason| CODES.iter().position(|code| *code == reason.code);
        self.all
            .sort_by_key(|reason| place(reason).unwrap_or(CODES.len()));
        self.all
            .dedup_by(|left, right| left.code == right.code && left.resource == right.resource);
        self.dominant = self.all.first().cloned();
    }
}

/// `job.released ads/lr (event 4709)`.
pub(crate) fn in_words(causes: &[Cause]) -> String {
    let words = causes.iter().map(|cause| {
        let what = match cause.event.as_str() {
            "" => "an earlier event",
            "job.released" => "the release of",
            "job.completed" => "the end of",
            "job.failed" => "the failure of",
            "job.cancelled" => "the cancellation of",
            "node.joined" => "the arrival of",
            "node.lost" => "the loss of",
            "node.drained" => "the drain of",
            "cluster.configured" => "a new policy for",
            "partition.started" => "the start of",
            "partition.stopped" => "the stop of",
            other => other,
        };
        let by = cause
            .by
            .as_ref()
            .map_or_else(String::new, |by| format!(" by {by}"));
        let subject = match cause.subject.as_str() {
            "" => String::new(),
            // Distinguishes the node n3 from the job n3 of a tenant `node`.
            subject if cause.event.starts_with("node.") => {
                format!(" {}", subject.replacen('/', " ", 1))
            }
            subject => format!(" {subject}"),
        };
        format!("{what}{subject}{by} (event {})", cause.sequence)
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() {
        "the passing of time: jobs that had just started could be resized".to_owned()
    } else {
        words.join(", ")
    }
}

pub(super) fn gets(becomes: u32) -> String {
    match becomes {
        0 => "and wait".to_owned(),
        count => format!("with {}", containers(count)),
    }
}

pub(super) fn say(correction: &Correction, begins: &str) -> String {
    let gets = if correction.admitted {
        format!("would {begins}, {}", gets(correction.becomes))
    } else {
        format!("would have {}", containers(correction.becomes))
    };
    let proof = match correction.verified_by.proof.as_str() {
        "proven" => "proven optimal".to_owned(),
        proof => format!("{proof}, gap {:.3}", correction.verified_by.gap),
    };
    format!(
        "with {} ({} instead of {}) it {gets} ({proof})",
        correction.change, correction.to, correction.from
    )
}

pub(super) fn reason(code: &str, words: String) -> Reason {
    Reason {
        code: code.to_owned(),
        resource: None,
        short: None,
        of: None,
        words,
    }
}
