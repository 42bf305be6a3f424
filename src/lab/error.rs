//! What can go wrong with a lab.

use crate::scenario::BrokerKind;
use std::io;
use std::net::Ipv4Addr;
use thiserror::Error;

/// Why a lab could not be built or closed. The message names the part and, where there is one, the mend.
#[derive(Debug, Error)]
pub enum LabError {
    /// A program is missing.
    #[error("{program} is not installed; {mend}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// The command that installs it.
        mend: &'static str,
    },
    /// More arms than the address plan has room for.
    #[error("{count} arms are more than the {limit} that a lab has addresses for")]
    TooManyArms {
        /// Arms asked for.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// More trials than the address plan has room for.
    #[error("arm `{arm}` has {count} trials, more than the {limit} that an arm has addresses for")]
    TooManyTrials {
        /// The arm.
        arm: String,
        /// Trials asked for.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A trial's addresses lie outside of its arm's networks.
    #[error("arm `{arm}`: {client} to {server} is outside of the arm's networks")]
    Address {
        /// The arm.
        arm: String,
        /// The client's address.
        client: Ipv4Addr,
        /// The broker's address for it.
        server: Ipv4Addr,
    },
    /// A sysctl that this kernel doesn't have or doesn't take.
    #[error("arm `{arm}`: sysctl {name}={value}: {source}")]
    Sysctl {
        /// The arm.
        arm: String,
        /// Name without `net.ipv4.`.
        name: String,
        /// The value asked for.
        value: i64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A link that only the network emulator can make, on a kernel that has none.
    #[error(
        "arm `{arm}`: {lacks} is not available here, because this kernel has no netem (sch_netem); run with --lab vm, or \
         load the module (loss and rate alone do without)"
    )]
    NoNetem {
        /// The arm.
        arm: String,
        /// What of its link can't be had.
        lacks: String,
    },
    /// A middlebox on a kernel that tracks no connections.
    #[error(
        "the middlebox is not available here, because this kernel has no connection tracking (nf_conntrack); load the module"
    )]
    NoConntrack,
    /// The lab was to be built in a namespace that somebody uses.
    #[error("the router's network namespace already has the links {links}; a lab is only built in an empty one")]
    NotEmpty {
        /// The links besides the loopback.
        links: String,
    },
    /// The certificates of the brokers could not be made.
    #[error("can't make the brokers' certificates: {source}")]
    Certificates {
        /// Why.
        source: io::Error,
    },
    /// A namespace, link or route could not be made.
    #[error("can't build the lab's network: {0}")]
    Network(io::Error),
    /// The machine, its Docker engine or its user can't carry the docker lab; with the mend.
    #[error("{0}")]
    Cannot(String),
    /// The Docker engine refused something.
    #[error("docker: can't {what}: {source}")]
    Docker {
        /// What was tried.
        what: String,
        /// Its answer.
        source: io::Error,
    },
    /// A signal came while the brokers started.
    #[error("interrupted while the brokers started")]
    Interrupted,
    /// A file or process of a broker could not be handled.
    #[error("{kind}: can't {what}: {source}")]
    Io {
        /// The broker.
        kind: BrokerKind,
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The database of the task store could not be had.
    #[error("postgres: can't {what}: {why}")]
    Database {
        /// What was tried.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A broker ended or did not get ready.
    #[error("{kind} {what}; its last words:\n{log}")]
    Broker {
        /// The broker.
        kind: BrokerKind,
        /// What happened.
        what: String,
        /// The end of its log and output.
        log: String,
    },
}
