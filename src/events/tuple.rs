//! The name of a connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddrV4;

/// Both ends of a connection as its client sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tuple {
    /// The client's own address and port.
    pub local: SocketAddrV4,
    /// The broker's address and port.
    pub peer: SocketAddrV4,
}

impl Tuple {
    /// The same connection as the other end names it.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { local: self.peer, peer: self.local }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.local, self.peer)
    }
}
