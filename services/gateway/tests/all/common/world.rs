//! A gateway on a real broker, with other writers' events.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse_gateway::{Config, Gateway, GatewayError};
use dormouse_messages::events::Key;
use dormouse_messages::job::Kind;
use dormouse_messages::{ContainerId, Event, JobId, Recorded, Sequence, Writer};
use dormouse_runtime::{BrokerConfig, LocalBroker, Log, LogItem, Settings};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::replica::Replica;
use super::*;

pub struct Running {
    pub address: SocketAddr,
    pub url: String,
    stop: CancellationToken,
    task: JoinHandle<Result<(), GatewayError>>,
}

impl Running {
    pub async fn stop(self) -> Result<(), GatewayError> {
        self.stop.cancel();
        self.task.await.expect("no panic")
    }

    pub async fn ended(self) -> Result<(), GatewayError> {
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("it ends").expect("no panic")
    }
}

pub struct World {
    pub log: Log,
    broker: Option<LocalBroker>,
    pub url: String,
    folder: tempfile::TempDir,
    heard: Mutex<mpsc::Receiver<LogItem>>,
    generation: u32,
}

impl World {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = LocalBroker::start(BrokerConfig::new(folder.path())).await;
        let broker = broker.expect("the broker runs");
        let log = Log::connect(&Settings::new(broker.url(), "test")).await;
        let log = log.expect("connects");
        log.ensure_streams().await.expect("streams");
        let heard = Mutex::new(log.follow(Sequence(1)));
        let mut world = Self {
            url: broker.url().to_owned(),
            log,
            broker: Some(broker),
            folder,
            heard,
            generation: 0,
        };
        world.append(joined("n0", "127.0.0.1")).await;
        world
    }

    /// Appends as one of the event's writers.
    pub async fn append(&mut self, event: Event) -> Sequence {
        let node = match event.key() {
            Key::Node(node) => Some(node.clone()),
            _ => None,
        };
        let writer = event.writers()[0];
        assert_ne!(writer, Writer::Gateway);
        let mut appender = self.log.appender(writer, node);
        appender.append(event, &[]).await.expect("appended")
    }

    /// Admits an open service.
    pub async fn service(&mut self, name: &str, concurrency: u32) -> JobId {
        let service = json!({"access": "open", "concurrency": concurrency, "drain_s": 30});
        self.admit(name, Kind::Inference, service).await
    }

    pub async fn admit(&mut self, name: &str, kind: Kind, service: serde_json::Value) -> JobId {
        let job = job(name);
        self.append(admitted(&job, kind, 0, service)).await;
        job
    }

    pub async fn add(&mut self, job: &JobId, rank: u32, replica: &Replica) -> ContainerId {
        self.place(job, rank, replica.port()).await
    }

    pub async fn place(&mut self, job: &JobId, rank: u32, port: u16) -> ContainerId {
        let container = container(job, 1, rank);
        self.append(placed(job, 1, &[(rank, "n0", port)])).await;
        self.append(ready(&container, "n0")).await;
        container
    }

    pub async fn leave(&mut self, job: &JobId, leave: &[u32], grace_s: u32) -> Sequence {
        self.generation += 1;
        let event = resize(job, 1, self.generation, leave, &[], grace_s);
        self.append(event).await
    }

    pub async fn gateway(&self, name: &str) -> Running {
        self.gateway_with(name, |_| {}).await
    }

    pub async fn gateway_with(&self, name: &str, change: impl FnOnce(&mut Config)) -> Running {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let mut config = Config::new(name.parse().expect("valid"), listen);
        config.grace = Duration::from_secs(2);
        config.threads = 2;
        change(&mut config);
        let gateway = Gateway::bind(config).await.expect("a port");
        let address = gateway.listens_at().expect("an address");
        let url = gateway.address().to_owned();
        let stop = CancellationToken::new();
        let task = tokio::spawn(gateway.run(self.log.clone(), stop.clone()));
        Running {
            address,
            url,
            stop,
            task,
        }
    }

    pub async fn stop_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
    }

    pub async fn start_broker(&mut self, url: &str) {
        let port = url.rsplit(':').next().and_then(|it| it.parse().ok());
        let config = BrokerConfig {
            port,
            ..BrokerConfig::new(self.folder.path())
        };
        let started = LocalBroker::start(config).await;
        self.broker = Some(started.expect("the broker runs"));
    }

    pub async fn hear<T>(&self, mut wanted: impl FnMut(&Recorded) -> Option<T>) -> T {
        let hearing = async {
            loop {
                let heard = std::future::poll_fn(|context| {
                    self.heard.lock().expect("no panic").poll_recv(context)
                });
                if let Some(LogItem::Event(recorded)) = heard.await
                    && let Some(it) = wanted(&recorded)
                {
                    return it;
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, hearing).await;
        heard.expect("it is appended")
    }

    /// Returns rank, answered sequence and closed connections.
    pub async fn hear_unrouted(&self) -> (u32, Sequence, u32) {
        self.hear(|recorded| match recorded.event()? {
            Event::GatewayUnrouted(it) => Some((it.container.rank.0, it.answers, it.closed)),
            _ => None,
        })
        .await
    }
}

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    pub host: String,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connects");
        let _ = stream.set_nodelay(true);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.expect("a connection");
        let driver = tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Self {
            sender,
            driver,
            host: address.to_string(),
        }
    }

    pub fn cut(self) {
        self.driver.abort();
    }

    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    pub async fn get(&mut self, path: &str) -> Result<(u16, String), hyper::Error> {
        let request = Request::get(path).header("host", &self.host);
        let response = self.send(request.body(Full::default()).expect("a request"));
        read(response.await?).await
    }

    pub async fn post(&mut self, path: &str, body: &str) -> Result<(u16, String), hyper::Error> {
        let request = Request::post(path).header("host", &self.host);
        let body = Full::new(Bytes::from(body.to_owned()));
        let response = self.send(request.body(body).expect("a request"));
        read(response.await?).await
    }
}

pub async fn read(response: Response<Incoming>) -> Result<(u16, String), hyper::Error> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut connection = Connection::open(address).await;
    connection.get(path).await.expect("an answer")
}

pub async fn until(what: &str, mut found: impl FnMut() -> bool) {
    let began = Instant::now();
    while !found() {
        assert!(began.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Repeats the request, since routes arrive by the log.
pub async fn until_status(address: SocketAddr, path: &str, status: u16) -> String {
    let began = Instant::now();
    loop {
        let (found, text) = get(address, path).await;
        if found == status {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "{path}: {found} {text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
