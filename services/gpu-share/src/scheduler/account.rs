//! What a tenant may have of a device: two accounts that fill with time and are emptied by use,
//! and its place in the order of those who share the rest.
//!
//! Use over a sliding window would do for one tenant. With several whose limits fill the device, a
//! pause of one is a pause in every window after it: what is too late to be used is lost, and the
//! losses add up. An account keeps it.

use super::{Settings, Terms};

/// How long a tenant may save up its limit: 0.1 s, so that in ten seconds it is at most one point
/// above it, however it pauses.
const SAVED_NS: u64 = 100_000_000;

/// The order in which the rest is shared: time used, by weight.
pub type Pass = i128;

/// A tenant's accounts with a device, in ns of its time.
#[derive(Debug, Clone)]
pub struct Account {
    terms: Terms,
    at_ns: u64,
    /// What its request has brought and it has not used, in thousandths of a ns.
    request: i128,
    /// The same of its limit.
    limit: i128,
    /// What it used of the rest, by its weight.
    pub pass: Pass,
    /// Whether what it uses now comes from its request.
    pub by_request: bool,
}

impl Account {
    /// Empty accounts: a request begins with the first moment.
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

    /// Other terms from now on.
    pub fn change(&mut self, settings: &Settings, now_ns: u64, terms: Terms) {
        self.fill(settings, now_ns);
        self.terms = terms;
        self.fill(settings, now_ns);
    }

    /// The longest grant: at least five a window, or a small request would come in one piece.
    #[must_use]
    pub fn quantum_ns(&self, settings: &Settings) -> u64 {
        let request_ns = settings.window_ns / 1000 * u64::from(self.terms.request_milli);
        (request_ns / 5).clamp(settings.least_ns, settings.quantum_ns)
    }

    /// Time fills both accounts, up to what may be saved.
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

    /// Takes what was used from the accounts. Of the rest, too, the request is paid, but not into a
    /// debt that a grant of the request would not leave: who fills another's pauses has so much of
    /// its request already, and who had a device alone does not wait for it when others come.
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

    /// One quantum of the rest, as it counts in the order.
    #[must_use]
    pub fn step(&self, settings: &Settings) -> Pass {
        let quantum = i128::from(self.quantum_ns(settings)) * 1000;
        quantum / i128::from(self.terms.weight.max(1))
    }

    /// Whether it is below its request. A grant takes it as far beyond as it was below, so that
    /// there is no bias to either side; the same holds for the limit.
    #[must_use]
    pub fn lacks(&self, settings: &Settings) -> bool {
        self.terms.request_milli > 0 && self.request >= self.half(settings)
    }

    /// What it lacks of its request, as a part of it, in millionths.
    #[must_use]
    pub fn lacking(&self) -> i128 {
        self.request * 1000 / i128::from(self.terms.request_milli.max(1))
    }

    /// Whether it is at its limit. A limit of the whole device is none.
    #[must_use]
    pub fn at_limit(&self, settings: &Settings) -> bool {
        self.terms.limit_milli < 1000 && self.limit < self.half(settings)
    }

    /// When its limit lets it go on; never for a limit of nothing.
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
