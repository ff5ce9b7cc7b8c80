//! A notebook's activity, from its server's `/api/kernels` and `/api/terminals`. The requests do not count as
//! activity.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use dormouse_messages::Timestamp;
use dormouse_messages::events::NotebookActivity;
use dormouse_messages::service::Service;

use super::Token;

/// Timeout. A server that computes answers late.
const ANSWER: Duration = Duration::from_secs(5);

/// Size of a list of ten thousand kernels.
const BODY_BYTES: usize = 4 * 1024 * 1024;

const FAILURES: u32 = 3;

const ASK_S: f64 = 5.0;
const REPEAT_S: f64 = 60.0;

/// A kernel that runs cell after cell counts as busy.
const REST_S: f64 = 10.0;

/// The address and token of a notebook's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub address: String,
    pub port: u16,
    pub token: Token,
}

/// The intervals of requests and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub ask: Duration,
    pub repeat: Duration,
    pub rest: Duration,
}

impl Pace {
    /// Returns intervals with several looks within `service.idle_s`.
    #[must_use]
    pub fn of(service: &Service) -> Self {
        let idle_s = f64::from(service.idle_s);
        Self {
            ask: Duration::from_secs_f64((idle_s / 8.0).min(ASK_S)),
            repeat: Duration::from_secs_f64((idle_s / 4.0).min(REPEAT_S)),
            rest: Duration::from_secs_f64((idle_s / 4.0).min(REST_S)),
        }
    }
}

/// A notebook's activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    pub activity: NotebookActivity,
    pub idle: Duration,
    pub kernels: u32,
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    execution_state: String,
    last_activity: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Terminal {
    last_activity: Timestamp,
}

impl Server {
    async fn ask(&self, now: Timestamp, since_start: Duration) -> Result<Doing, String> {
        let kernels: Option<Vec<Kernel>> = self.get("/api/kernels").await?;
        let kernels = kernels.ok_or("GET /api/kernels was answered with 404")?;
        let terminals: Option<Vec<Terminal>> = self.get("/api/terminals").await?;
        Ok(doing(
            &kernels,
            &terminals.unwrap_or_default(),
            now,
            since_start,
        ))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let fail = |why: String| format!("GET {path} at {}:{}: {why}", self.address, self.port);
        let answered = timeout(ANSWER, self.fetch(path)).await;
        let answered =
            answered.map_err(|_| fail(format!("no answer within {} s", ANSWER.as_secs())));
        let (status, body) = answered?.map_err(fail)?;
        match status {
            404 => Ok(None),
            200 => serde_json::from_slice(&body)
                .map(Some)
                .map_err(|error| fail(format!("it is not Jupyter's answer: {error}"))),
            status => Err(fail(format!("answered {status}"))),
        }
    }

