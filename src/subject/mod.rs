//! The consumers under test, the producer and the embedded peer: child processes that speak JSON lines.

pub mod protocol;
