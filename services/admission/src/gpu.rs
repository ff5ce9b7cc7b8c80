//! Fractions of a GPU: what a container may ask for.

use dormouse_messages::job::JobDocument;
use dormouse_messages::quantity::Written;
use dormouse_messages::{Amounts, Resource};

use crate::parse::Refusal;

/// The limit in thousandths and the memory in bytes that a document asks for.
///
/// # Errors
/// What is wrong with its demand of GPUs, its `gpu_limit` or its `gpu_memory`.
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
    if let Some(limit) = limit
        && (request == 0 || request > 1000 || !(request..=1000).contains(&limit))
    {
        return Err(refuse(format!(
            "gpu_limit {} must lie between demand.gpu, a fraction of one GPU, and 1",
            Resource::Gpu.display(limit)
        )));
    }
    let memory = amount("gpu_memory", Resource::Memory, document.gpu_memory.as_ref())?;
    let memory = memory.or(document.gpu_memory_bytes);
    if memory.is_some() && request == 0 {
        return Err(refuse(
            "gpu_memory is of a GPU; give the job a demand such as {gpu: 0.25}".to_owned(),
        ));
    }
    Ok((limit, memory.filter(|memory| *memory > 0)))
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
