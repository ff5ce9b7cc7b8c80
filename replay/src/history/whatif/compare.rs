//! Compares two courses of a fork as change less identity, so that the model's error cancels.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::JobId;

use super::answer::{Differs, Excluded, JobLine, Metric, ModelError, Place, TenantLine, Variant};
use super::fork::{Forked, Unknown};
use super::run::{Allocated, Ran};
use crate::history::changes::Changes;
use crate::random::Random;
use crate::simulate::{End, JobRecord, mean};
use dormouse_state::speed::curve_fit::median;

const SAMPLES: u32 = 200;

/// Returns the first difference of two courses.
#[must_use]
pub fn first_difference(left: &Ran, right: &Ran) -> Option<Place> {
    let epochs: BTreeSet<_> = left
        .decisions
        .keys()
        .chain(right.decisions.keys())
        .collect();
    let epoch = epochs
        .into_iter()
        .find(|epoch| !same(left.decisions.get(epoch), right.decisions.get(epoch)))?;
    let (first, second) = (left.decisions.get(epoch), right.decisions.get(epoch));
    let known = first.or(second)?;
    let none = BTreeMap::new();
    let (before, after) = (
        first.map_or(&none, |it| &it.jobs),
        second.map_or(&none, |it| &it.jobs),
    );
    let names: BTreeSet<&JobId> = before.keys().chain(after.keys()).collect();
    let jobs = names.into_iter().map(|job| Differs {
        job: job.to_string(),
        left: before.get(job).copied(),
        right: after.get(job).copied(),
    });
    Some(Place {
        epoch: epoch.0,
        sequence: known.sequence,
        at: known.at,
        jobs: jobs.filter(|it| it.left != it.right).collect(),
    })
}

fn same(left: Option<&Allocated>, right: Option<&Allocated>) -> bool {
    left.map(|it| &it.jobs) == right.map(|it| &it.jobs)
}

/// Returns the model's error against the log.
#[must_use]
pub fn model_error(forked: &Forked<'_>, log: &Ran, identity: &Ran) -> ModelError {
    let fork_s = forked.now.seconds_since(forked.span.0);
    let end_s = forked.span.1.seconds_since(forked.span.0);
    let equal = log
        .decisions
        .iter()
        .filter(|(epoch, decided)| same(Some(decided), identity.decisions.get(epoch)));
    let modelled = completed(identity);
    let errors: Vec<f64> = log
        .outcome
        .jobs
        .iter()
        .filter(|job| job.end == End::Completed && job.ended_s > fork_s)
        .filter_map(|job| {
            let (real, modelled) = (jct_s(job), jct_s(modelled.get(&job.job)?));
            (real > 0.0).then_some((modelled - real).abs() / real)
        })
        .collect();
    let loss = |ran: &Ran| mean(&ran.outcome.loss, fork_s, end_s);
    // Decisions after the end of the log cannot be compared.
    let within = Ran {
        decisions: identity
            .decisions
            .iter()
            .filter(|(_, it)| it.at <= forked.span.1)
            .map(|(epoch, it)| (*epoch, it.clone()))
            .collect(),
        ..identity.clone()
    };
    ModelError {
        decisions_equal: equal.count() as u64,
        decisions: log.decisions.len() as u64,
        first_difference: first_difference(log, &within),
        jobs: errors.len() as u64,
        jct_p50: quantile(errors.clone(), 0.5),
        jct_p90: quantile(errors, 0.9),
        loss: loss(&within) - loss(log),
    }
}

fn completed(ran: &Ran) -> BTreeMap<&JobId, &JobRecord> {
    let jobs = ran.outcome.jobs.iter();
    let completed = jobs.filter(|job| job.end == End::Completed);
    completed.map(|job| (&job.job, job)).collect()
}

fn jct_s(job: &JobRecord) -> f64 {
    job.ended_s - job.submitted_s
}

fn waiting_s(job: &JobRecord) -> f64 {
    job.started_s.unwrap_or(job.ended_s) - job.submitted_s
}

fn container_h(job: &JobRecord) -> f64 {
    let bars = job.bars.iter();
    let each = bars.map(|bar| (bar.to_s - bar.from_s) * f64::from(bar.containers));
    each.sum::<f64>() / 3600.0
}

fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let count = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of a list"
    )]
    let index = ((count * part).ceil() as usize).saturating_sub(1);
    values.get(index).copied().unwrap_or(0.0)
}

