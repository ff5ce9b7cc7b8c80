//! P2 of the Dorm paper: utilization under bounds on unfairness and restarts.
//!
//! 1. [`admit`]: which jobs take part; 2. [`pipeline`]: counts and slots for them;
//! 3. [`assign`]: slots to jobs; 4. [`revert`]: restarts that are not worth it are taken back;
//! 5. [`diagnose`]: why the others wait.

pub(crate) mod admit;
pub(crate) mod assign;
pub(crate) mod diagnose;
pub(crate) mod dive;
pub(crate) mod groups;
pub(crate) mod instance;
pub(crate) mod model;
pub(crate) mod pipeline;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod revert;
pub(crate) mod settle;
pub(crate) mod solver;
