//! The kernel's numbers of the states of a TCP socket (`include/net/tcp_states.h`), as trace records and looks have them.

/// Data can go both ways.
pub const ESTABLISHED: i32 = 1;
/// A SYN is out.
pub const SYN_SENT: i32 = 2;
/// The own side has closed, and its FIN is not acknowledged.
pub const FIN_WAIT1: i32 = 4;
/// … and it is.
pub const FIN_WAIT2: i32 = 5;
/// No connection.
pub const CLOSE: i32 = 7;
/// The peer has closed.
pub const CLOSE_WAIT: i32 = 8;
/// Both have, and the own FIN is not acknowledged.
pub const LAST_ACK: i32 = 9;
