//! `submit --dry-run`: computes admission's decision on a fold of the log, publishing nothing.

use dormouse_admission::{Admission, AdmissionState, received};
use dormouse_messages::{
    Decider as _, Envelope, Event, Fold as _, Recorded, Sequence, TenantId, Timestamp, Writer,
};
use dormouse_state::NodePhase;
use serde_json::{Value, json};

use crate::cli::global::Output;
use crate::clock;
use crate::commands::common::documents::Written;
use crate::commands::common::known::never_fits;
use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;

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

    fn decide(&mut self, tenant: &TenantId, document: &Value) -> anyhow::Result<Option<Event>> {
        let known = self.state.intake.values().map(|stand| stand.last);
        let number = known.max().unwrap_or(0) + 1;
        let payload = serde_json::to_vec(document)?;
        let json = Some("application/json");
        let tenant = tenant.as_str();
        self.happen(received(number, self.now, tenant, "submit", json, &payload));
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

/// Prints the decisions.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(
    context: &Context,
    written: &[Written],
    documents: &[(TenantId, Value)],
) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let folded = log.folded::<AdmissionState>().await?;
    let mut fork = Fork {
        state: folded.state,
        sequence: folded.sequence,
        now: clock::now(),
    };
    let (output, mut code) = (context.output()?, DONE);
    let mut admitted = false;
    for ((tenant, document), it) in documents.iter().zip(written) {
        let Written { place, values, .. } = it;
        let (line, value) = match fork.decide(tenant, document)? {
            Some(Event::JobAdmitted(it)) => {
                let spec = serde_json::to_value(&it.spec)?;
                admitted = true;
                let values = match values.as_str() {
                    "" => String::new(),
                    values => format!(" with {values}"),
                };
                let nodes = fork.state.queues.cluster.nodes.iter();
                let there = nodes.filter(|(_, node)| !matches!(node.phase, NodePhase::Lost { .. }));
                let there = there.map(|(_, node)| (&node.capacity, &node.labels));
                let waits = never_fits(there, &it.spec, it.spec.containers.start());
                let waits = waits.map_or_else(String::new, |why| format!("; {why}"));
                let line = format!("{} would be admitted{values}{waits}", it.job);
                if !waits.is_empty() && matches!(output, Output::Json | Output::Yaml) {
                    // Stdout has a document that can be submitted.
                    print::aside(&line);
                }
                (line, spec)
            }
            Some(Event::JobRefused(it)) => {
                code = ERROR;
                let error = json!({"code": it.code, "message": it.reason});
                let job = it.job.as_ref().map(|job| format!("{job} "));
                let job = job.unwrap_or_default();
                let line = format!("{place}: {job}would be refused: {}", it.reason);
                (
                    line,
                    json!({"job": it.job, "document": place, "error": error}),
                )
            }
            _ => anyhow::bail!("admission is behind: try again when it has decided what it has"),
        };
        match output {
            Output::Json => print::line(value)?,
            Output::Yaml => print::yaml(&value.to_string())?,
            Output::Table | Output::Wide => print::line(dormouse_messages::sanitize::shown(&line))?,
        }
    }
    if admitted && matches!(output, Output::Table | Output::Wide) {
        print::aside(
            "admission says nothing of room: `dormouse plan FILE` says what it would get, and when",
        );
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use dormouse_state::ClusterState;
    use dormouse_state::history::{History, job, spec};

    use super::*;
    use dormouse_messages::job::JobSpec;

    #[test]
    fn a_gang_that_no_nodes_hold_is_said_to_wait_for_others() {
        let mut history = History::default();
        history.join("n0", 1).join("n1", 1);
        let state = history.fold::<ClusterState>();
        let never = |spec: &JobSpec| {
            let nodes = state.nodes.iter();
            let nodes = nodes.map(|(_, node)| (&node.capacity, &node.labels));
            never_fits(nodes, spec, spec.containers.min)
        };
        let mut spec = spec(&job("ads/a"));
        spec.containers.min = 8;
        assert_eq!(never(&spec), None);
        let none = never_fits(std::iter::empty(), &spec, 8);
        assert!(none.is_some(), "no node has joined");
        spec.containers.min = 9;
        let said = never(&spec).expect("too large");
        let expected = "it starts with 9 containers of cpu=2,memory=8Gi, and the nodes that there are hold 8 containers";
        assert!(said.contains(expected), "{said}");
        spec.containers.min = 1;
        spec.constraints = serde_json::from_value(json!({"zone": "mars"})).expect("constraints");
        let said = never(&spec).expect("nowhere");
        assert!(
            said.contains("that its constraints allow (zone: mars) hold 0"),
            "{said}"
        );
    }
}
