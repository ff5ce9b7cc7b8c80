//! The scheduler's inputs, outputs and settings.

pub const SECOND_NS: u64 = 1_000_000_000;

/// A container, by a number from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// A GPU, by a number from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(pub u32);

/// The scheduler's constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Unused requests are saved and overuse is paid within this time.
    pub window_ns: u64,
    /// A change of holders costs some 0.1 ms, half a per cent.
    pub quantum_ns: u64,
    /// For very small requests: shorter grants would cost too many changes.
    pub least_ns: u64,
    /// Longer than kernels of training and serving, short enough that a stopped process stops nobody else.
    pub patience_ns: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_ns: SECOND_NS,
            quantum_ns: 20_000_000,
            least_ns: 4_000_000,
            patience_ns: SECOND_NS,
        }
    }
}

/// A tenant's terms for a device's time, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub request_milli: u32,
    /// The most that a tenant gets, while others leave it.
    pub limit_milli: u32,
    /// Share of the rest beyond the requests.
    pub weight: u32,
}

/// An event for the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Also changes the terms.
    Joined {
        tenant: Tenant,
        device: Device,
        terms: Terms,
    },
    Left {
        /// The departed tenant.
        tenant: Tenant,
    },
    Wanted {
        /// The waiting tenant.
        tenant: Tenant,
        device: Device,
    },
    /// Work is done, or a waiting tenant gave up.
    Returned {
        /// The returning tenant.
        tenant: Tenant,
        device: Device,
    },
    Used {
        tenant: Tenant,
        device: Device,
        used_ns: u64,
    },
    Passed,
}

/// An action of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Granted {
        tenant: Tenant,
        device: Device,
        /// Number of the device's grant.
        epoch: u64,
        until_ns: u64,
    },
    Extended {
        tenant: Tenant,
        device: Device,
        until_ns: u64,
    },
    /// The token is due when the launched work is done.
    Revoked {
        /// The present holder.
        tenant: Tenant,
        device: Device,
    },
    /// The token was not returned in time.
    Forfeited {
        /// The former holder.
        tenant: Tenant,
        device: Device,
    },
}
