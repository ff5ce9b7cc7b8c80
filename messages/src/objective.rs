//! The optimizer's objective.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value that the objective gives to a job's containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// Their number, as in Dorm.
    #[default]
    Linear,
    /// Useful containers: the job's speed in speeds of one of its containers, by the curve that its progress
    /// reports give.
    Speed,
}

/// Weights of the optimizer's objective: maximise utilization · Σ u v(n) − loss · Σ l − Σ r (ε + stall · u v(n̄)
/// / `amortise_s`), where v(n) is n, or with `value: speed` a · s(n)^`concave`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a map such as {utilization: 1, loss: 0.3, amortise_s: 900}"
)]
pub struct Objective {
    /// Weight of the cluster's utilization.
    pub utilization: f64,
    /// Weight of the fairness loss.
    pub loss: f64,
    /// Seconds over which a restart's lost work is paid back; null leaves only the tie-break.
    pub amortise_s: Option<f64>,
    /// Fraction of its speed, 0 to below 1, that training loses on several nodes: a container elsewhere must
    /// bring more than it costs.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub crossing: f64,
    /// The value of containers.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub value: Value,
    /// With `value: speed`, the exponent of a job's useful containers, above 0 to 1: below 1, slow jobs gain
    /// more by a container than fast ones.
    #[serde(skip_serializing_if = "is_one")]
    pub concave: f64,
    /// With `value: speed`, the exponent 0 to 1 by which a job's value falls with its service: a = (1 +
    /// container seconds so far / their mean over the live jobs)^−`attained`.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub attained: f64,
    /// With `value: speed`, the exponent 0 to 1 by which a job's value falls with the work that its progress
    /// reports say is left (`steps_total`): a = (container seconds left / their mean over the live
    /// jobs)^−`remaining`.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub remaining: f64,
}

impl Objective {
    /// Returns the first error in the weights.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if !(0.0..1.0).contains(&self.crossing) {
            return Some(format!(
                "objective.crossing is {}; it must lie between 0 and below 1",
                self.crossing
            ));
        }
        let concave = self.concave;
        if !(concave > 0.0 && concave <= 1.0) {
            return Some(format!(
                "objective.concave is {concave}; it must lie above 0 and at most 1, which adds speeds"
            ));
        }
        if !(0.0..=1.0).contains(&self.attained) {
            return Some(format!(
                "objective.attained is {}; it must lie between 0 and 1",
                self.attained
            ));
        }
        if !(0.0..=1.0).contains(&self.remaining) {
            return Some(format!(
                "objective.remaining is {}; it must lie between 0 and 1",
                self.remaining
            ));
        }
        let of_speed = concave != 1.0 || self.attained != 0.0 || self.remaining != 0.0;
        if of_speed && self.value == Value::Linear {
            return Some(
                "objective.concave, attained and remaining need objective.value: speed".to_owned(),
            );
        }
        if self.utilization == 0.0 && self.loss == 0.0 {
            return Some("the objective's weights are both 0; one must be above".to_owned());
        }
        let weights = [self.utilization, self.loss, self.amortise_s.unwrap_or(1.0)];
        if weights
            .iter()
            .any(|weight| !weight.is_finite() || *weight < 0.0)
            || self.amortise_s == Some(0.0)
        {
            return Some(
                "the objective's weights must be 0 or more, amortise_s above 0 or null".to_owned(),
            );
        }
        None
    }

    /// Returns the published objective: utilization alone.
    #[must_use]
    pub fn paper() -> Self {
        Self {
            utilization: 1.0,
            loss: 0.0,
            amortise_s: None,
            ..Self::default()
        }
    }
}

fn is_one(part: &f64) -> bool {
    *part == 1.0
}

impl Default for Objective {
    /// Less loss and fewer restarts at equal utilization than the paper's {1, 0, null}.
    fn default() -> Self {
        Self {
            utilization: 1.0,
            loss: 0.3,
            amortise_s: Some(900.0),
            crossing: 0.0,
            value: Value::Linear,
            concave: 1.0,
            attained: 0.0,
            remaining: 0.0,
        }
    }
}
