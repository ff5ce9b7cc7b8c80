//! The runs that a page compares, and the sections of the page.

use super::svg::escape;
use crate::simulate::Outcome;

/// A run and its name.
pub struct Run<'a> {
    pub name: String,
    pub outcome: &'a Outcome,
}

const COLOURS: usize = 7;

pub fn colour(index: usize) -> String {
    format!("var(--c{})", index % COLOURS)
}

pub fn section(page: &mut String, name: &str, what: &str, drawing: &str) {
    page.push_str(&format!(
        "<h2>{}</h2><p>{}</p>{drawing}",
        escape(name),
        escape(what)
    ));
}
