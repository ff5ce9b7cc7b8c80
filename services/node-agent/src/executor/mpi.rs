//! mpi (recipe to come).

use std::collections::BTreeMap;

use super::Setting;

/// The command line.
///
/// # Errors
/// Why not.
pub fn launch(
    _setting: &Setting<'_>,
    argv: Vec<String>,
    _env: &mut BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    Ok(argv)
}
