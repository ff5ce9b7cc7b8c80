//! What an explanation says: sentences for a person, and the same as data.

use dormouse_messages::{By, Sequence, Timestamp};
use dormouse_projections::keys::KeyHolder;
use serde::{Deserialize, Serialize};

/// The reason codes, in the order in which the first that applies is the dominant one.
pub const CODES: [&str; 26] = [
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

/// The decision that an explanation is made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRef {
    /// The event.
    pub sequence: Sequence,
    /// Its number; absent where the allocation was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Which build decided.
    pub build: String,
    /// What this build decides from the same basis: `equal`, `differs`, or `checked` where the
    /// solver's time had run out, so that it is not made again.
    pub remade: String,
    /// The events that made it necessary.
    pub causes: Vec<Cause>,
}

/// An event that made a decision necessary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Where it stands.
    pub sequence: Sequence,
    /// Its type, without prefix and version.
    pub event: String,
    /// What it is about.
    pub subject: String,
    /// Who did it, where the broker vouches for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// Why something is as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// For programs: one of the reason codes.
    pub code: String,
    /// The resource that is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// How much more of it is needed, in its log unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<u64>,
    /// How much of it there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// For a person.
    pub words: String,
}

/// Where a queued job stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePlace {
    /// In its tenant's queue, from 1.
    pub position: u64,
    /// The jobs before it there, the next one first.
    pub before: Vec<String>,
    /// Jobs queued by other tenants.
    pub of_others: u64,
    /// The policy that chooses whose turn it is.
    pub policy: String,
    /// Dominant share of what its tenant runs.
    pub share: f64,
    /// Dominant share of what its tenant has queued.
    pub demand_share: f64,
}

/// A job that keeps what another one waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldBy {
    /// The job.
    pub job: String,
    /// The resource that is short.
    pub resource: String,
    /// What it cannot be made to give back of it, in its log unit.
    pub keeps: u64,
    /// When its time limit ends it, where it has one and runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
}

/// A job that would have to give containers up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gives {
    /// The job.
    pub job: String,
    /// What it has.
    pub from: u32,
    /// What it would keep.
    pub to: u32,
    /// What its restart costs it, where that has been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loses_s: Option<f64>,
}

/// How a change was proven.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifiedBy {
    /// The objective's value of the decision with the change.
    pub objective: f64,
    /// Its proven gap.
    pub gap: f64,
    /// `proven`: no allocation is better; `within_gap`; `limit`: the search was cut short.
    pub proof: String,
}

/// The least change of its kind with which the job would have been admitted or enlarged: decided by
/// the real services, and by them refused at every smaller value of the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// `theta1`, `theta2`, `min`, `max`, `demand`, `checkpoint`, `quota`, `nodes`, `others_give`.
    pub kind: String,
    /// As `--set` or `--add-node` say it.
    pub change: String,
    /// As it is.
    pub from: String,
    /// What it would have to be.
    pub to: String,
    /// Whether a job without containers would get some.
    pub admitted: bool,
    /// The containers it would have.
    pub becomes: u32,
    /// The proof.
    pub verified_by: VerifiedBy,
    /// The largest smaller value, which was tried and is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_at: Option<String>,
    /// Who gives how much, where others give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gives: Vec<Gives>,
}

/// A resize of the job that is on the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastResize {
    /// The decision.
    pub sequence: Sequence,
    /// When.
    pub at: Timestamp,
    /// Its number.
    pub epoch: u64,
    /// Containers before.
    pub from: u32,
    /// Containers from then on; 0: it had to wait.
    pub to: u32,
    /// The service or the job of a higher class that it made room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
    /// Why the decision was made.
    pub causes: Vec<Cause>,
    /// Who got containers in the same decision, and how many more.
    pub gained: Vec<Gives>,
    /// Seconds from the request to save or stop until it ran again; of one that was sent back to the
    /// queue until it had stopped, of one that had none from the decision until it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_s: Option<f64>,
    /// Whether members came and went while it ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// Something else that could have been decided, as well as it could have been.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// In words: `no change at all`, `ads/lr keeps 8`, `ads/lr waits`.
    pub what: String,
    /// The job that is kept as it was; nothing where all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
    /// Why it lost: `fewer_jobs`, `fairness_bound`, `not_possible`, `objective`; or did not:
    /// `within_gap`, `better`.
    pub code: String,
    /// Its objective; nothing where it is not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<f64>,
    /// Its fairness loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_loss: Option<f64>,
    /// Jobs that it restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_jobs: Option<u32>,
    /// Jobs that would wait, and that the decision gives containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Why it lost, for a person.
    pub words: String,
}

/// An explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// What is explained: a job, `tenant NAME`, `node NAME` or `epoch/N`.
    pub about: String,
    /// The last event that counts.
    pub at: Sequence,
    /// When that was.
    pub time: Timestamp,
    /// `refused`, `held`, `queued`, `waiting`, `starting`, `running`, `completed`, … of a job; `up`,
    /// `drained`, … of a node.
    pub state: String,
    /// In words.
    pub words: Vec<String>,
    /// The decision that it is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRef>,
    /// Containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// Dominant share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Weighted DRF share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<f64>,
    /// The first of the reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant: Option<Reason>,
    /// All reasons, in the order of the codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<Reason>,
    /// Groups of constraints that cannot all hold if the job has more; without any one they can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflict: Vec<String>,
    /// The smallest sets of groups without which it could have more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxations: Vec<Vec<String>>,
    /// Of a job that waits for room: who keeps it, the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// Of a decision: what it was better than.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Its place in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePlace>,
    /// The least changes, one of each kind that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrections: Vec<Correction>,
    /// Kinds of changes of which the search was cut short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_searched: Vec<String>,
    /// Decisions that were made to look for changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub solves: usize,
    /// Its resizes so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resizes: Vec<PastResize>,
    /// Jobs that it is made of: of a tenant, a node, a decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobLine>,
    /// Of a tenant: its keys that were made while the brokers ran, and those of its people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyLine>,
}

/// A key in the explanation of its tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyLine {
    /// Its name, as its file has it: `tenant-ads`, `user-ads.alice`.
    pub name: String,
    /// Whose it is and what became of it.
    #[serde(flatten)]
    pub holder: KeyHolder,
}

/// A job in an explanation of something else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    /// The job.
    pub job: String,
    /// Containers before, where a decision is explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// Containers.
    pub containers: u32,
    /// Dominant share.
    pub share: f64,
    /// Weighted DRF share.
    pub fair_share: f64,
    /// Why it waits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Explanation {
    /// An explanation without content yet.
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

    /// Puts the reasons into the order of the codes, and names the first the dominant one.
    pub fn rank(&mut self) {
        let place = |reason: &Reason| CODES.iter().position(|code| *code == reason.code);
        self.all
            .sort_by_key(|reason| place(reason).unwrap_or(CODES.len()));
        self.all
            .dedup_by(|left, right| left.code == right.code && left.resource == right.resource);
        self.dominant = self.all.first().cloned();
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "what serde asks of skip_serializing_if"
)]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}