struct Pair<'a> {
    job: &'a JobId,
    identity: &'a JobRecord,
    changed: &'a JobRecord,
}

type Over<'a> = &'a dyn Fn(&Ran) -> f64;

type OfJobs = fn(&[&JobRecord], &Ran) -> f64;

const OF_JOBS: [(&str, OfJobs); 4] = [
    ("jct_s", |jobs, _| average(jobs, jct_s)),
    ("waiting_s", |jobs, _| average(jobs, waiting_s)),
    ("container_h", |jobs, _| {
        jobs.iter().map(|it| container_h(it)).sum()
    }),
    ("adjustments", |jobs, ran| {
        let each = jobs
            .iter()
            .map(|it| ran.adjusted.get(&it.job).copied().unwrap_or(0));
        each.map(f64::from).sum()
    }),
];

fn average(jobs: &[&JobRecord], of: fn(&JobRecord) -> f64) -> f64 {
    let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX).max(1);
    jobs.iter().map(|job| of(job)).sum::<f64>() / f64::from(count)
}

/// Compares a change, with its draws, with the unchanged course.
pub struct Comparison<'a> {
    pub forked: &'a Forked<'a>,
    pub identity: &'a Ran,
    pub changed: &'a Ran,
    /// The runs of each draw: without and with the changes.
    pub draws: &'a [(Ran, Ran)],
}

