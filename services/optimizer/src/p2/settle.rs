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

/// The solver's tolerance, in containers.
const HAIR: f64 = 1e-6;
/// How far a slot beside a fractional one may move from its rounding: trading one container for
/// another is what fills a node.
const REACH: f64 = 1.0;

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
        let up = |value: f64| (value - HAIR).ceil().max(0.0) as u32;
        let down = |value: f64| (value + HAIR).floor().max(0.0) as u32;
        let count = |fresh: &Option<usize>| fresh.map_or(0, |column| up(self.columns[column]));
        let targets: Vec<u32> = model.fresh.iter().map(count).collect();
        let slots = model.slots.iter().map(|slots| {
            let filled = slots.iter().enumerate().filter_map(|(node, slot)| {
                Some((node, down(self.columns[(*slot)?]))).filter(|(_, count)| *count > 0)
            });
            filled.collect()
        });
        let slots: Vec<_> = slots.collect();
        place_around(self.instance, self.restarted, &targets, &slots)
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
        let open = self.open_nodes(&model);
        for slots in &model.slots {
            for (slot, open) in slots.iter().zip(&open) {
                let Some(slot) = *slot else { continue };
                let value = self.columns[slot];
                let reach = if *open { REACH } else { 0.0 };
                let (mut low, mut high) = (
                    (value + HAIR).floor() - reach,
                    (value - HAIR).ceil() + reach,
                );
                if let Some(start) = &start {
                    (low, high) = (low.min(start[slot]), high.max(start[slot]));
                }
                model.model.bound(slot, low.max(0.0), high.max(0.0));
            }
        }
        let outcome = std::mem::take(&mut model.model).maximise(limits, start.as_deref());
        let plan = model.plan(&outcome)?;
        Some(Plan {
            restarted: self.restarted.to_vec(),
            ..plan
        })
    }

    /// The nodes on which the relaxation has a fraction of a container.
    fn open_nodes(&self, model: &TypeModel) -> Vec<bool> {
        let fraction = |value: f64| (value - value.round()).abs() > HAIR;
        let mut open = vec![false; self.decided.rooms.len()];
        for slots in &model.slots {
            for (slot, open) in slots.iter().zip(&mut open) {
                *open |= slot.is_some_and(|slot| fraction(self.columns[slot]));
            }
        }
        open
    }
}
