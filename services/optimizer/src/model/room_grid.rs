//! The worth of a room: the best pattern of every amount, at given container prices.
//!
//! V(room) = max Σ π_t z_t subject to Σ_t d_t z_t ≤ room is an unbounded multi-dimensional knapsack on a grid
//! with one axis per resource; one table answers it for every node. Each class of nodes with its own allowed
//! types has its own table.
//!
//! Proves: V is never below the true value. The unit of an axis is the demands' common divisor if the table
//! stays small enough, and the table is exact; else rooms and demands are both rounded down, and ⌊Σ d z / u⌋
//! ≥ Σ ⌊d / u⌋ z keeps V an upper bound.

use num_integer::Integer;

use crate::model::instance::Instance;

/// Table entries times types: a few milliseconds a table.
const WORK: usize = 40_000_000;
/// Entries that are always allowed, and the most entries.
const STATES: (usize, usize) = (20_000, 400_000);

/// Relative error from adding some dozens of floats in another order.
const ROUNDING: f64 = 1e-12;

#[derive(Debug, Clone)]
pub(crate) struct RoomGrid {
    axes: Vec<Axis>,
    base: usize,
    classes: Vec<Vec<bool>>,
    column: usize,
    /// Demand as coordinates, the last axis separate.
    steps: Vec<Step>,
    rows: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TableTypes(Vec<Vec<usize>>);

#[derive(Debug, Clone)]
struct Axis {
    resource: usize,
    unit: u64,
    levels: usize,
    stride: usize,
}

#[derive(Debug, Clone)]
struct Step {
    row: Vec<usize>,
    rows: usize,
    last: usize,
    span: usize,
    fits: bool,
}

impl RoomGrid {
    pub fn new(instance: &Instance) -> Self {
        let mut axes = Vec::new();
        for resource in 0..instance.totals.len() {
            let demands = || instance.types.iter().map(|ty| ty.demand[resource]);
            let unit = demands().fold(0, |divisor: u64, amount| divisor.gcd(&amount));
            let most = instance.rooms.iter().map(|room| room[resource]).max();
            if unit > 0 {
                axes.push((resource, unit, most.unwrap_or(0)));
            }
        }
        let limit = (WORK / instance.types.len().max(1)).clamp(STATES.0, STATES.1);
        let limit = limit / instance.classes.len().max(1);
        let levels =
            |unit: u64, most: u64| usize::try_from(most / unit).unwrap_or(usize::MAX - 1) + 1;
        loop {
            let size = axes.iter().map(|(_, unit, most)| levels(*unit, *most));
            if size.fold(1usize, usize::saturating_mul) <= limit {
                break;
            }
            let mut widest: Vec<usize> = (0..axes.len()).collect();
            widest.sort_by_key(|axis| std::cmp::Reverse(levels(axes[*axis].1, axes[*axis].2)));
            // Small steps keep units close to the necessary size.
            let coarser = widest.into_iter().find_map(|axis| {
                let mut coarser = axes.clone();
                coarser[axis].1 += coarser[axis].1.div_ceil(4);
                every_demand_counts(instance, &coarser).then_some(coarser)
            });
            match coarser {
                Some(coarser) => axes = coarser,
                None => break,
            }
        }
        axes.sort_by_key(|(resource, unit, most)| (levels(*unit, *most), *resource));
        let mut size = 1;
        let mut made: Vec<Axis> = Vec::new();
        for (resource, unit, most) in axes.into_iter().rev() {
            let levels = levels(unit, most);
            made.push(Axis {
                resource,
                unit,
                levels,
                stride: size,
            });
            size *= levels;
        }
        made.reverse();
        Self::with(made, size, instance)
    }

