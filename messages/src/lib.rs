//! The vocabulary of Dormouse: everything that crosses the log. Pure: no tokio, NATS, clock or randomness.
//!
//! - [`events`], [`envelope`], [`subject`]: events, encoding, subjects
//! - [`format`]: formats of the log, and the builds that read them
//! - [`ids`], [`quantity`], [`time`], `span.rs`, [`tasks`]: ids, amounts, times, durations, task ranges
//! - [`job`], [`policy`], [`shares`], [`grants`], [`quota`], [`budget`], [`reservation`], [`revise`], [`measured`]: documents
//! - [`container`], [`classes`], [`needs`], [`roles`], [`service`], [`python`], [`workdir`]: parts of a job
//! - [`decider`], `fact.rs`, `log_clock.rs`, [`placement_authority`], `incarnations.rs`: folds, log time, valid reports
//! - `defaults.rs`, `lenient_int.rs`: helpers for serde
//! - [`sanitize`], [`suggest`]: text for people

pub mod budget;
pub mod classes;
pub mod container;
pub mod decider;
mod defaults;
pub mod envelope;
pub mod events;
mod fact;
pub mod format;
pub mod grants;
pub mod ids;
mod incarnations;
pub mod intake;
pub mod job;
mod lenient_int;
mod log_clock;
pub mod measured;
pub mod needs;
mod objective;
pub mod placement_authority;
pub mod policy;
pub mod python;
pub mod quantity;
pub mod quota;
pub mod reservation;
pub mod revise;
pub mod roles;
pub mod sanitize;
pub mod serialized_spec;
pub mod service;
pub mod shares;
pub mod slurm;
mod span;
pub mod speed;
pub mod subject;
pub mod suggest;
pub mod tasks;
mod text;
pub mod time;
pub mod who;
pub mod workdir;

pub use classes::{JobClass, PriorityClass, WrittenClass};
pub use decider::{Decider, Decision, Fold, Proposal};
pub use defaults::is_default;
pub use envelope::{Body, CodecError, Envelope, Recorded};
pub use events::{Basis, Event, EventType, Writer};
pub use fact::{Fact, KeptFact};
pub use format::{Build, Format, NewerFormat, Reads};
pub use ids::{
    ContainerId, Epoch, GatewayId, Incarnation, JobId, NodeId, QueueId, Rank, ReservationId,
    Sequence, TenantId,
};
pub use incarnations::Incarnations;
pub use lenient_int::{maybe as maybe_whole, whole};
pub use log_clock::{LogClock, Step};
pub use measured::MeasuredDocument;
pub use needs::Needs;
pub use placement_authority::PlacementAuthority;
pub use python::{Python, WrittenPython};
pub use quantity::{Amounts, Resource};
pub use quota::Quota;
pub use revise::ReviseDocument;
pub use roles::AuxiliaryRoles;
pub use serialized_spec::SerializedSpec;
pub use shares::{Memory, Shares};
pub use span::Span;
pub use subject::Prefix;
pub use tasks::TaskRanges;
pub use text::Text;
pub use time::Timestamp;
pub use who::{By, Role};
pub use workdir::{Workdir, WrittenWorkdir};
