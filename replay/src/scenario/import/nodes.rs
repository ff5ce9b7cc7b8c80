//! The nodes of the scenario: from a list, equal ones, or as many equal ones as the peak usage needs.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::{Amounts, Resource};
use serde::{Deserialize, Serialize};

use super::names::Names;
use super::shape::Shape;
use super::{ImportError, PastJob};

/// The origin of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    Listed(Vec<Node>),
    Equal {
        capacity: Amounts,
        count: u32,
    },
    /// The fewest equal nodes whose sum holds the peak usage. Without a capacity, a node has as much of each
    /// resource as any job had on one node.
    Peak {
        capacity: Option<Amounts>,
    },
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub capacity: Amounts,
    /// The model of its GPUs, in lower case.
    pub gpu_model: Option<String>,
}

/// Equal nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub count: u32,
    pub capacity: Amounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
}

/// The nodes, and groups of equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cluster {
    pub nodes: Vec<Node>,
    pub groups: Vec<Group>,
    pub is_inferred: bool,
}

impl Cluster {
    /// Makes the nodes for these jobs.
    pub fn of(nodes: &Nodes, jobs: &[(&PastJob, &Shape)]) -> Self {
        let (nodes, is_inferred) = match nodes {
            Nodes::Listed(nodes) => (nodes.clone(), false),
            Nodes::Equal { capacity, count } => (equal(capacity, *count), false),
            Nodes::Peak { capacity } => {
                let capacity = capacity.clone().unwrap_or_else(|| largest_share(jobs));
                (equal(&capacity, fewest(&capacity, jobs)), true)
            }
        };
        let mut groups: BTreeMap<(Amounts, Option<String>), u32> = BTreeMap::new();
        for node in &nodes {
            let kind = (node.capacity.clone(), node.gpu_model.clone());
            *groups.entry(kind).or_default() += 1;
        }
        let groups = groups.into_iter();
        let groups = groups.map(|((capacity, gpu_model), count)| Group {
            count,
            capacity,
            gpu_model,
        });
        Self {
            nodes,
            groups: groups.collect(),
            is_inferred,
        }
    }

    /// True if a model is known of some node's GPUs; else jobs cannot choose.
    pub fn knows_models(&self) -> bool {
        self.groups.iter().any(|group| group.gpu_model.is_some())
    }

    /// True if the empty cluster holds all containers of a job.
    pub fn holds(&self, job: &PastJob, shape: &Shape) -> bool {
        let may_use = |group: &&Group| {
            let model = group.gpu_model.as_ref();
            job.gpu_models.is_empty()
                || !self.knows_models()
                || model.is_some_and(|model| job.gpu_models.contains(model))
        };
        let groups = self.groups.iter().filter(may_use);
        let places = groups.map(|group| {
            let each = shape.demand.times_in(&group.capacity);
            each.saturating_mul(u64::from(group.count))
        });
        places.fold(0, u64::saturating_add) >= u64::from(shape.containers)
    }

    /// Returns the capacity of all nodes.
    pub fn capacity(&self) -> Amounts {
        let mut sum = Amounts::new();
        for group in &self.groups {
            sum.add(&group.capacity, u64::from(group.count));
        }
        sum
    }
}

fn equal(capacity: &Amounts, count: u32) -> Vec<Node> {
    let digits = count.saturating_sub(1).to_string().len();
    let nodes = (0..count).map(|index| Node {
        name: format!("n{index:0digits$}"),
        capacity: capacity.clone(),
        gpu_model: None,
    });
    nodes.collect()
}

/// The most that a job had of each resource on one node, in whole cores, GPUs and GiB.
fn largest_share(jobs: &[(&PastJob, &Shape)]) -> Amounts {
    let mut largest = Amounts::new();
    for (job, _) in jobs {
        for (resource, amount) in job.total.iter() {
            let unit = if *resource == Resource::Memory {
                1 << 30
            } else {
                1_000
            };
            let share = amount.div_ceil(u64::from(job.nodes));
            let share = share.next_multiple_of(unit).max(largest.get(resource));
            largest.set(resource.clone(), share);
        }
    }
    largest
}

