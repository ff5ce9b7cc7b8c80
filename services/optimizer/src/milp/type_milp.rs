//! The type model of P2 over groups of nodes (formulation in `docs/optimizer.md`).
//!
//! Containers with one demand vector are interchangeable, so there is one column z per type and group instead
//! of one x per job and node:
//!
//! - f_i: new containers of job i; of a free job min ≤ f ≤ max, of a running one min r ≤ f ≤ max r;
//! - y_i = f_i + p_i (1 − r_i);
//! - Σ_g z_tg = Σ_{i of type t} f_i;
//! - Σ_t d_tk z_tg + Σ_i d_ik prev_ig (1 − r_i) ≤ c_gk (Dorm, equation 6);
//! - v_i ≤ α y_i + β for each piece of a job's concave value ([`crate::useful`]), worth 1 per v_i;
//! - L_i ≥ ± S (δ_i y_i − ŝ_i), Σ L_i ≤ S F (11, 12, 15); Σ r_i ≤ R (13, 14, 16).

use std::collections::BTreeMap;

use num_integer::Integer;

use crate::milp::highs::{Column, Ending, Limits, Model, Outcome};
use crate::model::candidate::Candidate;
use crate::model::instance::{Instance, Job, State};
use crate::model::node_classes::{NodeClasses, classes};
use crate::model::room::fits;
use crate::useful::Useful;

/// Price of a unit of loss if the objective gives none: a tie-break.
const LOSS_TIE: f64 = 1e-6;

pub(crate) struct TypeMilp<'a> {
    pub model: Model,
    instance: &'a Instance,
    groups: &'a NodeClasses,
    integer: bool,
    scale: f64,
    constant: f64,
    pub fresh: Vec<Option<Column>>,
    pub restart: Vec<Option<Column>>,
    losses: Vec<Option<Column>>,
    /// v, of jobs whose value is not the number of their containers.
    values: Vec<Option<Column>>,
    pub slots: Vec<Vec<Option<Column>>>,
}

impl<'a> TypeMilp<'a> {
    pub fn new(instance: &'a Instance, groups: &'a NodeClasses, integer: bool) -> Self {
        let smallest = instance.types.iter().map(|ty| ty.share).fold(1.0, f64::min);
        let mut built = Self {
            model: Model::default(),
            instance,
            groups,
            integer,
            scale: power_of_two(1.0 / smallest.max(1e-12)),
            constant: 0.0,
            fresh: Vec::new(),
            restart: Vec::new(),
            losses: Vec::new(),
            values: Vec::new(),
            slots: Vec::new(),
        };
        for job in &instance.jobs {
            built.job_columns(job);
        }
        built.slot_columns();
        built.value_rows();
        built.job_rows();
        built.loss_rows();
        built.type_rows();
        built.capacity_rows();
        built
    }

    fn job_columns(&mut self, job: &Job) {
        let worth = self.instance.objective.utilization * self.instance.types[job.ty].value;
        let has_rows = job.useful.is_some() && job.state != State::Pinned;
        let each = if has_rows { 0.0 } else { worth };
        let (cost, max) = (each * self.scale, f64::from(job.max));
        let (fresh, restart) = match job.state {
            State::Pinned => (None, None),
            State::Free => (
                Some(
                    self.model
                        .column(cost, f64::from(job.min), max, self.integer),
                ),
                None,
            ),
            State::Running => {
                let fresh = self.model.column(cost, 0.0, max, self.integer);
                let lost = cost * f64::from(job.count) + job.restart * self.scale;
                (
                    Some(fresh),
                    Some(self.model.column(-lost, 0.0, 1.0, self.integer)),
                )
            }
        };
        let value = has_rows.then(|| {
            let cost = worth * self.scale;
            self.model
                .column(cost, f64::NEG_INFINITY, f64::INFINITY, false)
        });
        self.values.push(value);
        if !has_rows {
            let stays = if job.state == State::Free {
                0
            } else {
                job.count
            };
            self.constant += worth * job.value(stays);
        }
        self.fresh.push(fresh);
        self.restart.push(restart);
    }

    fn value_rows(&mut self) {
        for (index, job) in self.instance.jobs.iter().enumerate() {
            let (Some(value), Some(fresh)) = (self.values[index], self.fresh[index]) else {
                continue;
            };
            for (slope, at_zero) in job.useful.iter().flat_map(Useful::tangents) {
                let mut stays = job.base();
                let mut terms = vec![(value, 1.0), (fresh, -slope)];
                if let Some(restart) = self.restart[index] {
                    stays += job.count;
                    terms.push((restart, slope * f64::from(job.count)));
                }
                let most = at_zero + slope * f64::from(stays);
                self.model.row(f64::NEG_INFINITY, most, &terms);
            }
        }
    }

