//! The lines between the engine and the processes that it starts: one JSON document a line, commands in, reports out.
//!
//! Three roles share it: the *subject* (consumers under test), the *producer* (numbered messages to the real brokers)
//! and the *peer* (the far end of bare TCP subjects). One process hosts one to thousands of connections.

use crate::events::Event;
use crate::scenario::{BrokerKind, Settings};
use crate::units::TrialId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Where a connection goes and how it logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The broker's address as this client knows it. The client's own address follows from the route to it.
    pub server: SocketAddrV4,
    /// Queue (RabbitMQ) or list (Redis) of this trial; unused by bare TCP.
    pub queue: String,
    /// Login; empty for none.
    pub user: String,
    /// Password; empty for none. Never written to a run directory.
    pub password: String,
}

/// Engine to child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// Subject: open a connection, consume, report, reconnect after each notice until closed.
    Open {
        /// The trial.
        trial: TrialId,
        /// Where to.
        target: Target,
        /// The arm's options.
        settings: Settings,
        /// Interval of a bare TCP writer's messages, and of the messages that a bare TCP reader asks its peer for.
        #[serde(default)]
        load_interval: Option<Duration>,
    },
    /// Producer: declare the trial's queue and publish a numbered message each interval until closed.
    Publish {
        /// The trial.
        trial: TrialId,
        /// RabbitMQ or Redis.
        broker: BrokerKind,
        /// Where to.
        target: Target,
        /// Time between two messages.
        interval: Duration,
    },
    /// Any: end this trial's connection without a further report and without reconnecting.
    Close {
        /// The trial.
        trial: TrialId,
    },
    /// Any: end all connections, say [`Report::Bye`], exit 0. End of input means the same.
    Quit,
}

/// Child to engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// First line: the process is up and takes commands.
    Hello {
        /// Names and versions of the client libraries inside.
        versions: BTreeMap<String, String>,
    },
    /// Something happened.
    Event {
        /// What.
        event: Event,
    },
    /// Last line: orderly end.
    Bye,
}
