//! The kernel engine: real sockets, real brokers. The only room that sees lab, subjects, faults and observers together.
//!
//! One dispatcher thread takes every event, writes it down, and asks the tracker what to do next; threads of their own
//! cut, look at sockets, follow traces and logs, and read the children's reports.

mod actor;
mod addresses;
mod alarms;
mod children;
mod cutter;
mod descriptors;
mod distorted;
mod foreign_log;
mod heard;
mod looks;
mod observers;
mod outside;
mod owned;
mod place;
mod polling;
mod registry;
mod request;
mod run;
mod told;
mod tracker;
mod watch;

pub use descriptors::{Need, descriptors};
pub use run::{Ending, EngineError, Progress, run};

use crate::events::Event;
use crate::scenario::Act;
use crate::units::{Offset, TrialId};

/// What reaches the dispatcher.
#[derive(Debug)]
pub enum Message {
    /// Something happened.
    Event(Event),
    /// A socket of a client that is watched from outside changed its state.
    Socket(outside::SocketChange),
    /// What a client had open before the run began to watch it.
    Attached(crate::units::TrialId, Vec<crate::events::Tuple>),
    /// News of a child process, by its index.
    Child(usize, children::ChildNews),
    /// SIGINT, SIGTERM or SIGHUP.
    Interrupt,
    /// A broker's process ended.
    BrokerEnded,
    /// What this act has killed is to be started again, for these trials.
    StartAgain(Act, Vec<TrialId>),
    /// It answers again, or what went wrong.
    Answers(Result<Offset, String>),
}