    fn with(axes: Vec<Axis>, size: usize, instance: &Instance) -> Self {
        let width = axes.last().map_or(1, |axis| axis.levels);
        let outer = &axes[..axes.len().saturating_sub(1)];
        let rows = (0..size / width).map(|row| {
            let at = |axis: &Axis| row * width / axis.stride % axis.levels;
            outer.iter().map(at).collect()
        });
        let step = |demand: &[u64]| {
            let at = |axis: &Axis| {
                usize::try_from(demand[axis.resource] / axis.unit).unwrap_or(usize::MAX)
            };
            let row: Vec<usize> = outer.iter().map(at).collect();
            let fits = axes.iter().all(|axis| at(axis) < axis.levels);
            let distance = |(axis, at): (&Axis, &usize)| axis.stride / width * at;
            Step {
                rows: if fits {
                    outer.iter().zip(&row).map(distance).sum()
                } else {
                    0
                },
                last: axes.last().map_or(0, at),
                span: match row.iter().position(|at| *at > 0).unwrap_or(row.len()) {
                    0 => size,
                    axis => axes[axis - 1].stride,
                },
                row,
                fits,
            }
        };
        Self {
            steps: instance.types.iter().map(|ty| step(&ty.demand)).collect(),
            rows: rows.collect(),
            base: size,
            classes: instance.classes.clone(),
            column: instance
                .rooms
                .first()
                .map_or(0, |room| room.len().saturating_sub(1)),
            axes,
        }
    }

    pub fn entry(&self, room: &[i64]) -> Option<usize> {
        let mut entry = if self.classes.is_empty() {
            0
        } else {
            usize::try_from(room[self.column]).ok()? * self.base
        };
        for axis in &self.axes {
            let amount = u64::try_from(room[axis.resource]).ok()?;
            let level = usize::try_from(amount / axis.unit).unwrap_or(usize::MAX);
            entry += level.min(axis.levels - 1) * axis.stride;
        }
        Some(entry)
    }

    pub fn entry_of(&self, room: &[u64]) -> usize {
        let level = |axis: &Axis| {
            let level = usize::try_from(room[axis.resource] / axis.unit).unwrap_or(usize::MAX);
            level.min(axis.levels - 1) * axis.stride
        };
        let class = if self.classes.is_empty() {
            0
        } else {
            usize::try_from(room[self.column]).unwrap_or(0)
        };
        class * self.base + self.axes.iter().map(level).sum::<usize>()
    }

    pub fn size(&self) -> usize {
        self.base * self.classes.len().max(1)
    }

    fn allows(&self, class: usize, ty: usize) -> bool {
        self.classes.get(class).is_none_or(|allowed| allowed[ty])
    }

    fn width(&self) -> usize {
        self.axes.last().map_or(1, |axis| axis.levels)
    }

    /// Fills `table` with V and returns the participating types. Types that demand nothing on the first axes
    /// come first: until then all slabs along those axes are equal, and one is computed.
    pub fn fill(&self, prices: &[f64], table: &mut Vec<f64>) -> TableTypes {
        table.clear();
        table.resize(self.size(), 0.0);
        let classes = table.chunks_exact_mut(self.base.max(1)).enumerate();
        TableTypes(
            classes
                .map(|(class, table)| self.fill_class(class, prices, table))
                .collect(),
        )
    }

    fn fill_class(&self, class: usize, prices: &[f64], table: &mut [f64]) -> Vec<usize> {
        let counts = |ty: &usize| {
            let open = self.steps[*ty].fits && prices[*ty] > 0.0 && self.allows(class, *ty);
            open && !self.is_dominated(class, *ty, prices)
        };
        let mut types: Vec<usize> = (0..self.steps.len()).filter(counts).collect();
        types.sort_by_key(|ty| self.steps[*ty].span);
        let mut done = types.first().map_or(self.base, |ty| self.steps[*ty].span);
        for alike in types.chunk_by(|a, b| self.steps[*a].span == self.steps[*b].span) {
            let span = self.steps[alike[0]].span;
            repeat(&mut table[..span], done);
            done = span;
            self.add(alike, prices, &mut table[..span]);
        }
        repeat(table, done);
        types
    }

    /// Row by row: earlier rows are final, and a row stays in the cache for all types.
    fn add(&self, types: &[usize], prices: &[f64], table: &mut [f64]) {
        let width = self.width();
        for row in 0..table.len() / width {
            let (before, here) = table.split_at_mut(row * width);
            let here = &mut here[..width];
            for ty in types {
                let (step, price) = (&self.steps[*ty], prices[*ty]);
                let at = self.rows[row].iter();
                if at.zip(&step.row).any(|(at, step)| at < step) {
                    continue;
                }
                if step.rows == 0 {
                    let least = step.last.max(1);
                    for cell in least..width {
                        here[cell] = here[cell].max(here[cell - least] + price);
                    }
                    continue;
                }
                let from = &before[(row - step.rows) * width..][..width - step.last];
                raise(&mut here[step.last..], from, price);
            }
        }
    }

