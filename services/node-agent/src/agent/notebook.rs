//! The agent's part in notebooks: gives tokens, prepares folders, and answers requests for tokens.

use actix::prelude::*;

use dormouse_agent_core::NotStarted;
use dormouse_messages::ContainerId;
use dormouse_messages::grants::Network;
use dormouse_messages::job::JobSpec;

use super::Agent;
use crate::config::RuntimeKind;
use crate::container::Before;
use crate::container_plan::ContainerPlan;
use crate::container_record::ContainerRecord;
use crate::disk_error::of_jobs_folder;
use crate::jupyter::{self, Follower, Pace, Server, Token};
use crate::members;
use crate::network;
use crate::wire::TokenAsked;

impl Agent {
    fn notebook_spec(&self, id: &ContainerId) -> Option<&JobSpec> {
        self.spec(id).filter(|spec| jupyter::is_notebook(spec))
    }

    /// Returns the token of a notebook that was started.
    pub(super) fn notebook_token(&self, id: &ContainerId) -> Option<Token> {
        let (_, partition) = self.core.state().partition(id)?;
        self.notebook_spec(id)?;
        let request = partition.here.get(&id.rank)?.request?;
        self.token_of(&self.record(id, request))
    }

    fn token_of(&self, mark: &ContainerRecord) -> Option<Token> {
        let id = &mark.container;
        let spec = self.notebook_spec(id)?;
        let granted = self.core.state().grants.of(id.job.tenant());
        let token = self.marks.token(id, mark.admitted);
        Some(Token::of(spec, granted, token))
    }

    pub(super) fn with_token(&self, id: &ContainerId, mut plan: ContainerPlan) -> ContainerPlan {
        if self.notebook_spec(id).is_some() {
            jupyter::give(&mut plan.env, self.marks.token(id, plan.admitted));
        }
        plan
    }

    pub(super) fn notebook_files(
        &self,
        id: &ContainerId,
        plan: &ContainerPlan,
    ) -> Result<Option<Before>, NotStarted> {
        if self.notebook_spec(id).is_none() {
            return Ok(None);
        }
        let layout = self.config.layout();
        let address = match plan.network {
            Network::Published if self.config.runtime == RuntimeKind::Docker => {
                "0.0.0.0".to_owned()
            }
            _ => members::address(&self.config, self.core.state(), &self.config.node)?,
        };
        let own_ports = network::has_own_ports_only(&self.config, plan.network);
        let (id, work) = (id.clone(), layout.work(&id.job));
        Ok(Some(Before::new(move || {
            let prepared = jupyter::prepare(&layout, &id, &address, own_ports);
            let what = "cannot make the notebook's folder";
            prepared.map_err(|error| of_jobs_folder(what, &work, &error))
        })))
    }

    fn token_asked(&self, container: &ContainerId) -> Result<Token, String> {
        let node = &self.config.node;
        let here = self.actors.contains_key(container);
        let token = self.notebook_token(container).filter(|_| here);
        token.ok_or_else(|| format!("{container} is no notebook that runs on {node}"))
    }

    pub(super) fn notebook(&self, mark: &ContainerRecord) -> Option<Follower> {
        let id = &mark.container;
        let spec = self.notebook_spec(id)?;
        let (_, partition) = self.core.state().partition(id)?;
        let server = Server {
            address: members::address(&self.config, self.core.state(), &self.config.node).ok()?,
            port: partition.gang.get(&id.rank)?.port,
            token: self.token_of(mark)?,
        };
        let pace = Pace::of(spec.service.as_ref()?);
        Some(Follower::new(server, pace))
    }
}

impl Handler<TokenAsked> for Agent {
    type Result = ();

    fn handle(&mut self, TokenAsked { container, answer }: TokenAsked, _: &mut Context<Self>) {
        let asked = self.token_asked(&container);
        tokio::spawn(async move {
            let token = match asked {
                Ok(token) => token.read().await,
                Err(why) => Err(why),
            };
            let _ = answer.send(token);
        });
    }
}