    async fn fetch(&self, path: &str) -> Result<(u16, Bytes), String> {
        let token = self.token.read().await?;
        let stream = TcpStream::connect((self.address.as_str(), self.port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let client = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = client.map_err(|error| error.to_string())?;
        let request = Request::get(format!("{path}?no_track_activity=1"))
            .header("host", format!("{}:{}", self.address, self.port))
            .header("user-agent", "dormouse-agent")
            .header("authorization", format!("token {token}"))
            .header("connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let driving = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_BYTES).collect().await;
        driving.abort();
        let body = body.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    }
}

const KERNEL_START: Duration = Duration::from_secs(30);

impl Kernel {
    fn is_busy(&self, now: Timestamp) -> bool {
        match self.execution_state.as_str() {
            "idle" | "dead" => false,
            "starting" | "restarting" => {
                Duration::from_millis(now.ms_since(self.last_activity)) < KERNEL_START
            }
            _ => true,
        }
    }
}

fn doing(
    kernels: &[Kernel],
    terminals: &[Terminal],
    now: Timestamp,
    since_start: Duration,
) -> Doing {
    let active = kernels.iter().map(|kernel| kernel.last_activity);
    let active = active.chain(terminals.iter().map(|terminal| terminal.last_activity));
    let since = active
        .max()
        .map(|at| Duration::from_millis(now.ms_since(at)));
    let (activity, idle) = if kernels.iter().any(|kernel| kernel.is_busy(now)) {
        (NotebookActivity::Busy, Duration::ZERO)
    } else {
        (
            NotebookActivity::Idle,
            since.unwrap_or(since_start).min(since_start),
        )
    };
    Doing {
        activity,
        idle,
        kernels: u32::try_from(kernels.len()).unwrap_or(u32::MAX),
        reason: None,
    }
}

/// Follows a notebook's activity and decides when to report.
#[derive(Debug)]
pub struct Follower {
    server: Server,
    pace: Pace,
    failed: u32,
    told: Option<(Timestamp, NotebookActivity)>,
}

impl Follower {
    /// Creates a follower of a ready notebook.
    #[must_use]
    pub const fn new(server: Server, pace: Pace) -> Self {
        Self {
            server,
            pace,
            failed: 0,
            told: None,
        }
    }

    /// Returns the pause before the next request.
    #[must_use]
    pub const fn pause(&self) -> Duration {
        self.pace.ask
    }

    /// Asks once, and returns the activity if a report is due.
    pub async fn ask(&mut self, now: Timestamp, since_start: Duration) -> Option<Doing> {
        let doing = match self.server.ask(now, since_start).await {
            Ok(doing) => {
                self.failed = 0;
                doing
            }
            Err(reason) => {
                self.failed = self.failed.saturating_add(1);
                if self.failed < FAILURES {
                    return None;
                }
                Doing {
                    activity: NotebookActivity::Unknown,
                    idle: Duration::ZERO,
                    kernels: 0,
                    reason: Some(reason),
                }
            }
        };
        self.is_due(doing.activity, now).then(|| {
            self.told = Some((now, doing.activity));
            doing
        })
    }

    fn is_due(&self, activity: NotebookActivity, now: Timestamp) -> bool {
        let Some((at, before)) = self.told else {
            return true;
        };
        let since = Duration::from_millis(now.ms_since(at));
        let rests = before == NotebookActivity::Busy && activity == NotebookActivity::Idle;
        if activity == before {
            since >= self.pace.repeat
        } else {
            !rests || since >= self.pace.rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn kernel(state: &str, second: i64) -> Kernel {
        Kernel {
            execution_state: state.to_owned(),
            last_activity: at(second),
        }
    }

    #[test]
    fn a_kernel_that_works_counts_whatever_its_stamp_says() {
        let long = Duration::from_secs(1_000);
        let kernels = [kernel("idle", 990), kernel("busy", 10)];
        let it = doing(&kernels, &[], at(1_000), long);
        assert_eq!((it.activity, it.kernels), (NotebookActivity::Busy, 2));
        let starts = |second| doing(&[kernel("starting", second)], &[], at(1_000), long).activity;
        assert_eq!(starts(980), NotebookActivity::Busy);
        assert_eq!(starts(960), NotebookActivity::Idle, "no client ever came");
        let odd = doing(&[kernel("thinking", 10)], &[], at(1_000), long);
        assert_eq!(
            odd.activity,
            NotebookActivity::Busy,
            "what is not known works"
        );
    }

    #[test]
    fn the_newest_of_kernels_and_terminals_counts() {
        let long = Duration::from_secs(1_000);
        let terminals = [Terminal {
            last_activity: at(970),
        }];
        let it = doing(
            &[kernel("idle", 900), kernel("dead", 1)],
            &terminals,
            at(1_000),
            long,
        );
        assert_eq!(it.activity, NotebookActivity::Idle);
        assert_eq!(it.idle, Duration::from_secs(30));
        let empty = doing(&[], &[], at(1_000), Duration::from_secs(7));
        assert_eq!(empty.idle, Duration::from_secs(7), "since its start");
    }

    #[test]
    fn work_is_told_at_once_and_a_rest_later() {
        let service = Service {
            idle_s: 600,
            ..Service::default()
        };
        let server = Server {
            address: String::new(),
            port: 0,
            token: Token::Given(String::new()),
        };
        let mut it = Follower::new(server, Pace::of(&service));
        let (busy, idle) = (NotebookActivity::Busy, NotebookActivity::Idle);
        assert!(it.is_due(idle, at(0)));
        it.told = Some((at(0), idle));
        assert!(!it.is_due(idle, at(59)) && it.is_due(idle, at(60)));
        assert!(it.is_due(busy, at(1)));
        it.told = Some((at(1), busy));
        assert!(!it.is_due(idle, at(10)) && it.is_due(idle, at(11)));
        assert!(it.is_due(NotebookActivity::Unknown, at(2)));
    }
}
