//! Tries the changes that may lift a refusal.

use dormouse_admission::{decode, document, parse_job, received};
use dormouse_messages::events::StoppedBy;
use dormouse_messages::job::{JobDocument, JobSpec};
use dormouse_messages::{Amounts, Event, JobId, Resource, TenantId, Writer};
use dormouse_optimizer::Optimizer;
use serde_json::{Value, json};

use super::super::answer::{Correction, VerifiedBy};
use super::super::changes::{Candidate, Change};
use super::super::submitted::Refused;
use super::fix::{Fix, fix};
use crate::history::fork::{Fork, Outcome};

const MOST_FIXES: usize = 4;
/// The submission's ingress sequence on the fork, beyond any real one.
const INGRESS: u64 = u64::MAX;

/// Tries changes that may lift a refusal.
pub struct Lift<'a> {
    pub base: &'a Fork,
    pub optimizer: Optimizer,
    pub job: &'a JobId,
    tenant: TenantId,
    document: Value,
    spec: Option<JobSpec>,
    pub solves: usize,
}

/// The fork after admission, or a refusal's code.
type Answer = Result<Fork, String>;

impl<'a> Lift<'a> {
    pub fn new(
        base: &'a Fork,
        optimizer: Optimizer,
        job: &'a JobId,
        refused: &Refused,
    ) -> Option<Self> {
        let tenant: TenantId = job.tenant().parse().ok()?;
        let mut document = document(&refused.submission).filter(Value::is_object)?;
        if document.get("name").is_none_or(Value::is_null) {
            document["name"] = json!(job.name());
        }
        let parsed = decode::<JobDocument>(&refused.submission).ok();
        let parsed = parsed.and_then(|it| parse_job(it, &tenant, job.name(), 0).ok());
        Some(Self {
            base,
            optimizer,
            job,
            tenant,
            document,
            spec: parsed.map(|(_, spec)| spec),
            solves: 0,
        })
    }

    fn admits(&self, change: &Change, document: &Value) -> Answer {
        let mut fork = self.base.clone();
        change.apply(&mut fork);
        let payload = document.to_string();
        let tenant = self.tenant.as_str();
        let json = Some("application/json");
        let event = received(
            INGRESS,
            fork.now,
            tenant,
            "submit",
            json,
            payload.as_bytes(),
        );
        fork.happen(Writer::Admission, event);
        let decided = fork.admit();
        let refused = decided.iter().find_map(|event| match event {
            Event::JobRefused(event) if event.ingress_sequence == INGRESS => {
                Some(event.code.clone())
            }
            _ => None,
        });
        match refused {
            Some(code) => Err(code),
            None if fork.admission.queues.jobs.contains_key(self.job) => Ok(fork),
            None => Err("not_decided".to_owned()),
        }
    }

    pub fn as_it_is(&mut self) -> Result<(u32, VerifiedBy), String> {
        let fork = self.admits(&Change::All(Vec::new()), &self.document)?;
        Ok(self.gets(fork))
    }

    fn gets(&mut self, mut fork: Fork) -> (u32, VerifiedBy) {
        self.solves += 1;
        let outcome = fork.settle(&self.optimizer);
        let verified = verified(&outcome, &self.optimizer);
        (outcome.containers(&fork, self.job), verified)
    }

    pub fn all(&mut self, code: &str, mut found: impl FnMut(Correction)) {
        self.of_operator(code).into_iter().for_each(&mut found);
        self.of_document(code).into_iter().for_each(&mut found);
    }