    fn is_dominated(&self, class: usize, ty: usize, prices: &[f64]) -> bool {
        let step = &self.steps[ty];
        self.steps
            .iter()
            .zip(prices)
            .enumerate()
            .any(|(other, (than, price))| {
                let less = || {
                    than.row.iter().zip(&step.row).all(|(a, b)| a <= b) && than.last <= step.last
                };
                let first = || {
                    *price > prices[ty]
                        || other < ty
                        || than.row != step.row
                        || than.last != step.last
                };
                let better = other != ty && *price >= prices[ty];
                better && self.allows(class, other) && less() && first()
            })
    }

    /// `put` gets the types of one entry's pattern.
    pub fn pattern(
        &self,
        mut entry: usize,
        types: &TableTypes,
        prices: &[f64],
        table: &[f64],
        mut put: impl FnMut(usize),
    ) {
        while let Some(ty) = self.last(entry, types, prices, table) {
            put(ty);
            entry -= self.distance(ty);
        }
    }

    /// `times` holds the uses of each entry and is 0 afterwards.
    pub fn patterns(
        &self,
        times: &mut [f64],
        types: &TableTypes,
        prices: &[f64],
        table: &[f64],
        mut put: impl FnMut(usize, f64),
    ) {
        let mut all = times.len();
        while let Some(entry) = times[..all].iter().rposition(|times| *times > 0.0) {
            let many = std::mem::take(&mut times[entry]);
            if let Some(ty) = self.last(entry, types, prices, table) {
                put(ty, many);
                times[entry - self.distance(ty)] += many;
            }
            all = entry;
        }
    }

    /// Separates the entries of a room with and without one container.
    fn distance(&self, ty: usize) -> usize {
        let step = &self.steps[ty];
        step.rows * self.width() + step.last
    }

