//! The best pattern of one room. With other prices in every room, a table no larger than the room is faster
//! than [`crate::lagrangian::knapsack_table`].

use crate::lagrangian::knapsack_table::{RoomGrid, raise};

#[derive(Debug)]
pub(crate) struct Knapsack<'a> {
    grid: &'a RoomGrid,
    /// In levels of each axis; `None` if a type fits no node.
    demands: Vec<Option<Vec<usize>>>,
    table: Vec<f64>,
}

/// `distance` separates the entries of a room with and without the type.
struct Item<'a> {
    ty: usize,
    value: f64,
    demand: &'a [usize],
    distance: usize,
}

impl<'a> Knapsack<'a> {
    pub fn new(grid: &'a RoomGrid, types: usize) -> Self {
        Self {
            grid,
            demands: (0..types).map(|ty| grid.demand_of(ty)).collect(),
            table: Vec::new(),
        }
    }

    /// `put` gets the types of the best pattern, one by one.
    pub fn fill(&mut self, room: &[u64], values: &[f64], mut put: impl FnMut(usize)) -> f64 {
        let levels = self.grid.levels_of(room);
        let mut strides = vec![1; levels.len()];
        for axis in (1..levels.len()).rev() {
            strides[axis - 1] = strides[axis] * (levels[axis] + 1);
        }
        let items = items(&self.demands, &levels, &strides, values, |ty| {
            self.grid.allows_in(room, ty)
        });
        let size = levels.iter().map(|level| level + 1).product();
        self.table.clear();
        self.table.resize(size, 0.0);
        let width = levels.last().map_or(1, |level| level + 1);
        for item in &items {
            add(&mut self.table, item, width, &strides);
        }
        let best = self.table[size - 1];
        let mut rest = levels;
        while let Some(item) = self.last(&items, &rest, &strides) {
            put(item.ty);
            for (rest, demand) in rest.iter_mut().zip(item.demand) {
                *rest -= demand;
            }
        }
        best
    }

    fn last<'b>(
        &self,
        items: &'b [Item<'b>],
        rest: &[usize],
        strides: &[usize],
    ) -> Option<&'b Item<'b>> {
        let at: usize = rest.iter().zip(strides).map(|(r, stride)| r * stride).sum();
        let fits = |item: &&Item<'_>| item.demand.iter().zip(rest).all(|(d, r)| d <= r);
        let with = |item: &Item<'_>| self.table[at - item.distance] + item.value;
        let best = items
            .iter()
            .filter(fits)
            .max_by(|a, b| with(a).total_cmp(&with(b)))?;
        (self.table[at] > 0.0 && with(best) >= self.table[at]).then_some(best)
    }
}

/// Drops dominated types.
fn items<'a>(
    demands: &'a [Option<Vec<usize>>],
    levels: &[usize],
    strides: &[usize],
    values: &[f64],
    is_allowed: impl Fn(usize) -> bool,
) -> Vec<Item<'a>> {
    let item = |(ty, demand): (usize, &'a Option<Vec<usize>>)| {
        let demand = demand.as_deref()?;
        let open = values[ty] > 0.0 && is_allowed(ty);
        let fits = open && demand.iter().zip(levels).all(|(d, level)| d <= level);
        let distance = demand.iter().zip(strides).map(|(d, stride)| d * stride);
        let distance = distance.sum();
        (fits && distance > 0).then_some(Item {
            ty,
            value: values[ty],
            demand,
            distance,
        })
    };
    let mut all: Vec<Item<'a>> = demands.iter().enumerate().filter_map(item).collect();
    all.sort_by(|a, b| b.value.total_cmp(&a.value));
    let mut kept: Vec<Item<'a>> = Vec::with_capacity(all.len());
    for item in all {
        let less = |than: &Item<'_>| than.demand.iter().zip(item.demand).all(|(a, b)| a <= b);
        if !kept.iter().any(less) {
            kept.push(item);
        }
    }
    kept
}

fn add(table: &mut [f64], item: &Item<'_>, width: usize, strides: &[usize]) {
    let (outer, last) = (item.demand.len() - 1, item.demand[item.demand.len() - 1]);
    for start in (0..table.len()).step_by(width) {
        let mut rest = start;
        let fits = strides[..outer].iter().zip(item.demand).all(|(stride, d)| {
            let level = rest / stride;
            rest %= stride;
            level >= *d
        });
        if !fits {
            continue;
        }
        if item.distance >= width {
            let (before, here) = table.split_at_mut(start);
            let from = &before[start + last - item.distance..][..width - last];
            raise(&mut here[last..width], from, item.value);
        } else {
            for at in start + last..start + width {
                table[at] = table[at].max(table[at - item.distance] + item.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::samples::{bound_samples, chance, samples};

    #[test]
    fn as_good_as_the_table_of_all_rooms() {
        for (seed, instance) in samples(0..40).chain(bound_samples(0..40)) {
            let grid = RoomGrid::new(&instance);
            let mut knapsack = Knapsack::new(&grid, instance.types.len());
            let mut below = chance(seed);
            let worth = |ty: &crate::instance::Type| ty.value * below(150) as f64 / 100.0;
            let values: Vec<f64> = instance.types.iter().map(worth).collect();
            let mut table = Vec::new();
            grid.fill(&values, &mut table);
            for room in &instance.rooms {
                let mut left = room.clone();
                let mut sum = 0.0;
                let best = knapsack.fill(room, &values, |ty| {
                    sum += values[ty];
                    for (left, demand) in left.iter_mut().zip(&instance.types[ty].demand) {
                        *left = left.checked_sub(*demand).expect("fits");
                    }
                });
                assert!((best - table[grid.entry_of(room)]).abs() < 1e-9);
                assert!((best - sum).abs() < 1e-9);
            }
        }
    }
}
