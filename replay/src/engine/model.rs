//! Models a running job: its work, its scaling, and the costs of starts and resizes.

use std::collections::BTreeMap;

use dormouse_messages::{Incarnation, Rank};

/// The speed of a gang of n containers, in seconds of one container's work per second.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    Linear,
    /// The speed of 1, 2, … containers; the last one holds for more.
    Table(Vec<f64>),
    /// Speeds by 1, 2, … containers: packed on as few nodes as possible, `per_node` on each, or spread over more.
    Placed {
        packed: Vec<f64>,
        spread: Vec<f64>,
        per_node: u32,
    },
    /// n · e^(log2 n), where e is the efficiency of one doubling.
    Efficiency(f64),
    /// 1 / (a + b/n + c(n − 1)), the inverse time of a step. Work is counted in steps.
    Steps {
        a: f64,
        b: f64,
        c: f64,
    },
}

impl Scaling {
    /// Returns the speed of `containers` containers.
    #[must_use]
    pub fn speed(&self, containers: u32) -> f64 {
        let n = f64::from(containers);
        match self {
            Self::Linear => n,
            Self::Table(speeds) | Self::Placed { packed: speeds, .. } => listed(speeds, containers),
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

impl Scaling {
    fn placed(&self, containers: u32, nodes: usize) -> f64 {
        match self {
            Self::Placed {
                spread, per_node, ..
            } if nodes > containers.div_ceil((*per_node).max(1)) as usize => {
                listed(spread, containers)
            }
            _ => self.speed(containers),
        }
    }
}

fn listed(speeds: &[f64], containers: u32) -> f64 {
    let index = usize::try_from(containers)
        .unwrap_or(usize::MAX)
        .saturating_sub(1);
    let speed = speeds.get(index).or(speeds.last());
    speed.copied().unwrap_or(f64::from(containers))
}

/// The costs of one container that joins, leaves or is a replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemberCosts {
    pub join_s: Option<f64>,
    pub ready_s: Option<f64>,
    pub leave_s: Option<f64>,
}

/// The costs of one incarnation, which override the job's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IncarnationCosts {
    pub start_s: Option<f64>,
    pub pause_s: Option<f64>,
    pub save_s: Option<f64>,
    pub stop_s: Option<f64>,
    /// Speed as a fraction of the scaling curve.
    pub pace: Option<f64>,
    pub first_report_s: Option<f64>,
    pub members: BTreeMap<Rank, MemberCosts>,
}

/// The behaviour of a running job.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelJob {
    /// Work in seconds of one container.
    pub work_container_s: f64,
    pub scaling: Scaling,
    pub save_s: f64,
    /// Seconds without progress after a start from a checkpoint.
    pub resume_s: f64,
    pub start_s: f64,
    /// As `start_s`, for a member that joins in place.
    pub join_s: Option<f64>,
    /// Speed on several nodes as a fraction of the speed on one.
    pub crossing: f64,
    pub resize_s: f64,
    pub ready_s: f64,
    /// Seconds of work until each incarnation fails with exit code 1.
    pub fails_after_s: Option<f64>,
    /// Seconds without progress after a first start.
    pub warm_up_s: f64,
    pub stop_s: f64,
    /// Seconds of work between progress reports. With reports, work is counted in steps.
    pub progress_s: Option<f64>,
    /// Seconds of work until the first report of an incarnation; default `progress_s`.
    pub first_report_s: Option<f64>,
    /// An incarnation fails at each of these amounts of work, once each.
    pub failures: Vec<f64>,
    pub incarnations: BTreeMap<Incarnation, IncarnationCosts>,
}

impl ModelJob {
    /// Returns a linear job without costs.
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
            incarnations: BTreeMap::new(),
        }
    }

    fn of_incarnation<T>(
        &self,
        incarnation: Incarnation,
        of: impl Fn(&IncarnationCosts) -> Option<T>,
    ) -> Option<T> {
        self.incarnations.get(&incarnation).and_then(of)
    }

    fn member(
        &self,
        (incarnation, rank): (Incarnation, Rank),
        of: impl Fn(&MemberCosts) -> Option<f64>,
    ) -> Option<f64> {
        self.of_incarnation(incarnation, |it| it.members.get(&rank).and_then(&of))
    }

    /// Returns the seconds from a join request until the container runs.
    #[must_use]
    pub fn join_s(&self, member: (Incarnation, Rank)) -> f64 {
        let usual = self.join_s.unwrap_or(self.start_s);
        self.member(member, |it| it.join_s).unwrap_or(usual)
    }

    /// Returns the seconds from a container's start until it is ready.
    #[must_use]
    pub fn ready_s(&self, member: (Incarnation, Rank)) -> f64 {
        self.member(member, |it| it.ready_s).unwrap_or(self.ready_s)
    }

    /// Returns the seconds from a leave request until the container has ended, after its step.
    #[must_use]
    pub fn leave_s(&self, member: (Incarnation, Rank)) -> f64 {
        let usual = self.save_s.min(5.0);
        self.member(member, |it| it.leave_s).unwrap_or(usual)
    }

    /// Returns the seconds from an incarnation's start request until its containers run.
    #[must_use]
    pub fn start_s(&self, incarnation: Incarnation) -> f64 {
        self.of_incarnation(incarnation, |it| it.start_s)
            .unwrap_or(self.start_s)
    }

    /// Returns the seconds from an incarnation's start until its first work.
    #[must_use]
    pub fn pause_s(&self, incarnation: Incarnation, resumes: bool) -> f64 {
        let usual = if resumes {
            self.resume_s
        } else {
            self.warm_up_s
        };
        self.of_incarnation(incarnation, |it| it.pause_s)
            .unwrap_or(usual)
    }

    /// Returns the seconds from a save request until the incarnation is saved.
    #[must_use]
    pub fn save_s(&self, incarnation: Incarnation) -> f64 {
        self.of_incarnation(incarnation, |it| it.save_s)
            .unwrap_or(self.save_s)
    }

    /// Returns the seconds from a stop request until the incarnation has ended.
    #[must_use]
    pub fn stop_s(&self, incarnation: Incarnation) -> f64 {
        self.of_incarnation(incarnation, |it| it.stop_s)
            .unwrap_or(self.stop_s)
    }

    /// Returns the seconds of work until an incarnation's first progress report, if it reports.
    #[must_use]
    pub fn first_report_s(&self, incarnation: Incarnation) -> Option<f64> {
        let first = self
            .of_incarnation(incarnation, |it| it.first_report_s)
            .or(self.first_report_s);
        self.progress_s.map(|every_s| first.unwrap_or(every_s))
    }

    /// Returns the speed of an incarnation with `containers` containers on `nodes` nodes.
    #[must_use]
    pub fn speed(&self, incarnation: Incarnation, containers: u32, nodes: usize) -> f64 {
        let crossing = if nodes > 1 { self.crossing } else { 1.0 };
        let pace = self
            .of_incarnation(incarnation, |it| it.pace)
            .unwrap_or(1.0);
        self.scaling.placed(containers, nodes) * pace * crossing
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
        let incarnation = Incarnation(1);
        assert_eq!(
            (
                model.speed(incarnation, 4, 1),
                model.speed(incarnation, 4, 2)
            ),
            (4.0, 1.0)
        );
    }
}
