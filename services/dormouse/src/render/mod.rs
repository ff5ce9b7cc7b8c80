//! What the answers look like: tables, pages and drawings, as pure functions from the query
//! structs to text.
//!
//! Nothing here asks the cluster or prints. A [`Style`] says whether there may be colour and how
//! wide the text may be; only [`Style::of_stdout`] looks at the terminal and at `NO_COLOR`.

mod axis;
mod chart;
mod cluster;
mod job;
mod notebooks;
mod service;
mod style;
mod svg;
mod table;
mod tenants;
#[cfg(test)]
mod tests;
mod trace;
mod words;

pub use chart::timeline;
pub use cluster::{cluster, ledger};
pub use job::job;
pub use notebooks::notebooks;
pub use style::Style;
pub(crate) use style::right;
pub use svg::timeline as timeline_svg;
pub use table::{jobs, node, nodes};
pub use tenants::{tenant, tenants};
pub use trace::trace;
pub use words::{age as span, bytes, date};
