//! Chooses every node's new containers for given restarts: [`Packing::cleared`] and
//! [`Packing::run_price_rounds`] ([`crate::primal::price_rounds`]), with
//! [`crate::primal::pattern_selection`].

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::candidate::Candidate;
use crate::model::instance::{Instance, State};
use crate::model::room::{fits, take};
use crate::model::room_grid::RoomGrid;

#[derive(Debug, Clone, Default)]
pub(crate) struct Demand {
    pub min: usize,
    /// Worth and job of each further container, best first.
    pub worth: Vec<(f64, usize)>,
}

impl Demand {
    /// Worth of the next container when `beyond` exceed the minima.
    pub fn worth_beyond(&self, beyond: usize) -> f64 {
        self.worth.get(beyond).map_or(0.0, |(worth, _)| *worth)
    }

    pub fn mean_worth(&self, beyond: Range<usize>) -> f64 {
        let many = beyond.len() as f64;
        beyond.map(|beyond| self.worth_beyond(beyond)).sum::<f64>() / many
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Packing<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) grid: &'a RoomGrid,
    pub(crate) demands: Vec<Demand>,
    /// Worth below a minimum: above all others.
    urgent: f64,
    pub(crate) rooms: Vec<Vec<u64>>,
    pub(crate) placed: Vec<BTreeMap<usize, u32>>,
    pub(crate) counts: Vec<usize>,
}

impl<'a> Packing<'a> {
    /// `loss` is the price of a unit of fairness loss.
    pub fn new(instance: &'a Instance, grid: &'a RoomGrid, restarted: &[bool], loss: f64) -> Self {
        let mut demands = vec![Demand::default(); instance.types.len()];
        let fresh = |index: usize| instance.jobs[index].state == State::Free || restarted[index];
        for index in (0..instance.jobs.len()).filter(|index| fresh(*index)) {
            let job = &instance.jobs[index];
            let demand = &mut demands[job.ty];
            demand.min += job.min as usize;
            let worth =
                |count: u32| instance.worth(index, count) - loss * instance.loss(index, count);
            let more = (job.min..job.max).map(|count| (worth(count + 1) - worth(count), index));
            demand.worth.extend(more.filter(|(worth, _)| *worth > 0.0));
        }
        for demand in &mut demands {
            // A stable sort keeps each job's own order.
            demand.worth.sort_by(|a, b| b.0.total_cmp(&a.0));
        }
        let worths = demands
            .iter()
            .filter_map(|demand| Some(demand.worth.first()?.0));
        let values = instance.types.iter().map(|ty| ty.value);
        Self {
            instance,
            grid,
            urgent: 10.0 * worths.chain(values).fold(0.0, f64::max),
            rooms: instance.free_rooms(restarted),
            placed: vec![BTreeMap::new(); instance.rooms.len()],
            counts: vec![0; instance.types.len()],
            demands,
        }
    }

    pub(crate) fn is_wanted(&self, ty: usize) -> bool {
        self.demands[ty].min > 0
    }

    pub(crate) fn worth(&self, ty: usize, count: usize) -> f64 {
        let demand = &self.demands[ty];
        match count.checked_sub(demand.min) {
            None => self.urgent,
            Some(extra) => demand.worth_beyond(extra),
        }
    }

    pub fn misses_any(&self) -> bool {
        let pairs = self.counts.iter().zip(&self.demands);
        pairs.into_iter().any(|(count, demand)| *count < demand.min)
    }

    /// Penalises missing minima.
    #[cfg(test)]
    pub fn value(&self) -> f64 {
        let worth = |(ty, count): (usize, &usize)| {
            let min = self.demands[ty].min;
            let beyond: f64 = (min..*count).map(|count| self.worth(ty, count)).sum();
            beyond - self.urgent * min.saturating_sub(*count) as f64
        };
        self.counts.iter().enumerate().map(worth).sum()
    }

    pub(crate) fn put_all(&mut self, node: usize, types: &[usize]) {
        for ty in types {
            if self.worth(*ty, self.counts[*ty]) > 0.0 {
                self.put(node, *ty);
            }
        }
    }

