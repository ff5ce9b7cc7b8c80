//! With the restarts decided: counts and slots on the nodes that have room.
//!
//! The relaxation's slots are rounded down and put in place, what is missing is packed, what is
//! left over given to whoever gains (`round`); then a small integer program chooses for every
//! fractional slot whether it is rounded up or down (`choose`).

use super::groups::single_nodes;
use super::instance::Instance;
use super::model::TypeModel;
use super::place::place_around;
use super::plan::Plan;
use super::solver::{Ending, Limits};

/// An instance with its restarts decided, and its relaxation's solution.
pub(crate) struct Settling<'a> {
    instance: &'a Instance,
    decided: Instance,
    restarted: &'a [bool],
    columns: Vec<f64>,
}

impl<'a> Settling<'a> {
    /// Solves the relaxation; `None` when there is none.
    pub fn new(instance: &'a Instance, restarted: &'a [bool], limits: Limits) -> Option<Self> {
        let decided = instance.decided(restarted);
        let groups = single_nodes(&decided);
        let mut model = TypeModel::new(&decided, &groups, false);
        let outcome = std::mem::take(&mut model.model).maximise(limits, None);
        let columns = outcome
            .columns
            .filter(|_| outcome.ending == Ending::Optimal)?;
        Some(Self {
            instance,
            decided,
            restarted,
            columns,
        })
    }

    /// The relaxation rounded down, with the rest packed around it.
    pub fn round(&self) -> Option<Plan> {
        let groups = single_nodes(&self.decided);
        let model = TypeModel::new(&self.decided, &groups, false);
        // A hair of a container is the solver's tolerance.
        let up = |value: f64| (value - 1e-6).ceil().max(0.0) as u32;
        let down = |value: f64| (value + 1e-6).floor().max(0.0) as u32;
        let count = |fresh: &Option<usize>| fresh.map_or(0, |column| up(self.columns[column]));
        let targets: Vec<u32> = model.fresh.iter().map(count).collect();
        let slots = model.slots.iter().map(|slots| {
            let filled = slots.iter().enumerate().filter_map(|(node, slot)| {
                Some((node, down(self.columns[(*slot)?]))).filter(|(_, count)| *count > 0)
            });
            filled.collect()
        });
        place_around(self.instance, self.restarted, &targets, slots.collect())
    }

    /// Every slot rounded up or down, whichever is best together.
    pub fn choose(&self, limits: Limits, start: Option<&Plan>) -> Option<Plan> {
        let groups = single_nodes(&self.decided);
        let mut model = TypeModel::new(&self.decided, &groups, true);
        let start = start
            .filter(|plan| plan.restarted == self.restarted)
            .map(|plan| {
                let restarted = vec![false; plan.restarted.len()];
                model.columns(&Plan {
                    restarted,
                    ..plan.clone()
                })
            });
        for slot in model.slots.iter().flatten().flatten() {
            let value = self.columns[*slot];
            let (mut low, mut high) = ((value + 1e-6).floor(), (value - 1e-6).ceil());
            if let Some(start) = &start {
                (low, high) = (low.min(start[*slot]), high.max(start[*slot]));
            }
            model.model.bound(*slot, low.max(0.0), high.max(0.0));
        }
        let outcome = std::mem::take(&mut model.model).maximise(limits, start.as_deref());
        eprintln!("  choose {:?} {:.4} {}", outcome.ending, model.bound(outcome.bound), outcome.columns.is_some());
        let plan = model.plan(&outcome)?;
        Some(Plan {
            restarted: self.restarted.to_vec(),
            ..plan
        })
    }
}
