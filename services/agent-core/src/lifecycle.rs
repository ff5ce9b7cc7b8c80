//! The lifecycle of one container, without I/O.
//!
//! ```text
//! starting ──started──► running ──exit──► ended ──► reported
//!                          └─evict─► evicted ─┘
//! ```
//!
//! A stop or an eviction waits for the start. An exit is reported after the start.

use std::time::Duration;

use crate::Exit;

/// Time for a start to end by itself, before the container is killed as it appears.
const START_GRACE: Duration = Duration::from_secs(2);

/// A container from its start to its exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifecycle {
    Starting {
        end: Option<End>,
        exit: Option<Exit>,
    },
    Running(Leaving),
    Evicted(String),
    Ended {
        exit: Exit,
        evicted: Option<String>,
    },
    Reported,
}

/// The way in which a running container leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    No,
    /// A save ends the container, so that a stop needs no signal.
    BySave,
    /// The container has been told to stop.
    Stopped,
}

/// An end that waits for the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Stop(Duration),
    Evict(String, Duration),
}

/// Work for the driver of the container, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    NoteStopped,
    NoteEvicted(String),
    Terminate,
    Kill,
    KillAfter(Duration),
    /// Give the start up, and kill the container as it appears, from then on.
    AbandonStart(Duration),
    /// Report the exit.
    Finish,
}

impl Lifecycle {
    /// Returns a container to start.
    #[must_use]
    pub const fn starting() -> Self {
        Self::Starting {
            end: None,
            exit: None,
        }
    }

