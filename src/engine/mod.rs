//! Carrying a plan out. `kernel` does it with real sockets, `model` simulates it; both emit the same events.

pub mod job;
pub mod kernel;
pub mod model;
