//! What a container prints, copied to the files where a plain process's would be.

use std::io::Write;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures::StreamExt;

use crate::folder::Below;
use crate::layout::{STDERR, STDOUT};
use crate::rotate::forget;

/// Copies all that a container prints, from its first line on, until it ends.
pub async fn copy(docker: Docker, name: String, directory: Below) {
    let open = || {
        let folder = directory.open()?;
        for name in [STDOUT, STDERR] {
            forget(&folder, name)?;
        }
        Ok::<_, std::io::Error>((folder.create(STDOUT)?, folder.create(STDERR)?))
    };
    let (mut stdout, mut stderr) = match open() {
        Ok(opened) => opened,
        Err(error) => {
            let path = directory.path();
            tracing::warn!(name, %error, "its output cannot be copied to {}", path.display());
            return;
        }
    };
    let options = LogsOptions {
        follow: true,
        stdout: true,
        stderr: true,
        ..LogsOptions::default()
    };
    let mut output = docker.logs(&name, Some(options));
    while let Some(Ok(output)) = output.next().await {
        let written = match &output {
            LogOutput::StdErr { message } => stderr.write_all(message),
            LogOutput::StdOut { message } | LogOutput::Console { message } => {
                stdout.write_all(message)
            }
            LogOutput::StdIn { .. } => Ok(()),
        };
        if let Err(error) = written {
            tracing::warn!(name, %error, "its output is no longer copied");
            return;
        }
    }
}
