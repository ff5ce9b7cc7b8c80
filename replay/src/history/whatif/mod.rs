//! Simulates the course of a log under changes, from a fork on. Submissions keep their times: users'
//! reactions are not modelled.
//!
//! 1. `fork` takes the services' states, the agents and the measures at the fork.
//! 2. `script` keeps external events; `run` lets the shipped services decide everything else.
//! 3. `models` fits the jobs' speed to their reports (`observed`, `incarnation`, `fit`).
//! 4. The run without changes (*identity*) shows the model's error. `compare` reports change less
//!    identity, with draws of the unknown curves (`work_estimate`); `answer` has the types.

mod answer;
mod compare;
mod fork;
mod incarnation;
mod models;
mod observed;
mod run;
mod script;
mod work_estimate;

use std::collections::BTreeMap;

use super::changes::Changes;
use crate::random::Random;
use crate::threads::in_threads;
pub use answer::*;
pub use compare::first_difference;
pub use fork::{ForkAt, Forked, History, Unknown};
pub use models::{Form, Models};
pub use run::{Allocated, Ran, WhatifError, recorded, run};
pub(crate) use run::{GIVEN_MS, ended};
pub use work_estimate::Course;

/// Options of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub draws: u32,
    pub threads: usize,
}

/// An answer with its courses: the unchanged one first, then one per variant.
pub struct Answered {
    pub answer: Answer,
    pub courses: Vec<(String, Ran)>,
}

/// Answers the question.
///
/// # Errors
/// Nothing follows the fork, a change does not fit, or the services break a rule.
pub fn whatif(
    history: &History,
    forked: &Forked<'_>,
    variants: &[Changes],
    options: Options,
) -> Result<Answered, WhatifError> {
    if forked.after.is_empty() && variants.iter().all(Changes::is_empty) {
        return Err(WhatifError::NothingFollows(forked.sequence));
    }
    let variants: Vec<&Changes> = variants.iter().filter(|it| !it.is_empty()).collect();
    let draws = if variants.is_empty() || forked.models.is_certain() {
        0
    } else {
        options.draws
    };
    let mut random = Random::new(1);
    let mut courses = vec![forked.likely()];
    courses.extend((0..draws).map(|_| forked.with(history, forked.models.draw(&mut random))));
    let unchanged = Changes::default();
    let mut all: Vec<&Changes> = vec![&unchanged];
    all.extend(variants.iter().copied());
    let tasks: Vec<(usize, usize)> = (0..all.len())
        .flat_map(|change| (0..courses.len()).map(move |course| (change, course)))
        .collect();
    let ran = in_threads(tasks.len(), options.threads, |index| {
        let (change, course) = tasks[index];
        run(forked, &courses[course], all[change], |_| false)
    });
    let mut ran: BTreeMap<(usize, usize), Ran> = tasks
        .iter()
        .copied()
        .zip(ran)
        .map(|(task, ran)| Ok((task, ran?)))
        .collect::<Result<_, WhatifError>>()?;
    let log = recorded(forked);
    let mut listed = Vec::new();
    let (mut answered, mut named) = (Vec::new(), Vec::new());
    let Some(identity) = ran.get(&(0, 0)).cloned() else {
        return Err(WhatifError::NothingFollows(forked.sequence));
    };
    let error = compare::model_error(forked, &log, &identity);
    for (index, changes) in all.iter().enumerate().skip(1) {
        let Some(changed) = ran.remove(&(index, 0)) else {
            continue;
        };
        let draws: Vec<(Ran, Ran)> = (1..courses.len())
            .filter_map(|course| {
                let known = ran.get(&(0, course))?.clone();
                Some((known, ran.remove(&(index, course))?))
            })
            .collect();
        let comparison = compare::Comparison {
            forked,
            identity: &identity,
            changed: &changed,
            draws: &draws,
        };
        answered.push(comparison.variant(changes));
        named.push((changes.label.clone(), changed));
    }
    listed.push(("as it was".to_owned(), identity));
    listed.extend(named);
    let end = forked.after.last().or(forked.before.last());
    Ok(Answered {
        answer: Answer {
            fork: forked.sequence,
            at: forked.now,
            end: end.map_or(forked.sequence, |it| it.fact().sequence),
            identity: error,
            forms: forms(&forked.models),
            draws: u64::from(draws),
            variants: answered,
        },
        courses: listed,
    })
}

fn forms(models: &Models) -> Vec<FormLine> {
    let mut forms: BTreeMap<Form, (u64, Vec<f64>)> = BTreeMap::new();
    for known in models.jobs.values() {
        let (jobs, errors) = forms.entry(known.form).or_default();
        *jobs += 1;
        errors.extend(known.error);
    }
    let lines = forms.into_iter().map(|(form, (jobs, errors))| FormLine {
        form,
        jobs,
        error: compare::known_error(errors),
    });
    lines.collect()
}
