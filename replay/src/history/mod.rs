//! Answers questions about an existing log. Every answer uses the services' own folds and decisions, not
//! a second model.
//!
//! - [`ledger`]: the tenants' and jobs' shares, use and losses.
//! - [`explain`]: the reasons for a state; [`fork`]: the states for hypothetical decisions.
//! - [`plan`], [`whatif`], [`changes`]: the effects of changes, now or on the past.
//! - [`bisect`], [`diff`]: the first event with a property; the first different decision.
//! - [`slice`], [`trace`], [`anonymise`]: parts and other forms of a log.
//! - [`redact`]: hides other tenants' names.

pub mod anonymise;
pub mod bisect;
pub mod changes;
pub mod diff;
pub mod explain;
pub mod fork;
pub mod ledger;
pub mod plan;
pub mod redact;
pub mod slice;
pub mod trace;
pub mod whatif;
