//! Given events, the queues.
