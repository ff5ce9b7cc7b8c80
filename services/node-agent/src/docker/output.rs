//! What a container prints, copied to the files where a plain process's would be.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptions;
use futures::StreamExt;

use crate::layout;

/// Copies all that a container prints, from its first line on, until it ends.
pub async fn copy(docker: Docker, name: String, directory: PathBuf) {
    let logs = layout::logs_in(&directory);
    let (Ok(mut stdout), Ok(mut stderr)) = (File::create(&logs.stdout), File::create(&logs.stderr))
    else {
        tracing::warn!(
            name,
            "its output cannot be copied to {}",
            directory.display()
        );
        return;
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
