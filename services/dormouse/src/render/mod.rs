//! Renders answers as tables, pages and charts, as pure functions; only [`Style::of_stdout`] looks at the
//! terminal.
//!
//! - `table`, `tenants`, `notebooks`: lists, and pages of a node and a tenant.
//! - `cluster`, `job`, `service`: the overview, the ledger, and pages of a job.
//! - `chart`, `svg`, `axis`: timelines.
//! - `style`, `humanize`: colours, tables, numbers.

mod axis;
mod chart;
mod cluster;
mod humanize;
mod job;
mod notebooks;
mod service;
mod speed;
mod style;
mod svg;
mod table;
mod tenants;
#[cfg(test)]
mod tests;

pub use chart::timeline;
pub use cluster::{cluster, ledger};
pub use humanize::{age as span, bytes, date};
pub use job::job;
pub use notebooks::notebooks;
pub use style::Style;
pub(crate) use style::right;
pub use svg::{speed as speed_svg, timeline as timeline_svg};
pub use table::{jobs, node, nodes};
pub use tenants::{tenant, tenants};
