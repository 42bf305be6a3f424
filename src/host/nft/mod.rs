//! A small nftables client on the harness's own netlink socket: typed, atomic, acknowledged.
//!
//! The socket that creates a table with `flags owner` owns it: nobody else may write to it, and the kernel removes it
//! when the socket closes, however the process ended. One set element costs microseconds here, where the `nft` tool
//! costs milliseconds. What is left out: everything that the faults don't need (maps, intervals, objects,
//! families other than `ip` and `bridge`), and any idea of what a fault is.

mod client;
mod encode;
mod error;
mod model;
mod parse;
mod text;

pub use client::{Committed, NftClient, RuleHandle};
pub use error::NftError;
pub use model::{Chain, ChainType, Element, Family, Field, Hook, Key, Network, Op, Rule, Set, Statement, TcpFlag};
pub use parse::Reading;
pub use text::{print_table, printing_order};
