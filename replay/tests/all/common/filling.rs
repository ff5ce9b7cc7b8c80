//! Weighted DRF shares by divisible progressive filling in floating point, to compare with the
//! optimizer's exact ones.

pub struct User {
    pub demand: Vec<f64>,
    pub weight: f64,
    pub bounds: (f64, f64),
}

impl User {
    fn dominant(&self) -> f64 {
        self.demand
            .iter()
            .fold(0.0, |most: f64, part| most.max(*part))
    }

    fn at(&self, level: f64) -> f64 {
        (level * self.weight / self.dominant()).clamp(self.bounds.0, self.bounds.1)
    }
}

/// Weighted shares rise together from the minima; users of a saturated resource, or at their maximum,
/// stop.
pub fn fill(users: &[User]) -> Vec<f64> {
    let mut frozen: Vec<Option<f64>> = vec![None; users.len()];
    let resources = users.first().map_or(0, |user| user.demand.len());
    loop {
        let count =
            |index: usize, level: f64| frozen[index].unwrap_or_else(|| users[index].at(level));
        let used = |resource: usize, level: f64| -> f64 {
            (0..users.len())
                .map(|index| count(index, level) * users[index].demand[resource])
                .sum()
        };
        let demanded = |resource: usize| {
            (0..users.len())
                .any(|index| frozen[index].is_none() && users[index].demand[resource] > 0.0)
        };
        let open: Vec<usize> = (0..resources)
            .filter(|resource| demanded(*resource))
            .collect();
        let fits = |level: f64| {
            open.iter()
                .all(|resource| used(*resource, level) <= 1.0 + 1e-13)
        };
        let (mut low, mut high) = (0.0, 1e4);
        if open.is_empty() || fits(high) {
            return (0..users.len())
                .map(|index| count(index, 1e4) * users[index].dominant())
                .collect();
        }
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if fits(middle) {
                low = middle
            } else {
                high = middle
            }
        }
        let full: Vec<usize> = open
            .iter()
            .copied()
            .filter(|resource| used(*resource, high) > 1.0 - 1e-9)
            .collect();
        let counts: Vec<f64> = (0..users.len()).map(|index| count(index, low)).collect();
        for (index, user) in users.iter().enumerate() {
            if frozen[index].is_none() && full.iter().any(|resource| user.demand[*resource] > 0.0) {
                frozen[index] = Some(counts[index]);
            }
        }
    }
}
