//! `submit --dry-run`: what admission would decide now, by its own function, on a fold of the log;
//! nothing is published.

use dormouse_admission::{Admission, AdmissionState, received};
use dormouse_messages::{
    Decider as _, Envelope, Event, Fold as _, Recorded, Sequence, TenantId, Timestamp, Writer,
};
use serde_json::{Value, json};

use super::history::read_log;
use crate::cli::Output;
use crate::clock;
use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;

/// A log of admission's, going on where the cluster's ends.
struct Fork {
    state: AdmissionState,
    sequence: Sequence,
    now: Timestamp,
}

impl Fork {
    fn happen(&mut self, event: Event) {
        self.sequence = self.sequence.next();
        let writer = Writer::Admission;
        let id = format!("dry-{}", self.sequence);
        self.state.evolve(&Recorded {
            sequence: self.sequence,
            stored_at: self.now,
            writer,
            envelope: Envelope::new(id, writer, self.now, None, event),
        });
    }

    /// What is decided on a document.
    fn decide(&mut self, tenant: &TenantId, document: &Value) -> anyhow::Result<Option<Event>> {
        let known = self.state.intake.values().map(|stand| stand.last);
        let number = known.max().unwrap_or(0) + 1;
        let payload = serde_json::to_vec(document)?;
        let json = Some("application/json");
        self.happen(received(number, tenant.as_str(), "submit", json, &payload));
        let decision = Admission.decide(&self.state, self.now);
        let of_it = decision.proposals.into_iter().find(|it| match &it.event {
            Event::JobAdmitted(it) => it.ingress_sequence == number,
            Event::JobRefused(it) => it.ingress_sequence == number,
            _ => false,
        });
        let decided = of_it.map(|it| it.event);
        if let Some(decided) = &decided {
            self.happen(decided.clone());
        }
        Ok(decided)
    }
}

/// Says what would become of each document.
///
/// # Errors
/// When the log cannot be read.
pub async fn run(context: &Context, documents: &[(TenantId, Value)]) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let mut fork = Fork {
        state: AdmissionState::default(),
        sequence: Sequence(0),
        now: clock::now(),
    };
    read_log(&log, 1, None, |recorded| {
        fork.state.evolve(recorded);
        fork.sequence = recorded.sequence;
        Ok(())
    })
    .await?;
    let (output, mut code) = (context.output()?, DONE);
    let mut admitted = false;
    for (tenant, document) in documents {
        let (line, value) = match fork.decide(tenant, document)? {
            Some(Event::JobAdmitted(it)) => {
                let spec = serde_json::to_value(&it.spec)?;
                admitted = true;
                (format!("{} would be admitted", it.job), spec)
            }
            Some(Event::JobRefused(it)) => {
                code = ERROR;
                let error = json!({"code": it.code, "message": it.reason});
                let job = it.job.as_ref().map(|job| format!("{job} "));
                let line = format!("{}would be refused: {}", job.unwrap_or_default(), it.reason);
                (line, json!({"job": it.job, "error": error}))
            }
            _ => anyhow::bail!("admission is behind: try again when it has decided what it has"),
        };
        match output {
            Output::Json => print::line(value)?,
            Output::Yaml => print::yaml(&value.to_string())?,
            Output::Table | Output::Wide => print::line(dormouse_messages::plain::shown(&line))?,
        }
    }
    if admitted && matches!(output, Output::Table | Output::Wide) {
        print::aside(
            "admission says nothing of room: `dormouse plan FILE` says what it would get, and when",
        );
    }
    Ok(code)
}
