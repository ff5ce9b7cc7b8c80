//! Further programs in containers: the supervisor forwards their descriptors to the init. Attached ones end with
//! the agent's connection.

use nix::sys::signal::Signal;

use super::Supervisor;
use crate::protocol::{Attachment, ExecExit, InitAsk, Program, Tell};
use crate::supervisor::child::Stage;

impl Supervisor {
    pub(super) fn exec(
        &mut self,
        number: u64,
        container: &str,
        program: Box<Program>,
        attachment: Attachment,
    ) {
        let count = attachment.descriptors();
        let descriptors = self.agent.as_mut().and_then(|agent| agent.take(count));
        let held = self.held.get_mut(container);
        let running = held.filter(|held| matches!(held.stage, Stage::Running(_)));
        let why = match (running, descriptors) {
            (Some(held), Some(descriptors)) => match &mut held.init {
                Some(init) => {
                    held.execs.push((number, attachment));
                    let word = InitAsk::Exec(number, program, attachment);
                    return init.lines.say_with(&word, descriptors);
                }
                None => "the container has ended",
            },
            (None, _) => "the container does not run",
            (_, None) => "its descriptors are missing",
        };
        self.tell(&Tell::ExecEnded(number, ExecExit::without(why)));
    }

    pub(super) fn end_execs(&mut self) {
        for held in self.held.values_mut() {
            for (number, attachment) in std::mem::take(&mut held.execs) {
                if attachment != Attachment::Files
                    && let Some(init) = &mut held.init
                {
                    let kill = InitAsk::ExecSignal(number, Signal::SIGKILL as i32);
                    init.lines.say(&kill);
                }
            }
        }
    }
}
