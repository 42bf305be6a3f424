//! The names of everything that could notice: one vocabulary for predictions, verdicts and reports.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Where a watcher lives, and so who is able to act when it fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The process under test or its kernel: this is what the time to detect measures.
    Subject,
    /// The broker or its kernel.
    Broker,
    /// A scheduler, a reaper or a progress check: it judges by a store, not by the connection.
    Reaper,
}

macro_rules! watchers {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $side:ident;)+) => {
        /// Something that could notice a dead connection, or clean up after one.
        ///
        /// Names are contract (`trials.csv`, `predict --json`); values may be added, never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Watcher { $($(#[$doc])* $variant,)+ }

        impl Watcher {
            /// Every watcher, in the order of tables.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The contract name, as in `trials.csv`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Who is able to act when it fires.
            #[must_use]
            pub const fn side(self) -> Side {
                match self { $(Self::$variant => Side::$side,)+ }
            }
        }
    };
}

watchers! {
    /// A blocking read got nothing for too long (`SO_RCVTIMEO`, or a client's own response timeout).
    ReadTimeout = "read_timeout", Subject;
    /// A blocking write could not hand over its bytes for too long (`SO_SNDTIMEO`).
    SendTimeout = "send_timeout", Subject;
    /// The application's limit on a handshake.
    ConnectTimeout = "connect_timeout", Subject;
    /// The kernel's limit on a handshake (`tcp_syn_retries`, `TCP_SYNCNT`).
    SynRetries = "syn_retries", Subject;
    /// The client misses the broker's AMQP frames.
    AmqpHeartbeat = "amqp_heartbeat", Subject;
    /// The keepalive timer of an idle socket; also where `TCP_USER_TIMEOUT` decides at which probe it gives up.
    Keepalive = "keepalive", Subject;
    /// `TCP_USER_TIMEOUT` on data in flight or on a closed window.
    UserTimeout = "user_timeout", Subject;
    /// `tcp_retries2` on data in flight.
    Retransmit = "retransmit", Subject;
    /// `tcp_retries2` on unanswered window probes.
    Persist = "persist", Subject;
    /// A RST arrived.
    Reset = "reset", Subject;
    /// A FIN arrived.
    Fin = "fin", Subject;
    /// An ICMP error or a local route told so.
    Unreachable = "unreachable", Subject;
    /// The broker misses the client's AMQP frames.
    BrokerHeartbeat = "broker_heartbeat", Broker;
    /// A delivery stayed unacknowledged (RabbitMQ).
    ConsumerTimeout = "consumer_timeout", Broker;
    /// An unacknowledged message is given to somebody else (Celery on Redis).
    VisibilityTimeout = "visibility_timeout", Broker;
    /// A client's own ping (Redis).
    HealthCheck = "health_check", Subject;
    /// The worker's liveness key expired, seen by a sweep.
    LivenessTtl = "liveness_ttl", Reaper;
    /// A task was PENDING for too long, seen by a sweep.
    PendingTimeout = "pending_timeout", Reaper;
    /// A task was PROCESSING for too long, seen by a sweep.
    ProcessingTimeout = "processing_timeout", Reaper;
    /// A row was in state *queued* for too long (Airflow).
    QueuedTimeout = "queued_timeout", Reaper;
    /// A *running* row had no heartbeat for too long (Airflow).
    TaskHeartbeat = "task_heartbeat", Reaper;
    /// Work waits and nothing is taken: the only watcher of a client that forgot to consume.
    Progress = "progress", Reaper;
    /// Nobody.
    None = "none", Subject;
}

/// A text that names no watcher.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a watcher; watchers are read_timeout, amqp_heartbeat, keepalive, retransmit … (docs/timers.md)")]
pub struct UnknownWatcher(pub String);

impl fmt::Display for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Watcher {
    type Err = UnknownWatcher;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|w| w.name() == text.trim()).ok_or_else(|| UnknownWatcher(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_spellings_are_one() {
        for &watcher in Watcher::ALL {
            assert_eq!(watcher.name().parse(), Ok(watcher));
            assert_eq!(serde_json::to_string(&watcher).unwrap(), format!("\"{watcher}\""));
        }
        assert!("keep_alive".parse::<Watcher>().is_err());
    }
}
