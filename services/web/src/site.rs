//! The source of all answers: the log that is read once a browser asks, and the build.

use std::sync::Arc;

use dormouse_messages::Event;
use tokio::sync::watch;

use crate::past::{Head, Past};

/// The log, and the interest in it.
#[derive(Clone)]
pub struct Page {
    pub past: Arc<Past>,
    wanted: watch::Sender<bool>,
}

impl Page {
    /// Creates a page of an unread log.
    #[must_use]
    pub fn new(past: Past) -> Self {
        Self {
            past: Arc::new(past),
            wanted: watch::Sender::new(false),
        }
    }

    /// Waits for the first request; before, the log need not be read.
    pub async fn wanted(&self) {
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Notes a request.
    pub fn want(&self) {
        self.wanted
            .send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }
}

/// Source of all answers.
#[derive(Clone)]
pub struct Site {
    pub page: Page,
    pub describe: fn(&Event) -> String,
    pub build: Arc<str>,
}

impl Site {
    /// Names the log and the build, on which all answers depend.
    pub(crate) fn version(&self, head: &Head) -> String {
        let named = format!("{}\n{}\n{}", head.log, head.begun, self.build);
        blake3::hash(named.as_bytes()).to_hex()[..12].to_owned()
    }
}
