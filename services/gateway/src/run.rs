//! A gateway's life: follow the log, serve, tell.
//!
//! 1. The log is folded up to its head, from the routes on disk on; its lease is taken;
//!    `gateway.joined` is appended, and folded too: from there on a leaving replica waits for this
//!    gateway's word. Only then connections are accepted.
//! 2. Each change of the routes is taken over at once. Without the log the last routes stay.
//! 3. Words are appended by a task of its own: an outage holds up nobody's request. Meanwhile sums
//!    grow in their windows; what was to be told of drains is told when the log is back.
//! 4. The lease is renewed by a task of its own. Where it ends all the same, the placer says
//!    `gateway.lost` and nobody waits for this gateway; it joins again once it holds its lease.
//! 5. An orderly stop: no new connections, what is under way ends, `gateway.left`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_messages::events::{GatewayJoined, GatewayLeft};
use dormouse_messages::{Event, GatewayId, Sequence};
use dormouse_runtime::{AppendError, Appender, Clock, Followed, Lease, Log, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::access::Trust;
use crate::config::{Config, GatewayError, Keep, LEASE, names};
use crate::hub::Hub;
use crate::kept::{Folded, Kept};
use crate::server::Server;

/// Queues and drains are looked at so often.
const TICK: Duration = Duration::from_millis(100);
/// Sums are not added to words that the log has not taken yet.
const UNTOLD: usize = 64;
/// The last word of a stop is waited for so long.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A gateway that listens, and serves once it is run.
pub struct Gateway {
    config: Config,
    listener: TcpListener,
    address: String,
    hub: Arc<Hub>,
    threads: usize,
}

impl Gateway {
    /// Takes its port.
    ///
    /// # Errors
    /// When it is taken, or when the gateway would believe strangers.
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
        let hub = Arc::new(Hub::new(
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

    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn listens_at(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`.
    ///
    /// # Errors
    /// When the log refuses its words, or another gateway has its name.
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
        let mut lease = lease(&log, &name);
        tokio::select! {
            () = lease.held() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        let (teller, telling) = Teller::start(log.gateway_appender(&name));
        let _telling = Ending(telling.abort_handle());
        let joined = teller.tell(self.joined());
        let mut telling = telling;
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
            failed = &mut telling => return ended(failed),
            () = shutdown.cancelled() => return Ok(()),
        }
        let server = Server::start(&self.hub, self.threads, self.config.grace);
        let server = server.map_err(GatewayError::Threads)?;
        tracing::info!(gateway = %name, address = self.address, "serving");
        let served = tokio::select! {
            never = server.accept(&self.listener) => match never {},
            () = self.mind(&teller, &lease) => Ok(()),
            failed = &mut telling => ended(failed),
            () = shutdown.cancelled() => Ok(()),
        };
        drop(self.listener);
        server.stop().await;
        served?;
        let left = teller.tell(Event::from(GatewayLeft { gateway: name }));
        let _ = tokio::time::timeout(LAST_WORD, left).await;
        let _ = tokio::time::timeout(LAST_WORD, lease.release()).await;
        Ok(())
    }

    /// From here on leaving replicas wait for this gateway.
    fn joined(&self) -> Event {
        Event::from(GatewayJoined {
            gateway: self.config.name.clone(),
            address: self.address.clone(),
        })
    }

    /// What is done while it serves.
    async fn mind(&self, teller: &Teller, lease: &Lease) {
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
                again = Some(teller.tell(self.joined()));
            }
            for event in self.hub.unrouted() {
                drop(teller.tell(event));
            }
            if teller.untold() < UNTOLD {
                for event in self.hub.measured() {
                    drop(teller.tell(event));
                }
            }
        }
    }
}

/// How far the routes have come.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    folded: Sequence,
    caught_up: bool,
}

/// Folds the log and takes its routes over, from the beginning again where the log went back.
async fn follow(log: Log, hub: Arc<Hub>, position: watch::Sender<Position>, keep: Option<Keep>) {
    loop {
        let (mut kept, mut state) = match &keep {
            Some(keep) => {
                let (kept, state) = Kept::load(keep, &log).await;
                (Some(kept), state)
            }
            None => (None, Folded::default()),
        };
        let mut taken_over = None;
        let mut followed = log.follow(state.sequence.next());
        let mut batch = Vec::new();
        let mut is_current = false;
        let mut folded = state.sequence;
        while followed.recv_many(&mut batch, 1_024).await > 0 {
            for followed in batch.drain(..) {
                match followed {
                    Followed::Event(recorded) => {
                        state.take(&recorded);
                        folded = recorded.sequence;
                    }
                    Followed::CaughtUp(sequence) => {
                        is_current = true;
                        folded = folded.max(sequence);
                    }
                    Followed::Flagged { .. } => {}
                }
            }
            // Half a history would route to replicas that are gone.
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

/// The lease of a gateway. A later life of it takes it over at once.
fn lease(log: &Log, name: &GatewayId) -> Lease {
    let life = u64::try_from(SystemClock.now().as_micros()).unwrap_or(1);
    log.leases()
        .seek(&format!("gateway.{name}"), name.as_str(), life, LEASE)
}

/// Appends what is to be told, in order.
struct Teller {
    words: mpsc::UnboundedSender<(Event, oneshot::Sender<Sequence>)>,
    untold: Arc<AtomicUsize>,
}

impl Teller {
    fn start(mut appender: Appender) -> (Self, JoinHandle<Result<(), AppendError>>) {
        let (words, mut told) = mpsc::unbounded_channel::<(Event, oneshot::Sender<Sequence>)>();
        let untold = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&untold);
        let telling = tokio::spawn(async move {
            while let Some((event, stored)) = told.recv().await {
                let sequence = appender.append(event, &[]).await?;
                left.fetch_sub(1, Ordering::Relaxed);
                let _ = stored.send(sequence);
            }
            Ok(())
        });
        (Self { words, untold }, telling)
    }

    /// Tells `event`; resolves to its place on the log.
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

/// A task that ends with its owner.
struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}
