//! What was found at one moment, before anybody judges it.

use super::options::Options;
use crate::observe::TcpSocket;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Whose connections are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A process and all its descendants.
    Process(u32),
    /// A container: its name or id.
    Container(String),
    /// A network namespace, by a file that stands for it.
    Namespace(PathBuf),
    /// Every connection to or from a port, in every namespace that a process is in.
    Port(u16),
    /// Everything that this user may see.
    All,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Container(name) => write!(f, "container {name}"),
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Port(port) => write!(f, "port {port}"),
            Self::All => f.write_str("all processes"),
        }
    }
}

/// One moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// When, in seconds of the inspector's clock.
    pub at_s: f64,
    /// The network namespaces that were looked into.
    pub namespaces: Vec<Namespace>,
    /// The connections.
    pub connections: Vec<Connection>,
    /// Processes that ended while they were looked at.
    pub ended: Vec<Ended>,
    /// What could not be seen, each with its mend.
    pub notes: Vec<String>,
}

/// A network namespace and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// The kernel's number for it.
    pub id: u64,
    /// `net.ipv4.*`, as far as the model reads it. A name that is missing could not be read, or this kernel has it not.
    pub sysctls: BTreeMap<String, i64>,
}

/// The process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// The descriptor.
    pub fd: i32,
    /// How many other processes have the same socket open: it lives until the last of them closes it.
    pub shared_with: usize,
    /// Stopped by a signal.
    pub stopped: bool,
}

/// What the threads of the owner do with a socket at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Wait {
    /// It can't be known.
    Unknown {
        /// Why.
        why: String,
    },
    /// No thread waits for it.
    Nobody,
    /// A thread waits in a read on it.
    Read,
    /// A thread waits in a write on it.
    Write,
    /// A thread waits in `poll` or `select` for it.
    Poll {
        /// Its deadline; none: for ever.
        deadline_ms: Option<u64>,
        /// For this socket alone, and so for an answer; else it is an event loop.
        alone: bool,
    },
    /// A thread waits in `epoll_wait`, with this socket among others: an event loop.
    Epoll {
        /// When the loop turns by itself; none: never.
        deadline_ms: Option<u64>,
    },
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deadline = |ms: &Option<u64>| match ms {
            None => "no deadline".to_string(),
            Some(ms) => format!("{} s at most", *ms as f64 / 1000.0),
        };
        match self {
            Self::Unknown { why } => write!(f, "unknown: {why}"),
            Self::Nobody => f.write_str("no thread waits for it"),
            Self::Read => f.write_str("a thread waits in a read"),
            Self::Write => f.write_str("a thread waits in a write"),
            Self::Poll { deadline_ms, alone: true } => write!(f, "a thread polls it alone, {}", deadline(deadline_ms)),
            Self::Poll { deadline_ms, alone: false } => write!(f, "a loop polls it, {}", deadline(deadline_ms)),
            Self::Epoll { deadline_ms } => write!(f, "an epoll loop, {}", deadline(deadline_ms)),
        }
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// Index into [`Look::namespaces`].
    pub namespace: usize,
    /// What the kernel says.
    pub socket: TcpSocket,
    /// Who has it open; `None` is nobody, or nobody that may be looked at.
    pub owner: Option<Owner>,
    /// Its options, or why they can't be read.
    pub options: Result<Options, String>,
    /// What its owner's threads do with it.
    pub wait: Wait,
    /// The kernel function in which the waiting thread sleeps.
    pub wait_channel: Option<String>,
}

/// A process that ended meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Its number.
    pub pid: u32,
    /// Its short name, where it was still known.
    pub name: String,
}

/// TCP states by their kernel numbers.
#[must_use]
pub fn state_name(state: u8) -> &'static str {
    match state {
        1 => "ESTABLISHED",
        2 => "SYN_SENT",
        3 => "SYN_RECV",
        4 => "FIN_WAIT1",
        5 => "FIN_WAIT2",
        6 => "TIME_WAIT",
        7 => "CLOSE",
        8 => "CLOSE_WAIT",
        9 => "LAST_ACK",
        10 => "LISTEN",
        11 => "CLOSING",
        12 => "NEW_SYN_RECV",
        _ => "unknown",
    }
}
