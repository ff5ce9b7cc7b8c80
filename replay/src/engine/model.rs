//! How a job behaves when it runs: its work, how it scales, what starting and resizing cost.

use std::collections::BTreeMap;

use dormouse_messages::{Incarnation, Rank};

/// How fast a gang of n containers works, in seconds of one container's work per second.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// n.
    Linear,
    /// The speed of 1, 2, … containers; the last holds beyond.
    Table(Vec<f64>),
    /// n · e^(log2 n), e the efficiency of one doubling.
    Efficiency(f64),
    /// 1 / (a + b/n + c(n − 1)), the time of a step: what cannot be divided, what is divided among
    /// the containers, and what each further one adds. Work is counted in steps.
    Steps {
        /// Seconds that cannot be divided.
        a: f64,
        /// Seconds that are divided.
        b: f64,
        /// Seconds that each further container adds.
        c: f64,
    },
}

impl Scaling {
    /// The speed of `containers` containers.
    #[must_use]
    pub fn speed(&self, containers: u32) -> f64 {
        let n = f64::from(containers);
        match self {
            Self::Linear => n,
            Self::Table(speeds) => {
                let index = usize::try_from(containers)
                    .unwrap_or(usize::MAX)
                    .saturating_sub(1);
                speeds.get(index).or(speeds.last()).copied().unwrap_or(n)
            }
            Self::Efficiency(per_doubling) if containers > 0 => {
                n * libm::pow(*per_doubling, libm::log2(n))
            }
            Self::Steps { a, b, c } if containers > 0 => {
                1.0 / (a + b / n + c * (n - 1.0)).max(f64::MIN_POSITIVE)
            }
            Self::Efficiency(_) | Self::Steps { .. } => 0.0,
        }
    }
}

/// What one container costs that comes, leaves or is a replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemberCosts {
    /// From the request that it comes until it runs.
    pub join_s: Option<f64>,
    /// From its start until it is ready.
    pub ready_s: Option<f64>,
    /// From the request that it leaves until it has ended.
    pub leave_s: Option<f64>,
}

/// What one life of a job costs, where that is known better than what its lives cost on the whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LifeCosts {
    /// From the start request until its containers run.
    pub start_s: Option<f64>,
    /// From its start until it works.
    pub pause_s: Option<f64>,
    /// From the request to save until it is saved.
    pub save_s: Option<f64>,
    /// From the request to stop until it has ended.
    pub stop_s: Option<f64>,
    /// How fast it works, as a part of what the curve says.
    pub pace: Option<f64>,
    /// Seconds of work until it first reports progress.
    pub first_report_s: Option<f64>,
    /// What single containers of it cost.
    pub members: BTreeMap<Rank, MemberCosts>,
}

/// How a job behaves when it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelJob {
    /// Its work, in seconds of one container.
    pub work_container_s: f64,
    /// How it scales.
    pub scaling: Scaling,
    /// From the request to save until it is saved; it makes no progress meanwhile.
    pub save_s: f64,
    /// A life that resumes from a checkpoint makes no progress for so long after it has started.
    pub resume_s: f64,
    /// From the start request until its containers run.
    pub start_s: f64,
    /// The same of a member that joins in place, where it is not the same.
    pub join_s: Option<f64>,
    /// Its speed on more than one node, as a part of that on one.
    pub crossing: f64,
    /// Members that come or go in place cost the others so long without progress.
    pub resize_s: f64,
    /// From a replica's start until it is ready.
    pub ready_s: f64,
    /// Each life dies, with exit code 1, after so many seconds of work.
    pub fails_after_s: Option<f64>,
    /// A first life makes no progress for so long after it has started.
    pub warm_up_s: f64,
    /// From the request to stop until it has ended.
    pub stop_s: f64,
    /// It reports progress each so many seconds of work, as steps: its work is then counted in
    /// steps.
    pub progress_s: Option<f64>,
    /// Seconds of work until a life first reports progress, where it is not the same.
    pub first_report_s: Option<f64>,
    /// A life dies where it has done so much work, once each.
    pub failures: Vec<f64>,
    /// What single lives cost.
    pub lives: BTreeMap<Incarnation, LifeCosts>,
}

