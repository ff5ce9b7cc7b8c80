//! Attached programs: the supervisor forwards their descriptors to the guard. They end with the agent's
//! connection.

use nix::sys::signal::Signal;

use dormouse_messages::ContainerId;

use super::Keeper;
use crate::keeper::held::Stage;
use crate::keeper::words::{Attachment, ExecExit, GuardAsk, Program, Tell};

impl Keeper {
    pub(super) fn exec(
        &mut self,
        number: u64,
        container: &ContainerId,
        program: Box<Program>,
        attachment: Attachment,
    ) {
        let count = attachment.descriptors();
        let descriptors = self.agent.as_mut().and_then(|agent| agent.take(count));
        let held = self.held.get_mut(container);
        let running = held.filter(|held| matches!(held.stage, Stage::Running(_)));
        let why = match (running, descriptors) {
            (Some(held), Some(descriptors)) => match &mut held.guard {
                Some(guard) => {
                    held.execs.push(number);
                    let word = GuardAsk::Exec(number, program, attachment);
                    return guard.lines.say_with(&word, descriptors);
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
            for number in std::mem::take(&mut held.execs) {
                if let Some(guard) = &mut held.guard {
                    let kill = GuardAsk::ExecSignal(number, Signal::SIGKILL as i32);
                    guard.lines.say(&kill);
                }
            }
        }
    }
}
