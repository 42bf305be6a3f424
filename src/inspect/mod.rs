//! `halfopen inspect`: the TCP connections of a live process, and who would notice if one of them died silently.
//!
//! A *look* is what kernel, `/proc` and, where asked, RabbitMQ's own tables say at one moment; everything after it is
//! pure: each connection becomes cases of the `timers` room, the same as for predictions, and a row. The process is not
//! restarted, not asked and not changed: its descriptors are duplicated for some microseconds, options are only read,
//! `SO_ERROR` never is. What is left out: what an application keeps to itself (its own timers and deadlines, where no
//! thread waits in one), which a row names as missing and never guesses.

mod advice;
mod client;
mod container;
mod facts;
pub mod follow;
mod judge;
mod look;
mod options;
mod processes;
mod prometheus;
mod rabbitmq;
mod render;
mod rows;
mod suspect;
mod take;
mod waits;

pub use advice::{Advice, advice};
pub use client::{Protocol, Protocols, by_command, by_product};
pub use container::ContainerError;
pub use facts::{BrokerSide, Facts, Heartbeat, ReadDeadline};
pub use judge::{Answer, Class, Judge, Knowledge};
pub use look::{Connection, Ended, Look, Namespace, Owner, Target, Wait, state_name};
pub use options::Options;
pub use prometheus::exposition;
pub use rabbitmq::{BrokerConnection, Tables, TablesError, by_management, by_rabbitmqctl};
pub use render::{Shown, render};
pub use rows::{Inspection, Order, Risk, Row, Told, Verdict, inspection, sort};
pub use suspect::{Before, Looks, Sign, Sure, Suspicion, looks, suspicions};
pub use take::{InspectError, Inspector};
