//! The one shell around every decider: log, fences, leases, snapshots, tracing.
