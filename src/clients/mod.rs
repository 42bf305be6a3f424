//! Consumers of somebody else's, unchanged: adapters as data, and the pinned environments that they run in.
//!
//! An adapter says how a program is started, which of an arm's options it knows by which name, when it consumes, and what
//! its own options claim to do to a socket. Its scripts and its lock file are part of this binary; the environment is
//! made once for each lock file and kept in the user's cache. What a connection is for is read from what its client sends, or from
//! the queues that the broker says it consumes from. What is left out: starting the program (`subject`), and watching its
//! sockets (`engine`).

mod adapter;
mod environment;
mod wire;

pub use adapter::{Adapter, Message, Program, Where, adapter, adapter_of, asked, mapping};
pub use environment::{ClientError, ensure};
pub use wire::{RoleReader, role_of_consumer, tells_more};