impl Comparison<'_> {
    #[must_use]
    pub fn variant(&self, changes: &Changes) -> Variant {
        let pairs = self.pairs();
        let mut tenants: BTreeMap<&str, Vec<&Pair<'_>>> = BTreeMap::new();
        for pair in &pairs {
            tenants.entry(pair.job.tenant()).or_default().push(pair);
        }
        let by_tenant = tenants.into_iter().map(|(tenant, pairs)| {
            let mut metrics = self.of_jobs(&pairs, true);
            metrics.push(self.utilization_of(tenant));
            TenantLine {
                tenant: tenant.to_owned(),
                jobs: pairs.len() as u64,
                metrics,
            }
        });
        let by_job = pairs.iter().map(|pair| JobLine {
            job: pair.job.clone(),
            metrics: self.of_jobs(&[pair], false),
        });
        let all: Vec<&Pair<'_>> = pairs.iter().collect();
        let mut cluster = self.of_jobs(&all, true);
        cluster.extend(self.over_time());
        Variant {
            label: changes.label.clone(),
            changes: changes.written.clone(),
            mode: "change".to_owned(),
            first_difference: first_difference(self.identity, self.changed),
            cluster,
            by_tenant: by_tenant.collect(),
            by_job: by_job.collect(),
            excluded_jobs: self.excluded(&pairs),
            extrapolated_jobs: self.extrapolated(&pairs),
        }
    }

    fn pairs(&self) -> Vec<Pair<'_>> {
        let fork_s = self.forked.now.seconds_since(self.forked.span.0);
        let changed = completed(self.changed);
        let identity = completed(self.identity).into_iter();
        let both = identity.filter_map(|(job, identity)| {
            let changed = changed.get(job).copied()?;
            (identity.ended_s > fork_s).then_some(Pair {
                job,
                identity,
                changed,
            })
        });
        both.collect()
    }

    fn of_jobs(&self, pairs: &[&Pair<'_>], sampled: bool) -> Vec<Metric> {
        let identity: Vec<&JobRecord> = pairs.iter().map(|pair| pair.identity).collect();
        let changed: Vec<&JobRecord> = pairs.iter().map(|pair| pair.changed).collect();
        let names: Vec<&JobId> = pairs.iter().map(|pair| pair.job).collect();
        let drawn: Vec<_> = self
            .draws
            .iter()
            .filter_map(|(left, right)| {
                let (known, with) = (completed(left), completed(right));
                let of = |jobs: &BTreeMap<&JobId, &JobRecord>| -> Option<Vec<JobRecord>> {
                    let found = names
                        .iter()
                        .map(|job| jobs.get(*job).map(|it| (*it).clone()));
                    found.collect()
                };
                Some((of(&known)?, of(&with)?, left, right))
            })
            .collect();
        let metrics = OF_JOBS.iter().map(|(name, of)| {
            let (left, right) = (of(&identity, self.identity), of(&changed, self.changed));
            let draws = drawn.iter().map(|(known, with, left, right)| {
                let known: Vec<&JobRecord> = known.iter().collect();
                let with: Vec<&JobRecord> = with.iter().collect();
                of(&with, right) - of(&known, left)
            });
            Metric {
                metric: (*name).to_owned(),
                identity: left,
                changed: right,
                difference: right - left,
                interval: eight_in_ten(draws.collect()),
                interval_jobs: (sampled && *name != "adjustments" && *name != "container_h")
                    .then(|| self.sampled(&identity, &changed, *of))
                    .flatten(),
            }
        });
        metrics.collect()
    }

    fn sampled(
        &self,
        identity: &[&JobRecord],
        changed: &[&JobRecord],
        of: OfJobs,
    ) -> Option<[f64; 2]> {
        if identity.len() < 2 {
            return None;
        }
        let mut random = Random::new(1);
        let differences = (0..SAMPLES).map(|_| {
            let chosen: Vec<usize> = (0..identity.len())
                .map(|_| usize::try_from(random.below(identity.len() as u64)).unwrap_or(0))
                .collect();
            let take = |from: &[&JobRecord]| -> f64 {
                let some: Vec<&JobRecord> = chosen.iter().map(|index| from[*index]).collect();
                of(&some, self.identity)
            };
            take(changed) - take(identity)
        });
        eight_in_ten(differences.collect())
    }

    fn utilization_of(&self, tenant: &str) -> Metric {
        let (fork_s, end_s) = self.span_s();
        self.over("utilization", &|ran| {
            let points = ran.outcome.utilization_by.get(tenant);
            points.map_or(0.0, |points| mean(points, fork_s, end_s))
        })
    }

    fn span_s(&self) -> (f64, f64) {
        let (begin, end) = self.forked.span;
        let fork_s = self.forked.now.seconds_since(begin);
        (fork_s, end.seconds_since(begin))
    }

    fn over_time(&self) -> Vec<Metric> {
        let (fork_s, end_s) = self.span_s();
        let of: [(&str, Over<'_>); 3] = [
            ("utilization", &|ran| {
                mean(&ran.outcome.utilization, fork_s, end_s)
            }),
            ("loss", &|ran| mean(&ran.outcome.loss, fork_s, end_s)),
            ("makespan_s", &|ran| ran.outcome.figures.makespan_s - fork_s),
        ];
        of.into_iter()
            .map(|(name, of)| self.over(name, of))
            .collect()
    }

    fn over(&self, name: &str, of: Over<'_>) -> Metric {
        let draws = self.draws.iter();
        let draws = draws.map(|(left, right)| of(right) - of(left)).collect();
        Metric {
            metric: name.to_owned(),
            identity: of(self.identity),
            changed: of(self.changed),
            difference: of(self.changed) - of(self.identity),
            interval: eight_in_ten(draws),
            interval_jobs: None,
        }
    }

    fn excluded(&self, pairs: &[Pair<'_>]) -> Vec<Excluded> {
        let compared: BTreeSet<&JobId> = pairs.iter().map(|pair| pair.job).collect();
        let there = completed(self.identity);
        let now = completed(self.changed);
        let live = self.forked.live();
        let new = now.keys().copied().filter(|job| !live.contains(*job));
        let all = live.iter().copied().chain(new);
        let left_out = all.filter(|job| !compared.contains(*job)).map(|job| {
            let why = match self.forked.unknown.get(job) {
                Some(Unknown::NoProgress) => "no_progress",
                Some(Unknown::NoStepsTotal) => "no_steps_total",
                None if self.changed.refused.contains(job) => "refused",
                None if !live.contains(job) => "new",
                None if there.contains_key(job) || now.contains_key(job) => "not_ended",
                None => "left_out",
            };
            Excluded {
                job: job.to_string(),
                why: why.to_owned(),
            }
        });
        left_out.collect()
    }

    fn extrapolated(&self, pairs: &[Pair<'_>]) -> u64 {
        let beyond = pairs.iter().filter(|pair| {
            let known = self.forked.models.jobs.get(pair.job);
            let Some((least, most)) = known.map(|it| it.seen).filter(|seen| seen.1 > 0) else {
                return false;
            };
            let bars = pair.changed.bars.iter();
            bars.clone()
                .any(|bar| bar.containers < least || bar.containers > most)
        });
        beyond.count() as u64
    }
}

fn eight_in_ten(values: Vec<f64>) -> Option<[f64; 2]> {
    (values.len() >= 5).then(|| [quantile(values.clone(), 0.1), quantile(values, 0.9)])
}

#[must_use]
pub fn known_error(errors: Vec<f64>) -> Option<f64> {
    median(errors)
}
