//! A possible course of a fork: curves, and the jobs' work by them.

use std::collections::BTreeMap;

use dormouse_messages::{JobId, Timestamp};

use super::models::Form;
use super::models::Models;
use super::observed::{Observed, Seen};
use crate::engine::{ModelAgents, ModelJob};
use crate::random::Random;

/// The jobs' work after the fork, by some curves.
pub struct Course<'a> {
    pub(super) models: Models,
    pub(super) work: Work,
    pub(super) observed: &'a Observed,
    pub(super) imagined: BTreeMap<JobId, f64>,
}

/// The work of jobs that a log shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    pub(super) all: BTreeMap<JobId, f64>,
    pub(super) failures: BTreeMap<JobId, Vec<f64>>,
    pub(super) agents: ModelAgents,
}

struct Drawn<'a> {
    work: f64,
    weight: f64,
    seen: &'a Seen,
    form: Option<Form>,
}

fn weighted(from: &[&Drawn<'_>], random: &mut Random) -> Option<f64> {
    let all: f64 = from.iter().map(|it| it.weight).sum();
    let mut left = all * random.unit();
    let found = from.iter().find(|it| {
        left -= it.weight;
        left <= 0.0
    });
    found.or(from.last()).map(|it| it.work)
}

impl<'a> Course<'a> {
    fn drawn(&self, id: &JobId, work: f64, random: &mut Random) -> Option<Drawn<'a>> {
        Some(Drawn {
            work,
            weight: random.exponential(1.0),
            seen: self.observed.jobs.get(id)?,
            form: self.models.jobs.get(id).map(|it| it.form),
        })
    }

    /// Draws the work of jobs with an unknown end from similar jobs, else from any, with more than the work
    /// done. A stated remainder is scaled by the past errors of such statements.
    ///
    /// - Completed jobs are biased towards short ones, so running jobs are drawn first (Kaplan–Meier).
    /// - The sample is small, so each draw weights it at random (Rubin's Bayesian bootstrap).
    #[must_use]
    pub fn imagined<'j>(
        mut self,
        unknown: impl Iterator<Item = &'j JobId>,
        now: Timestamp,
        random: &mut Random,
    ) -> Self {
        let mut pool: Vec<Drawn> = Vec::new();
        for (id, work) in &self.work.all {
            pool.extend(self.drawn(id, *work, random));
        }
        let done = |id: &JobId| self.work.agents.done(id, now).unwrap_or(0.0);
        let mut unknown: Vec<(f64, &JobId)> = unknown.map(|id| (done(id), id)).collect();
        unknown.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
        for (done, id) in unknown {
            let Some(seen) = self.observed.jobs.get(id) else {
                continue;
            };
            let form = self.models.jobs.get(id).map(|it| it.form);
            let alike = |it: &&Drawn| it.work > done && it.seen.kind == seen.kind;
            let mut from: Vec<&Drawn> = pool.iter().filter(alike).collect();
            if from.len() < 5 {
                let same =
                    |it: &&Drawn| it.work > done && it.form == form && it.seen.tasks.is_none();
                from.extend(pool.iter().filter(same));
            }
            let work = match weighted(&from, random) {
                None => done * (1.0 + random.exponential(1.0)) + 60.0,
                Some(work) => work,
            };
            if done > 0.0 {
                pool.extend(self.drawn(id, work, random));
            }
            self.imagined.insert(id.clone(), work);
        }
        for (id, all) in &self.work.all {
            let done = self.work.agents.done(id, now);
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

    /// Returns the model of a job.
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

    pub(super) fn agents(&self) -> ModelAgents {
        let mut agents = self.work.agents.clone();
        for id in self.observed.jobs.keys() {
            agents.remodel(id, self.model(id));
        }
        agents
    }
}
