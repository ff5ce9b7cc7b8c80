//! Slurm's programs, with bounded output and time.

use std::process::{Output, Stdio};
use std::time::Duration;

use dormouse_messages::quantity::Resource;
use dormouse_messages::slurm::SlurmQueue;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::listing::{self, Listed};

/// A busy controller answers within a minute, or Slurm's own time-out ends the program.
const PATIENCE: Duration = Duration::from_secs(90);

/// Bounds the answer of a program; a line of `squeue` has about a hundred bytes.
const OUTPUT_BYTES: u64 = 16 << 20;

/// Bounds the text of an error on the log.
const WORDS: usize = 400;

/// A failure of one of Slurm's programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlurmError {
    #[error("{program} cannot be started: {why}; is Slurm's client installed here?")]
    Start { program: &'static str, why: String },
    #[error("{program} does not answer within {} s", PATIENCE.as_secs())]
    Silent { program: &'static str },
    #[error("{program}: {why}")]
    Failed { program: &'static str, why: String },
    #[error("{program} answers what this build does not read: {what}")]
    Unread { program: &'static str, what: String },
}

impl SlurmError {
    /// Reports whether Slurm answered, and said no.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// Slurm as its client programs show it.
#[derive(Debug, Clone, Default)]
pub struct Slurm;

impl Slurm {
    /// Lists the user's jobs whose names begin with `prefix`.
    ///
    /// # Errors
    /// If `squeue` fails.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, SlurmError> {
        let mut command = Command::new("squeue");
        let user = nix::unistd::geteuid();
        command
            .args(["--noheader", "--states=all", "--array-unique"])
            .arg(format!("--user={user}"))
            .arg(format!("--format={}", listing::FORMAT))
            // Seconds since 1970, in place of the local time of this machine.
            .env("SLURM_TIME_FORMAT", "%s");
        let text = run("squeue", command).await?;
        Ok(listing::parse(&text, prefix))
    }

    /// Submits a script; returns the number of Slurm's job.
    ///
    /// # Errors
    /// If `sbatch` fails.
    pub async fn submit(&self, job: &Submission<'_>) -> Result<u64, SlurmError> {
        let mut command = Command::new("sbatch");
        command.args(job.arguments());
        // The flags of this service are not those of the agents.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DORMOUSE_") {
                command.env_remove(name);
            }
        }
        let text = run("sbatch", command).await?;
        // With several clusters, the cluster's name follows.
        let number = text.trim().split(';').next().unwrap_or_default();
        number.parse().map_err(|_| SlurmError::Unread {
            program: "sbatch",
            what: shortened(&text),
        })
    }

    /// Asks Slurm whether and when a job would start; returns what Slurm says.
    ///
    /// # Errors
    /// If `sbatch` fails.
    pub async fn check(&self, job: &Submission<'_>) -> Result<String, SlurmError> {
        let mut command = Command::new("sbatch");
        command.arg("--test-only").args(job.arguments());
        said("sbatch", command).await.map(|text| shortened(&text))
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// If `scancel` fails.
    pub async fn cancel(&self, slurm_job: u64) -> Result<(), SlurmError> {
        let mut command = Command::new("scancel");
        command.arg(slurm_job.to_string());
        run("scancel", command).await.map(drop)
    }
}

/// A job for `sbatch`.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    pub name: &'a str,
    pub settings: &'a SlurmQueue,
    pub nodes: u32,
    /// Absent where nothing is to run.
    pub script: Option<&'a std::path::Path>,
    pub output: &'a std::path::Path,
}

impl Submission<'_> {
    /// Returns the arguments of `sbatch`.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let SlurmQueue {
            partition,
            account,
            options,
            node,
            time_limit_s,
            drain_s,
            ..
        } = self.settings;
        let cores = node.get(&Resource::Cpu).div_ceil(1000).max(1);
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.name),
            format!("--output={}", self.output.display()),
            // A later allocation is a new request.
            "--no-requeue".to_owned(),
            // The other nodes of an allocation run on.
            "--no-kill".to_owned(),
            format!("--nodes={}", self.nodes),
            "--ntasks-per-node=1".to_owned(),
            format!("--cpus-per-task={cores}"),
            // Slurm counts in minutes.
            format!("--time={}", time_limit_s.div_ceil(60).max(1)),
            format!("--signal=B:USR1@{drain_s}"),
        ];
        let mebibytes = node.get(&Resource::Memory) >> 20;
        if mebibytes > 0 {
            arguments.push(format!("--mem={mebibytes}M"));
        }
        let gpus = node.get(&Resource::Gpu) / 1000;
        if gpus > 0 {
            arguments.push(format!("--gres=gpu:{gpus}"));
        }
        arguments.extend(partition.iter().map(|it| format!("--partition={it}")));
        arguments.extend(account.iter().map(|it| format!("--account={it}")));
        arguments.extend(options.iter().cloned());
        let script = self.script.map(|script| script.display().to_string());
        arguments.push(script.unwrap_or_else(|| "--wrap=true".to_owned()));
        arguments
    }
}

