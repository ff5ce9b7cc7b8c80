//! Slurm's trackable resources: `billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=32G,node=1`.

use dormouse_messages::{Amounts, Resource};

const BAD_TRES: &str = "is no list of resources; write cpu=8,mem=32G,node=1,gres/gpu=4";
const BAD_MEMORY: &str = "is no amount of memory; write 32000M, 32G or 1.50T";

/// The resources of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tres {
    /// CPU, memory and GPU in all.
    pub total: Amounts,
    pub nodes: Option<u32>,
    /// The named GPU models.
    pub gpu_models: Vec<String>,
}

/// Parses the resources; unknown ones are ignored.
///
/// # Errors
/// A part is not `name=amount`.
pub fn tres(text: &str) -> Result<Tres, &'static str> {
    let mut tres = Tres::default();
    let (mut gpus, mut of_models) = (None, 0u64);
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, amount) = part.trim().split_once('=').ok_or(BAD_TRES)?;
        let count = || amount.parse::<u32>().map_err(|_| BAD_TRES);
        match name {
            "cpu" => tres.total.set(Resource::Cpu, u64::from(count()?) * 1_000),
            "mem" => tres.total.set(Resource::Memory, memory_bytes(amount)?),
            "node" => tres.nodes = Some(count()?),
            "gres/gpu" => gpus = Some(u64::from(count()?)),
            _ => {
                let Some(model) = name.strip_prefix("gres/gpu:") else {
                    continue;
                };
                of_models += u64::from(count()?);
                tres.gpu_models.push(model.to_ascii_lowercase());
            }
        }
    }
    let gpus = gpus.unwrap_or(of_models);
    tres.total.set(Resource::Gpu, gpus * 1_000);
    Ok(tres)
}

/// Parses memory in Slurm's units of 1024; a bare number is in MiB.
///
/// # Errors
/// The text is no amount.
pub fn memory_bytes(text: &str) -> Result<u64, &'static str> {
    let end = text.find(|letter: char| letter.is_ascii_alphabetic());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.trim_end_matches(['B', 'b', 'i']) {
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        "" if unit.is_empty() => 20,
        _ => return Err(BAD_MEMORY),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 15 || fraction.len() > 6 {
        return Err(BAD_MEMORY);
    }
    let places = u32::try_from(fraction.len()).unwrap_or(0);
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| BAD_MEMORY)?;
    let bytes = (digits << shift) / 10u128.pow(places);
    // The most that an amount holds.
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes <= 1 << 53);
    bytes.ok_or("is too much memory")
}

/// Parses `ReqMem` of a job: also per node (`4Gn`) and per CPU (`2Gc`), as before Slurm 21.08.
///
/// # Errors
/// The text is no amount.
pub fn requested_memory_bytes(text: &str, nodes: u32, cpus: u64) -> Result<u64, &'static str> {
    let (amount, times) = match text.as_bytes().last() {
        Some(b'n') => (&text[..text.len() - 1], u64::from(nodes)),
        Some(b'c') => (&text[..text.len() - 1], cpus),
        _ => (text, 1),
    };
    let bytes = memory_bytes(amount)?.checked_mul(times);
    let bytes = bytes.filter(|bytes| *bytes <= 1 << 53);
    bytes.ok_or("is too much memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_read() {
        let text = "billing=8,cpu=8,energy=12K,gres/gpu:a100=4,gres/gpu=4,mem=32G,node=2";
        let read = tres(text).expect("reads");
        let total: Amounts = "cpu=8,memory=32Gi,gpu=4".parse().expect("amounts");
        assert_eq!(read.total, total);
        assert_eq!(read.nodes, Some(2));
        assert_eq!(read.gpu_models, ["a100"]);
        let only_model = tres("cpu=1,gres/gpu:V100=2").expect("reads");
        assert_eq!(only_model.total.get(&Resource::Gpu), 2_000);
        assert_eq!(only_model.gpu_models, ["v100"]);
        assert!(tres("").expect("reads").total.is_empty());
        for wrong in ["cpu", "cpu=many", "cpu=-1", "mem=4Q"] {
            assert!(tres(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_reads() {
        let of = |text| memory_bytes(text).expect("an amount");
        assert_eq!(of("4000"), 4_000 << 20);
        assert_eq!(of("4000M"), 4_000 << 20);
        assert_eq!(of("32G"), 32 << 30);
        assert_eq!(of("1.50T"), 3 << 39);
        assert_eq!(of("512K"), 512 << 10);
        for wrong in ["", "G", "4X", "1.2.3G", "1234567890123456789G"] {
            assert!(memory_bytes(wrong).is_err(), "{wrong}");
        }
        let of = |text| requested_memory_bytes(text, 2, 8).expect("an amount");
        assert_eq!(of("4Gn"), 8 << 30);
        assert_eq!(of("2Gc"), 16 << 30);
        assert_eq!(of("4G"), 4 << 30);
    }
}
