//! The scheduler's inputs, outputs and settings.

/// One second in nanoseconds.
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
    /// Time over which an unused request is saved and overuse is paid: shares settle within a second, and a
    /// quantum is a fiftieth of it.
    pub window_ns: u64,
    /// Longest grant: a change of holders costs some 0.1 ms, half a per cent of 20 ms.
    pub quantum_ns: u64,
    /// Longest grant for a very small request: shorter ones would cost too many changes.
    pub least_ns: u64,
    /// Time to return a revoked token: longer than kernels of training and serving, short enough that a
    /// stopped process stops nobody else.
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
    /// Guaranteed while wanted.
    pub request_milli: u32,
    /// The most, while others leave it.
    pub limit_milli: u32,
    /// Share of the rest beyond the requests, relative to others' weights.
    pub weight: u32,
}

/// An event for the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A tenant shares a device, or its terms changed.
    Joined {
        tenant: Tenant,
        device: Device,
        terms: Terms,
    },
    /// A tenant is gone, with its processes.
    Left {
        /// The departed tenant.
        tenant: Tenant,
    },
    /// A tenant has work for a device.
    Wanted {
        /// The waiting tenant.
        tenant: Tenant,
        device: Device,
    },
    /// A holder returned the token with its work done, or a waiting tenant gave up.
    Returned {
        /// The returning tenant.
        tenant: Tenant,
        device: Device,
    },
    /// A tenant's work took device time, up to now.
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
    /// The holder must return the token when its launched work is done.
    Revoked {
        /// The present holder.
        tenant: Tenant,
        device: Device,
    },
    /// The holder did not return the token in time and lost it.
    Forfeited {
        /// The former holder.
        tenant: Tenant,
        device: Device,
    },
}
