//! A tenant's accounts of a device, filled by time and emptied by use.
//!
//! A sliding window would lose a pause that comes too late to be used; an account keeps the claim.

use super::{Settings, Terms};

/// In ten seconds at most one point above the limit.
const SAVED_NS: u64 = 100_000_000;

/// Time used, by weight.
pub type Pass = i128;

/// A tenant's accounts of a device, in ns of its time.
#[derive(Debug, Clone)]
pub struct Account {
    terms: Terms,
    at_ns: u64,
    /// In thousandths of a ns.
    request: i128,
    /// In thousandths of a ns.
    limit: i128,
    pub pass: Pass,
    /// The present use comes from the request.
    pub by_request: bool,
}

impl Account {
    #[must_use]
    pub const fn new(now_ns: u64, terms: Terms) -> Self {
        Self {
            terms,
            at_ns: now_ns,
            request: 0,
            limit: 0,
            pass: 0,
            by_request: false,
        }
    }

    pub fn change(&mut self, settings: &Settings, now_ns: u64, terms: Terms) {
        self.fill(settings, now_ns);
        self.terms = terms;
        self.fill(settings, now_ns);
    }

    /// Returns the longest grant: at least five a window, so that a small request is not served in one piece.
    #[must_use]
    pub fn quantum_ns(&self, settings: &Settings) -> u64 {
        let request_ns = settings.window_ns / 1000 * u64::from(self.terms.request_milli);
        (request_ns / 5).clamp(settings.least_ns, settings.quantum_ns)
    }

    pub fn fill(&mut self, settings: &Settings, now_ns: u64) {
        let passed = i128::from(now_ns.saturating_sub(self.at_ns));
        self.at_ns = self.at_ns.max(now_ns);
        let request = i128::from(self.terms.request_milli);
        let limit = i128::from(self.terms.limit_milli);
        let quantum = i128::from(self.quantum_ns(settings)) * 1000;
        let window = i128::from(settings.window_ns);
        self.request = (self.request + passed * request).clamp(-window * request, window * request);
        let saved = (i128::from(SAVED_NS) * limit).max(quantum * 3 / 2);
        self.limit = (self.limit + passed * limit).clamp(-window * limit, saved);
    }

    /// Use of the rest also pays the request, but never into a debt beyond half a quantum: a tenant that had
    /// the device alone does not wait when others come.
    pub fn used(&mut self, settings: &Settings, used_ns: u64) {
        let used = i128::from(used_ns) * 1000;
        self.limit -= used;
        if self.by_request {
            self.request -= used;
            return;
        }
        self.pass += used / i128::from(self.terms.weight.max(1));
        let least = self.request.min(-self.half(settings));
        self.request = (self.request - used).max(least);
    }

    #[must_use]
    pub fn step(&self, settings: &Settings) -> Pass {
        let quantum = i128::from(self.quantum_ns(settings)) * 1000;
        quantum / i128::from(self.terms.weight.max(1))
    }

    /// Half a quantum below the request; a grant overshoots by as much, without bias. Likewise for the limit.
    #[must_use]
    pub fn lacks(&self, settings: &Settings) -> bool {
        self.terms.request_milli > 0 && self.request >= self.half(settings)
    }

    /// Returns the unused request in millionths of the request.
    #[must_use]
    pub fn lacking(&self) -> i128 {
        self.request * 1000 / i128::from(self.terms.request_milli.max(1))
    }

    /// A limit of the whole device never applies.
    #[must_use]
    pub fn at_limit(&self, settings: &Settings) -> bool {
        self.terms.limit_milli < 1000 && self.limit < self.half(settings)
    }

    /// Returns when the limit lets the tenant go on; `None` for a limit of zero.
    #[must_use]
    pub fn free_at_ns(&self, settings: &Settings) -> Option<u64> {
        if !self.at_limit(settings) {
            return Some(self.at_ns);
        }
        let missing = self.half(settings) - self.limit;
        let rate = i128::from(self.terms.limit_milli);
        let wait_ns = u64::try_from((missing + rate - 1).checked_div(rate)?).ok()?;
        self.at_ns.checked_add(wait_ns)
    }

    fn half(&self, settings: &Settings) -> i128 {
        i128::from(self.quantum_ns(settings)) * 500
    }
}
