//! Programs that attached users run in containers: permission, environment, and events on the log.

use std::sync::Arc;

use actix::prelude::*;

use dormouse_messages::events::ExecBy;
use dormouse_runtime::{Clock, SystemClock};
use tokio::sync::oneshot;

use dormouse_agent_core::Stage;
use dormouse_sandbox::protocol::ExecExit;

use super::Agent;
use crate::container_plan::ContainerPlan;
use crate::exec::attached::Attach;
use crate::exec::{ExecAsked, Opened, Start};
use crate::plan;
use crate::reconcile::ProcessState;
use crate::report;

impl Agent {
    fn exec_plan(&self, start: &Start, by: ExecBy) -> Result<ContainerPlan, (String, String)> {
        let refused = |code: &str, why: String| (code.to_owned(), why);
        let (id, node) = (&start.container, &self.config.node);
        if self.core.stage() != Stage::Live {
            let why = format!("the agent of {node} is just starting; ask again in a moment");
            return Err(refused("unavailable", why));
        }
        if by == ExecBy::Tenant {
            let granted = self.core.state().grants.of(id.job.tenant());
            let denied = granted.may_exec();
            denied.map_err(|denied| refused(denied.code, denied.reason))?;
        }
        let seen = self.core.machine().containers.get(id);
        let is_running = seen.is_some_and(|seen| matches!(seen.process, ProcessState::Running(_)));
        if !is_running || self.core.machine().fenced {
            let why = format!("{id} does not run on {node}");
            return Err(refused("not_running", why));
        }
        let plan = plan::plan(&self.config, self.core.state(), id);
        let plan = plan.map_err(|why| refused("not_running", why))?;
        let mut plan = self.with_token(id, plan);
        plan.argv.clone_from(&start.command);
        Ok(plan)
    }

    fn next_exec(&mut self) -> u64 {
        let now = u64::try_from(SystemClock.now().as_micros()).unwrap_or(0);
        self.last_exec = now.max(self.last_exec + 1);
        self.last_exec
    }

    fn exec(&mut self, asked: ExecAsked, plan: ContainerPlan, ctx: &mut Context<Self>) {
        let ExecAsked { start, by, answer } = asked;
        let (id, number) = (start.container.clone(), self.next_exec());
        let event = report::exec_started(&id, &self.config.node, (number, by), &start);
        self.report(event, Vec::new());
        let attach = start.terminal.map_or(Attach::Pipes, Attach::Terminal);
        let runtime = Arc::clone(&self.runtime);
        let opening = async move { runtime.exec(plan, attach).await };
        ctx.spawn(opening.into_actor(self).map(move |opened, actor, ctx| {
            let attached = match opened {
                Ok(attached) => attached,
                Err(why) => {
                    actor.exec_ended(&id, number, ExecExit::without(why.clone()));
                    let _ = answer.send(Err(("not_started".to_owned(), why)));
                    return;
                }
            };
            let (report, reported) = oneshot::channel();
            let ended = reported.into_actor(actor).map(move |exit, actor, _| {
                let unseen = |_| ExecExit::without("its end was not seen");
                actor.exec_ended(&id, number, exit.unwrap_or_else(unseen));
            });
            ctx.spawn(ended);
            let opened = Opened {
                number,
                attached,
                report,
            };
            let _ = answer.send(Ok(opened));
        }));
    }

    fn exec_ended(&mut self, id: &dormouse_messages::ContainerId, number: u64, exit: ExecExit) {
        let event = report::exec_ended(id, &self.config.node, number, exit);
        self.report(event, Vec::new());
    }

    pub(super) fn end_former_execs(&mut self) {
        let former = self.core.state().own().execs.clone();
        for (number, id) in &former {
            let why = "the node's agent ended while it ran; it was ended";
            self.exec_ended(id, *number, ExecExit::without(why));
        }
    }
}

impl Handler<ExecAsked> for Agent {
    type Result = ();

    fn handle(&mut self, asked: ExecAsked, ctx: &mut Context<Self>) {
        match self.exec_plan(&asked.start, asked.by) {
            Ok(plan) => self.exec(asked, plan, ctx),
            Err(why) => drop(asked.answer.send(Err(why))),
        }
    }
}
