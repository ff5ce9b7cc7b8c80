//! A client connection. A denied publish gets no answer; the broker reports the denial on the connection, and
//! this module broadcasts the reports.

use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::{AuthError, Client, ConnectErrorKind, ConnectOptions, Event, Request, StatusCode};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::{broadcast, watch};

use crate::answer::{ANSWER_TIMEOUT, once};
use crate::credentials::Proof;
use crate::error::LogError;
use crate::retry::retry;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) enum NoAnswer {
    Denied,
    TooLarge {
        limit: usize,
    },
    Nobody,
    /// The request may have arrived, or may yet arrive.
    Doubt(String),
}

impl NoAnswer {
    pub fn into_words(self) -> String {
        match self {
            Self::Denied => "the broker denies it".to_owned(),
            Self::TooLarge { .. } => "the request is too large".to_owned(),
            Self::Nobody => "no responders".to_owned(),
            Self::Doubt(why) => why,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub client: Client,
    denied: broadcast::Sender<String>,
    pub connections: watch::Receiver<u64>,
    pub lost_since: watch::Receiver<Option<Instant>>,
}

impl Connection {
    pub async fn open(settings: &Settings) -> Result<Self, LogError> {
        let (denied, _) = broadcast::channel(256);
        let (connections_tx, connections) = watch::channel(0);
        let (lost_tx, lost_since) = watch::channel(None);
        let on_event = {
            let denied = denied.clone();
            move |event: Event| {
                note(&event, &denied, &connections_tx, &lost_tx);
                std::future::ready(())
            }
        };
        let options = options(settings).await?.event_callback(on_event);
        let client = connect(settings, options).await?;
        // The first request would take this report for a reconnect.
        let mut made = connections.clone();
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, made.wait_for(|made| *made > 0)).await;
        Ok(Self {
            client,
            denied,
            connections,
            lost_since,
        })
    }

    pub async fn ask(
        &self,
        subject: &str,
        request: Request,
    ) -> Result<async_nats::Message, NoAnswer> {
        let mut denied = self.denied.subscribe();
        let mut connections = self.connections.clone();
        connections.mark_unchanged();
        let connected = self.is_connected();
        let request = request.timeout(Some(ANSWER_TIMEOUT));
        // Also bounds the wait for space in a disconnected client's buffer.
        let answer = tokio::time::timeout(
            ANSWER_TIMEOUT,
            self.client.send_request(subject.to_owned(), request),
        );
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(Ok(message)) => Ok(message),
                Ok(Err(error)) => Err(match error.kind() {
                    async_nats::RequestErrorKind::MaxPayloadExceeded => NoAnswer::TooLarge {
                        limit: self.client.max_payload(),
                    },
                    async_nats::RequestErrorKind::NoResponders => NoAnswer::Nobody,
                    _ => NoAnswer::Doubt(once(error.to_string())),
                }),
                Err(_) => Err(NoAnswer::Doubt("no answer in time".to_owned())),
            },
            () = denial_of(&mut denied, subject) => Err(NoAnswer::Denied),
            _ = connections.changed(), if connected => {
                Err(NoAnswer::Doubt("the connection was lost".to_owned()))
            }
        }
    }

    /// Collects the answers of all known servers, until none comes for `others`.
    pub async fn ask_all(
        &self,
        subject: &str,
        payload: Bytes,
        others: Duration,
    ) -> Result<Vec<async_nats::Message>, NoAnswer> {
        let failed = |why: String| NoAnswer::Doubt(once(why));
        let server = self.client.server_info();
        let known = match server.cluster {
            None => 1,
            Some(_) => server.connect_urls.len(),
        };
        let mut denied = self.denied.subscribe();
        let inbox = self.client.new_inbox();
        let listening = self.client.subscribe(inbox.clone()).await;
        let mut answers = listening.map_err(|error| failed(error.to_string()))?;
        let sent = self
            .client
            .publish_with_reply(subject.to_owned(), inbox, payload);
        sent.await.map_err(|error| failed(error.to_string()))?;
        let mut all = Vec::new();
        let mut patience = ANSWER_TIMEOUT;
        loop {
            let next = tokio::select! {
                biased;
                next = tokio::time::timeout(patience, answers.next()) => next,
                () = denial_of(&mut denied, subject) => return Err(NoAnswer::Denied),
            };
            match next {
                Ok(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
                    return Err(NoAnswer::Nobody);
                }
                Ok(Some(answer)) => all.push(answer),
                Ok(None) | Err(_) if all.is_empty() => {
                    return Err(failed("no answer in time".to_owned()));
                }
                Ok(None) | Err(_) => return Ok(all),
            }
            if all.len() == known {
                return Ok(all);
            }
            patience = others;
        }
    }

    /// Closes the connection permanently.
    pub async fn close(&self) {
        let mut lost = self.lost_since.clone();
        let gone = async {
            if self.client.drain().await.is_ok() {
                let _ = lost.wait_for(Option::is_some).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    }

    pub async fn send(
        &self,
        subject: &str,
        headers: async_nats::HeaderMap,
        payload: Bytes,
    ) -> Result<(), NoAnswer> {
        let sent = self
            .client
            .publish_with_headers(subject.to_owned(), headers, payload);
        match tokio::time::timeout(ANSWER_TIMEOUT, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(NoAnswer::Doubt(once(error.to_string()))),
            Err(_) => Err(NoAnswer::Doubt("the connection takes no more".to_owned())),
        }
    }

    pub fn denials(&self) -> broadcast::Receiver<String> {
        self.denied.subscribe()
    }

    pub fn is_connected(&self) -> bool {
        self.lost_since.borrow().is_none()
    }

    pub fn is_to_a_single_server(&self) -> bool {
        let server = self.client.server_info();
        self.is_connected() && server.jetstream && server.cluster.is_none()
    }
}

async fn denial_of(denied: &mut broadcast::Receiver<String>, subject: &str) {
    loop {
        match denied.recv().await {
            Ok(denied) if denied == subject => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn denied_subject(report: &str) -> Option<&str> {
    let (_, rest) = report.split_once("Publish to \"")?;
    rest.split_once('"').map(|(subject, _)| subject)
}

fn note(
    event: &Event,
    denied: &broadcast::Sender<String>,
    connections: &watch::Sender<u64>,
    lost: &watch::Sender<Option<Instant>>,
) {
    let mark = || {
        lost.send_modify(|since| {
            since.get_or_insert_with(Instant::now);
        });
    };
    match event {
        Event::Connected => {
            let lost_for = lost.send_replace(None).map(|since| since.elapsed());
            connections.send_modify(|count| *count += 1);
            match lost_for {
                Some(lost_for) => tracing::warn!(?lost_for, "connected to the broker again"),
                None => tracing::debug!("connected to the broker"),
            }
        }
        Event::Disconnected => {
            mark();
            tracing::warn!("lost the broker; trying again until it is back");
        }
        Event::ServerError(error) => {
            let report = error.to_string();
            tracing::error!(%report, "the broker reports an error");
            if let Some(subject) = denied_subject(&report) {
                let _ = denied.send(subject.to_owned());
            }
        }
        Event::SlowConsumer(subscription) => {
            tracing::error!(subscription, "messages were dropped: read too slowly");
        }
        Event::ClientError(error) => tracing::debug!(%error, "client error"),
        Event::Closed => mark(),
        Event::Draining => {}
        Event::LameDuckMode => tracing::info!("the broker is about to stop"),
    }
}

async fn options(settings: &Settings) -> Result<ConnectOptions, LogError> {
    let unreadable = |path: &Path, why: std::io::Error| LogError::Unreadable {
        path: path.to_owned(),
        why,
    };
    let proof = settings.creds.clone().map(Proof::Credentials);
    let proof = proof.or_else(|| settings.nkey.clone().map(Proof::Seed));
    let mut options = match proof {
        None => ConnectOptions::new(),
        Some(proof) => {
            proof.read().map_err(|why| unreadable(proof.path(), why))?;
            // Read at every connection: a rotated key needs no restart.
            ConnectOptions::with_auth_callback(move |nonce| {
                let signed = proof.sign(&nonce).map_err(AuthError::new);
                async move { signed }
            })
        }
    };
    // The library parses them but does not use them.
    let first = settings.server.split(',').next().unwrap_or_default();
    if let Some((user, password)) = user_and_password(first) {
        options = options.user_and_password(user, password);
    }
    // The library reads these files only once a connection is encrypted.
    let client = settings.tls.client.iter().flat_map(|(a, b)| [a, b]);
    for path in settings.tls.ca.iter().chain(client) {
        std::fs::File::open(path).map_err(|why| unreadable(path, why))?;
    }
    if let Some(ca) = &settings.tls.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &settings.tls.client {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options
        .require_tls(settings.tls.required)
        .name(&settings.name)
        // A silent broker is noticed after two missed answers.
        .ping_interval(Duration::from_secs(5))
        .connection_timeout(Duration::from_secs(5))
        .request_timeout(Some(ANSWER_TIMEOUT))
        .reconnect_delay_callback(reconnect_delay))
}

/// The library's own backoff would add seconds to an outage.
fn reconnect_delay(attempts: usize) -> Duration {
    let attempts = u64::try_from(attempts).unwrap_or(u64::MAX);
    Duration::from_millis(attempts.saturating_mul(50).min(1_000))
}

fn user_and_password(url: &str) -> Option<(String, String)> {
    let address = url.trim().parse::<async_nats::ServerAddr>().ok()?;
    let decoded = |text: &str| {
        let text = percent_encoding::percent_decode_str(text);
        text.decode_utf8_lossy().into_owned()
    };
    Some((decoded(address.username()?), decoded(address.password()?)))
}

fn shown(server: &str) -> String {
    let without = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    };
    let shown: Vec<String> = server.split(',').map(|it| without(it.trim())).collect();
    shown.join(",")
}

/// Handshake errors arrive as those of the stream.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let of_handshake = [
        std::io::ErrorKind::InvalidData,
        std::io::ErrorKind::UnexpectedEof,
    ];
    error.kind() == ConnectErrorKind::Tls || io.is_some_and(|io| of_handshake.contains(&io.kind()))
}

async fn connect(settings: &Settings, options: ConnectOptions) -> Result<Client, LogError> {
    use ConnectErrorKind::{Authentication, AuthorizationViolation, ServerParse};
    let servers: Vec<String> = settings
        .server
        .split(',')
        .map(|server| server.trim().to_owned())
        .collect();
    let mut said = Instant::now();
    let again = |error: &async_nats::ConnectError| {
        if matches!(
            error.kind(),
            AuthorizationViolation | Authentication | ServerParse
        ) {
            return false;
        }
        if said.elapsed() >= Duration::from_secs(2) {
            said = Instant::now();
            tracing::info!(server = shown(&settings.server), %error, "waiting for the broker");
        }
        true
    };
    let attempt = || options.clone().connect(servers.as_slice());
    let pause = Duration::from_millis(100);
    let connected = retry(pause, settings.connect_timeout, again, attempt).await;
    connected.map_err(|error| {
        let (server, why) = (shown(&settings.server), error.to_string());
        match error.kind() {
            AuthorizationViolation | Authentication => LogError::Credentials { server, why },
            _ if settings.tls.required && is_of_tls(&error) => LogError::NoTls { server, why },
            _ => LogError::Connect { server, why },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_hold_what_an_url_writes_otherwise() {
        for (url, password) in [
            ("nats://a:secret@h1:4222", "secret"),
            ("nats://a:c2Vj+==@h1:4222", "c2Vj+=="),
            ("nats://a:c2%2FVj%3A%40@h1:4222", "c2/Vj:@"),
        ] {
            let named = user_and_password(url);
            assert_eq!(named, Some(("a".to_owned(), password.to_owned())), "{url}");
        }
        assert_eq!(user_and_password("nats://h1:4222"), None);
    }

    #[test]
    fn passwords_are_not_shown() {
        let servers = "nats://a:secret@h1:4222, nats://h2:4222";
        assert_eq!(shown(servers), "nats://h1:4222,nats://h2:4222");
    }

    #[test]
    fn the_denied_subject_is_read_from_the_report() {
        let report = "nats: Permissions Violation for Publish to \"dormouse.log.placer.0.x\"";
        assert_eq!(denied_subject(report), Some("dormouse.log.placer.0.x"));
        assert_eq!(
            denied_subject("Permissions Violation for Subscription to \"a\""),
            None
        );
    }
}
