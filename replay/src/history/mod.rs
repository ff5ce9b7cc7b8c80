//! Questions about a log that is there: what everybody got ([`ledger`]).
//!
//! All of it is the services' own folds and decisions, on a fork of a log: nothing here is a second
//! model of what they do.

pub mod ledger;
