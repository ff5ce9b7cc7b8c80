//! A fair queue of queries over askers: tenants and operators. Pure. Each asker has a limit of running and of
//! waiting questions; askers with waiting ones take turns.

use std::collections::{BTreeMap, VecDeque};

/// Limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub at_once: usize,
    pub of_one: usize,
    pub waiting_of_one: usize,
}

struct Line<T> {
    waiting: VecDeque<T>,
    under_way: usize,
}

/// A fair queue over askers.
pub struct FairQueue<T> {
    bounds: Bounds,
    lines: BTreeMap<String, Line<T>>,
    /// Askers with waiting questions, the last served at the end.
    order: VecDeque<String>,
    under_way: usize,
}

impl<T> FairQueue<T> {
    /// Creates an empty queue.
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lines: BTreeMap::new(),
            order: VecDeque::new(),
            under_way: 0,
        }
    }

    /// Enqueues a question.
    ///
    /// # Errors
    /// The question, if the asker's queue is full.
    pub fn ask(&mut self, asker: &str, question: T) -> Result<(), T> {
        let Bounds {
            of_one,
            waiting_of_one,
            ..
        } = self.bounds;
        let line = self.lines.entry(asker.to_owned()).or_insert_with(|| Line {
            waiting: VecDeque::new(),
            under_way: 0,
        });
        if line.under_way + line.waiting.len() >= of_one + waiting_of_one {
            return Err(question);
        }
        if line.waiting.is_empty() {
            self.order.push_back(asker.to_owned());
        }
        line.waiting.push_back(question);
        Ok(())
    }

    /// Returns the next question, running until [`FairQueue::done`].
    pub fn next(&mut self) -> Option<(String, T)> {
        if self.under_way >= self.bounds.at_once {
            return None;
        }
        for _ in 0..self.order.len() {
            let asker = self.order.pop_front()?;
            let line = self.lines.get_mut(&asker)?;
            if line.under_way >= self.bounds.of_one {
                self.order.push_back(asker);
                continue;
            }
            let question = line.waiting.pop_front()?;
            line.under_way += 1;
            self.under_way += 1;
            if !line.waiting.is_empty() {
                self.order.push_back(asker.clone());
            }
            return Some((asker, question));
        }
        None
    }

    /// Ends one of the asker's running questions.
    pub fn done(&mut self, asker: &str) {
        let Some(line) = self.lines.get_mut(asker) else {
            return;
        };
        line.under_way = line.under_way.saturating_sub(1);
        self.under_way = self.under_way.saturating_sub(1);
        if line.under_way == 0 && line.waiting.is_empty() {
            self.lines.remove(asker);
        }
    }
}

/// Separate queues of operators and tenants.
pub struct RequestScheduler<T> {
    operators: FairQueue<T>,
    tenants: FairQueue<T>,
}

const OPERATORS: &str = "";

impl<T> RequestScheduler<T> {
    /// Creates empty queues.
    pub const fn new(operators: usize, waiting: usize, tenants: Bounds) -> Self {
        Self {
            operators: FairQueue::new(Bounds {
                at_once: operators,
                of_one: operators,
                waiting_of_one: waiting,
            }),
            tenants: FairQueue::new(tenants),
        }
    }

    const fn of(&mut self, tenant: Option<&str>) -> &mut FairQueue<T> {
        match tenant {
            Some(_) => &mut self.tenants,
            None => &mut self.operators,
        }
    }

    /// Enqueues a tenant's or an operator's question.
    ///
    /// # Errors
    /// The question, if the asker's queue is full.
    pub fn ask(&mut self, tenant: Option<&str>, question: T) -> Result<(), T> {
        let turns = self.of(tenant);
        turns.ask(tenant.unwrap_or(OPERATORS), question)
    }

    /// Returns the next question, operators first.
    pub fn next(&mut self) -> Option<(Option<String>, T)> {
        if let Some((_, question)) = self.operators.next() {
            return Some((None, question));
        }
        let (tenant, question) = self.tenants.next()?;
        Some((Some(tenant), question))
    }

    /// Ends a question.
    pub fn done(&mut self, tenant: Option<&str>) {
        self.of(tenant).done(tenant.unwrap_or(OPERATORS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        at_once: 3,
        of_one: 2,
        waiting_of_one: 5,
    };

    fn named(turns: &mut FairQueue<u32>) -> Vec<(String, u32)> {
        std::iter::from_fn(|| turns.next()).collect()
    }

    fn pair(asker: &str, question: u32) -> (String, u32) {
        (asker.to_owned(), question)
    }

    #[test]
    fn one_that_asks_without_end_is_told_to_ask_again_and_others_have_their_turns() {
        let mut turns = FairQueue::new(BOUNDS);
        let taken = (0..100).filter(|question| turns.ask("ads", *question).is_ok());
        assert_eq!(taken.count(), 7);
        assert_eq!(named(&mut turns), [pair("ads", 0), pair("ads", 1)]);
        turns.ask("vision", 200).expect("room");
        turns.ask("search", 300).expect("room");
        assert_eq!(named(&mut turns), [pair("vision", 200)], "three at once");
        turns.done("ads");
        assert_eq!(named(&mut turns), [pair("search", 300)], "in turns");
        turns.done("vision");
        turns.done("search");
        assert_eq!(named(&mut turns), [pair("ads", 2)], "two of one at once");
        assert!(turns.ask("ads", 8).is_ok());
        assert_eq!(turns.ask("ads", 9), Err(9));
    }

    #[test]
    fn what_is_answered_leaves_nothing() {
        let mut turns = FairQueue::new(BOUNDS);
        for round in 0..10 {
            for asker in ["a", "b", "c"] {
                turns.ask(asker, round).expect("room");
            }
            let answered = named(&mut turns);
            assert_eq!(answered.len(), 3);
            answered.iter().for_each(|(asker, _)| turns.done(asker));
        }
        assert!(turns.lines.is_empty() && turns.order.is_empty() && turns.under_way == 0);
    }

    #[test]
    fn operators_wait_for_no_tenant() {
        let mut desk = RequestScheduler::new(1, 1, BOUNDS);
        for tenant in ["ads", "ads", "search", "vision"] {
            desk.ask(Some(tenant), 0).expect("room");
        }
        while desk.next().is_some() {}
        desk.ask(None, 1).expect("room");
        assert_eq!(desk.next(), Some((None, 1)));
        desk.ask(None, 2).expect("one waits");
        assert_eq!(desk.ask(None, 3), Err(3));
        assert_eq!(desk.next(), None);
        desk.done(None);
        assert_eq!(desk.next(), Some((None, 2)));
    }
}
