//! What the kernel and the brokers say happened, as events.
//!
//! What is left out: any judgement, and any knowledge of trials beyond their connections' names.

pub mod broker_log;
pub mod redis_clients;
mod tail;

pub use tail::Tail;
