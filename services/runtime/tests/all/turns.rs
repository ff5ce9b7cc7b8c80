//! A tenant's slow or many queries delay no one else, at the query service and at a node.

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{NodeId, TenantId};
use dormouse_runtime::{ApiError, Asked, NodeAnswer};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::common::{Broker, PATIENCE};

/// Exceeds a tenant's limit.
const FLOOD: usize = 300;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("valid")
}

fn node() -> NodeId {
    NodeId::new("n0").expect("valid")
}

fn is_busy<T>(answer: &Result<T, ApiError>) -> bool {
    matches!(answer, Err(ApiError::Refused { code, .. }) if code == "busy")
}

async fn held(asked: &Asked, release: &Semaphore) {
    if asked.tenant.as_deref() == Some("ads") {
        drop(release.acquire().await);
    }
}

/// Repeats the query: there is no responder before the service runs.
async fn until_served<T>(ask: impl AsyncFn() -> Result<T, ApiError>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Floods as one tenant while others ask; `taken` of the tenant's questions are accepted.
async fn flood<T: Send + 'static>(
    release: &Semaphore,
    taken: usize,
    ask: impl AsyncFn(Option<TenantId>) -> Result<T, ApiError>,
) {
    until_served(async || ask(None).await).await;
    let flood = (0..FLOOD).map(|_| ask(Some(tenant("ads"))));
    let mut flood: FuturesUnordered<_> = flood.collect();
    for _ in taken..FLOOD {
        let answer = timeout(PATIENCE, flood.next()).await.expect("in time");
        assert!(answer.is_some_and(|answer| is_busy(&answer)));
    }
    for asker in [Some(tenant("search")), None, Some(tenant("vision"))] {
        let answer = timeout(PATIENCE, ask(asker.clone())).await;
        let answer = answer.unwrap_or_else(|_| panic!("{asker:?} is held up"));
        assert!(answer.is_ok(), "{asker:?}");
    }
    release.add_permits(FLOOD);
    let rest: Vec<_> = timeout(PATIENCE, flood.collect()).await.expect("in time");
    assert!(rest.len() == taken && rest.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_query_service_answers_each_tenant_in_its_turn() {
    let broker = Broker::start().await;
    let (log, api) = (broker.log().await, broker.log().await);
    let release = Arc::new(Semaphore::new(0));
    let held_up = Arc::clone(&release);
    let serving = tokio::spawn(async move {
        let answer = move |asked: Asked| {
            let release = Arc::clone(&held_up);
            async move {
                held(&asked, &release).await;
                Ok(Vec::new())
            }
        };
        api.serve_api(&["jobs"], &["jobs"], answer).await
    });
    let ask =
        async |asker: Option<TenantId>| log.request_as(asker.as_ref(), "jobs", Vec::new()).await;
    // Two running, 64 waiting.
    flood(&release, 66, ask).await;
    serving.abort();
}

/// Four run and 256 wait; the next question is refused and repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_finds_no_place_is_asked_again() {
    let broker = Broker::start().await;
    let (log, api) = (broker.log().await, broker.log().await);
    let release = Arc::new(Semaphore::new(0));
    let held_up = Arc::clone(&release);
    let serving = tokio::spawn(async move {
        let answer = move |asked: Asked| {
            let release = Arc::clone(&held_up);
            async move {
                if asked.request.is_empty() {
                    drop(release.acquire().await);
                }
                Ok(Vec::new())
            }
        };
        api.serve_api(&["jobs"], &["jobs"], answer).await
    });
    let ask = async |request: &[u8]| log.request_as(None, "jobs", request.to_vec()).await;
    until_served(async || ask(b"at once").await).await;
    let mut flood: FuturesUnordered<_> = (0..FLOOD).map(|_| ask(b"")).collect();
    for _ in 260..FLOOD {
        let answer = timeout(PATIENCE, flood.next()).await.expect("in time");
        assert!(answer.is_some_and(|answer| is_busy(&answer)));
    }
    assert!(is_busy(&ask(b"at once").await));
    let mut again = Box::pin(log.request("jobs", b"at once".to_vec()));
    // Refused at least once by now, or soon: either way it waits.
    let early = timeout(Duration::from_millis(300), &mut again).await;
    assert!(early.is_err(), "{early:?}");
    release.add_permits(FLOOD);
    let rest: Vec<_> = timeout(PATIENCE, flood.collect()).await.expect("in time");
    assert!(rest.len() == 260 && rest.iter().all(Result::is_ok));
    let answer = timeout(PATIENCE, again).await.expect("in time");
    answer.expect("there is a place now");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_each_tenant_and_the_operator_from_slots_of_their_own() {
    let broker = Broker::start().await;
    let (log, agent) = (broker.log().await, broker.log().await);
    let release = Arc::new(Semaphore::new(0));
    let held_up = Arc::clone(&release);
    let serving = tokio::spawn(async move {
        let answer = move |asked: Asked| {
            let release = Arc::clone(&held_up);
            async move {
                held(&asked, &release).await;
                Ok(NodeAnswer::default())
            }
        };
        agent.serve_node(&node(), &["logs"], 256, answer).await
    });
    let ask = async |asker: Option<TenantId>| {
        log.ask_node(&node(), "logs", asker.as_ref(), Vec::new())
            .await
    };
    flood(&release, 128, ask).await;
    serving.abort();
}
