//! Runs another program in a plain process's container. The container's init starts the program with
//! descriptors made here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::FutureExt;
use nix::sys::signal::Signal;

use dormouse_messages::ContainerId;
use dormouse_sandbox::protocol::ExecExit;

use super::Inner;
use crate::blocking::aside;
use crate::container_plan::ContainerPlan;
use crate::exec::attached::{self, Attach, Attached, Control, Size};
use crate::supervisor::Supervisor;

struct OfSupervisor {
    supervisor: Supervisor,
    container: ContainerId,
    number: u64,
    terminal: Option<OwnedFd>,
}

impl Control for OfSupervisor {
    fn signal(&self, signal: Signal) {
        self.supervisor
            .signal_exec(self.number, &self.container, signal as i32);
    }

    fn resize(&self, size: Size) {
        if let Some(terminal) = &self.terminal {
            let _ = attached::resize(terminal, size);
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
    let (container, user) = (plan.container.clone(), plan.user);
    let preparing = Arc::clone(&inner);
    let program = aside(move || preparing.program(&plan)).await;
    let mut program = program.ok_or("it cannot be prepared: the disk does not answer")??;
    let kind = attach.terminal().and_then(|it| it.kind.clone());
    program
        .env
        .extend(kind.map(|kind| ("TERM".to_owned(), kind)));
    let ends = attached::ends(&attach, user);
    let ends = ends.map_err(|error| format!("nobody can be attached to it: {error}"))?;
    let supervisor = inner.supervisor.clone();
    let (number, ended) = supervisor.exec(&container, program, ends.theirs);
    let gone = |_| ExecExit::without("the node's supervisor has ended, and its containers with it");
    Ok(Attached {
        input: ends.input,
        output: ends.output,
        ended: ended.map(move |exit| exit.unwrap_or_else(gone)).boxed(),
        control: Arc::new(OfSupervisor {
            supervisor,
            container,
            number,
            terminal: ends.terminal,
        }),
    })
}
