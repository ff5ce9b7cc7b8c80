//! The file of a service's clock anchor (`dormouse_shell::ClockAnchor`), synced against power failures.

use std::io::Write;
use std::path::{Path, PathBuf};

use dormouse_shell::ClockAnchor;

#[derive(Debug, Clone)]
pub(crate) struct MarkFile(PathBuf);

impl MarkFile {
    pub fn new(dir: &Path) -> Self {
        Self(dir.join("clock.json"))
    }

    pub async fn load(&self) -> Option<ClockAnchor> {
        let path = self.0.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let bytes = std::fs::read(path).ok()?;
            serde_json::from_slice(&bytes).ok()
        });
        reading.await.ok().flatten()
    }

    /// Writes the mark on another thread; a failure is only logged.
    pub fn keep(&self, mark: ClockAnchor) {
        let file = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = file.write(&mark) {
                tracing::warn!(
                    path = %file.0.display(), %error,
                    "cannot keep the time of the log; after a stop it will be behind by the silence"
                );
            }
        });
    }

    fn write(&self, mark: &ClockAnchor) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(mark).map_err(std::io::Error::other)?;
        self.0.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let partial = self.0.with_extension("json.partial");
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &self.0)
    }
}