    fn of_operator(&mut self, code: &str) -> Option<Correction> {
        let mut fixes: Vec<Fix> = Vec::new();
        let mut code = code.to_owned();
        let mut fork = self.base.clone();
        let admitted = loop {
            let next = fix(
                &fork,
                &self.tenant,
                self.spec.as_ref(),
                &self.document,
                &code,
            )?;
            next.change.apply(&mut fork);
            fixes.push(next);
            let all = Change::All(fixes.iter().map(|it| it.change.clone()).collect());
            match self.admits(&all, &self.document) {
                Ok(admitted) => break admitted,
                Err(next) if next == code || fixes.len() == MOST_FIXES => return None,
                Err(next) => code = next,
            }
        };
        // For one amount, proves that one unit less does not suffice.
        let mut not_at = None;
        if let [
            Fix {
                less: Some((less, says)),
                ..
            },
        ] = fixes.as_slice()
        {
            if self.admits(less, &self.document).is_ok() {
                return None;
            }
            not_at = Some(says.clone());
        }
        let kind = fixes.first().map_or("", |it| it.kind);
        let joined = |of: fn(&Fix) -> &str, with: &str| {
            let texts: Vec<&str> = fixes.iter().map(of).collect();
            texts.join(with)
        };
        let candidate = Candidate {
            says: joined(|it| &it.says, " && "),
            from: joined(|it| &it.from, ", "),
            to: joined(|it| &it.to, ", "),
            change: Change::All(Vec::new()),
            gives: Vec::new(),
        };
        Some(self.correction(kind, candidate, admitted, not_at))
    }

    fn correction(
        &mut self,
        kind: &str,
        candidate: Candidate,
        admitted: Fork,
        not_at: Option<String>,
    ) -> Correction {
        let (becomes, verified_by) = self.gets(admitted);
        Correction {
            kind: kind.to_owned(),
            change: candidate.says,
            from: candidate.from,
            to: candidate.to,
            admitted: true,
            becomes,
            verified_by,
            not_at,
            gives: Vec::new(),
        }
    }

