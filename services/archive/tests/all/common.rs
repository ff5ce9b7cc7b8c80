//! A broker with a simulated log, and archivers on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse_archive::{Archive, Sealer, SealerOptions};
use dormouse_archiver::Archiver;
use dormouse_bucket::Place;
use dormouse_messages::events::LogArchived;
use dormouse_messages::{Event, Recorded, Sequence};
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};
use dormouse_runtime::{
    BrokerConfig, LocalBroker, Log, LogItem, ServiceError, ServiceOptions, Settings, run_service,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A longer wait is a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SEGMENT_EVENTS: u32 = 1_000;

/// Simulates a log whose policy seals a segment each [`SEGMENT_EVENTS`].
pub fn simulated(jobs: u32) -> Vec<Arc<Recorded>> {
    simulated_keeping(jobs, None)
}

/// As the simulation above, with a policy that keeps events for `keep_hours`.
pub fn simulated_keeping(jobs: u32, keep_hours: Option<u32>) -> Vec<Arc<Recorded>> {
    let size = Size {
        jobs,
        nodes: 12,
        days: 0.5,
    };
    let mut scenario = generate(Kind::Trace, 3, size);
    // Quick decisions: the optimizer's own are made again in the tests of replay.
    scenario["policy"]["allocation"] = json!("drf");
    scenario["policy"]["archive"] = json!({"segment_events": SEGMENT_EVENTS, "segment_hours": 24});
    if let Some(hours) = keep_hours {
        scenario["policy"]["archive"]["keep_hours"] = json!(hours);
    }
    let scenario = read_value(scenario).expect("a scenario");
    let mut events: Vec<Arc<Recorded>> = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        events.push(recorded.clone());
        Ok::<(), String>(())
    };
    simulate(&scenario, &Options::default(), each, |_| {}).expect("simulates");
    events
}

/// A broker whose log holds `events`.
pub struct Cluster {
    pub broker: LocalBroker,
    pub log: Log,
    pub folder: tempfile::TempDir,
}

impl Cluster {
    pub async fn start(events: &[Arc<Recorded>]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = BrokerConfig::new(folder.path().join("broker"));
        let broker = LocalBroker::start(config).await.expect("the broker runs");
        let settings = Settings::new(broker.url().to_owned(), "test");
        let log = Log::connect(&settings).await.expect("connects");
        log.ensure_streams().await.expect("streams");
        let events = events.iter().map(|it| Ok::<_, String>((**it).clone()));
        log.import(events, None).await.expect("imports");
        Self {
            broker,
            log,
            folder,
        }
    }

    pub fn archive_folder(&self) -> std::path::PathBuf {
        self.folder.path().join("archive")
    }

    pub fn archive(&self) -> Archive {
        let place = Place::Folder(self.archive_folder());
        Archive::create(&place, None).expect("opens")
    }

    /// Runs an archiver until the token is cancelled.
    pub fn archiver(
        &self,
        holder: &str,
        stop: &CancellationToken,
    ) -> JoinHandle<Result<(), ServiceError>> {
        let options = SealerOptions {
            poll: Duration::from_millis(50),
            settle: Duration::ZERO,
            ..SealerOptions::new("test".to_owned())
        };
        let sealer = Sealer::start(self.log.clone(), self.archive(), options);
        let options = ServiceOptions {
            holder: holder.to_owned(),
            ..ServiceOptions::default()
        };
        let (log, stop) = (self.log.clone(), stop.clone());
        tokio::spawn(async move {
            run_service(Archiver, log, options, Some(Box::new(sealer)), stop).await
        })
    }

    /// Waits for the event that segment `number` is archived.
    pub async fn archived(&self, number: u64) -> LogArchived {
        self.archived_after(Sequence(0), number, PATIENCE).await
    }

    /// Waits for that event after another one.
    pub async fn archived_after(
        &self,
        after: Sequence,
        number: u64,
        patience: Duration,
    ) -> LogArchived {
        let mut items = self.log.follow(after.next());
        let wait = async {
            while let Some(item) = items.recv().await {
                if let LogItem::Event(recorded) = item
                    && let Some(Event::LogArchived(event)) = recorded.event()
                    && event.number == number
                {
                    return (**event).clone();
                }
            }
            panic!("the log ended")
        };
        let waited = tokio::time::timeout(patience, wait).await;
        waited.expect("the segment is archived in time")
    }
}

pub fn open(folder: &Path) -> Archive {
    Archive::open(&Place::Folder(folder.to_owned()), None).expect("opens")
}
