//! Searches for changes that lift a refusal. Every listed change was tried on a fork, and admitted.
//!
//! 1. The unchanged document, which may be admitted by now.
//! 2. **Changes by the operator** ([`fix`]), one refusal after the other, with the least amounts.
//! 3. **Changes of the document** ([`lift`]), one field at a time, from the nearest value of its grid.

mod fix;
mod lift;

use dormouse_messages::JobId;
use dormouse_optimizer::Optimizer;

use super::answer::{Explanation, gets, reason, say};
use super::explainer::{Decided, Explainer};
use lift::Lift;
pub(super) use lift::verified;

pub fn refused(
    explainer: &Explainer,
    id: &JobId,
    tell: &mut dyn FnMut(&Explanation),
) -> Option<Explanation> {
    let known = explainer.submitted.refused.as_ref();
    let mut listed = explainer.model.jobs.refused().rev();
    let listed = listed.find(|it| it.job.as_ref() == Some(id));
    let (code, why) = match (known, listed) {
        (Some(known), _) => (&known.event.code, &known.event.reason),
        (None, Some(listed)) => (&listed.code, &listed.reason),
        (None, None) => return None,
    };
    let (at, time) = explainer.place();
    let mut answer = Explanation::of(id.to_string(), at, time, "refused");
    answer.words.push(format!("{id} was refused: {why}"));
    answer.all.push(reason("refused", format!("{code}: {why}")));
    answer.rank();
    tell(&answer);
    let decided = explainer.decided();
    let optimizer = decided.map_or_else(Optimizer::default, Decided::optimizer);
    let lift = known.and_then(|it| Lift::new(&explainer.head, optimizer, id, it));
    let Some(mut lift) = lift else {
        let words = "its document is not read here, or is none: nothing could be tried";
        answer.words.push(words.to_owned());
        return Some(answer);
    };
    if let Ok((becomes, _)) = lift.as_it_is() {
        let gets = gets(becomes);
        let words = format!("submitted again after event {at} it would be admitted, {gets}");
        answer.words.push(words);
    } else {
        lift.all(code, |correction| {
            answer.words.push(say(&correction, "be admitted"));
            answer.corrections.push(correction);
            tell(&answer);
        });
        if answer.corrections.is_empty() {
            let words =
                "no change of the kinds that are tried lifts it: its document has to be mended";
            answer.words.push(words.to_owned());
        }
    }
    answer.solves = lift.solves;
    Some(answer)
}
