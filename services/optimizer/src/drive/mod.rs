//! Drives the searches: which jobs take part, which instance of P2 they make, and which stage answers it.
//!
//! - [`dorm_driver`]: the longest feasible prefix of the queue, then the whole decision;
//! - [`participants`]: the jobs that take part, and their instances;
//! - [`backfill`]: jobs behind a blocked head;
//! - [`urgent`], [`preempt`]: services, notebooks and preempting classes come first;
//! - [`ladder`]: the stages that search one instance, cheap ones first;
//! - [`independent_bound`]: every job at its best, as if alone;
//! - [`price_search`]: bounds and candidates from prices, on large clusters;
//! - [`search`]: the best candidate, the bound and the limits of one search;
//! - [`work`]: the steps of the whole decision;
//! - [`waiting`]: why a job waits.
//!
//! A stage stays if the benchmarks' gap or time grows without it. Without the class prices
//! (`dual::warm_start`) single events take ten times as long; without `primal::min_restart_heuristic` three
//! times. Without exchanges of restarts (`primal::restart_local_search`), without `primal::pattern_selection`
//! or with one price round, large clusters miss the gap of one per cent; without `dual::subset_dp` half of
//! those with 24 shapes do.

pub(crate) mod backfill;
pub(crate) mod dorm_driver;
pub(crate) mod independent_bound;
pub(crate) mod ladder;
pub(crate) mod participants;
pub(crate) mod preempt;
pub(crate) mod price_search;
pub(crate) mod search;
pub(crate) mod urgent;
pub(crate) mod waiting;
pub(crate) mod work;
