//! A linear bound on the worth of a room: shadow prices w ≥ 0, one a resource, with w · d_t ≥ π_t for every
//! type t that fits. Any pattern z is then worth Σ π_t z_t ≤ w · Σ d_t z_t ≤ w · room.
//!
//! [`shadow_prices`] minimises w · room by the simplex method (the dual of the fractional knapsack).
//! [`raise`] makes shadow prices valid again and comes last, so the bound survives rounding.

use num_traits::AsPrimitive;

/// With a room of 0 a rate could grow without limit and misprice blocks.
const SPARE: f64 = 0.1;
/// A handful of rows needs far fewer pivots.
const PIVOTS: usize = 40;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Items<'a> {
    pub demands: &'a [&'a [u64]],
    pub prices: &'a [f64],
}

impl Items<'_> {
    fn fitting<'a>(&'a self, capacity: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        let fits = move |ty: &usize| self.demands[*ty].iter().zip(capacity).all(|(d, c)| d <= c);
        (0..self.demands.len()).filter(move |ty| self.prices[*ty] > 0.0 && fits(ty))
    }
}

pub(crate) fn shadow_prices(room: &[i64], capacity: &[u64], items: Items<'_>) -> Vec<f64> {
    let types: Vec<usize> = items.fitting(capacity).collect();
    let (rows, columns) = (capacity.len(), types.len());
    let rest = columns + rows;
    // Amounts as parts of the capacity; then slack columns and the right-hand side.
    let part = |resource: usize, amount: f64| match capacity[resource] {
        0 => 0.0,
        whole => amount / whole as f64,
    };
    let mut tableau: Vec<Vec<f64>> = (0..rows)
        .map(|row| {
            let demands = types
                .iter()
                .map(|ty| part(row, items.demands[*ty][row] as f64));
            let slacks = (0..rows).map(|slack| f64::from(u8::from(slack == row)));
            let room = part(row, room[row].max(0) as f64) + SPARE;
            demands.chain(slacks).chain([room]).collect()
        })
        .collect();
    let mut gains: Vec<f64> = types.iter().map(|ty| items.prices[*ty]).collect();
    gains.resize(rest + 1, 0.0);
    for _ in 0..PIVOTS {
        let Some((row, column)) = pivot(&tableau, &gains, rest) else {
            break;
        };
        eliminate(&mut tableau, &mut gains, row, column);
    }
    let rate = |row: usize| match capacity[row] {
        0 => 0.0,
        whole => (-gains[columns + row]).max(0.0) / whole as f64,
    };
    let mut shadow_prices: Vec<f64> = (0..rows).map(rate).collect();
    raise(&mut shadow_prices, capacity, items);
    shadow_prices
}

fn pivot(tableau: &[Vec<f64>], gains: &[f64], rest: usize) -> Option<(usize, usize)> {
    let gaining = (0..rest).filter(|column| gains[*column] > 1e-12);
    let column = gaining.max_by(|a, b| gains[*a].total_cmp(&gains[*b]))?;
    let able = (0..tableau.len()).filter(|row| tableau[*row][column] > 1e-9);
    let reach = |row: usize| tableau[row][rest] / tableau[row][column];
    let row = able.min_by(|a, b| reach(*a).total_cmp(&reach(*b)))?;
    Some((row, column))
}

fn eliminate(tableau: &mut [Vec<f64>], gains: &mut [f64], row: usize, column: usize) {
    let by = tableau[row][column];
    tableau[row].iter_mut().for_each(|value| *value /= by);
    let pivot = tableau[row].clone();
    let clear = |line: &mut [f64]| {
        let times = line[column];
        for (value, pivot) in line.iter_mut().zip(&pivot) {
            *value -= times * pivot;
        }
    };
    clear(gains);
    for (index, line) in tableau.iter_mut().enumerate() {
        if index != row {
            clear(line);
        }
    }
}

/// Raises shadow prices until they cover every price.
pub(crate) fn raise(shadow_prices: &mut [f64], capacity: &[u64], items: Items<'_>) {
    for ty in items.fitting(capacity) {
        let demand = items.demands[ty];
        let covered: f64 = at_shadow_prices(demand, shadow_prices);
        if covered <= 0.0 {
            if let Some(resource) = demand.iter().position(|amount| *amount > 0) {
                shadow_prices[resource] = items.prices[ty] / demand[resource] as f64;
            }
        } else if covered < items.prices[ty] {
            let times = items.prices[ty] / covered;
            shadow_prices.iter_mut().for_each(|rate| *rate *= times);
        }
    }
}

pub(super) fn at_shadow_prices<N: AsPrimitive<f64>>(amounts: &[N], shadow_prices: &[f64]) -> f64 {
    amounts
        .iter()
        .zip(shadow_prices)
        .map(|(amount, rate)| amount.as_() * rate)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_a_room_are_its_fractional_knapsack() {
        let demands: [&[u64]; 3] = [&[1, 4], &[3, 1], &[2, 2]];
        let items = Items {
            demands: &demands,
            prices: &[4.0, 6.0, 1.0],
        };
        let (room, capacity) = ([9, 18], [9, 18]);
        let shadow_prices = shadow_prices(&room, &capacity, items);
        // Both first types are in the optimum: w₁ + 4 w₂ = 4 and 3 w₁ + w₂ = 6.
        assert!(
            (shadow_prices[0] - 20.0 / 11.0).abs() < 1e-9
                && (shadow_prices[1] - 6.0 / 11.0).abs() < 1e-9
        );
    }

    #[test]
    fn raised_rates_cover_every_price() {
        let demands: [&[u64]; 2] = [&[1, 0], &[1, 5]];
        let items = Items {
            demands: &demands,
            prices: &[3.0, 4.0],
        };
        let mut shadow_prices = vec![0.0, 0.1];
        raise(&mut shadow_prices, &[8, 8], items);
        assert!(
            demands
                .iter()
                .zip(items.prices)
                .all(|(d, p)| at_shadow_prices(d, &shadow_prices) >= p - 1e-12)
        );
    }
}
