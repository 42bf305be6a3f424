//! What Linux does: the wheel, and the five timers that stand on it.
//!
//! Every function gives a [`Window`](super::Window) over all phases of the jiffy clock and of the wheel, or the exact
//! instant for one phase. Left out: local congestion (a drop on the client's own egress, which the kernel notices
//! and retries without back-off), thin-stream linear timeouts, fast open and orphaned sockets.

pub mod blocking;
pub mod keepalive;
pub mod persist;
pub mod retransmit;
pub mod syn;
pub mod wheel;

use super::span::Span;

/// Shifts a chain's delay by the part of a jiffy that had passed when it started, and converts to seconds.
pub(crate) fn sub_jiffy(wheel: wheel::Wheel, lo: u64, hi: u64) -> Span {
    Span::new(wheel.seconds(lo.saturating_sub(1)), wheel.seconds(hi))
}
