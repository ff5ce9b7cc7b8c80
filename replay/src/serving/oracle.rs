//! An autoscaler that knows every second's rate in advance.

use dormouse_autoscaler::AutoscalerState;
use dormouse_autoscaler::staffing::{Goal, Load, Times};
use dormouse_messages::events::{Observed, ServiceScaled};
use dormouse_messages::{Decider, Decision, Proposal, Timestamp, Writer};

use super::traces::Trace;
use super::{MOST_REPLICAS, OBJECTIVE_MS, PERCENTILE, WORK};

/// The replicas of each second from the beginning.
pub struct Oracle {
    begins: Timestamp,
    replicas: Vec<u32>,
}

impl Oracle {
    /// Wishes for replicas a start-up time in advance, by the autoscaler's formula and spare service time.
    pub fn new(trace: &Trace, begins: Timestamp, start_s: f64) -> Self {
        let times = Times::gamma(WORK.mean_s, WORK.cv * WORK.cv);
        let goal = Goal {
            latency_s: OBJECTIVE_MS / 1000.0 - WORK.mean_s,
            late: 1.0 - PERCENTILE / 100.0,
        };
        let needed = trace.rates.iter().map(|rate| {
            let load = Load {
                rate: *rate,
                dispersion: trace.cv * trace.cv,
                times: &times,
            };
            let replicas = load.replicas(goal, WORK.concurrency, MOST_REPLICAS);
            replicas.clamp(1, MOST_REPLICAS)
        });
        let needed: Vec<u32> = needed.collect();
        let ahead = (0..).take_while(|it| f64::from(*it) < start_s + 2.0);
        let ahead = ahead.count() + 1;
        let most = (0..needed.len()).map(|at| needed[at..].iter().take(ahead).copied().max());
        Self {
            begins,
            replicas: most.flatten().collect(),
        }
    }
}

impl Decider for Oracle {
    type State = AutoscalerState;

    const WRITER: Writer = Writer::Autoscaler;

    fn decide(&self, state: &AutoscalerState, now: Timestamp) -> Decision {
        let second = now.micros_since(self.begins) / 1_000_000;
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        let wished = self.replicas.get(second).copied();
        let scaled = state.services.iter().filter_map(|(job, service)| {
            let replicas = wished.filter(|it| *it != service.target)?;
            let scaled = ServiceScaled {
                job: job.clone(),
                replicas,
                previous: service.target,
                scaling: service.promise.scaling,
                observed: Observed::default(),
                forecast: 0.0,
                capacity_per_replica: 0.0,
                reason: "the rate is known".to_owned(),
                saturated: false,
                basis: None,
            };
            Some(Proposal::new(scaled, service.released?))
        });
        Decision {
            proposals: scaled.collect(),
            next_wake: None,
        }
    }
}