    fn slot_columns(&mut self) {
        let rooms = rooms_left_by_pinned(self.instance);
        let mut most = vec![0u64; self.instance.types.len()];
        for job in &self.instance.jobs {
            if job.state != State::Pinned {
                most[job.ty] += u64::from(job.max);
            }
        }
        for (ty, most) in self.instance.types.iter().zip(most) {
            let mut row = Vec::with_capacity(self.groups.len());
            for group in self.groups {
                let room = group.iter().map(|node| fits(&ty.demand, &rooms[*node]));
                let upper = room.sum::<u64>().min(most);
                // A column bound would have its own dual, which the prices would miss.
                let bound = if self.integer {
                    upper as f64
                } else {
                    f64::INFINITY
                };
                row.push((upper > 0).then(|| self.model.column(0.0, 0.0, bound, self.integer)));
            }
            self.slots.push(row);
        }
    }

    fn job_rows(&mut self) {
        let mut all = Vec::new();
        for (index, job) in self.instance.jobs.iter().enumerate() {
            if let (Some(fresh), Some(restart)) = (self.fresh[index], self.restart[index]) {
                let (min, max) = (f64::from(job.min), f64::from(job.max));
                self.model
                    .row(0.0, f64::INFINITY, &[(fresh, 1.0), (restart, -min)]);
                self.model
                    .row(f64::NEG_INFINITY, 0.0, &[(fresh, 1.0), (restart, -max)]);
                all.push((restart, 1.0));
            }
        }
        if !all.is_empty() {
            let bound = f64::from(self.instance.restart_bound);
            self.model.row(f64::NEG_INFINITY, bound, &all);
        }
    }

    fn loss_rows(&mut self) {
        let bound = self.instance.loss_bound;
        let weight = self.instance.objective.loss.max(LOSS_TIE);
        let mut all = Vec::new();
        let mut fixed = 0.0;
        for (index, job) in self.instance.jobs.iter().enumerate() {
            let Some(fresh) = self.fresh[index] else {
                fixed += self.instance.loss(index, job.count);
                self.losses.push(None);
                continue;
            };
            let unit = self.instance.types[job.ty].share * self.scale;
            let loss = self.model.column(-weight, 0.0, f64::INFINITY, false);
            let mut terms = vec![(loss, -1.0), (fresh, unit)];
            let mut target = job.fair * self.scale - unit * f64::from(job.base());
            if let Some(restart) = self.restart[index] {
                terms.push((restart, -unit * f64::from(job.count)));
                target -= unit * f64::from(job.count);
            }
            self.model.row(f64::NEG_INFINITY, target, &terms);
            terms[0].1 = 1.0;
            self.model.row(target, f64::INFINITY, &terms);
            all.push((loss, 1.0));
            self.losses.push(Some(loss));
        }
        self.constant -= weight * fixed;
        if bound.is_finite() {
            self.model
                .row(f64::NEG_INFINITY, (bound - fixed) * self.scale, &all);
        }
    }

    fn type_rows(&mut self) {
        for (ty, slots) in self.slots.iter().enumerate() {
            let mut terms: Vec<_> = slots.iter().flatten().map(|slot| (*slot, 1.0)).collect();
            for (index, job) in self.instance.jobs.iter().enumerate() {
                if let Some(fresh) = self.fresh[index].filter(|_| job.ty == ty) {
                    terms.push((fresh, -1.0));
                }
            }
            if !terms.is_empty() {
                self.model.row(0.0, 0.0, &terms);
            }
        }
    }

    fn capacity_rows(&mut self) {
        let held = held(self.instance, self.groups);
        for resource in 0..self.instance.counted {
            let demands = || self.instance.types.iter().map(|ty| ty.demand[resource]);
            let unit = demands().max().unwrap_or(0);
            if unit == 0 {
                continue;
            }
            // Loads are multiples of the demands' common divisor; cutting off the useless rest keeps rounding
            // errors harmless.
            let divisor = demands().fold(0, |divisor: u64, amount| divisor.gcd(&amount));
            for (index, group) in self.groups.iter().enumerate() {
                let whole = |node: &usize| {
                    let room = self.instance.rooms[*node][resource];
                    u128::from(room - room % divisor)
                };
                let room: u128 = group.iter().map(whole).sum();
                self.capacity_row(resource, index, room, unit, &held[index]);
            }
        }
    }

