//! What the kernel says happened to a connection.
//!
//! Two sources: tracepoints, which stamp the instant and carry the error but need privileges over the whole machine,
//! and `sock_diag`, which works everywhere and sees only what is there when it looks. What is left out: the broker's
//! word, and any idea of what an end of a connection means.

mod ends;
mod polled;
mod sock_diag;
mod trace_format;
mod tracepoint;

pub use ends::{KernelEnd, KernelEnds};
pub use polled::{PolledEnd, PolledEnds};
pub use sock_diag::{SockDiag, SockDiagError, States};
pub use tracepoint::{TraceRecord, TraceWhat, Tracepoints, Unavailable};
