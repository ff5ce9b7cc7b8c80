//! Puts counts of containers into the rooms: scarce types first, each on the tightest nodes. Containers that
//! do not fit are given up; the rest of the rooms is used.

use crate::model::candidate::{Candidate, SHARE_SLACK};
use crate::model::instance::Instance;
use crate::model::room::{fits, take};

/// `None` if a minimum does not fit or a bound is broken.
pub(crate) fn best_fit(
    instance: &Instance,
    restarted: &[bool],
    targets: &[u32],
) -> Option<Candidate> {
    let mut fit = BestFit::new(instance, restarted, targets);
    for ty in fit.scarce_first() {
        fit.place_type(ty)?;
    }
    fit.use_rest();
    fit.candidate.is_feasible(instance).then_some(fit.candidate)
}

/// Grows free jobs as far as the objective grows.
pub(crate) fn grow(instance: &Instance, candidate: &mut Candidate) {
    let Some(rooms) = candidate.rooms(instance) else {
        return;
    };
    let mut fit = BestFit {
        instance,
        rooms,
        candidate: candidate.clone(),
        members: Vec::new(),
    };
    fit.members = members(instance, candidate);
    fit.use_rest();
    if fit.candidate.is_feasible(instance) {
        *candidate = fit.candidate;
    }
}

struct BestFit<'a> {
    instance: &'a Instance,
    rooms: Vec<Vec<u64>>,
    candidate: Candidate,
    members: Vec<Vec<usize>>,
}

fn members(instance: &Instance, candidate: &Candidate) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); instance.types.len()];
    for (index, job) in instance.jobs.iter().enumerate() {
        if candidate.is_free(instance, index) {
            members[job.ty].push(index);
        }
    }
    members
}

impl<'a> BestFit<'a> {
    fn new(instance: &'a Instance, restarted: &[bool], targets: &[u32]) -> Self {
        let mut candidate = Candidate::incumbent(instance);
        candidate.restarted = restarted.to_vec();
        for (index, job) in instance.jobs.iter().enumerate() {
            if candidate.is_free(instance, index) {
                candidate.counts[index] = targets[index].clamp(job.min, job.max);
            }
        }
        let rooms = instance.free_rooms(restarted);
        let members = members(instance, &candidate);
        Self {
            instance,
            rooms,
            candidate,
            members,
        }
    }

    /// Orders types by the most containers that would fit.
    fn scarce_first(&self) -> Vec<usize> {
        let most = |ty: usize| {
            let demand = &self.instance.types[ty].demand;
            self.rooms
                .iter()
                .map(|room| fits(demand, room))
                .sum::<u64>()
        };
        let mut types: Vec<(u64, usize)> = (0..self.instance.types.len())
            .filter(|ty| !self.members[*ty].is_empty())
            .map(|ty| (most(ty), ty))
            .collect();
        types.sort_unstable();
        types.into_iter().map(|(_, ty)| ty).collect()
    }

    fn tightest(&self, ty: usize, wanted: u64) -> Vec<usize> {
        let demand = &self.instance.types[ty].demand;
        let mut nodes = Vec::new();
        for (node, room) in self.rooms.iter().enumerate() {
            let fit = fits(demand, room).min(wanted);
            if fit > 0 {
                let left = room.iter().zip(demand).zip(&self.instance.totals);
                // Fractions of the totals weigh scarce resources that this type does not need most.
                let left: f64 = left
                    .map(|((r, d), c)| (r - d * fit) as f64 / *c as f64)
                    .sum();
                nodes.push((left, node));
            }
        }
        nodes.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        nodes.into_iter().map(|(_, node)| node).collect()
    }

    fn put(&mut self, ty: usize, node: usize, count: u32) {
        if count > 0
            && take(
                &self.instance.types[ty].demand,
                count,
                &mut self.rooms[node],
            )
        {
            *self.candidate.slots[ty].entry(node).or_insert(0) += count;
        }
    }

    fn place_type(&mut self, ty: usize) -> Option<()> {
        let counts = self.members[ty]
            .iter()
            .map(|job| u64::from(self.candidate.counts[*job]));
        let placed = self.candidate.slots[ty]
            .values()
            .map(|count| u64::from(*count));
        let mut rest = counts.sum::<u64>().checked_sub(placed.sum())?;
        if rest == 0 {
            return Some(());
        }
        for node in self.tightest(ty, rest) {
            let fit = fits(&self.instance.types[ty].demand, &self.rooms[node]).min(rest);
            self.put(ty, node, u32::try_from(fit).unwrap_or(u32::MAX));
            rest -= fit;
            if rest == 0 {
                break;
            }
        }
        for _ in 0..rest {
            self.give_up_one(ty)?;
        }
        Some(())
    }

    fn give_up_one(&mut self, ty: usize) -> Option<()> {
        let able = self.members[ty]
            .iter()
            .copied()
            .filter(|job| self.candidate.counts[*job] > self.instance.jobs[*job].min);
        let loss = |job: usize| {
            let count = self.candidate.counts[job];
            self.instance.worth(job, count) - self.instance.worth(job, count - 1)
        };
        let job = able.min_by(|left, right| loss(*left).total_cmp(&loss(*right)))?;
        self.candidate.counts[job] -= 1;
        Some(())
    }

    fn best_grower(&self, ty: usize, loss: f64) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for job in self.members[ty].iter().copied() {
            let count = self.candidate.counts[job];
            if count >= self.instance.jobs[job].max {
                continue;
            }
            let gain = self.instance.worth(job, count + 1) - self.instance.worth(job, count);
            let more = self.instance.loss(job, count + 1) - self.instance.loss(job, count);
            let allowed =
                more <= 0.0 || loss + more <= self.instance.loss_bound + SHARE_SLACK / 2.0;
            if gain > 0.0 && allowed && best.is_none_or(|(_, other)| gain > other) {
                best = Some((job, gain));
            }
        }
        best
    }

    fn use_rest(&mut self) {
        let mut loss = self.candidate.loss(self.instance);
        let mut order: Vec<(usize, f64)> = (0..self.instance.types.len())
            .filter_map(|ty| Some((ty, self.best_grower(ty, loss)?.1)))
            .collect();
        order.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        for (ty, _) in order {
            for node in self.tightest(ty, u64::MAX) {
                while fits(&self.instance.types[ty].demand, &self.rooms[node]) > 0 {
                    let Some((job, _)) = self.best_grower(ty, loss) else {
                        break;
                    };
                    let count = self.candidate.counts[job];
                    loss += self.instance.loss(job, count + 1) - self.instance.loss(job, count);
                    self.candidate.counts[job] = count + 1;
                    self.put(ty, node, 1);
                }
            }
        }
    }
}
