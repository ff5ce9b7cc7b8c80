//! A test replica: a server that counts requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

type Out = BoxBody<Bytes, Infallible>;

#[derive(Default)]
pub struct Seen {
    pub began: AtomicUsize,
    pub dropped: AtomicUsize,
    pub inside: AtomicUsize,
    pub most: AtomicUsize,
    pub connections: AtomicUsize,
}

pub struct Replica {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    killed: CancellationToken,
}

impl Replica {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address")).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (seen, killed) = (Arc::new(Seen::default()), CancellationToken::new());
        let serving = serve(listener, Arc::clone(&seen), killed.clone());
        tokio::spawn(serving);
        Self {
            address,
            seen,
            killed,
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Breaks every connection, like SIGKILL.
    pub fn kill(&self) {
        self.killed.cancel();
    }

    pub fn began(&self) -> usize {
        self.seen.began.load(Ordering::SeqCst)
    }

    pub fn inside(&self) -> usize {
        self.seen.inside.load(Ordering::SeqCst)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>, killed: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = killed.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let (seen, killed) = (Arc::clone(&seen), killed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, seen, killed.clone()) => {}
                () = killed.cancelled() => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, seen: Arc<Seen>, killed: CancellationToken) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, killed) = (Arc::clone(&seen), killed.clone());
        async move { Ok::<_, Infallible>(answer(request, seen, killed).await) }
    });
    let builder = hyper::server::conn::http1::Builder::new();
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let _ = served.with_upgrades().await;
}

/// A running request; a drop before its end counts as abandoned.
struct Inside {
    seen: Arc<Seen>,
    whole: bool,
}

impl Inside {
    fn begin(seen: Arc<Seen>) -> Self {
        seen.began.fetch_add(1, Ordering::SeqCst);
        let now = seen.inside.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(now, Ordering::SeqCst);
        Self { seen, whole: false }
    }

    fn whole(mut self) {
        self.whole = true;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.seen.inside.fetch_sub(1, Ordering::SeqCst);
        if !self.whole {
            self.seen.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Seen>,
    killed: CancellationToken,
) -> Response<Out> {
    let inside = Inside::begin(seen);
    let path = request.uri().path().to_owned();
    let number = |what: &str| {
        path.strip_prefix(what)
            .and_then(|it| it.parse::<u64>().ok())
    };
    if let Some(ms) = number("/slow/") {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        inside.whole();
        return text("slow");
    }
    if let Some(status) = number("/status/") {
        inside.whole();
        let mut response = text("status");
        let status = u16::try_from(status).expect("a status");
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        return response;
    }
    if let Some(events) = number("/sse/") {
        let body = Events {
            left: events,
            timer: None,
            inside: Some(inside),
        };
        let mut response = Response::new(BodyExt::boxed(body));
        let kind = "text/event-stream".parse().expect("a value");
        response.headers_mut().insert("content-type", kind);
        return response;
    }
    match path.as_str() {
        "/hang" => std::future::pending().await,
        "/ws" => upgrade(request, inside, killed),
        "/count" => {
            let body = request.into_body().collect().await;
            let bytes = body.map(|it| it.to_bytes().len());
            inside.whole();
            text(&bytes.map_or("broken".to_owned(), |bytes| bytes.to_string()))
        }
        "/back" => {
            let body = request.into_body().collect().await;
            inside.whole();
            let bytes = body
                .map(http_body_util::Collected::to_bytes)
                .unwrap_or_default();
            Response::new(Full::new(bytes).boxed())
        }
        "/cookie" => {
            inside.whole();
            let mut response = text("cookie");
            let cookie = "a=1".parse().expect("a value");
            response.headers_mut().insert("set-cookie", cookie);
            response
        }
        _ => {
            inside.whole();
            let headers = request.headers().iter();
            let lines: Vec<String> = headers
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
                .collect();
            text(&format!(
                "{} {}\n{}",
                request.method(),
                request.uri(),
                lines.join("\n")
            ))
        }
    }
}

fn text(text: &str) -> Response<Out> {
    Response::new(Full::new(Bytes::from(text.to_owned())).boxed())
}

fn upgrade(
    mut request: Request<Incoming>,
    inside: Inside,
    killed: CancellationToken,
) -> Response<Out> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let echo = async {
            let Ok(upgraded) = upgraded.await else { return };
            let mut stream = TokioIo::new(upgraded);
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
            inside.whole();
        };
        tokio::select! {
            () = echo => {}
            () = killed.cancelled() => {}
        }
    });
    let mut response = text("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", "upgrade".parse().expect("a value"));
    headers.insert("upgrade", "websocket".parse().expect("a value"));
    response
}

/// An event every 20 ms.
struct Events {
    left: u64,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    inside: Option<Inside>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            if let Some(inside) = self.inside.take() {
                inside.whole();
            }
            return Poll::Ready(None);
        }
        if let Some(timer) = &mut self.timer {
            std::task::ready!(timer.as_mut().poll(context));
        }
        let left = self.left;
        self.left -= 1;
        self.timer = Some(Box::pin(tokio::time::sleep(Duration::from_millis(20))));
        let event = Bytes::from(format!("data: {left}\n\n"));
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}
