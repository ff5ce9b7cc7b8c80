//! What an agent does for notebooks: their tokens, and whom it tells them.

use actix::prelude::*;

use dormouse_messages::ContainerId;
use dormouse_messages::grants::Network;
use dormouse_messages::job::JobSpec;

use super::Agent;
use crate::config::RuntimeKind;
use crate::jupyter::{self, Follower, Pace, Server};
use crate::members;
use crate::runtime::{ContainerPlan, NotStarted};
use crate::wire::TokenAsked;

impl Agent {
    fn notebook_spec(&self, id: &ContainerId) -> Option<&JobSpec> {
        self.spec(id).filter(|spec| jupyter::is_notebook(spec))
    }

    /// The token that a notebook asks for; `None` where it is none.
    pub(super) fn notebook_token(&self, id: &ContainerId) -> Option<Result<String, String>> {
        let spec = self.notebook_spec(id)?;
        let granted = self.core.state().grants.of(id.job.tenant());
        Some(jupyter::token_of(spec, &granted, self.marks.token(id)))
    }

    /// A notebook's plan with its token, its settings being written.
    pub(super) fn with_notebook(
        &self,
        id: &ContainerId,
        mut plan: ContainerPlan,
    ) -> Result<ContainerPlan, NotStarted> {
        if self.notebook_spec(id).is_none() {
            return Ok(plan);
        }
        jupyter::give(&mut plan.env, self.marks.token(id));
        let layout = self.config.layout();
        let address = match plan.network {
            // It is reached through its published ports.
            Network::Published if self.config.runtime == RuntimeKind::Docker => {
                "0.0.0.0".to_owned()
            }
            _ => members::address(&self.config, self.core.state(), &self.config.node)?,
        };
        jupyter::prepare(&layout, id, &address).map_err(|error| {
            let path = layout.work(&id.job).path();
            crate::runtime::of_disk("cannot make the notebook's folder", &path, &error)
        })?;
        Ok(plan)
    }

    fn token_asked(&self, container: &ContainerId) -> Result<String, String> {
        let node = &self.config.node;
        let here = self.actors.contains_key(container);
        let token = self.notebook_token(container).filter(|_| here);
        token.unwrap_or_else(|| Err(format!("{container} is no notebook that runs on {node}")))
    }

    /// Who asks a notebook what it does.
    pub(super) fn notebook(&self, id: &ContainerId) -> Option<Follower> {
        let spec = self.notebook_spec(id)?;
        let (_, partition) = self.core.state().partition(id)?;
        let server = Server {
            address: members::address(&self.config, self.core.state(), &self.config.node).ok()?,
            port: partition.gang.get(&id.rank)?.port,
            token: self.notebook_token(id)?.ok()?,
        };
        let pace = Pace::of(spec.service.as_ref()?);
        Some(Follower::new(server, pace))
    }
}

impl Handler<TokenAsked> for Agent {
    type Result = ();

    fn handle(&mut self, TokenAsked { container, answer }: TokenAsked, _: &mut Context<Self>) {
        let _ = answer.send(self.token_asked(&container));
    }
}
