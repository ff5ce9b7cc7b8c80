//! What the scheduler hears and says.

/// A second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A container, by a number that the server gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// A GPU, by a number that the server gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(pub u32);

/// The scheduler's constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a tenant that does not use its request saves it up, and pays for having used too
    /// much. One second: shares settle within it after a change, and a quantum is a fiftieth of it.
    pub window_ns: u64,
    /// The longest grant. 20 ms: a change of holders costs some 0.1 ms, half a per cent.
    pub quantum_ns: u64,
    /// The longest grant of a tenant with a very small request: shorter, and the changes of
    /// holders would cost too much.
    pub least_ns: u64,
    /// How long a holder may take to give the token back. A second: longer than the kernels of
    /// training and serving, short enough that a stopped process stops nobody else.
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

/// What a tenant may have of a device's time, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Guaranteed while it wants it.
    pub request_milli: u32,
    /// At most, while others leave it.
    pub limit_milli: u32,
    /// Its part of what remains beyond the requests, against others' weights.
    pub weight: u32,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A tenant shares a device from now on; or its terms changed.
    Joined {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
        /// On these terms.
        terms: Terms,
    },
    /// A tenant is gone, with its processes.
    Left {
        /// Who.
        tenant: Tenant,
    },
    /// A tenant has work for a device.
    Wanted {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
    },
    /// A holder has given the token back, its work done; or a waiting tenant no longer waits.
    Returned {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
    },
    /// A tenant's work took time on a device, up to now.
    Used {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
        /// For how long.
        used_ns: u64,
    },
    /// Time passed.
    Passed,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The tenant holds the token.
    Granted {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
        /// Counts the device's grants.
        epoch: u64,
        /// Until then.
        until_ns: u64,
    },
    /// The holder keeps the token.
    Extended {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
        /// Until then.
        until_ns: u64,
    },
    /// The holder is to give the token back when what it has launched is done.
    Revoked {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
    },
    /// The holder did not give the token back in time, and has it no longer.
    Forfeited {
        /// Who.
        tenant: Tenant,
        /// Which device.
        device: Device,
    },
}
