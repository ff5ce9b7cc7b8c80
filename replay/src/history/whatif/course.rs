//! A course that a fork may take: curves, and what jobs have to do by them.

use std::collections::BTreeMap;

use dormouse_messages::JobId;

use super::fork::{Forked, Work};
use super::models::Models;
use super::observed::{Observed, Seen};
use crate::engine::{ModelAgents, ModelJob};
use crate::random::Random;

/// What jobs have to do after the fork, by some curves.
pub struct Course<'a> {
    pub(super) models: Models,
    pub(super) work: Work,
    pub(super) observed: &'a Observed,
    pub(super) imagined: BTreeMap<JobId, f64>,
}

impl Course<'_> {
    /// The same, where jobs whose end nobody knows have the work of one that completed: of one alike,
    /// else of any, and more than they have done. Where no job had so much to do, as much again as
    /// they have done. What a job says that it has left is off as such words were.
    #[must_use]
    pub fn imagined(mut self, forked: &Forked<'_>, random: &mut Random) -> Self {
        for id in forked.unknown.keys() {
            let Some(seen) = self.observed.jobs.get(id) else {
                continue;
            };
            let done = self.work.agents.done(id, forked.now).unwrap_or(0.0);
            let form = self.models.jobs.get(id).map(|it| it.form);
            let candidates = |alike: bool| -> Vec<f64> {
                let others = self.work.all.iter().filter(|(_, work)| **work > done);
                let same = others.filter(|(other, _)| {
                    let known = self.observed.jobs.get(*other);
                    let same_form = self.models.jobs.get(*other).map(|it| it.form) == form;
                    known.is_some_and(|it| match alike {
                        true => it.kind == seen.kind,
                        false => same_form && it.tasks.is_none(),
                    })
                });
                same.map(|(_, work)| *work).collect()
            };
            let mut from = candidates(true);
            if from.len() < 5 {
                from.extend(candidates(false));
            }
            let work = match from.is_empty() {
                true => done * (1.0 + random.exponential(1.0)) + 60.0,
                false => *random.choose(&from),
            };
            self.imagined.insert(id.clone(), work);
        }
        for (id, all) in &self.work.all {
            let done = self.work.agents.done(id, forked.now);
            let curve = self.models.jobs.get(id).and_then(|it| it.curve);
            let (Some(done), Some(curve)) = (done.filter(|done| done < all), curve) else {
                continue;
            };
            let containers = self.observed.jobs.get(id).and_then(Seen::containers);
            let left_s = (all - done) * curve.step_s(containers.unwrap_or(1));
            if let Some(late) = self.observed.late(left_s, random) {
                self.imagined.insert(id.clone(), done + (all - done) * late);
            }
        }
        self
    }

    /// The model of a job.
    #[must_use]
    pub fn model(&self, id: &JobId) -> ModelJob {
        let mut model = self.models.model(id, self.observed);
        let known = self.imagined.get(id).or_else(|| self.work.all.get(id));
        if let Some(all) = known {
            model.work_container_s = *all;
        }
        model.failures = self.work.failures.get(id).cloned().unwrap_or_default();
        model
    }

    /// The agents at the fork, with these models.
    pub(super) fn agents(&self) -> ModelAgents {
        let mut agents = self.work.agents.clone();
        for id in self.observed.jobs.keys() {
            agents.remodel(id, self.model(id));
        }
        agents
    }
}
