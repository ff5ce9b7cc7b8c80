//! The name of this build.

/// Names this build by version, size and time of the executable: other builds' snapshots are not used.
pub fn build() -> String {
    let executable = std::env::current_exe().and_then(std::fs::metadata);
    let modified = executable
        .as_ref()
        .ok()
        .and_then(|file| file.modified().ok());
    let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    match (executable, modified) {
        (Ok(file), Some(at)) => {
            format!(
                "{}-{:x}-{:x}",
                env!("CARGO_PKG_VERSION"),
                file.len(),
                at.as_secs()
            )
        }
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
