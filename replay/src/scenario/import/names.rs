//! Ids for recorded names: lower case, digits and `-`, each used once.

use std::collections::{BTreeMap, BTreeSet};

/// Shorter than an id, so that a number can follow.
const MOST_LETTERS: usize = 48;

/// Gives ids.
#[derive(Debug, Default)]
pub struct Names {
    known: BTreeMap<String, String>,
    taken: BTreeSet<String>,
}

impl Names {
    /// Returns the id of a name; equal names have one id, different names never.
    pub fn of(&mut self, name: &str) -> String {
        if let Some(id) = self.known.get(name) {
            return id.clone();
        }
        let id = self.next(name);
        self.known.insert(name.to_owned(), id.clone());
        id
    }

    /// Returns an id that no name has yet.
    pub fn next(&mut self, name: &str) -> String {
        let plain = plain(name);
        let mut id = plain.clone();
        let mut number = 1u32;
        while !self.taken.insert(id.clone()) {
            number += 1;
            id = format!("{plain}-{number}");
        }
        id
    }
}

fn plain(name: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        plain if plain.is_ascii_lowercase() || plain.is_ascii_digit() => plain,
        _ => '-',
    };
    let id: String = name.chars().take(MOST_LETTERS).map(letter).collect();
    match id.trim_matches('-') {
        "" => "unnamed".to_owned(),
        id => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_have_different_ids() {
        let mut names = Names::default();
        assert_eq!(names.of("ML_Lab"), "ml-lab");
        assert_eq!(names.of("ml.lab"), "ml-lab-2");
        assert_eq!(names.of("ML_Lab"), "ml-lab");
        assert_eq!(names.of(""), "unnamed");
        assert_eq!(names.of("x".repeat(99).as_str()).len(), MOST_LETTERS);
        let mut jobs = Names::default();
        assert_eq!(jobs.next("j12_3"), "j12-3");
        assert_eq!(jobs.next("j12_3"), "j12-3-2");
    }
}
