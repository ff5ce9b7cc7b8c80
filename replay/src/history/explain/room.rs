//! Who holds the room that a job waits for: all of them, where a table's line names two.

use dormouse_messages::JobId;
use dormouse_projections::jobs::room::Room;

use super::Explainer;
use super::answer::{Explanation, HeldBy};

/// Holders that are listed: beyond, the amounts are small.
const MOST_LISTED: usize = 20;

/// Says what a job without containers lacks, by sums, and who keeps it.
pub(super) fn held(explainer: &Explainer, id: &JobId, answer: &mut Explanation) {
    let (_, now) = explainer.place();
    let room = Room::new(&explainer.model.queues, &explainer.model.jobs);
    let (Some(short), Some(words)) = (room.short(id), room.words(id, now)) else {
        return;
    };
    answer.words.push(format!("it {words}"));
    let name = short.resource.name();
    for holder in room.holders(id, &short).into_iter().take(MOST_LISTED) {
        let job = explainer.name(holder.job);
        let ends = holder.ends_at.map(|at| at.to_words());
        let ends = ends.map_or_else(String::new, |at| {
            format!(", and ends by its time limit at {at}")
        });
        let keeps = short.resource.display(holder.keeps);
        answer.words.push(match holder.waits {
            true => format!("{job} waits, too, and is to have {keeps} of {name}"),
            false => format!("{job} keeps {keeps} of {name}{ends}"),
        });
        answer.held_by.push(HeldBy {
            job,
            resource: name.to_owned(),
            keeps: holder.keeps,
            ends_at: holder.ends_at,
        });
    }
}
