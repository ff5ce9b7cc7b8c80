//! Runs another program in a Docker container. The engine runs it as the container's user,
//! without further capabilities.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use bollard::query_parameters::ResizeExecOptions;
use futures::future::FusedFuture;
use futures::{FutureExt, StreamExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use dormouse_runtime::retry;
use dormouse_sandbox::protocol::ExecExit;

use super::starting::environment;
use super::{Inner, exit_of, pid_of, words};
use crate::blocking::aside;
use crate::container_plan::ContainerPlan;
use crate::exec::attached::{Attach, Attached, Control, Input, Size};
use crate::logs::Stream;

const PIECES: usize = 4;

const LOOK_EVERY: Duration = Duration::from_millis(50);

const ATTEMPTS: u32 = 20;

/// Child processes may hold the output open.
const LOOK_RARELY: Duration = Duration::from_secs(1);

struct OfEngine {
    docker: Docker,
    exec: String,
    first: u32,
}

fn namespace(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

impl Control for OfEngine {
    /// Signals by pid, because the engine cannot. The pid must be in the container's pid namespace.
    fn signal(&self, signal: Signal) {
        let (docker, exec, first) = (self.docker.clone(), self.exec.clone(), self.first);
        tokio::spawn(async move {
            // A new program has no pid yet.
            for _ in 0..ATTEMPTS {
                let found = docker.inspect_exec(&exec).await.ok();
                if found.as_ref().is_some_and(|it| it.exit_code.is_some()) {
                    return;
                }
                let pid = found.and_then(|it| u32::try_from(it.pid?).ok());
                if let Some(pid) = pid.filter(|pid| *pid > 0) {
                    let is_inside = namespace(pid).is_some() && namespace(pid) == namespace(first);
                    if let Ok(pid) = i32::try_from(pid)
                        && is_inside
                    {
                        let _ = kill(Pid::from_raw(pid), signal);
                    }
                    return;
                }
                sleep(LOOK_EVERY).await;
            }
        });
    }

    fn resize(&self, size: Size) {
        let (docker, exec) = (self.docker.clone(), self.exec.clone());
        tokio::spawn(async move {
            let resize = || {
                let options = ResizeExecOptions {
                    h: i32::from(size.rows),
                    w: i32::from(size.columns),
                };
                docker.resize_exec(&exec, options)
            };
            let _ = retry(LOOK_EVERY, LOOK_EVERY * ATTEMPTS, |_| true, resize).await;
        });
    }
}

async fn ended(docker: Docker, exec: String, closed: oneshot::Receiver<()>) -> ExecExit {
    let mut closed = closed.fuse();
    let mut look_every = LOOK_RARELY;
    loop {
        tokio::select! {
            _ = &mut closed, if !closed.is_terminated() => look_every = LOOK_EVERY,
            () = sleep(look_every) => {}
        }
        match docker.inspect_exec(&exec).await {
            Ok(found) if found.running == Some(false) => {
                let Some(code) = found.exit_code else {
                    return ExecExit::without("the engine does not say how it ended");
                };
                let exit = exit_of(code, false);
                return ExecExit {
                    code: exit.code,
                    signal: exit.signal,
                    why: None,
                };
            }
            Ok(_) => {}
            Err(Error::DockerResponseServerError {
                status_code: 404, ..
            }) => return ExecExit::without("the container has ended"),
            Err(error) => tracing::warn!(exec, %error, "the engine does not answer"),
        }
    }
}

/// Starts the program.
///
/// # Errors
/// The reason for the refusal, for a person.
pub(super) async fn exec(
    inner: Arc<Inner>,
    plan: ContainerPlan,
    attach: Attach,
) -> Result<Attached, String> {
    let text = |error: Error| words(&error);
    let name = inner.name(&plan.container);
    let argv = plan.argv.clone();
    let env = aside(move || environment(&plan)).await;
    let mut env = env.ok_or("its environment cannot be read")??;
    let terminal = attach.terminal();
    let kind = terminal.and_then(|it| it.kind.as_ref());
    env.extend(kind.map(|kind| format!("TERM={kind}")));
    let has_terminal = terminal.is_some();
    let size = terminal.map(|it| it.size);
    let size = size.map(|size| vec![usize::from(size.rows), usize::from(size.columns)]);
    let options = ExecConfig {
        cmd: Some(argv),
        env: Some(env),
        attach_stdin: Some(attach != Attach::Nobody),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(has_terminal),
        console_size: size,
        ..ExecConfig::default()
    };
    let docker = inner.docker.clone();
    let first = inner.inspect(&name).await.map_err(text)?;
    let created = docker.create_exec(&name, options).await.map_err(text)?;
    let options = StartExecOptions {
        tty: has_terminal,
        ..StartExecOptions::default()
    };
    let started = docker.start_exec(&created.id, Some(options)).await;
    let StartExecResults::Attached { mut output, input } = started.map_err(text)? else {
        return Err("the engine attaches nobody to it".to_owned());
    };
    let (send, receive) = mpsc::channel(PIECES);
    let (close, closed) = oneshot::channel();
    tokio::spawn(async move {
        while let Some(Ok(piece)) = output.next().await {
            let piece = match piece {
                LogOutput::StdErr { message } => (Stream::Stderr, message),
                LogOutput::StdOut { message } | LogOutput::Console { message } => {
                    (Stream::Stdout, message)
                }
                LogOutput::StdIn { .. } => continue,
            };
            if send.send(piece).await.is_err() {
                break;
            }
        }
        let _ = close.send(());
    });
    let control = OfEngine {
        docker: docker.clone(),
        exec: created.id.clone(),
        first: pid_of(&first),
    };
    if let Some(terminal) = terminal {
        // Engines with an older runc ignore an earlier size.
        control.resize(terminal.size);
    }
    Ok(Attached {
        input: Input::Engine(input, has_terminal),
        output: receive,
        ended: ended(docker, created.id, closed).boxed(),
        control: Arc::new(control),
    })
}
