//! What this machine lets an agent do: for a person who asks before a job does.

use crate::docker::engine_answers;
use crate::keeper::group::Cgroups;

/// The container engine that an agent would use; an error in words where none answers.
///
/// # Errors
/// When none answers.
pub async fn engine() -> Result<(), String> {
    engine_answers()
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// How plain processes are held to what they demand.
///
/// # Errors
/// Why they are not.
pub fn control_groups() -> Result<&'static str, String> {
    let groups = Cgroups::detect("doctor");
    let found = match &groups {
        Cgroups::V1 { .. } => Ok("version 1"),
        Cgroups::V2(_) => Ok("version 2"),
        Cgroups::Absent(why) => Err(why.clone()),
    };
    groups.remove_if_empty();
    found
}