/// Runs a program to its end; returns what it printed.
async fn run(program: &'static str, command: Command) -> Result<String, SlurmError> {
    let output = output(program, command).await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its end; returns what it said in its messages.
async fn said(program: &'static str, command: Command) -> Result<String, SlurmError> {
    let output = output(program, command).await?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn output(program: &'static str, mut command: Command) -> Result<Output, SlurmError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let failed = |why: std::io::Error| SlurmError::Start {
        program,
        why: why.to_string(),
    };
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reading = async {
        let (stdout, stderr) = tokio::join!(bounded(stdout), bounded(stderr));
        child.wait().await.map(|status| Output {
            status,
            stdout,
            stderr,
        })
    };
    let output = tokio::time::timeout(PATIENCE, reading).await;
    let output = output.map_err(|_| SlurmError::Silent { program })?;
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(output);
    }
    let (text, said) = (&output.stdout, &output.stderr);
    let said = if said.is_empty() { text } else { said };
    Err(SlurmError::Failed {
        program,
        why: shortened(&String::from_utf8_lossy(said)),
    })
}

/// Reads to the end, so that the program does not block, and keeps the beginning.
async fn bounded(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream)
            .take(OUTPUT_BYTES)
            .read_to_end(&mut bytes)
            .await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    bytes
}

/// Returns one line of printable characters.
#[must_use]
pub fn shortened(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = words.chars().filter(|it| !it.is_control());
    plain.take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_submission_asks_for_what_the_queue_says() {
        let settings = SlurmQueue {
            partition: Some("gpu".to_owned()),
            account: Some("ml".to_owned()),
            options: vec!["--constraint=a100".to_owned()],
            node: "cpu=7500m,memory=30Gi,gpu=4".parse().expect("amounts"),
            labels: std::collections::BTreeMap::new(),
            nodes: 2,
            time_limit_s: 3_601,
            drain_s: 120,
            most: 4,
            backlog: 1,
            idle_s: 300,
            pause_after: 3,
            grow: false,
            paused: false,
        };
        let submission = Submission {
            name: "dormouse-1-gpu-3",
            settings: &settings,
            nodes: 2,
            script: Some(Path::new("/home/me/script")),
            output: Path::new("/home/me/out"),
        };
        assert_eq!(
            submission.arguments().join(" "),
            "--parsable --job-name=dormouse-1-gpu-3 --output=/home/me/out --no-requeue --no-kill \
             --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --time=61 --signal=B:USR1@120 \
             --mem=30720M --gres=gpu:4 --partition=gpu --account=ml --constraint=a100 \
             /home/me/script"
        );
    }

    #[tokio::test]
    async fn a_program_that_fails_says_why_in_one_line() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo out; printf 'no\\n\\033[1msuch partition\\n' >&2; exit 1",
        ]);
        let failed = run("sbatch", command).await.expect_err("fails");
        assert!(failed.is_refusal());
        assert_eq!(failed.to_string(), "sbatch: no [1msuch partition");
        let none = Command::new("/nonexistent/squeue");
        let none = run("squeue", none).await.expect_err("is not there");
        assert!(!none.is_refusal(), "{none}");
    }
}