/// The nodes that the sum of the peak usage, and the job with the most containers, need.
fn fewest(capacity: &Amounts, jobs: &[(&PastJob, &Shape)]) -> u32 {
    let peak = peak(jobs);
    let for_all = peak.iter().map(|(resource, amount)| {
        let each = capacity.get(resource);
        if each == 0 { 1 } else { amount.div_ceil(each) }
    });
    let for_one = jobs.iter().map(|(_, shape)| {
        let each = shape.demand.times_in(capacity);
        // A job that fits on no node is left out later.
        u64::from(shape.containers)
            .checked_div(each)
            .map_or(1, |nodes| {
                nodes + u64::from(!u64::from(shape.containers).is_multiple_of(each))
            })
    });
    let most = for_all.chain(for_one).max().unwrap_or(1).max(1);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The largest sum of each resource at one time.
fn peak(jobs: &[(&PastJob, &Shape)]) -> Amounts {
    let mut changes: Vec<(i64, bool, usize)> = Vec::with_capacity(jobs.len() * 2);
    for (index, (job, _)) in jobs.iter().enumerate() {
        let end_s = job.started_s.saturating_add_unsigned(job.run_s);
        changes.push((job.started_s, true, index));
        changes.push((end_s, false, index));
    }
    // At one time, ends come first.
    changes.sort_unstable();
    let (mut used, mut peak) = (Amounts::new(), Amounts::new());
    for (_, begins, index) in changes {
        let shape = jobs[index].1;
        let containers = u64::from(shape.containers);
        if begins {
            used.add(&shape.demand, containers);
            for (resource, amount) in used.iter() {
                if amount > peak.get(resource) {
                    peak.set(resource.clone(), amount);
                }
            }
        } else {
            used.subtract(&shape.demand, containers);
        }
    }
    peak
}

/// Reads a list of nodes: `sinfo -N -h -o "%N|%c|%m|%G"`, or Alibaba's `openb_node_list_*.csv`.
///
/// # Errors
/// The first line in neither form.
pub fn read_nodes(text: &str) -> Result<Vec<Node>, ImportError> {
    let mut names = Names::default();
    let mut seen = BTreeSet::new();
    let mut nodes = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let fields: Vec<&str> = line.split(['|', ',']).map(str::trim).collect();
        let is_header = ["NODELIST", "HOSTNAMES", "sn"].contains(&fields[0]);
        if index == 0 && is_header {
            continue;
        }
        let read = if line.contains('|') {
            slurm_node(line)
        } else {
            openb_node(&fields)
        };
        let (capacity, gpu_model) = read.map_err(|what| ImportError::Nodes {
            line: index + 1,
            what,
        })?;
        // sinfo names a node once for each of its partitions.
        if seen.insert(fields[0].to_owned()) {
            nodes.push(Node {
                name: names.of(fields[0]),
                capacity,
                gpu_model,
            });
        }
    }
    if nodes.is_empty() {
        return Err(ImportError::Nodes {
            line: 1,
            what: format!("there is no node; {HOW}"),
        });
    }
    Ok(nodes)
}

const HOW: &str = "make the file with `sinfo -N -h -o \"%N|%c|%m|%G\"`";

type Read = Result<(Amounts, Option<String>), String>;

fn slurm_node(line: &str) -> Read {
    let wrong = |what: &str| format!("{what}; {HOW}");
    let fields: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
    let [_, cpus, memory, gres] = fields.as_slice() else {
        return Err(wrong("there are not four fields"));
    };
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>();
    let cpus = number(cpus).map_err(|_| wrong("the CPUs are no whole number"))?;
    let mebibytes = number(memory).map_err(|_| wrong("the memory is no number of MiB"))?;
    let (gpus, models) = gpus(gres).ok_or_else(|| wrong("the GRES are not as gpu:a100:8"))?;
    let mut capacity = Amounts::new();
    capacity.set(Resource::Cpu, u64::from(cpus) * 1_000);
    capacity.set(Resource::Memory, u64::from(mebibytes) << 20);
    capacity.set(Resource::Gpu, gpus * 1_000);
    Ok((capacity, only(&models)))
}

/// The number and the models of the GPUs in `gpu:a100:8(S:0-1),tmpdir:100`.
fn gpus(gres: &str) -> Option<(u64, BTreeSet<String>)> {
    let mut depth = 0u32;
    let outside = gres.chars().filter(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    });
    let outside: String = outside.collect();
    let (mut count, mut models) = (0u64, BTreeSet::new());
    for part in outside.split(',') {
        let parts: Vec<&str> = part.trim().split(':').collect();
        match parts.as_slice() {
            ["gpu"] => count += 1,
            ["gpu", number] => count += u64::from(number.parse::<u32>().ok()?),
            ["gpu", model, number] => {
                count += u64::from(number.parse::<u32>().ok()?);
                models.insert(model.to_ascii_lowercase());
            }
            _ => {}
        }
    }
    Some((count, models))
}

fn only(models: &BTreeSet<String>) -> Option<String> {
    let mut models = models.iter();
    models.next().filter(|_| models.next().is_none()).cloned()
}