impl ModelJob {
    /// Linear, without costs.
    #[must_use]
    pub const fn linear(work_container_s: f64) -> Self {
        Self {
            work_container_s,
            scaling: Scaling::Linear,
            save_s: 0.0,
            resume_s: 0.0,
            start_s: 0.0,
            join_s: None,
            crossing: 1.0,
            resize_s: 0.0,
            ready_s: 0.0,
            fails_after_s: None,
            warm_up_s: 0.0,
            stop_s: 0.0,
            progress_s: None,
            first_report_s: None,
            failures: Vec::new(),
            lives: BTreeMap::new(),
        }
    }

    fn life<T>(&self, life: Incarnation, of: impl Fn(&LifeCosts) -> Option<T>) -> Option<T> {
        self.lives.get(&life).and_then(of)
    }

    fn member(
        &self,
        (life, rank): (Incarnation, Rank),
        of: impl Fn(&MemberCosts) -> Option<f64>,
    ) -> Option<f64> {
        self.life(life, |life| life.members.get(&rank).and_then(&of))
    }

    /// From the request that a container comes until it runs.
    #[must_use]
    pub fn join_s(&self, member: (Incarnation, Rank)) -> f64 {
        let usual = self.join_s.unwrap_or(self.start_s);
        self.member(member, |it| it.join_s).unwrap_or(usual)
    }

    /// From a container's start until it is ready.
    #[must_use]
    pub fn ready_s(&self, member: (Incarnation, Rank)) -> f64 {
        self.member(member, |it| it.ready_s).unwrap_or(self.ready_s)
    }

    /// From the request that a container leaves until it has ended: after its step.
    #[must_use]
    pub fn leave_s(&self, member: (Incarnation, Rank)) -> f64 {
        let usual = self.save_s.min(5.0);
        self.member(member, |it| it.leave_s).unwrap_or(usual)
    }

    /// From the start request of a life until its containers run.
    #[must_use]
    pub fn start_s(&self, life: Incarnation) -> f64 {
        self.life(life, |it| it.start_s).unwrap_or(self.start_s)
    }

    /// From the start of a life until it works.
    #[must_use]
    pub fn pause_s(&self, life: Incarnation, resumes: bool) -> f64 {
        let usual = if resumes {
            self.resume_s
        } else {
            self.warm_up_s
        };
        self.life(life, |it| it.pause_s).unwrap_or(usual)
    }

    /// From the request to save a life until it is saved.
    #[must_use]
    pub fn save_s(&self, life: Incarnation) -> f64 {
        self.life(life, |it| it.save_s).unwrap_or(self.save_s)
    }

    /// From the request to stop a life until it has ended.
    #[must_use]
    pub fn stop_s(&self, life: Incarnation) -> f64 {
        self.life(life, |it| it.stop_s).unwrap_or(self.stop_s)
    }

    /// Seconds of work until a life first reports progress, if it does.
    #[must_use]
    pub fn first_report_s(&self, life: Incarnation) -> Option<f64> {
        let first = self
            .life(life, |it| it.first_report_s)
            .or(self.first_report_s);
        self.progress_s.map(|every_s| first.unwrap_or(every_s))
    }

    /// The speed of a life of so many containers on so many nodes.
    #[must_use]
    pub fn speed(&self, life: Incarnation, containers: u32, nodes: usize) -> f64 {
        let crossing = if nodes > 1 { self.crossing } else { 1.0 };
        self.scaling.speed(containers) * self.life(life, |it| it.pace).unwrap_or(1.0) * crossing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_follow_the_curve() {
        assert_eq!(Scaling::Linear.speed(5), 5.0);
        let table = Scaling::Table(vec![1.0, 1.6, 1.9]);
        assert_eq!((table.speed(2), table.speed(9)), (1.6, 1.9));
        let efficient = Scaling::Efficiency(0.9);
        assert_eq!(efficient.speed(1), 1.0);
        assert!((efficient.speed(4) - 4.0 * 0.81).abs() < 1e-12);
        let (a, b, c) = (0.5, 4.0, 0.1);
        let steps = Scaling::Steps { a, b, c };
        assert!((steps.speed(4) - 1.0 / 1.8).abs() < 1e-12);
        assert_eq!(steps.speed(0), 0.0);
        let model = ModelJob {
            crossing: 0.25,
            ..ModelJob::linear(1.0)
        };
        let life = Incarnation(1);
        assert_eq!(
            (model.speed(life, 4, 1), model.speed(life, 4, 2)),
            (4.0, 1.0)
        );
    }
}
