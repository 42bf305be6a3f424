//! What the kernel and the brokers say happened, as events.
//!
//! The kernel has two sources: tracepoints, which stamp the instant and carry the error but need privileges over the
//! whole machine, and `sock_diag`, which works everywhere and sees only what is there when it looks. RabbitMQ is heard
//! through its log, Redis through its client list. What is left out: any judgement, and any knowledge of trials beyond
//! their connections' names.

pub mod broker_log;
mod door;
mod ends;
mod polled;
pub mod redis_clients;
mod sock_diag;
mod socket_table;
mod tail;
pub mod tcp_state;
mod trace_format;
mod trace_pipe;
mod tracepoint;
mod traces;

pub use door::Door;
pub use ends::{KernelEnd, KernelEnds};
pub use polled::{PolledEnd, PolledEnds};
pub use sock_diag::{SockDiag, SockDiagError, States};
pub use socket_table::TcpSocket;
pub use tail::Tail;
pub use trace_pipe::TracePipe;
pub use tracepoint::{TraceRecord, TraceWhat, Tracepoints, Unavailable};
pub use traces::Traces;
