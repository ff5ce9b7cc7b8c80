//! Questions about a log that is there: what everybody got ([`ledger`]), why it is as it is
//! ([`explain`], on a [`fork`] of it), what would have become of it under changes ([`whatif`]), when something first was so ([`bisect`]); and parts and forms
//! of it for others to look at ([`slice`], [`trace`]).
//!
//! All of it is the services' own folds and decisions: nothing here is a second model of what they
//! do.

pub mod anonymise;
pub mod bisect;
pub mod changes;
pub mod diff;
pub mod explain;
pub mod fork;
pub mod ledger;
pub mod plan;
pub mod seen;
pub mod slice;
pub mod trace;
pub mod whatif;
