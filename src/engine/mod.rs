//! Carrying a plan out. `kernel` does it with real sockets; both engines emit the same events.

pub mod job;
pub mod kernel;