    /// `None` if the pattern is empty.
    fn last(
        &self,
        entry: usize,
        types: &TableTypes,
        prices: &[f64],
        table: &[f64],
    ) -> Option<usize> {
        if table[entry] <= 0.0 {
            return None;
        }
        let width = self.width();
        let class = entry / self.base;
        let (at, last) = (&self.rows[(entry % self.base) / width], entry % width);
        let least = table[entry] - ROUNDING * table[entry];
        let is_last = |ty: &usize| {
            let (step, distance) = (&self.steps[*ty], self.distance(*ty));
            let fits = last >= step.last && at.iter().zip(&step.row).all(|(at, step)| at >= step);
            fits && distance > 0 && table[entry - distance] + prices[*ty] >= least
        };
        types.0[class].iter().copied().find(is_last)
    }
}

/// In a separate function the compiler sees disjoint slices and vectorises.
#[inline(never)]
fn raise(to: &mut [f64], from: &[f64], price: f64) {
    for (to, from) in to.iter_mut().zip(from) {
        let value = from + price;
        *to = if value > *to { value } else { *to };
    }
}

fn repeat(table: &mut [f64], part: usize) {
    for at in (part..table.len()).step_by(part.max(1)) {
        table.copy_within(..part, at);
    }
}

/// A demand rounded to zero would fit any number of containers.
fn every_demand_counts(instance: &Instance, axes: &[(usize, u64, u64)]) -> bool {
    instance.types.iter().all(|ty| {
        let counts = |(resource, unit, _): &(usize, u64, u64)| ty.demand[*resource] >= *unit;
        axes.iter().any(counts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::Cluster;
    use crate::model::instance::Instance;
    use crate::model::samples::chance;
    use crate::problem::{Problem, ProblemJob, ProblemNode};

    fn instance(capacity: &str, demands: &[&str]) -> Instance {
        let node = ProblemNode {
            name: "n".parse().expect("a name"),
            capacity: capacity.parse().expect("amounts"),
            reserved: Default::default(),
            closed: false,
            labels: Default::default(),
            taints: Default::default(),
            gpus: Vec::new(),
        };
        let job = |(index, demand): (usize, &&str)| ProblemJob {
            job: format!("t/j{index}").parse().expect("an id"),
            demand: demand.parse().expect("amounts"),
            weight: 1,
            min: 1,
            max: 9,
            adjustable: true,
            left_until: None,
            displaced: false,
            previous: None,
            stall_s: 0.0,
            may_be_overtaken: false,
            in_place: None,
            urgency: Default::default(),
            has_checkpoint: true,
            precedence: Default::default(),
            static_containers: None,
            useful: None,
            crossing: 0.0,
            ends_in_s: None,
            role: None,
            needs: Default::default(),
            gpu_parts: 0,
        };
        let problem = Problem {
            nodes: vec![node],
            jobs: demands.iter().enumerate().map(job).collect(),
            ..Problem::default()
        };
        let members: Vec<usize> = (0..demands.len()).collect();
        Instance::new(&problem, &Cluster::new(&problem), &members)
    }

    fn brute(instance: &Instance, prices: &[f64], room: &[u64], from: usize) -> f64 {
        let mut best = 0.0f64;
        for ty in from..prices.len() {
            let demand = &instance.types[ty].demand;
            if demand.iter().zip(room).all(|(d, r)| d <= r) {
                let rest: Vec<u64> = room.iter().zip(demand).map(|(r, d)| r - d).collect();
                best = best.max(prices[ty] + brute(instance, prices, &rest, ty));
            }
        }
        best
    }

    #[test]
    fn every_room_is_worth_its_best_filling() {
        let demands = [
            "cpu=2,memory=3Gi",
            "cpu=1,memory=4Gi",
            "cpu=3,memory=1Gi",
            "cpu=1,gpu=1,memory=1Gi",
        ];
        let instance = instance("cpu=9,gpu=2,memory=14Gi", &demands);
        let grid = RoomGrid::new(&instance);
        let prices = [2.9, 2.4, 3.1, 5.0];
        let mut table = Vec::new();
        let types = grid.fill(&prices, &mut table);
        let whole = &instance.rooms[0];
        for part in 0..=8u64 {
            let room: Vec<u64> = whole.iter().map(|amount| amount * part / 8).collect();
            let entry = grid.entry_of(&room);
            let best = brute(&instance, &prices, &room, 0);
            assert!(
                (table[entry] - best).abs() < 1e-9,
                "{part}/8: {} not {best}",
                table[entry]
            );
            let mut value = 0.0;
            let mut left = room.clone();
            grid.pattern(entry, &types, &prices, &table, |ty| {
                value += prices[ty];
                for (left, demand) in left.iter_mut().zip(&instance.types[ty].demand) {
                    *left = left.checked_sub(*demand).expect("fits");
                }
            });
            assert!((value - best).abs() < 1e-9);
        }
        assert_eq!(grid.entry(&[-1, 0, 0]), None);
    }

    #[test]
    fn fillings_of_many_rooms_are_worth_what_each_is() {
        let demands = ["cpu=2,memory=3Gi", "cpu=3,memory=1Gi", "memory=4Gi"];
        let instance = instance("cpu=9,gpu=2,memory=14Gi", &demands);
        let grid = RoomGrid::new(&instance);
        let prices = [2.9, 3.1, 1.3];
        let mut table = Vec::new();
        let types = grid.fill(&prices, &mut table);
        let mut below = chance(7);
        let mut times: Vec<f64> = (0..grid.size()).map(|_| below(3) as f64).collect();
        let pairs = times.iter().zip(&table);
        let wanted: f64 = pairs.map(|(times, worth)| times * worth).sum();
        let mut worth = 0.0;
        grid.patterns(&mut times, &types, &prices, &table, |ty, times| {
            worth += times * prices[ty]
        });
        assert!((worth - wanted).abs() < 1e-9 * wanted, "{worth} {wanted}");
        assert!(times.iter().all(|times| *times == 0.0), "none is left");
    }

    #[test]
    fn a_coarse_lattice_is_an_upper_bound() {
        let demands = ["cpu=1001m,memory=3000000001", "cpu=1999m,memory=7000000003"];
        let instance = instance("cpu=16,memory=64Gi", &demands);
        let grid = RoomGrid::new(&instance);
        let mut table = Vec::new();
        let prices = [1.0, 2.2];
        grid.fill(&prices, &mut table);
        let best = brute(&instance, &prices, &instance.rooms[0], 0);
        let value = table[grid.entry_of(&instance.rooms[0])];
        assert!(value >= best && value <= 1.1 * best, "{value} for {best}");
        assert!(table.len() <= STATES.1);
    }
}