    fn of_document(&mut self, code: &str) -> Vec<Correction> {
        match code {
            "above_quota" => [self.min(), self.demand()].into_iter().flatten().collect(),
            "above_max_containers" => self.min().into_iter().collect(),
            "larger_than_any_node" => self
                .demand()
                .or_else(|| self.of_a_node())
                .into_iter()
                .collect(),
            "weight_above_limit" => self.weight().into_iter().collect(),
            "unknown_priority_class" | "priority_class_not_granted" => {
                self.without_class().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn says(&self, field: &str, to: &str) -> String {
        format!("--set job.{}.{field}={to}", self.job)
    }

    fn largest(
        &mut self,
        kind: &str,
        field: &str,
        from: u32,
        with: impl Fn(&Value, u32) -> Value,
    ) -> Option<Correction> {
        let none = Change::All(Vec::new());
        let admits = |of: &Self, number: u32| of.admits(&none, &with(&of.document, number));
        let (mut low, mut high) = (1, from);
        let mut admitted = (from > 1).then(|| admits(self, 1).ok()).flatten()?;
        while high - low > 1 {
            let middle = low.midpoint(high);
            match admits(self, middle) {
                Ok(fork) => (low, admitted) = (middle, fork),
                Err(_) => high = middle,
            }
        }
        let candidate = Candidate {
            says: self.says(field, &low.to_string()),
            from: from.to_string(),
            to: low.to_string(),
            change: none,
            gives: Vec::new(),
        };
        Some(self.correction(kind, candidate, admitted, Some(high.to_string())))
    }

    fn min(&mut self) -> Option<Correction> {
        let containers = self.spec.as_ref()?.containers;
        let from = containers.start();
        self.largest("min", "containers.min", from, |document, min| {
            let mut document = document.clone();
            let written = document.get("containers").filter(|it| it.is_object());
            let mut bounds = written
                .cloned()
                .unwrap_or_else(|| json!({"max": containers.max}));
            bounds["min"] = json!(min);
            if bounds.get("start").is_some() {
                bounds["start"] = json!(min);
            }
            document["containers"] = bounds;
            document
        })
    }

    fn weight(&mut self) -> Option<Correction> {
        let from = self.spec.as_ref()?.weight;
        self.largest("weight", "weight", from, |document, weight| {
            let mut document = document.clone();
            document["weight"] = json!(weight);
            document
        })
    }

    fn demand(&mut self) -> Option<Correction> {
        let demand = self.spec.as_ref()?.demand.clone();
        let none = Change::All(Vec::new());
        for (resource, present) in demand.iter() {
            let mut not_at = resource.display(present);
            for step in 1..20_u64 {
                let to = resource.display(present * (20 - step) / 20);
                let mut document = self.document.clone();
                document["demand"][resource.name()] = json!(to);
                let Ok(admitted) = self.admits(&none, &document) else {
                    not_at = to;
                    continue;
                };
                let candidate = Candidate {
                    says: self.says(&format!("demand.{}", resource.name()), &to),
                    from: resource.display(present),
                    to,
                    change: none,
                    gives: Vec::new(),
                };
                return Some(self.correction("demand", candidate, admitted, Some(not_at)));
            }
        }
        None
    }

    /// Reduces the demand to the capacity of the best node.
    fn of_a_node(&mut self) -> Option<Correction> {
        let demand = self.spec.as_ref()?.demand.clone();
        let nodes = self.base.admission.queues.cluster.nodes.iter();
        let mut fitting: Vec<Amounts> = nodes
            .filter_map(|(_, node)| within(&demand, &node.capacity))
            .collect();
        // The node that keeps the most of the demand.
        let kept = |less: &Amounts| {
            let parts = demand
                .iter()
                .map(|(resource, all)| less.get(resource).saturating_mul(1000) / all.max(1));
            parts.sum::<u64>()
        };
        fitting.sort_by_key(|less| std::cmp::Reverse(kept(less)));
        let less = fitting.into_iter().next()?;
        let mut document = self.document.clone();
        for (resource, amount) in less.iter() {
            document["demand"][resource.name()] = json!(resource.display(amount));
        }
        let none = Change::All(Vec::new());
        let admitted = self.admits(&none, &document).ok()?;
        let changed = less
            .iter()
            .filter(|(resource, to)| demand.get(resource) != *to);
        let says: Vec<String> = changed
            .map(|(resource, to)| {
                self.says(
                    &format!("demand.{}", resource.name()),
                    &resource.display(to),
                )
            })
            .collect();
        let candidate = Candidate {
            says: says.join(" "),
            from: demand.to_string(),
            to: less.to_string(),
            change: none,
            gives: Vec::new(),
        };
        Some(self.correction("demand", candidate, admitted, None))
    }

    fn without_class(&mut self) -> Option<Correction> {
        let mut document = self.document.clone();
        let class = document.as_object_mut()?.remove("priority_class")?;
        let none = Change::All(Vec::new());
        let admitted = self.admits(&none, &document).ok()?;
        let candidate = Candidate {
            says: "without priority_class".to_owned(),
            from: class.as_str().unwrap_or_default().to_owned(),
            to: "none".to_owned(),
            change: none,
            gives: Vec::new(),
        };
        Some(self.correction("class", candidate, admitted, None))
    }
}

fn within(demand: &Amounts, capacity: &Amounts) -> Option<Amounts> {
    let mut less = demand.clone();
    let parts: Vec<(Resource, u64)> = demand
        .iter()
        .map(|(resource, amount)| (resource.clone(), amount.min(capacity.get(resource))))
        .collect();
    for (resource, amount) in parts {
        if amount == 0 {
            return None;
        }
        less.set(resource, amount);
    }
    Some(less)
}

/// Returns the proof status of an allocation.
pub fn verified(outcome: &Outcome, optimizer: &Optimizer) -> VerifiedBy {
    let solver = outcome.figures().map(|figures| figures.solver.clone());
    let solver = solver.unwrap_or_default();
    let proof = match (solver.status.as_str(), solver.stopped_by) {
        ("optimal" | "none", _) => "proven",
        (_, StoppedBy::Gap) => "within_gap",
        _ if solver.gap <= optimizer.gap => "within_gap",
        _ => "limit",
    };
    VerifiedBy {
        objective: solver.objective,
        gap: solver.gap,
        proof: proof.to_owned(),
    }
}
