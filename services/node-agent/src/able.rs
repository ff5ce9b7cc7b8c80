//! Reports which features this machine offers to an agent, for `dormouse cluster doctor`.

use dormouse_sandbox::cgroups::Cgroups;

use crate::docker::engine_answers;

/// Checks that a container engine answers.
///
/// # Errors
/// If none answers.
pub async fn engine() -> Result<(), String> {
    engine_answers()
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Returns the control group version that confines plain processes.
///
/// # Errors
/// If there is none.
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
