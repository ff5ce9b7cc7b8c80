//! Ends a node's containers when its agent cannot: see [`dormouse_sandbox::supervisor`].

use std::collections::HashMap;
use std::time::Duration;

use bollard::query_parameters::{KillContainerOptions, ListContainersOptions};
use nix::sys::signal::Signal;

use super::{body, engine, engine_answers};
use crate::config::AgentConfig;
use crate::process;
use crate::runtime::{Exits, RuntimeError};
use crate::supervisor::Supervisor;

const END_AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn supervisor(
    config: &AgentConfig,
    exits: Exits,
) -> Result<Supervisor, RuntimeError> {
    let mut supervisor = process::supervisor_config(config, false);
    supervisor.settings.view = None;
    let node = config.node.as_str();
    let arguments = ["supervisor", "--engine", &config.cluster, node];
    supervisor.settings.engine = Some(arguments.map(str::to_owned).into());
    Ok(Supervisor::connect(supervisor, exits).await?.0)
}

/// Ends every container of a node, and retries until the engine succeeds.
pub async fn end_all(cluster: &str, node: &str) {
    let filters = HashMap::from([(
        "label".to_owned(),
        vec![
            format!("{}={cluster}", body::CLUSTER),
            format!("{}={node}", body::NODE),
        ],
    )]);
    loop {
        match end_those(&filters).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => eprintln!("the engine's containers run on: {error}"),
        }
        tokio::time::sleep(END_AGAIN).await;
    }
}

async fn end_those(filters: &HashMap<String, Vec<String>>) -> Result<usize, RuntimeError> {
    let docker = engine_answers().await?;
    let options = ListContainersOptions {
        filters: Some(filters.clone()),
        ..ListContainersOptions::default()
    };
    let running = docker
        .list_containers(Some(options))
        .await
        .map_err(engine)?;
    let ids: Vec<_> = running.iter().filter_map(|it| it.id.clone()).collect();
    let kills = ids.iter().map(|id| {
        let options = KillContainerOptions {
            signal: Signal::SIGKILL.as_str().to_owned(),
        };
        docker.kill_container(id, Some(options))
    });
    futures::future::join_all(kills).await;
    Ok(ids.len())
}
