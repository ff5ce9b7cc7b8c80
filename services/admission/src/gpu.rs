//! Checks of GPU fractions.

use dormouse_messages::job::JobDocument;
use dormouse_messages::quantity::Written;
use dormouse_messages::{Amounts, Resource};

use crate::refusal::Refusal;

/// Returns a document's GPU limit in thousandths and GPU memory in bytes.
///
/// # Errors
/// Wrong GPU demand, `gpu_limit` or `gpu_memory`.
pub fn check(
    document: &JobDocument,
    demand: &Amounts,
) -> Result<(Option<u64>, Option<u64>), Refusal> {
    let refuse = |reason: String| Refusal::new("bad_demand", reason);
    let request = demand.get(&Resource::Gpu);
    if request > 1000 && !request.is_multiple_of(1000) {
        return Err(refuse(format!(
            "demand: gpu {} is neither a fraction of one GPU nor whole ones; write 0.5, 1 or 2",
            Resource::Gpu.display(request)
        )));
    }
    let limit = amount("gpu_limit", Resource::Gpu, document.gpu_limit.as_ref())?;
    let limit = limit.or(document.gpu_limit_milli);
    check_limit(limit, request)?;
    let memory = amount("gpu_memory", Resource::Memory, document.gpu_memory.as_ref())?;
    let memory = memory.or(document.gpu_memory_bytes);
    if memory.is_some() && request == 0 {
        return Err(refuse(
            "gpu_memory is of a GPU; give the job a demand such as {gpu: 0.25}".to_owned(),
        ));
    }
    Ok((limit, memory.filter(|memory| *memory > 0)))
}

/// Returns the revised limit in thousandths.
///
/// # Errors
/// Limits for jobs without a part of a GPU.
pub fn revised(limit: Option<&Written>, demand: &Amounts) -> Result<Option<u64>, Refusal> {
    let limit = amount("gpu_limit", Resource::Gpu, limit)?;
    check_limit(limit, demand.get(&Resource::Gpu))?;
    Ok(limit)
}

fn check_limit(limit: Option<u64>, request: u64) -> Result<(), Refusal> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let written = Resource::Gpu.display(limit);
    if request == 0 || request > 1000 {
        let reason = format!(
            "gpu_limit {written} is of a part of a GPU; demand.gpu is {}, give it a fraction such as 0.25",
            Resource::Gpu.display(request)
        );
        return Err(Refusal::new("bad_demand", reason));
    }
    if (request..=1000).contains(&limit) {
        Ok(())
    } else {
        Err(Refusal::new(
            "bad_demand",
            format!(
                "gpu_limit {written} must lie between the request, demand.gpu {}, and 1",
                Resource::Gpu.display(request)
            ),
        ))
    }
}

fn amount(
    field: &str,
    resource: Resource,
    written: Option<&Written>,
) -> Result<Option<u64>, Refusal> {
    let name = resource.name().to_owned();
    let parsed = written.map(|written| Amounts::parse([(name.as_str(), written)]));
    let parsed = parsed.transpose();
    let parsed = parsed.map_err(|error| Refusal::new("bad_demand", format!("{field}: {error}")))?;
    Ok(parsed.map(|amounts| amounts.get(&resource)))
}