    /// True once the start has been reported.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        !matches!(self, Self::Starting { .. })
    }

    /// Returns the exit if it is known.
    #[must_use]
    pub const fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Starting { exit, .. } => exit.as_ref(),
            Self::Ended { exit, .. } => Some(exit),
            Self::Running(_) | Self::Evicted(_) | Self::Reported => None,
        }
    }

    /// True if an eviction was asked for after the start.
    #[must_use]
    pub const fn is_evicted(&self) -> bool {
        matches!(
            self,
            Self::Evicted(_)
                | Self::Ended {
                    evicted: Some(_),
                    ..
                }
        )
    }

    /// True if an end waits for the start.
    #[must_use]
    pub const fn must_end(&self) -> bool {
        matches!(self, Self::Starting { end: Some(_), .. })
    }

    /// Records the driver's start.
    pub fn started(&mut self) -> Vec<Step> {
        let Self::Starting { end, exit } = self else {
            return Vec::new();
        };
        let (end, exit) = (end.take(), exit.take());
        *self = match exit {
            Some(exit) => Self::Ended {
                exit,
                evicted: None,
            },
            None => Self::Running(Leaving::No),
        };
        match end {
            Some(End::Evict(reason, grace)) => self.evict(reason, grace),
            Some(End::Stop(grace)) => self.stop(grace),
            None => Vec::new(),
        }
    }

    /// Records that a save ends the container, or has failed to.
    pub fn leaves(&mut self, by_save: bool) {
        match (&self, by_save) {
            (Self::Running(Leaving::No), true) => *self = Self::Running(Leaving::BySave),
            (Self::Running(Leaving::BySave), false) => *self = Self::Running(Leaving::No),
            _ => {}
        }
    }

    /// Stops the container, at the latest after `grace`.
    pub fn stop(&mut self, grace: Duration) -> Vec<Step> {
        match self {
            Self::Starting { end, .. } => {
                if !matches!(end, Some(End::Evict(..))) {
                    *end = Some(End::Stop(grace));
                }
                vec![Step::AbandonStart(START_GRACE)]
            }
            Self::Running(Leaving::No) => {
                *self = Self::Running(Leaving::Stopped);
                vec![Step::NoteStopped, Step::Terminate, Step::KillAfter(grace)]
            }
            Self::Running(_) | Self::Evicted(_) => vec![Step::KillAfter(grace)],
            Self::Ended { .. } | Self::Reported => Vec::new(),
        }
    }

    /// Takes the container away. The reason is noted before the first signal, so that the exit names the
    /// reason even if the agent dies.
    pub fn evict(&mut self, reason: String, grace: Duration) -> Vec<Step> {
        let noted = Step::NoteEvicted(reason.clone());
        match self {
            Self::Starting { end, .. } => {
                *end = Some(End::Evict(reason, grace));
                vec![Step::AbandonStart(Duration::ZERO)]
            }
            Self::Ended { evicted, .. } => {
                *evicted = Some(reason);
                vec![noted, Step::Finish]
            }
            Self::Reported => Vec::new(),
            Self::Running(_) | Self::Evicted(_) => {
                *self = Self::Evicted(reason);
                if grace.is_zero() {
                    vec![noted, Step::Kill]
                } else {
                    vec![noted, Step::Terminate, Step::KillAfter(grace)]
                }
            }
        }
    }

    /// Records the exit, and reports whether the exit is news.
    pub fn ended(&mut self, exit: Exit) -> bool {
        match self {
            Self::Starting { exit: known, .. } if known.is_none() => *known = Some(exit),
            Self::Running(_) => {
                *self = Self::Ended {
                    exit,
                    evicted: None,
                };
            }
            Self::Evicted(reason) => {
                let evicted = Some(std::mem::take(reason));
                *self = Self::Ended { exit, evicted };
            }
            Self::Starting { .. } | Self::Ended { .. } | Self::Reported => return false,
        }
        true
    }

    /// Records that the driver could not start the container.
    pub fn not_started(&mut self, exit: Exit) {
        *self = Self::Ended {
            exit,
            evicted: None,
        };
    }

    /// Returns the exit to report, once.
    pub fn report(&mut self) -> Option<Exit> {
        let Self::Ended { exit, evicted } = self else {
            return None;
        };
        let exit = std::mem::take(exit).with_eviction(evicted.take());
        *self = Self::Reported;
        Some(exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn running() -> Lifecycle {
        let mut container = Lifecycle::starting();
        assert_eq!(container.started(), []);
        container
    }

    #[test]
    fn a_stop_signals_once_and_a_save_that_ends_it_needs_no_signal() {
        let mut container = running();
        let kill = Step::KillAfter(GRACE);
        let all = [Step::NoteStopped, Step::Terminate, kill.clone()];
        assert_eq!(container.stop(GRACE), all);
        assert_eq!(container.stop(GRACE), std::slice::from_ref(&kill));
        let mut saving = running();
        saving.leaves(true);
        assert_eq!(saving.stop(GRACE), [kill]);
        saving.leaves(false);
        assert_eq!(saving.stop(GRACE), all);
    }

    #[test]
    fn an_end_waits_for_the_start_and_an_eviction_outweighs_a_stop() {
        for evict_first in [true, false] {
            let mut container = Lifecycle::starting();
            let order = [evict_first, !evict_first];
            for evicts in order {
                let steps = if evicts {
                    container.evict("lost".to_owned(), Duration::ZERO)
                } else {
                    container.stop(GRACE)
                };
                assert!(matches!(steps[..], [Step::AbandonStart(_)]), "{steps:?}");
            }
            assert!(container.must_end());
            let steps = [Step::NoteEvicted("lost".to_owned()), Step::Kill];
            assert_eq!(container.started(), steps);
            assert!(container.ended(Exit::default()));
            let exit = container.report().expect("it has ended");
            assert!(exit.evicted && exit.reason.as_deref() == Some("lost"));
        }
    }

    #[test]
    fn an_exit_before_the_start_is_reported_after_it() {
        let mut container = Lifecycle::starting();
        assert!(container.ended(Exit::default()) && !container.ended(Exit::unseen()));
        assert_eq!(container.report(), None);
        assert_eq!(container.started(), []);
        let late = container.evict("late".to_owned(), GRACE);
        assert_eq!(late, [Step::NoteEvicted("late".to_owned()), Step::Finish]);
        assert!(container.is_evicted() && container.report().is_some());
        assert_eq!(container.report(), None, "it is reported once");
    }
}
