//! P2 of the Dorm paper: utilization under bounds on unfairness and restarts.
//!
//! 1. [`admit`], [`backfill`]: which jobs take part; services and notebooks come first ([`urgent`]).
//! 2. [`pipeline`]: counts and slots for them.
//! 3. [`assign`]: slots to jobs.
//! 4. [`revert`], [`stay`]: restarts and moves that are not worth it are taken back; [`gather`]:
//!    training leaves nodes that cost it more than they bring; [`arrange`]: what starts goes where it
//!    would rather be; [`near`]: parameter servers go to their workers.
//! 5. [`diagnose`]: why the others wait.
//!
//! [`conflict`] and [`forced`] answer questions about a job that is to have more than it was given.
//!
//! What stands beside a job's workers (its roles) are jobs of their own in an instance: of a fixed number,
//! in it exactly while their job is, without a loss, and where they are as long as it runs.
//!
//! Which nodes a job may be on stands in rooms and demands ([`columns`]; [`confine`] for one decision).
//!
//! Where there is room for all, that is it ([`alone`]). Small instances go to HiGHS ([`model`]). On
//! large ones ([`large`]) new jobs are first put beside what runs ([`beside`]); then prices are found
//! that bound P2 ([`opening`] and [`ascent`], by [`shor`] and [`pace`]; [`relax`], [`release`],
//! [`beyond`], with [`lattice`] and [`rates`] for what room is worth), then restarts ([`choose`]) and
//! containers ([`pack`], [`settle`], [`agree`], [`refill`], [`knapsack`]) that come close to the bound.

pub(crate) mod admit;
pub(crate) mod agree;
pub(crate) mod alone;
pub(crate) mod arrange;
pub(crate) mod ascent;
pub(crate) mod assign;
pub(crate) mod backfill;
pub(crate) mod beside;
pub(crate) mod beyond;
pub(crate) mod choose;
pub(crate) mod columns;
pub(crate) mod confine;
pub mod conflict;
pub(crate) mod devices;
pub(crate) mod diagnose;
pub mod forced;
pub(crate) mod gather;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod instance;
pub(crate) mod knapsack;
pub(crate) mod large;
pub(crate) mod lattice;
pub(crate) mod model;
pub(crate) mod near;
pub(crate) mod opening;
pub(crate) mod pace;
pub(crate) mod pack;
pub(crate) mod pipeline;
pub(crate) mod place;
pub(crate) mod plan;
mod preempt;
pub(crate) mod rates;
pub(crate) mod refill;
pub(crate) mod relax;
pub(crate) mod release;
pub(crate) mod revert;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod settle;
pub(crate) mod shor;
pub(crate) mod solver;
pub(crate) mod stay;
pub(crate) mod urgent;
