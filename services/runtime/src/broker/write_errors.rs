//! Asks the broker whether a write failed; nats-server stores nothing afterwards.

use std::time::Duration;

use serde::Deserialize;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) const SUPERVISOR: &str = "supervisor";

pub(super) const HEALTH: &str = "$SYS.REQ.SERVER.PING.HEALTHZ";

pub(super) struct Health {
    url: String,
    password: String,
    client: Option<async_nats::Client>,
}

#[derive(Deserialize)]
struct Healthz {
    data: HealthzData,
}

#[derive(Deserialize)]
struct HealthzData {
    #[serde(default)]
    error: String,
}

impl Health {
    pub(super) fn new(url: String, password: String) -> Self {
        Self {
            url,
            password,
            client: None,
        }
    }

    pub(super) async fn write_error(&mut self) -> Option<String> {
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.ask()).await;
        let answer = asked.ok()??;
        let health: Healthz = serde_json::from_slice(&answer.payload).ok()?;
        let error = health.data.error;
        error.contains("write error").then_some(error)
    }

    async fn ask(&mut self) -> Option<async_nats::Message> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let options = async_nats::ConnectOptions::with_user_and_password(
                    SUPERVISOR.to_owned(),
                    self.password.clone(),
                );
                none.insert(options.connect(&self.url).await.ok()?)
            }
        };
        client.request(HEALTH, "".into()).await.ok()
    }
}
