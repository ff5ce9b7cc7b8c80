//! Slurm's multifactor priority (`PriorityType=priority/multifactor`, classic fair-share) with EASY backfill, after
//! its manual: priority = 100,000 · 2^(−use / shares) + 1,000 · age / 7 days.

use std::collections::BTreeMap;

use super::{DAY_S, Trace};

const HALF_LIFE_S: f64 = 7.0 * DAY_S;
const WEIGHT_FAIR: f64 = 100_000.0;
const WEIGHT_AGE: f64 = 1_000.0;

struct Running {
    tenant: usize,
    cpus: f64,
    until_s: f64,
}

/// Use by tenant from `from_s` on, and mean waits in seconds of the jobs that started then.
pub struct Outcome {
    pub used: BTreeMap<String, f64>,
    pub waits: BTreeMap<String, f64>,
}

/// Runs the trace on `cpus` until `end_s`.
pub fn run(
    trace: &Trace,
    tenants: &[(&'static str, u32)],
    cpus: f64,
    window: (f64, f64),
) -> Outcome {
    let (from_s, end_s) = window;
    let (mut now_s, mut free): (f64, f64) = (0.0, cpus);
    let mut running: Vec<Running> = Vec::new();
    let mut queue: Vec<usize> = Vec::new();
    let mut decayed: Vec<f64> = vec![0.0; tenants.len()];
    let mut used: Vec<f64> = vec![0.0; tenants.len()];
    let mut waits: Vec<(f64, f64)> = vec![(0.0, 0.0); tenants.len()];
    let mut next = 0;
    loop {
        let arrival = trace.get(next).map(|job| job.at_s);
        let end = running.iter().map(|job| job.until_s).reduce(f64::min);
        let Some(then_s) = arrival.into_iter().chain(end).reduce(f64::min) else {
            break;
        };
        let then_s = then_s.min(end_s);
        let counted_s = (then_s - now_s.max(from_s)).max(0.0);
        let keeps = libm::exp2(-(then_s - now_s) / HALF_LIFE_S);
        decayed.iter_mut().for_each(|it| *it *= keeps);
        for job in &running {
            decayed[job.tenant] += job.cpus * (then_s - now_s);
            used[job.tenant] += job.cpus * counted_s;
        }
        now_s = then_s;
        if now_s >= end_s {
            break;
        }
        running.retain(|job| {
            let runs = job.until_s > now_s;
            free += if runs { 0.0 } else { job.cpus };
            runs
        });
        while trace.get(next).is_some_and(|job| job.at_s <= now_s) {
            queue.push(next);
            next += 1;
        }
        sort(&mut queue, trace, (tenants, &decayed), now_s);
        let mut shadow: Option<(f64, f64)> = None;
        queue.retain(|index| {
            let job = &trace[*index];
            let fits = job.cpus <= free;
            let starts = match shadow {
                None => fits,
                Some((at_s, spare)) => fits && (now_s + job.runs_s <= at_s || job.cpus <= spare),
            };
            if starts {
                if let Some((at_s, spare)) = &mut shadow
                    && now_s + job.runs_s > *at_s
                {
                    *spare -= job.cpus;
                }
                free -= job.cpus;
                running.push(Running {
                    tenant: job.tenant,
                    cpus: job.cpus,
                    until_s: now_s + job.runs_s,
                });
                if now_s >= from_s {
                    let (sum, count) = &mut waits[job.tenant];
                    *sum += now_s - job.at_s;
                    *count += 1.0;
                }
            } else if shadow.is_none() {
                shadow = Some(reservation(&running, free, job.cpus));
            }
            !starts
        });
    }
    outcome(tenants, &used, &waits)
}

/// By Slurm's multifactor priority: fair share and age.
fn sort(
    queue: &mut [usize],
    trace: &Trace,
    (tenants, decayed): (&[(&'static str, u32)], &[f64]),
    now_s: f64,
) {
    let shares: f64 = tenants.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let all: f64 = decayed.iter().sum::<f64>().max(1.0);
    let priority = |index: usize| {
        let job = &trace[index];
        let share = f64::from(tenants[job.tenant].1) / shares;
        let fair = libm::exp2(-(decayed[job.tenant] / all) / share);
        let age = ((now_s - job.at_s) / (7.0 * DAY_S)).min(1.0);
        WEIGHT_FAIR * fair + WEIGHT_AGE * age
    };
    queue.sort_by(|left, right| {
        let order = priority(*right).total_cmp(&priority(*left));
        order.then(left.cmp(right))
    });
}

fn outcome(tenants: &[(&'static str, u32)], used: &[f64], waits: &[(f64, f64)]) -> Outcome {
    let all: f64 = used.iter().sum();
    let names = || tenants.iter().map(|(name, _)| (*name).to_owned());
    Outcome {
        used: names().zip(used.iter().map(|it| it / all)).collect(),
        waits: names()
            .zip(
                waits
                    .iter()
                    .map(|(sum, count): &(f64, f64)| sum / count.max(1.0)),
            )
            .collect(),
    }
}

/// The earliest start of a job of `cpus` CPUs, and the CPUs left then.
fn reservation(running: &[Running], free: f64, cpus: f64) -> (f64, f64) {
    let mut ends: Vec<(f64, f64)> = running.iter().map(|job| (job.until_s, job.cpus)).collect();
    ends.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut free = free;
    for (until_s, freed) in ends {
        free += freed;
        if free >= cpus {
            return (until_s, free - cpus);
        }
    }
    (f64::INFINITY, 0.0)
}