    fn capacity_row(
        &mut self,
        resource: usize,
        group: usize,
        room: u128,
        unit: u64,
        held: &[(usize, u64)],
    ) {
        let mut terms = Vec::new();
        for (ty, slots) in self.instance.types.iter().zip(&self.slots) {
            if let Some(slot) = slots[group].filter(|_| ty.demand[resource] > 0) {
                terms.push((slot, ty.demand[resource] as f64 / unit as f64));
            }
        }
        let mut pinned = 0u128;
        for (job, count) in held {
            let demand = self.instance.types[self.instance.jobs[*job].ty].demand[resource];
            let load = u128::from(demand) * u128::from(*count);
            pinned += load;
            if let Some(restart) = self.restart[*job].filter(|_| load > 0) {
                terms.push((restart, -(load as f64) / unit as f64));
            }
        }
        // A node that shrank below its containers takes no more; its running jobs must leave.
        let movable = held.iter().any(|(job, _)| self.restart[*job].is_some());
        let rest = if movable {
            room as f64 - pinned as f64
        } else {
            room.saturating_sub(pinned) as f64
        };
        if !terms.is_empty() {
            self.model
                .row(f64::NEG_INFINITY, rest / unit as f64, &terms);
        }
    }

    pub fn bound(&self, outcome_bound: f64) -> f64 {
        // The tie-break lowers the model's optimum below the objective's.
        let tie = (LOSS_TIE - self.instance.objective.loss).max(0.0);
        let most = self
            .instance
            .loss_bound
            .min(2.0 * self.instance.jobs.len() as f64);
        outcome_bound / self.scale + self.constant + tie * most
    }

    pub fn columns(&self, candidate: &Candidate) -> Vec<f64> {
        let mut columns = vec![0.0; self.model.width()];
        for index in 0..self.instance.jobs.len() {
            if let (Some(fresh), true) =
                (self.fresh[index], candidate.is_free(self.instance, index))
            {
                columns[fresh] = f64::from(candidate.counts[index]);
            }
            if let (Some(restart), true) = (self.restart[index], candidate.restarted[index]) {
                columns[restart] = 1.0;
            }
            if let Some(value) = self.values[index] {
                columns[value] = self.instance.jobs[index].value(candidate.counts[index]);
            }
            if let Some(loss) = self.losses[index] {
                columns[loss] = self.instance.loss(index, candidate.counts[index]) * self.scale;
            }
        }
        for (slots, planned) in self.slots.iter().zip(&candidate.slots) {
            for (slot, group) in slots.iter().zip(self.groups) {
                if let Some(slot) = slot {
                    let count = group
                        .iter()
                        .filter_map(|node| planned.get(node))
                        .sum::<u32>();
                    columns[*slot] = f64::from(count);
                }
            }
        }
        columns
    }

    /// Slots of a group go to its first node.
    pub fn candidate(&self, outcome: &Outcome) -> Option<Candidate> {
        let columns = outcome.columns.as_ref()?;
        let whole = |column: Column| columns[column].round().max(0.0) as u32;
        let mut candidate = Candidate::incumbent(self.instance);
        for index in 0..self.instance.jobs.len() {
            candidate.restarted[index] = self.restart[index].is_some_and(|r| columns[r] > 0.5);
            if let Some(fresh) =
                self.fresh[index].filter(|_| candidate.is_free(self.instance, index))
            {
                candidate.counts[index] = whole(fresh);
            }
        }
        for (slots, planned) in self.slots.iter().zip(&mut candidate.slots) {
            for (slot, group) in slots.iter().zip(self.groups) {
                let count = slot.map_or(0, whole);
                if let Some(node) = group.first().filter(|_| count > 0) {
                    planned.insert(*node, count);
                }
            }
        }
        Some(candidate)
    }
}

/// Returns S, the least power of two not below `number`: scaling by it is exact.
fn power_of_two(number: f64) -> f64 {
    let (mantissa, exponent) = libm::frexp(number);
    libm::ldexp(
        1.0,
        if mantissa > 0.5 {
            exponent
        } else {
            exponent - 1
        },
    )
}

fn rooms_left_by_pinned(instance: &Instance) -> Vec<Vec<u64>> {
    let moves = |job: &Job| job.state == State::Running;
    instance.free_rooms(&instance.jobs.iter().map(moves).collect::<Vec<_>>())
}

fn held(instance: &Instance, groups: &NodeClasses) -> Vec<Vec<(usize, u64)>> {
    let mut group_of = vec![0; instance.rooms.len()];
    for (index, group) in groups.iter().enumerate() {
        for node in group {
            group_of[*node] = index;
        }
    }
    let mut held = vec![BTreeMap::new(); groups.len()];
    for (index, job) in instance.jobs.iter().enumerate() {
        if job.state != State::Free {
            for (node, count) in &job.previous {
                *held[group_of[*node]].entry(index).or_insert(0) += u64::from(*count);
            }
        }
    }
    held.into_iter()
        .map(|held| held.into_iter().collect())
        .collect()
}

/// Solves the linear relaxation over classes of nodes: a cheap necessary condition.
pub(crate) fn may_be_feasible(instance: &Instance) -> bool {
    let groups = classes(instance);
    let model = TypeMilp::new(instance, &groups, false);
    let limits = Limits { gap: 0.0, nodes: 0 };
    model.model.maximise(&limits, None).ending != Ending::Infeasible
}
