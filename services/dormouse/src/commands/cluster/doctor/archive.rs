//! Checks the archive and the log's room: the archive's age and lag, and how long the log can grow.

use dormouse_messages::events::Fill;
use dormouse_messages::policy::ArchivePolicy;
use dormouse_projections::queries::ArchiveAnswer;
use dormouse_runtime::LogRoom;

use super::report::Looks;
use crate::render::{bytes, span as age};

/// A segment is late after this many times its period.
const LATE: f64 = 2.0;

pub fn look(archive: &ArchiveAnswer, policy: ArchivePolicy, looks: &mut Looks<'_>) {
    let due_s = policy.segment_s();
    let is_late = archive.lag_s > LATE * due_s;
    let waits = format!(
        "{} later events, {} old, wait for their archive",
        archive.waiting,
        age(archive.lag_s)
    );
    let advice = "is `dormouse serve archiver` (or `up`) running, and does its store answer? Its log says so";
    match &archive.newest {
        None if is_late => looks.warn(
            "archive",
            "nothing of the log is archived".to_owned(),
            advice,
        ),
        None => looks.ok("archive", format!("no segment yet; {waits}")),
        Some(newest) => {
            let found = format!(
                "segment {} in {}, to event {}; {waits}",
                newest.number, newest.place, newest.last
            );
            if is_late {
                looks.warn("archive", found, advice);
            } else {
                looks.ok("archive", found);
            }
        }
    }
}

pub fn room(room: &LogRoom, archive: &ArchiveAnswer, looks: &mut Looks<'_>) {
    let held = age(room.held.1.seconds_since(room.held.0));
    let holds = format!("the brokers hold {held} of the log");
    if room.most_bytes == 0 {
        let advice = "set archive.log_mib in the policy, so that somebody warns before the brokers' disks are full";
        return looks.warn("room", format!("{holds}, and no bound is known"), advice);
    }
    let mut found = format!(
        "{holds}, {} of at most {}",
        bytes(room.bytes),
        bytes(room.most_bytes)
    );
    if let Some(lasts_s) = room.lasts_s() {
        found = format!("{found}; untrimmed it lasts {} more", age(lasts_s));
    }
    let frees = "let the archiver's store answer, stop readers that stand still, lower archive.keep_hours if it is null, or give the log more room";
    match archive.filled.as_ref().map_or(Fill::Roomy, |it| it.fill) {
        Fill::Roomy => looks.ok("room", found),
        Fill::Filling => looks.warn(
            "room",
            format!("{found}; it is archived and trimmed sooner"),
            format!("if it stays so: {frees}"),
        ),
        Fill::Full => looks.fail("room", format!("{found}; submissions are refused"), frees),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Timestamp;
    use dormouse_messages::events::{LogBound, LogFilled};

    use super::super::report::{Report, State};
    use super::*;

    fn looked(look: impl FnOnce(&mut Looks<'_>)) -> (State, String) {
        let mut report = Report::default();
        look(&mut Looks {
            of: "cluster",
            report: &mut report,
        });
        let check = report.checks.remove(0);
        (check.state, check.found)
    }

    #[test]
    fn an_archive_is_late_after_the_time_of_two_segments() {
        let policy = ArchivePolicy::default();
        for (hours, state) in [(1.0, State::Ok), (47.0, State::Ok), (49.0, State::Warning)] {
            let archive = ArchiveAnswer {
                lag_s: hours * 3_600.0,
                ..ArchiveAnswer::default()
            };
            assert_eq!(looked(|looks| look(&archive, policy, looks)).0, state);
        }
    }

    #[test]
    fn the_room_is_judged_by_what_the_log_says() {
        let hour = Timestamp::default().plus_ms(3_600_000);
        let size = LogRoom {
            messages: 7,
            bytes: 1 << 20,
            most_bytes: 3 << 20,
            bound: LogBound::Stream,
            held: (Timestamp::default(), hour),
        };
        let mut archive = ArchiveAnswer::default();
        let (state, found) = looked(|looks| room(&size, &archive, looks));
        assert_eq!(state, State::Ok);
        assert!(
            found.contains("1.0 MiB of at most 3.0 MiB; untrimmed it lasts 2h"),
            "{found}"
        );
        for (fill, state) in [(Fill::Filling, State::Warning), (Fill::Full, State::Failed)] {
            archive.filled = Some(LogFilled {
                fill,
                bytes: size.bytes,
                most_bytes: size.most_bytes,
                bound: size.bound,
            });
            assert_eq!(looked(|looks| room(&size, &archive, looks)).0, state);
        }
        let unbounded = LogRoom {
            most_bytes: 0,
            ..size
        };
        let (state, _) = looked(|looks| room(&unbounded, &archive, looks));
        assert_eq!(state, State::Warning);
    }
}
