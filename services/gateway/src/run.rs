//! A gateway's lifetime.
//!
//! 1. Folds the log to its head, takes the lease, appends `gateway.joined` and folds that too, then accepts
//!    connections.
//! 2. Applies each change of the routes; without the log the last routes stay.
//! 3. A separate task appends, so that an outage delays no request; reports wait.
//! 4. After a loss of the lease the placer appends `gateway.lost`; the gateway rejoins once it holds the
//!    lease.
//! 5. A stop finishes running requests and appends `gateway.left`.
//!
//! The lease is five seconds, whatever a node's: nothing runs under it, and a wrong route only costs a retry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_messages::events::{GatewayJoined, GatewayLeft};
use dormouse_messages::{Build, Event, GatewayId, Sequence};
use dormouse_runtime::{
    AppendError, Appender, Clock, Lease, Log, LogItem, StartError, SystemClock, forever,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::access::Trust;
use crate::config::{Config, GatewayError, Keep, LEASE, names};
use crate::server::Server;
use crate::shared_state::SharedState;
use crate::snapshot::{Folded, RoutesSnapshot};

const TICK: Duration = Duration::from_millis(100);
/// Windows are not reported while more events are pending.
const UNTOLD: usize = 64;
const LAST_WORD: Duration = Duration::from_secs(2);

/// A gateway that listens but does not serve yet.
pub struct Gateway {
    config: Config,
    listener: TcpListener,
    address: String,
    hub: Arc<SharedState>,
    threads: usize,
}

impl Gateway {
    /// Binds the port.
    ///
    /// # Errors
    /// When the port is taken, or strangers would be trusted.
    pub async fn bind(config: Config) -> Result<Self, GatewayError> {
        let Config { name, listen, .. } = &config;
        if matches!(config.trust, Trust::Loopback) && !listen.ip().is_loopback() {
            return Err(GatewayError::NoSecret {
                name: name.clone(),
                listen: *listen,
            });
        }
        let cannot = |why| GatewayError::Listen {
            name: name.clone(),
            listen: *listen,
            why,
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let local = listener.local_addr().map_err(cannot)?;
        let (address, names) = names(config.url.as_ref(), local, &config.trust)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match config.threads {
            0 => processors,
            threads => threads,
        };
        let hub = Arc::new(SharedState::new(
            name.clone(),
            names,
            config.trust.clone(),
            config.wait,
            threads,
        ));
        Ok(Self {
            config,
            listener,
            address,
            hub,
            threads,
        })
    }

    /// Returns the public address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the listening address.
    ///
    /// # Errors
    /// The system's.
    pub fn listens_at(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`.
    ///
    /// # Errors
    /// When the log refuses an event, or another gateway has this name.
    pub async fn run(self, log: Log, shutdown: CancellationToken) -> Result<(), GatewayError> {
        let name = self.config.name.clone();
        let (folded, mut position) = watch::channel(Position::default());
        let keep = self.config.keep.clone();
        let follower = tokio::spawn(follow(log.clone(), Arc::clone(&self.hub), folded, keep));
        let _follower = Ending(follower.abort_handle());
        let reached = position.wait_for(|it| it.caught_up);
        tokio::select! {
            reached = reached => drop(reached),
            () = shutdown.cancelled() => return Ok(()),
        }
        let build = self
            .config
            .keep
            .as_ref()
            .map(|keep| Build::own(&keep.build));
        let mut lease = lease(&log, &name, build);
        tokio::select! {
            () = lease.held() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        let (queue, appending) = AppendQueue::start(log.gateway_appender(&name));
        let _telling = Ending(appending.abort_handle());
        let joined = queue.tell(self.joined());
        let mut appending = appending;
        let joined = async {
            let sequence = joined.await.ok()?;
            position
                .wait_for(|it| it.folded >= sequence)
                .await
                .ok()
                .map(drop)
        };
        tokio::select! {
            _ = joined => {}
            failed = &mut appending => return ended(failed),
            () = shutdown.cancelled() => return Ok(()),
        }
        let server = Server::start(&self.hub, self.threads, self.config.grace);
        let server = server.map_err(GatewayError::Threads)?;
        tracing::info!(gateway = %name, address = self.address, "serving");
        let served = tokio::select! {
            never = server.accept(&self.listener) => match never {},
            () = self.run_loop(&queue, &lease) => Ok(()),
            failed = &mut appending => ended(failed),
            () = shutdown.cancelled() => Ok(()),
        };
        drop(self.listener);
        server.stop().await;
        served?;
        let left = queue.tell(Event::from(GatewayLeft { gateway: name }));
        let _ = tokio::time::timeout(LAST_WORD, left).await;
        let _ = tokio::time::timeout(LAST_WORD, lease.release()).await;
        Ok(())
    }

    fn joined(&self) -> Event {
        Event::from(GatewayJoined {
            gateway: self.config.name.clone(),
            address: self.address.clone(),
        })
    }

    async fn run_loop(&self, queue: &AppendQueue, lease: &Lease) {
        let mut again: Option<oneshot::Receiver<Sequence>> = None;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.hub.wait_drained() => {}
            }
            self.hub.tick();
            self.hub.close_idle();
            if self.hub.has_joined() {
                again = None;
            } else if again.is_none() && lease.is_held() {
                tracing::warn!("this gateway counted as lost; it joins again");
                again = Some(queue.tell(self.joined()));
            }
            for event in self.hub.unrouted() {
                drop(queue.tell(event));
            }
            if queue.untold() < UNTOLD {
                for event in self.hub.measured() {
                    drop(queue.tell(event));
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Position {
    folded: Sequence,
    caught_up: bool,
}

/// Folds the log and applies the routes; starts again after a rollback.
async fn follow(
    log: Log,
    hub: Arc<SharedState>,
    position: watch::Sender<Position>,
    keep: Option<Keep>,
) {
    loop {
        let unknown = |error: StartError| {
            tracing::warn!(%error, "the routes are not known yet; trying again");
        };
        let kept = keep.as_ref();
        let mut state = forever(TICK, unknown, || Folded::load(kept, &log)).await;
        let mut kept = kept.map(|keep| RoutesSnapshot::new(keep, &log, &state));
        let mut taken_over = None;
        let mut followed = log.follow(state.sequence.next());
        let mut batch = Vec::new();
        let mut is_current = false;
        let mut folded = state.sequence;
        while followed.recv_many(&mut batch, 1_024).await > 0 {
            for followed in batch.drain(..) {
                match followed {
                    LogItem::Event(recorded) => {
                        state.take(&recorded);
                        folded = recorded.sequence;
                    }
                    LogItem::CaughtUp(sequence) => {
                        is_current = true;
                        folded = folded.max(sequence);
                    }
                    LogItem::Flagged { .. } => {}
                }
            }
            // A partial history would route to replicas that are gone.
            if is_current && taken_over != Some(state.routes.changes()) {
                hub.sync(&state.routes);
                hub.drained();
                taken_over = Some(state.routes.changes());
            }
            if let Some(kept) = kept.as_mut().filter(|_| is_current) {
                kept.save_now_and_then(&state);
            }
            position.send_modify(|it| {
                it.folded = folded;
                it.caught_up |= is_current;
            });
        }
        tracing::warn!(
            "the log went back; its routes are read again, and the last ones are used until then"
        );
        tokio::time::sleep(TICK).await;
    }
}

/// A later incarnation takes over the lease at once.
fn lease(log: &Log, name: &GatewayId, build: Option<Build>) -> Lease {
    let incarnation = u64::try_from(SystemClock.now().as_micros()).unwrap_or(1);
    let key = format!("gateway.{name}");
    let hold = log.leases().hold(&key, name.as_str(), incarnation, LEASE);
    match build {
        Some(build) => hold.runs(build).seek(),
        None => hold.seek(),
    }
}

struct AppendQueue {
    words: mpsc::UnboundedSender<(Event, oneshot::Sender<Sequence>)>,
    untold: Arc<AtomicUsize>,
}

impl AppendQueue {
    fn start(mut appender: Appender) -> (Self, JoinHandle<Result<(), AppendError>>) {
        let (words, mut told) = mpsc::unbounded_channel::<(Event, oneshot::Sender<Sequence>)>();
        let untold = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&untold);
        let appending = tokio::spawn(async move {
            while let Some((event, stored)) = told.recv().await {
                let sequence = appender.append(event, &[]).await?;
                left.fetch_sub(1, Ordering::Relaxed);
                let _ = stored.send(sequence);
            }
            Ok(())
        });
        (Self { words, untold }, appending)
    }

    /// Enqueues `event`; the receiver resolves to its sequence.
    fn tell(&self, event: Event) -> oneshot::Receiver<Sequence> {
        let (stored, place) = oneshot::channel();
        self.untold.fetch_add(1, Ordering::Relaxed);
        let _ = self.words.send((event, stored));
        place
    }

    fn untold(&self) -> usize {
        self.untold.load(Ordering::Relaxed)
    }
}

fn ended(
    told: Result<Result<(), AppendError>, tokio::task::JoinError>,
) -> Result<(), GatewayError> {
    match told {
        Ok(told) => told.map_err(GatewayError::from),
        Err(_) => Ok(()),
    }
}

struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}
