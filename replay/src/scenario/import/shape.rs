//! The containers of a past job. Records give a job's resources in all; Dormouse's containers are equal.
//!
//! - A job of k nodes is a gang of k containers. If its GPUs do not divide by k, one container has one GPU.
//! - An elastic job has one container per GPU.

use dormouse_messages::{Amounts, Resource};

use super::{Elastic, PastJob};

/// A container with less memory starts nothing, and admission refuses it.
const LEAST_MEMORY: u64 = 1 << 20;

/// The containers of a job as it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub containers: u32,
    /// One container's amounts.
    pub demand: Amounts,
    pub is_elastic: bool,
}

/// Divides a job.
pub fn shape(job: &PastJob, elastic: Elastic) -> Shape {
    let gpu_milli = job.total.get(&Resource::Gpu);
    let gpus = u32::try_from(gpu_milli / 1_000).unwrap_or(u32::MAX);
    let are_whole = gpu_milli.is_multiple_of(1_000);
    let is_elastic = elastic == Elastic::Gpu && are_whole && gpus > 1;
    let divides = gpus.is_multiple_of(job.nodes);
    let containers = if is_elastic || (are_whole && gpus > 0 && !divides) {
        gpus
    } else {
        job.nodes
    };
    Shape {
        containers,
        demand: part(&job.total, u64::from(containers)),
        is_elastic,
    }
}

/// A part of `total`, rounded down so that all parts together fit where the job was.
fn part(total: &Amounts, parts: u64) -> Amounts {
    let mut part = Amounts::new();
    for (resource, amount) in total.iter() {
        let least = match resource {
            Resource::Memory => LEAST_MEMORY,
            _ => 1,
        };
        part.set(resource.clone(), (amount / parts).max(least));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: u32, total: &str, elastic: Elastic) -> (u32, String, bool) {
        let job = PastJob {
            id: "j1".to_owned(),
            tenant: "ads".to_owned(),
            submitted_s: 0,
            started_s: 0,
            run_s: 1,
            nodes,
            total: total.parse().expect("amounts"),
            gpu_models: Vec::new(),
            limit_s: None,
            is_running: false,
        };
        let shape = shape(&job, elastic);
        let demand = shape.demand.iter();
        let demand =
            demand.map(|(name, amount)| format!("{}={}", name.name(), name.display(amount)));
        (
            shape.containers,
            demand.collect::<Vec<_>>().join(","),
            shape.is_elastic,
        )
    }

    #[test]
    fn a_job_becomes_equal_containers() {
        let (rigid, elastic) = (Elastic::None, Elastic::Gpu);
        let two_nodes = "cpu=64,memory=512Gi,gpu=16";
        let halves = "cpu=32,gpu=8,memory=256Gi".to_owned();
        assert_eq!(of(2, two_nodes, rigid), (2, halves, false));
        let sixteenth = "cpu=4,gpu=1,memory=32Gi".to_owned();
        assert_eq!(of(2, two_nodes, elastic), (16, sixteenth, true));
        let odd = "cpu=2,gpu=1".to_owned();
        assert_eq!(of(2, "cpu=6,gpu=3", rigid), (3, odd, false));
        assert_eq!(of(3, "cpu=10", elastic), (3, "cpu=3333m".to_owned(), false));
        let shared = "cpu=4,gpu=220m".to_owned();
        assert_eq!(of(1, "cpu=4,gpu=220m", elastic), (1, shared, false));
        assert_eq!(of(1, "cpu=1,gpu=1", elastic).0, 1);
    }
}
