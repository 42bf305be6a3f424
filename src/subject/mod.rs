//! The consumers under test, the producer, the embedded peer, the reaper and the user: child processes that speak JSON lines.
//!
//! Each is the `halfopen` binary itself under a hidden name and hosts one to thousands of connections. They start in a
//! network namespace that their parent chose, take [`protocol::Command`]s on standard input and write
//! [`protocol::Report`]s to standard output; every event carries the offset at which it happened, never the one at
//! which it was written. What is left out: starting, ending and watching these processes, and any judgement of what
//! they say.

mod account;
mod amqp;
mod amqp_blocking;
mod amqp_frames;
mod amqp_handshake;
mod amqp_heartbeat;
mod amqp_stream;
mod amqp_ticker;
mod amqp_wire;
mod attempts;
mod causes;
mod child;
mod command;
mod halt;
mod kombu;
mod lapin_client;
mod liveness;
mod message;
mod peer;
mod producer;
pub mod protocol;
mod provider;
mod proxy;
mod proxy_manners;
mod publish_amqp;
mod publish_redis;
mod reaper_process;
mod redis_client;
mod report;
mod resolver;
mod schedule;
pub mod socket;
mod stop;
mod subject_process;
mod sweeps;
mod tasks;
mod tcp_reader;
mod tcp_writer;
mod tls;
mod topology;
mod user_process;

pub use proxy::SILENT;
pub use proxy_manners::{SWALLOWS, WITHHOLDS};
pub use resolver::{Answers, Entry};

/// The consumers under test: `halfopen __subject --zero-ns N [--store PATH] [--provider SOCKET]`. Returns the exit status.
#[must_use]
pub fn subject_main(args: &[String]) -> i32 {
    subject_process::main(args)
}

/// The publisher of numbered messages: `halfopen __producer --zero-ns N [--store PATH]`. Returns the exit status.
#[must_use]
pub fn producer_main(args: &[String]) -> i32 {
    producer::main(args)
}

/// The proxy before a trial's broker, which listens before it says hello:
/// `halfopen __proxy --zero-ns N --trial N --listen ADDRESS:PORT --upstream ADDRESS:PORT --queue NAME`. Returns the exit
/// status.
#[must_use]
pub fn proxy_main(args: &[String]) -> i32 {
    proxy::main(args)
}

/// One connection through a proxy, its client's end as standard input:
/// `halfopen __relay --zero-ns N --trial N --upstream ADDRESS:PORT --queue NAME`. Returns the exit status.
#[must_use]
pub fn relay_main(args: &[String]) -> i32 {
    proxy::relay_main(args)
}

/// The name server of a run, which listens before it says hello:
/// `halfopen __resolver --zero-ns N --listen ADDRESS:PORT --entries FILE`. Returns the exit status.
#[must_use]
pub fn resolver_main(args: &[String]) -> i32 {
    resolver::main(args)
}

/// The far end of bare TCP subjects: `halfopen __peer --zero-ns N [--listen ADDRESS:PORT]`. Returns the exit status.
///
/// It listens before it says hello, on `0.0.0.0:7000` unless told otherwise, and a note names the address.
#[must_use]
pub fn peer_main(args: &[String]) -> i32 {
    peer::main(args)
}

/// The external provider at which effects are made, which listens before it says hello:
/// `halfopen __provider --zero-ns N --provider SOCKET`. Returns the exit status.
#[must_use]
pub fn provider_main(args: &[String]) -> i32 {
    provider::main(args)
}

/// The scheduler that fails what was queued for too long: `halfopen __reaper --zero-ns N --store PATH`. Returns the exit
/// status.
#[must_use]
pub fn reaper_main(args: &[String]) -> i32 {
    reaper_process::main(args)
}

/// Whoever waits for tasks: `halfopen __user --zero-ns N --store PATH`. Returns the exit status.
#[must_use]
pub fn user_main(args: &[String]) -> i32 {
    user_process::main(args)
}
