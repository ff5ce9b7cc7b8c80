//! How a job behaves when it runs: its work, how it scales, what starting and resizing cost.

/// How fast a gang of n containers works, in seconds of one container's work per second.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// n.
    Linear,
    /// The speed of 1, 2, … containers; the last holds beyond.
    Table(Vec<f64>),
    /// n · e^(log2 n), e the efficiency of one doubling.
    Efficiency(f64),
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
            Self::Efficiency(per_doubling) if containers > 0 => n * per_doubling.powf(n.log2()),
            Self::Efficiency(_) => 0.0,
        }
    }
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
    /// Members that come or go in place cost the others so long without progress.
    pub resize_s: f64,
    /// From a replica's start until it is ready.
    pub ready_s: f64,
    /// Each life dies, with exit code 1, after so many seconds of work.
    pub fails_after_s: Option<f64>,
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
            resize_s: 0.0,
            ready_s: 0.0,
            fails_after_s: None,
        }
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
    }
}
