//! Probes a replica's readiness by a GET on its port.
//!
//! - During the start every [`STARTING`] until an answer is 2xx, within the service's limit.
//! - Later every [`RUNNING`]. [`FAILURES`] in a row make the replica unready.
//!
//! Each probe is a new connection, reads a head of at most [`HEAD_BYTES`], and follows no redirects.

use std::time::Duration;

use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Interval between probes of a starting replica.
pub const STARTING: Duration = Duration::from_millis(250);

/// Interval between probes of a ready replica.
pub const RUNNING: Duration = Duration::from_secs(5);

/// A replica that serves one request at a time may answer one probe late.
pub const FAILURES: u32 = 3;

const ANSWER: Duration = RUNNING;

/// The client's smallest limit. Servers' heads are below a kilobyte.
const HEAD_BYTES: usize = 8 * 1024;

/// The target of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub address: String,
    pub port: u16,
    pub path: String,
    pub within: Duration,
}

impl Probe {
    /// Waits until the replica is ready, `after` its start already. Returns the time since the start.
    ///
    /// # Errors
    /// The last failure, at the time limit.
    pub async fn until_ready(&self, after: Duration) -> Result<Duration, String> {
        let began = Instant::now();
        let end = began + self.within.saturating_sub(after);
        loop {
            let next = Instant::now() + STARTING;
            let limit = ANSWER.min(end.saturating_duration_since(Instant::now()).max(STARTING));
            let why = match self.ask(limit).await {
                Ok(()) => return Ok(after + began.elapsed()),
                Err(why) => why,
            };
            if next > end {
                let within_s = self.within.as_secs();
                return Err(format!(
                    "not ready within service.ready.timeout_s, {within_s} s: {why}"
                ));
            }
            sleep_until(next).await;
        }
    }

    /// Waits until the replica fails, and returns the reason.
    pub async fn until_unready(&self) -> String {
        self.until_unready_every(RUNNING).await
    }

    async fn until_unready_every(&self, pause: Duration) -> String {
        let mut failed = 0;
        loop {
            let next = Instant::now() + pause;
            match self.ask(ANSWER).await {
                Ok(()) => failed = 0,
                Err(why) => {
                    failed += 1;
                    if failed == FAILURES {
                        return format!("{FAILURES} probes in a row have failed: {why}");
                    }
                }
            }
            sleep_until(next).await;
        }
    }

    async fn ask(&self, limit: Duration) -> Result<(), String> {
        let Self {
            address,
            port,
            path,
            ..
        } = self;
        let said = match timeout(limit, self.status()).await {
            Ok(Ok(status)) if (200..300).contains(&status) => return Ok(()),
            Ok(Ok(status)) => format!("answered {status}"),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {} ms", limit.as_millis()),
        };
        Err(format!("GET {path} at {address}:{port}: {said}"))
    }

    async fn status(&self) -> Result<u16, String> {
        let words = |error: &dyn std::error::Error| error.to_string();
        let stream = TcpStream::connect((self.address.as_str(), self.port)).await;
        let stream = stream.map_err(|error| words(&error))?;
        let client = http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut sender, connection) = client.map_err(|error| words(&error))?;
        let request = Request::get(&self.path)
            .header("host", format!("{}:{}", self.address, self.port))
            .header("user-agent", "dormouse-agent")
            .header("connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| words(&error))?;
        let answer = sender.send_request(request);
        tokio::pin!(answer, connection);
        // The connection may end after it delivered the answer.
        let answer = tokio::select! {
            answer = &mut answer => answer,
            _ = connection => answer.await,
        };
        let answer = answer.map_err(|error| words(&error))?;
        Ok(answer.status().as_u16())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn server(answers: Vec<Option<&'static str>>) -> Probe {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for (at, connection) in listener.incoming().enumerate() {
                let mut connection = connection.expect("a connection");
                let _ = connection.read(&mut [0; 1024]);
                match answers[at.min(answers.len() - 1)] {
                    Some(answer) => drop(connection.write_all(answer.as_bytes())),
                    None => kept.push(connection),
                }
            }
        });
        Probe {
            address: "127.0.0.1".to_owned(),
            port,
            path: "/healthz".to_owned(),
            within: Duration::from_secs(20),
        }
    }

    const OK: Option<&str> = Some("HTTP/1.1 204 No Content\r\n\r\n");
    const LATER: Option<&str> = Some("HTTP/1.1 503 Later\r\ncontent-length: 2\r\n\r\nno");

    #[tokio::test]
    async fn it_is_ready_with_the_first_2xx() {
        let endless = Some("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nsome");
        let probe = server(vec![LATER, Some("nonsense\r\n\r\n"), endless]);
        let took = probe.until_ready(Duration::from_secs(1)).await;
        let took = took.expect("ready");
        assert!(took >= Duration::from_secs(1) + 2 * STARTING, "{took:?}");
    }

    #[tokio::test]
    async fn it_says_why_it_is_not_ready_in_time() {
        let within = Duration::from_millis(400);
        let late = Probe {
            within,
            ..server(vec![LATER])
        };
        let why = late.until_ready(Duration::ZERO).await.expect_err("late");
        assert!(why.contains("/healthz") && why.contains("503"), "{why}");
        let silent = Probe {
            within,
            ..server(vec![None])
        };
        let why = silent.until_ready(Duration::ZERO).await.expect_err("late");
        assert!(why.contains("no answer within"), "{why}");
        let closed = Probe { port: 1, ..silent };
        let why = closed.until_ready(Duration::ZERO).await.expect_err("late");
        assert!(why.contains("refused"), "{why}");
        let long: &'static str = "HTTP/1.1 200 OK\r\nx: ".to_owned().leak();
        let long: &'static str = format!("{long}{}", "y".repeat(100_000)).leak();
        let why = Probe {
            within,
            ..server(vec![Some(long)])
        };
        let why = why.until_ready(Duration::ZERO).await.expect_err("too long");
        assert!(why.contains("GET"), "{why}");
    }

    #[tokio::test]
    async fn a_few_failures_are_none() {
        let probe = server(vec![LATER, LATER, OK, LATER]);
        let (began, pause) = (Instant::now(), Duration::from_millis(20));
        let why = probe.until_unready_every(pause).await;
        assert!(
            why.contains("3 probes in a row") && why.contains("503"),
            "{why}"
        );
        assert!(began.elapsed() >= 5 * pause, "{:?}", began.elapsed());
    }
}