fn openb_node(fields: &[&str]) -> Read {
    let [_, cpu_milli, mebibytes, gpus, rest @ ..] = fields else {
        return Err(format!(
            "it is not sn,cpu_milli,memory_mib,gpu,model; of Slurm's nodes, {HOW}"
        ));
    };
    let number = |text: &str, name: &str| {
        let number = text.parse::<u32>().map(u64::from);
        number.map_err(|_| format!("{name} is no whole number"))
    };
    let mut capacity = Amounts::new();
    capacity.set(Resource::Cpu, number(cpu_milli, "cpu_milli")?);
    capacity.set(Resource::Memory, number(mebibytes, "memory_mib")? << 20);
    capacity.set(Resource::Gpu, number(gpus, "gpu")? * 1_000);
    let model = rest
        .first()
        .filter(|model| !super::moment::is_absent(model));
    Ok((capacity, model.map(|model| model.to_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::super::Elastic;
    use super::super::shape::shape;
    use super::*;

    fn job(started_s: i64, run_s: u64, nodes: u32, total: &str) -> PastJob {
        PastJob {
            id: "j1".to_owned(),
            tenant: "ads".to_owned(),
            submitted_s: 0,
            started_s,
            run_s,
            nodes,
            total: total.parse().expect("amounts"),
            gpu_models: Vec::new(),
            limit_s: None,
            is_running: false,
        }
    }

    fn cluster(nodes: &Nodes, jobs: &[PastJob]) -> Cluster {
        let shapes: Vec<Shape> = jobs.iter().map(|job| shape(job, Elastic::None)).collect();
        let jobs: Vec<_> = jobs.iter().zip(&shapes).collect();
        Cluster::of(nodes, &jobs)
    }

    #[test]
    fn the_peak_usage_gives_the_fewest_nodes() {
        let jobs = [
            job(0, 100, 1, "cpu=8,gpu=8,memory=64Gi"),
            job(50, 100, 2, "cpu=8,gpu=8,memory=64Gi"),
            // Starts when the first job ends.
            job(100, 10, 1, "cpu=16,gpu=4"),
        ];
        let inferred = cluster(&Nodes::Peak { capacity: None }, &jobs);
        let capacity: Amounts = "cpu=16,gpu=8,memory=64Gi".parse().expect("amounts");
        assert_eq!(inferred.groups.len(), 1);
        assert_eq!(inferred.groups[0].capacity, capacity);
        assert_eq!(inferred.groups[0].count, 2);
        assert!(inferred.is_inferred);
        let small = Nodes::Peak {
            capacity: Some("cpu=16,gpu=4,memory=64Gi".parse().expect("amounts")),
        };
        let small = cluster(&small, &jobs);
        assert_eq!(small.nodes.len(), 4);
        let holds = |job: &PastJob| small.holds(job, &shape(job, Elastic::None));
        assert_eq!(
            jobs.iter().map(holds).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    #[test]
    fn a_list_of_nodes_reads() {
        let slurm = "NODELIST|CPUS|MEMORY|GRES\ngpu01.hpc|64|515000|gpu:A100:8(S:0,1),tmp:5\ngpu01.hpc|64|515000|gpu:A100:8(S:0,1)\ncpu01|128+|256000|(null)\n";
        let nodes = read_nodes(slurm).expect("reads");
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[0].name, "gpu01-hpc");
        assert_eq!(nodes[0].capacity.get(&Resource::Gpu), 8_000);
        assert_eq!(nodes[0].capacity.get(&Resource::Memory), 515_000 << 20);
        assert_eq!(nodes[0].gpu_model.as_deref(), Some("a100"));
        assert_eq!(nodes[1].capacity.get(&Resource::Gpu), 0);
        let openb = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0228,128000,786432,8,G3\nopenb-node-0227,32000,262144,0,\n";
        let nodes = read_nodes(openb).expect("reads");
        assert_eq!(nodes[0].gpu_model.as_deref(), Some("g3"));
        assert_eq!(nodes[1].gpu_model, None);
        for wrong in [
            "",
            "n1|64",
            "n1|x|1|(null)",
            "n1|64|1000|gpu:a100:x",
            "n1,5",
        ] {
            let error = read_nodes(wrong).expect_err(wrong).to_string();
            assert!(error.contains("sinfo -N"), "{error}");
        }
    }

    #[test]
    fn a_job_that_asks_for_a_model_needs_such_nodes() {
        let list = "n1|8|1000|gpu:a100:1\nn2|8|1000|gpu:v100:1\nn3|8|1000|gpu:v100:1\n";
        let nodes = Nodes::Listed(read_nodes(list).expect("reads"));
        let mut gang = job(0, 1, 2, "gpu=2");
        let cluster = cluster(&nodes, std::slice::from_ref(&gang));
        let holds = |job: &PastJob| cluster.holds(job, &shape(job, Elastic::None));
        gang.gpu_models = vec!["v100".to_owned()];
        assert!(holds(&gang));
        gang.gpu_models = vec!["a100".to_owned()];
        assert!(!holds(&gang));
        gang.gpu_models = Vec::new();
        assert!(holds(&gang));
    }
}