    pub(crate) fn put(&mut self, node: usize, ty: usize) {
        if take(&self.instance.types[ty].demand, 1, &mut self.rooms[node]) {
            self.counts[ty] += 1;
            *self.placed[node].entry(ty).or_insert(0) += 1;
        }
    }

    pub(crate) fn top_up(&mut self, node: usize) {
        loop {
            let open = (0..self.counts.len()).filter(|ty| self.is_wanted(*ty));
            let fit =
                open.filter(|ty| fits(&self.instance.types[*ty].demand, &self.rooms[node]) > 0);
            let worth = fit.map(|ty| (self.worth(ty, self.counts[ty]), ty));
            let best = worth.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            match best {
                Some((worth, ty)) if worth > 0.0 => self.put(node, ty),
                _ => return,
            }
        }
    }

    pub fn candidate(&self, restarted: &[bool]) -> Option<Candidate> {
        let mut candidate = Candidate::incumbent(self.instance);
        candidate.restarted = restarted.to_vec();
        for (index, job) in self.instance.jobs.iter().enumerate() {
            if candidate.is_free(self.instance, index) {
                candidate.counts[index] = job.min;
            }
        }
        for (demand, count) in self.demands.iter().zip(&self.counts) {
            let extra = count.checked_sub(demand.min)?;
            for (_, job) in demand.worth.get(..extra)? {
                candidate.counts[*job] += 1;
            }
        }
        for (node, placed) in self.placed.iter().enumerate() {
            for (ty, count) in placed {
                candidate.slots[*ty].insert(node, *count);
            }
        }
        Some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dual::r_algorithm::RAlgorithm;
    use crate::model::room::give;
    use crate::model::samples::{bound_samples, samples};

    fn brute(
        packing: &Packing<'_>,
        node: usize,
        ty: usize,
        room: &mut Vec<u64>,
        counts: &mut Vec<usize>,
    ) -> f64 {
        if ty == counts.len() {
            return match packing.rooms.get(node + 1) {
                Some(next) => brute(packing, node + 1, 0, &mut next.clone(), counts),
                None => Packing {
                    counts: counts.clone(),
                    ..packing.clone()
                }
                .value(),
            };
        }
        let mut best = brute(packing, node, ty + 1, room, counts);
        let wanted = packing.worth(ty, counts[ty]) > 0.0;
        if wanted && take(&packing.instance.types[ty].demand, 1, room) {
            counts[ty] += 1;
            best = best.max(brute(packing, node, ty, room, counts));
            counts[ty] -= 1;
            give(&packing.instance.types[ty].demand, 1, room);
        }
        best
    }

    #[test]
    fn nearly_as_good_as_every_packing() {
        let (mut reached, mut most, mut all) = (0.0, 0.0, 0);
        for (seed, instance) in samples(0..60).chain(bound_samples(0..60)) {
            let grid = RoomGrid::new(&instance);
            let restarted = vec![false; instance.jobs.len()];
            let mut packing = Packing::new(&instance, &grid, &restarted, 0.0);
            let mut counts = packing.counts.clone();
            let best = brute(&packing, 0, 0, &mut packing.rooms[0].clone(), &mut counts);
            let values: Vec<f64> = instance.types.iter().map(|ty| ty.value).collect();
            let descent = RAlgorithm::new(vec![0.8; values.len()], 0.2);
            let cleared = packing.cleared(descent, &values);
            packing.run_price_rounds(&cleared.prices);
            assert!(
                packing.value() <= best + 1e-9,
                "seed {seed}: {} > {best}",
                packing.value()
            );
            if best < 0.0 {
                continue;
            }
            if let Some(candidate) = packing.candidate(&restarted) {
                assert!(
                    candidate.rooms(&instance).is_some(),
                    "seed {seed}: overfull"
                );
                reached += packing.value();
            }
            most += best;
            all += 1;
        }
        assert!(
            all >= 10 && reached >= 0.9 * most,
            "{reached} of {most} in {all}"
        );
    }
}
