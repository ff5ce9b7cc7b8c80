//! One request, there and back.
//!
//! 1. Host or path name the service ([`crate::target`]); the key is checked and removed.
//! 2. The request waits for a replica ([`crate::balance`]).
//! 3. An unsent request goes elsewhere; a request that a replica may have seen is retried only if idempotent,
//!    without a body, and within the budget.
//! 4. The answer streams back and ends the visit. Upgrades are spliced.

use std::net::IpAddr;
use std::sync::Arc;

use dormouse_messages::job::Kind;
use http::header::{HeaderValue, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::access::{self, Trust};
use crate::answer::{ANSWER_IDLE, Answer, Inbound};
use crate::body::Outbound;
use crate::headers;
use crate::in_flight::InFlight;
use crate::notebook::{self, Pass};
use crate::responses;
use crate::service::ServiceState;
use crate::shared_state::SharedState;
use crate::splice::splice;
use crate::target::{self, NoTarget, Origin, Target};
use crate::upstream::{Sender, Upstream};

/// Origin of a request.
pub struct Client {
    pub hub: Arc<SharedState>,
    pub thread: usize,
    pub address: IpAddr,
}

pub async fn serve(client: Arc<Client>, request: Request<Incoming>) -> Response<Answer> {
    match prepare(&client, request) {
        Ok(prepared) => pass(&client, prepared).await,
        Err(refused) => *refused,
    }
}

/// An admitted request, rewritten for the replica.
struct Prepared {
    visit: InFlight,
    origin: Origin,
    request: Request<Outbound>,
    upgrade: Option<OnUpgrade>,
    cookie: Option<HeaderValue>,
}

type Refusal = Box<Response<Answer>>;

fn prepare(client: &Client, mut request: Request<Incoming>) -> Result<Prepared, Refusal> {
    let hub = &client.hub;
    if *request.method() == Method::CONNECT {
        let why = "this is no proxy to elsewhere";
        let refused = responses::refusal(StatusCode::METHOD_NOT_ALLOWED, "bad_method", why);
        return Err(Box::new(refused));
    }
    let Target { job, origin } = find(hub, &request)?;
    let unknown = || Box::new(responses::unknown());
    let live = hub.service(&job).ok_or_else(unknown)?;
    let own = origin == Origin::Own;
    if live.kind == Kind::Notebook && !own {
        return Err(Box::new(responses::shared_notebook()));
    }
    let method = request.method().clone();
    let cookie = admit(client, &live, own, &mut request)?;
    if live.kind == Kind::Notebook {
        of_notebook(&live, &request)?;
    }
    let asked = target::asked(request.uri(), &origin).ok_or_else(unknown)?;
    let websocket = request.version() == Version::HTTP_11
        && method == Method::GET
        && headers::wants_websocket(request.headers());
    let upgrade = websocket.then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    headers::to_replica(&mut parts.headers, &parts.uri, &origin, client.address);
    if websocket {
        headers::set_websocket(&mut parts.headers);
    }
    parts.uri = Uri::from(asked);
    parts.version = Version::HTTP_11;
    let visit = InFlight::arrive(hub, &live).map_err(|why| Box::new(responses::refused(why)))?;
    Ok(Prepared {
        visit,
        origin,
        request: Request::from_parts(parts, Outbound::new(body)),
        upgrade,
        cookie,
    })
}

/// Returns a cookie for the browser.
fn admit(
    client: &Client,
    live: &ServiceState,
    own: bool,
    request: &mut Request<Incoming>,
) -> Result<Option<HeaderValue>, Refusal> {
    let (trust, method) = (&client.hub.trust, request.method().clone());
    if live.kind == Kind::Notebook && matches!(trust, Trust::Secret(_)) {
        let token = live.token();
        let passed = notebook::pass(token.as_ref(), &method, request.uri(), request.headers());
        if let Pass::Token(cookie) = passed {
            request.headers_mut().remove(access::KEY_HEADER);
            return Ok(cookie);
        }
    }
    let headers = request.headers_mut();
    access::check(trust, live.access, &live.job, own, &method, headers)
        .map(|()| None)
        .map_err(|why| Box::new(responses::denied(why, own)))
}

/// An open page alone does not restart a notebook.
fn of_notebook(live: &ServiceState, request: &Request<Incoming>) -> Result<(), Refusal> {
    if notebook::is_by_hand(request.method(), request.headers()) {
        live.touched();
        return Ok(());
    }
    if live.is_ready() || live.target() > 0 {
        Ok(())
    } else {
        Err(Box::new(responses::stopped_notebook()))
    }
}

fn find(hub: &SharedState, request: &Request<Incoming>) -> Result<Target, Refusal> {
    let uri = request.uri();
    let found = match target::host(uri, request.headers()) {
        Some(host) => hub.names.target(host, uri.path()),
        None => Err(NoTarget::BadHost),
    };
    found.map_err(|why| {
        let query = uri.query().map(|query| format!("?{query}"));
        let slashed = format!("{}/{}", uri.path(), query.unwrap_or_default());
        Box::new(responses::no_target(&why, &slashed))
    })
}

struct Again {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Again {
    fn of(request: &Request<Outbound>) -> Option<Self> {
        let repeatable = request.method().is_idempotent() && request.body().is_empty();
        repeatable.then(|| Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
        })
    }

    fn request(self) -> Request<Outbound> {
        let mut request = Request::new(Outbound::empty());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        request
    }
}

async fn pass(client: &Client, prepared: Prepared) -> Response<Answer> {
    let Prepared {
        mut visit,
        origin,
        mut request,
        upgrade,
        cookie,
    } = prepared;
    let mut again = Again::of(&request);
    // The loop terminates: suspensions grow, and waiting has a deadline.
    loop {
        let upstream = match visit.placed().await {
            Ok(upstream) => upstream,
            Err(refused) => return responses::refused(refused),
        };
        match send(&upstream, client.thread, request).await {
            Ok((response, sender)) => {
                let passing = Passing {
                    visit,
                    upstream,
                    sender,
                    origin,
                    cookie,
                };
                return passing.back(response, upgrade, client.thread);
            }
            Err(Unsent::Whole(unsent)) => {
                visit.again();
                request = *unsent;
            }
            Err(Unsent::Stalled) => return responses::stalled(),
            Err(Unsent::Seen(why)) => {
                let repeated = again.take().filter(|_| visit.may_retry());
                let Some(repeated) = repeated else {
                    visit.broken_off();
                    return responses::broken(&why);
                };
                visit.again();
                request = repeated.request();
            }
        }
    }
}

/// A request without an answer.
enum Unsent {
    Whole(Box<Request<Outbound>>),
    /// The replica may have seen the request.
    Seen(String),
    Stalled,
}

async fn send(
    upstream: &Upstream,
    thread: usize,
    mut request: Request<Outbound>,
) -> Result<(Response<Incoming>, Sender), Unsent> {
    loop {
        let kept = upstream.kept(thread).await;
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => match upstream.connect().await {
                Ok(sender) => sender,
                Err(error) => {
                    tracing::debug!(%error, "tried elsewhere");
                    return Err(Unsent::Whole(Box::new(request)));
                }
            },
        };
        let answer = tokio::time::timeout(ANSWER_IDLE, sender.try_send_request(request));
        match answer.await {
            Ok(Ok(response)) => return Ok((response, sender)),
            Ok(Err(mut error)) => match error.take_message() {
                // A closed kept connection tells nothing about the replica.
                Some(unsent) if is_kept => request = unsent,
                Some(unsent) => return Err(Unsent::Whole(Box::new(unsent))),
                None => {
                    let error = error.into_error();
                    return Err(if error.is_user() {
                        Unsent::Stalled
                    } else {
                        Unsent::Seen(error.to_string())
                    });
                }
            },
            Err(_) => return Err(Unsent::Seen("no answer".to_owned())),
        }
    }
}

struct Passing {
    visit: InFlight,
    upstream: Arc<Upstream>,
    sender: Sender,
    origin: Origin,
    cookie: Option<HeaderValue>,
}

impl Passing {
    fn back(
        mut self,
        mut response: Response<Incoming>,
        upgrade: Option<OnUpgrade>,
        thread: usize,
    ) -> Response<Answer> {
        self.visit.status(response.status());
        headers::to_client(response.headers_mut(), &self.origin);
        if let Some(cookie) = self.cookie.take() {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, upgrade);
        }
        let (mut parts, body) = response.into_parts();
        parts.version = Version::HTTP_11;
        let body = Inbound::new(body, self.visit, self.upstream, self.sender, thread);
        Response::from_parts(parts, Answer::Passed(body))
    }

    fn switch(
        self,
        mut response: Response<Incoming>,
        upgrade: Option<OnUpgrade>,
    ) -> Response<Answer> {
        let Some(client) = upgrade else {
            self.visit.broken_off();
            return responses::broken("it switched protocols without being asked");
        };
        headers::set_websocket(response.headers_mut());
        let replica = hyper::upgrade::on(&mut response);
        tokio::spawn(splice(client, replica, self.visit, self.upstream));
        response.map(|_| Answer::empty())
    }
}
