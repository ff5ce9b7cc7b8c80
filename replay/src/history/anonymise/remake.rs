//! Remakes the messages of a renamed log: each service decides again from the recorded basis, and its
//! messages replace those with old names.

use std::collections::VecDeque;
use std::sync::Arc;

use dormouse_admission::Admission;
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::{
    CodecError, Decider, Envelope, Event, Proposal, Recorded, Sequence, Timestamp, Writer,
};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use serde_json::Value;

use super::event::LEFT_OUT;
use crate::lagging::Lagging;

#[derive(Default)]
struct ServiceRemaker<D: Decider> {
    lagging: Lagging<D>,
    current: Option<(Sequence, Timestamp, VecDeque<Proposal>)>,
}

impl<D: Decider> ServiceRemaker<D> {
    fn again(&mut self, event: &Event) -> Option<Event> {
        let basis = event.basis()?;
        let of = (basis.asof, basis.now);
        if self.current.as_ref().is_none_or(|it| (it.0, it.1) != of) {
            while self.lagging.fold_next(basis.asof).is_some() {}
            let Lagging { decider, state, .. } = &self.lagging;
            let decided = decider.decide_again(state, basis.now, basis.budget);
            self.current = Some((basis.asof, basis.now, decided.proposals.into()));
        }
        let (.., proposals) = self.current.as_mut()?;
        proposals.pop_front().map(|it| it.event)
    }

    fn read(&mut self, recorded: &Arc<Recorded>) {
        self.lagging.waiting.push_back(Arc::clone(recorded));
    }
}

/// All services.
#[derive(Default)]
pub struct Remaker {
    admission: ServiceRemaker<Admission>,
    optimizer: ServiceRemaker<Optimizer>,
    placer: ServiceRemaker<Placer>,
    checkpointer: ServiceRemaker<Checkpointer>,
    autoscaler: ServiceRemaker<Autoscaler>,
}

impl Remaker {
    /// Returns a renamed event with the remade messages.
    ///
    /// # Errors
    /// The event cannot be written or read.
    pub fn remake(&mut self, mut recorded: Recorded) -> Result<Recorded, CodecError> {
        if let Some(event) = recorded.event().filter(|it| it.basis().is_some()) {
            let again = match recorded.writer {
                Writer::Admission => self.admission.again(event),
                Writer::Optimizer => self.optimizer.again(event),
                Writer::Placer => self.placer.again(event),
                Writer::Checkpointer => self.checkpointer.again(event),
                Writer::Autoscaler => self.autoscaler.again(event),
                Writer::Operator
                | Writer::Node
                | Writer::Gateway
                | Writer::Archiver
                | Writer::Slurm => None,
            };
            if let Some(again) = again.filter(|it| it.type_name() == event.type_name()) {
                recorded = said_again(recorded, again)?;
            }
        }
        let shared = Arc::new(recorded.clone());
        self.admission.read(&shared);
        self.optimizer.read(&shared);
        self.placer.read(&shared);
        self.checkpointer.read(&shared);
        self.autoscaler.read(&shared);
        Ok(recorded)
    }
}

fn said_again(recorded: Recorded, mut again: Event) -> Result<Recorded, CodecError> {
    let Some(event) = recorded.event() else {
        return Ok(recorded);
    };
    let refused = matches!(event, Event::JobRefused(_));
    if refused {
        again.set_basis(event.basis().cloned());
        let Envelope { id, time, .. } = recorded.envelope;
        return Ok(Recorded {
            envelope: Envelope::new(id, recorded.writer, time, None, again),
            ..recorded
        });
    }
    let mut line: Value = serde_json::from_str(&recorded.to_json("")?)?;
    let words = serde_json::to_value(&again)?;
    take_words(&mut line["data"], &words);
    let (_, said) = Recorded::from_json(&line.to_string())?;
    Ok(said)
}

fn take_words(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in into {
                match (value, from.get(name)) {
                    (Value::String(text), Some(Value::String(said))) if text == LEFT_OUT => {
                        said.clone_into(text);
                    }
                    (value, Some(said)) => take_words(value, said),
                    _ => {}
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut()
                .zip(from)
                .for_each(|(value, said)| take_words(value, said));
        }
        _ => {}
    }
}
