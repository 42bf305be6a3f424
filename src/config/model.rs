//! The neutral facts that every reader ends in.

use crate::units::Setting;
use serde::{Serialize, Serializer};
use std::fmt;

/// An option under the name that scenario files and `--set` use for it (contract), or a fact about the stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptionName {
    /// `client`: the library that speaks to the broker (`celery`, `redis-py`).
    Client,
    /// `client.version`: versions as a report names them (`celery 5.7.0, kombu 5.7.0`).
    ClientVersion,
    /// `broker.kind`: `rabbitmq`, `redis` or another transport's name.
    BrokerKind,
    /// `transport`: kombu's name of the transport (`pyamqp`, `redis`).
    Transport,
    /// `address`: the broker's address without user, password and query.
    Address,
    /// `connect_timeout`: bound on the handshake.
    ConnectTimeout,
    /// `read_timeout`: longest blocking read.
    ReadTimeout,
    /// `write_timeout`: longest blocking write (`SO_SNDTIMEO`).
    WriteTimeout,
    /// `keepalive`: whether `SO_KEEPALIVE` is on at all.
    Keepalive,
    /// `keepalive.idle`: `TCP_KEEPIDLE`.
    KeepaliveIdle,
    /// `keepalive.interval`: `TCP_KEEPINTVL`.
    KeepaliveInterval,
    /// `keepalive.probes`: `TCP_KEEPCNT`.
    KeepaliveProbes,
    /// `tcp_user_timeout`: `TCP_USER_TIMEOUT`.
    TcpUserTimeout,
    /// `syn_retries`: `TCP_SYNCNT`.
    SynRetries,
    /// `heartbeat`: what the client asks for in AMQP's `tune`.
    Heartbeat,
    /// `heartbeat.checkrate`: checks in one heartbeat interval.
    HeartbeatCheckrate,
    /// `prefetch`: messages that one consumer may hold unacknowledged.
    Prefetch,
    /// `prefetch.multiplier`: Celery's prefetch for each worker process.
    PrefetchMultiplier,
    /// `concurrency`: Celery's worker processes.
    Concurrency,
    /// `ack`: `early` or `late`.
    Ack,
    /// `task_time_limit`: a task is killed after this long.
    TaskTimeLimit,
    /// `visibility_timeout`: an unacknowledged message is delivered again after this long.
    VisibilityTimeout,
    /// `visibility.interval`: kombu's `unacked_restore_interval`.
    VisibilityInterval,
    /// `visibility.throttle`: kombu sweeps on every n-th interval only.
    VisibilityThrottle,
    /// `health_check_interval`: Redis' PING and kombu's own checks.
    HealthCheckInterval,
    /// `queued_timeout`: Airflow's `task_queued_timeout`.
    QueuedTimeout,
    /// `queued_check_interval`: Airflow's `task_queued_timeout_check_interval`.
    QueuedCheckInterval,
    /// `task_heartbeat_timeout`: Airflow's `task_instance_heartbeat_timeout`.
    TaskHeartbeatTimeout,
    /// `task_heartbeat_check_interval`: how often Airflow looks for missed task heartbeats.
    TaskHeartbeatCheckInterval,
    /// `consumer_timeout`: RabbitMQ closes the channel of a delivery unacknowledged for this long.
    ConsumerTimeout,
    /// `broker_heartbeat`: what RabbitMQ proposes.
    BrokerHeartbeat,
    /// `broker_keepalive`: whether the server's sockets have keepalive.
    BrokerKeepalive,
    /// `broker_keepalive.idle`: Redis' `tcp-keepalive`; probes follow every third of it, three times.
    BrokerKeepaliveIdle,
    /// `broker_idle_timeout`: Redis' `timeout`.
    BrokerIdleTimeout,
    /// `broker_handshake_timeout`: RabbitMQ's `handshake_timeout`.
    BrokerHandshakeTimeout,
    /// `results.read_timeout`: Celery's Redis *result* connections, not the broker's.
    ResultsReadTimeout,
    /// `results.connect_timeout`: the same connections' handshake.
    ResultsConnectTimeout,
    /// `results.keepalive`: the same connections' keepalive.
    ResultsKeepalive,
    /// `results.health_check_interval`: the same connections' PING.
    ResultsHealthCheckInterval,
    /// `sysctl.NAME`, without the `net.ipv4.` prefix.
    Sysctl(String),
}

impl OptionName {
    /// The name in scenario files, `--set` and reports.
    #[must_use]
    pub fn name(&self) -> String {
        let fixed = match self {
            Self::Client => "client",
            Self::ClientVersion => "client.version",
            Self::BrokerKind => "broker.kind",
            Self::Transport => "transport",
            Self::Address => "address",
            Self::ConnectTimeout => "connect_timeout",
            Self::ReadTimeout => "read_timeout",
            Self::WriteTimeout => "write_timeout",
            Self::Keepalive => "keepalive",
            Self::KeepaliveIdle => "keepalive.idle",
            Self::KeepaliveInterval => "keepalive.interval",
            Self::KeepaliveProbes => "keepalive.probes",
            Self::TcpUserTimeout => "tcp_user_timeout",
            Self::SynRetries => "syn_retries",
            Self::Heartbeat => "heartbeat",
            Self::HeartbeatCheckrate => "heartbeat.checkrate",
            Self::Prefetch => "prefetch",
            Self::PrefetchMultiplier => "prefetch.multiplier",
            Self::Concurrency => "concurrency",
            Self::Ack => "ack",
            Self::TaskTimeLimit => "task_time_limit",
            Self::VisibilityTimeout => "visibility_timeout",
            Self::VisibilityInterval => "visibility.interval",
            Self::VisibilityThrottle => "visibility.throttle",
            Self::HealthCheckInterval => "health_check_interval",
            Self::QueuedTimeout => "queued_timeout",
            Self::QueuedCheckInterval => "queued_check_interval",
            Self::TaskHeartbeatTimeout => "task_heartbeat_timeout",
            Self::TaskHeartbeatCheckInterval => "task_heartbeat_check_interval",
            Self::ConsumerTimeout => "consumer_timeout",
            Self::BrokerHeartbeat => "broker_heartbeat",
            Self::BrokerKeepalive => "broker_keepalive",
            Self::BrokerKeepaliveIdle => "broker_keepalive.idle",
            Self::BrokerIdleTimeout => "broker_idle_timeout",
            Self::BrokerHandshakeTimeout => "broker_handshake_timeout",
            Self::ResultsReadTimeout => "results.read_timeout",
            Self::ResultsConnectTimeout => "results.connect_timeout",
            Self::ResultsKeepalive => "results.keepalive",
            Self::ResultsHealthCheckInterval => "results.health_check_interval",
            Self::Sysctl(name) => return format!("sysctl.{name}"),
        };
        fixed.to_string()
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for OptionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A typed value; times carry their unit. Never holds a secret: readers only store names from closed lists here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A time, or the watcher turned off.
    Time(Setting),
    /// A whole number.
    Count(i64),
    /// On or off.
    Flag(bool),
    /// A name from a closed list, a version, or a redacted address.
    Word(String),
}

impl Value {
    /// The time in it, where it is one and not off.
    #[must_use]
    pub fn time(&self) -> Option<std::time::Duration> {
        match self {
            Self::Time(setting) => setting.get(),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(setting) => setting.fmt(f),
            Self::Count(n) => n.fmt(f),
            Self::Flag(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(n) => serializer.serialize_i64(*n),
            Self::Flag(on) => serializer.serialize_bool(*on),
            other => serializer.collect_str(other),
        }
    }
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file's name, `environment`, or the library whose default it is.
    pub label: String,
    /// Line in the file, from 1.
    pub line: Option<u32>,
    /// The key in the user's own spelling.
    pub key: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line} {}", self.label, self.key),
            None => write!(f, "{} {}", self.label, self.key),
        }
    }
}

/// Whether somebody wrote a value or a library supplies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The user wrote it.
    Written,
    /// A default of the library or server that [`Place::label`] names.
    Default,
}

/// One setting that takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Which option.
    pub option: OptionName,
    /// Its value.
    pub value: Value,
    /// Written or a default.
    pub origin: Origin,
    /// Where.
    pub place: Place,
    /// What else a reader must know (which call applies it, what it does not cover).
    pub note: Option<String>,
}

/// A setting that someone wrote and nobody reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ignored {
    /// The key in the user's own spelling.
    pub key: String,
    /// Its value, if it is a number or a switch; texts are not repeated.
    pub value: String,
    /// Where.
    pub place: Place,
    /// Why nobody reads it.
    pub why: String,
    /// The key that was meant, where one is near.
    pub meant: Option<String>,
}

/// A setting that another one outranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overridden {
    /// The loser.
    pub fact: Fact,
    /// Where the winner stands.
    pub by: Place,
    /// The winner's value.
    pub value: Value,
}

/// Something that this room read but will not guess at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotUnderstood {
    /// Where.
    pub place: Place,
    /// Why not.
    pub why: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Probably not what was meant.
    Warning,
    /// Has no effect, the opposite effect, or stops the client.
    Error,
}

/// A finding about the settings themselves, without any fault or timer model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// Stable name, for filters and tests.
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub text: String,
    /// Where.
    pub place: Place,
    /// What to do.
    pub mend: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.text, self.mend)
    }
}

/// What a text was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// Environment variables.
    Environment,
    /// A `.env` file or the output of `env`.
    EnvFile,
    /// A Celery (or Django) configuration module in Python.
    CeleryModule,
    /// The output of `celery report`.
    CeleryReport,
    /// `airflow.cfg`.
    AirflowCfg,
    /// `broker_transport_options`, or whole Celery settings, as JSON.
    Json,
    /// `rabbitmq.conf`.
    RabbitmqConf,
    /// `redis.conf`.
    RedisConf,
    /// The output of `redis-cli CONFIG GET`.
    RedisConfigGet,
    /// A broker's address.
    Address,
    /// The output of `sysctl -a` or a file of `/etc/sysctl.d`.
    Sysctl,
}

impl SourceKind {
    /// Whether a mapping in such a source spans lines of its own.
    pub(crate) fn has_inner_lines(self) -> bool {
        matches!(self, Self::CeleryModule | Self::CeleryReport | Self::Json)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "environment variables",
            Self::EnvFile => "an environment file",
            Self::CeleryModule => "a Celery configuration module",
            Self::CeleryReport => "the output of `celery report`",
            Self::AirflowCfg => "airflow.cfg",
            Self::Json => "transport options as JSON",
            Self::RabbitmqConf => "rabbitmq.conf",
            Self::RedisConf => "redis.conf",
            Self::RedisConfigGet => "the output of `redis-cli CONFIG GET`",
            Self::Address => "a broker address",
            Self::Sysctl => "a list of sysctls",
        })
    }
}

/// Everything that follows from the sources together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// What each source was taken for, in order.
    pub sources: Vec<(String, SourceKind)>,
    /// The settings in effect, defaults of the named clients included; one for each option.
    pub facts: Vec<Fact>,
    /// Written, and outranked by another.
    pub overridden: Vec<Overridden>,
    /// Written, and read by nobody.
    pub ignored: Vec<Ignored>,
    /// Seen and not guessed at.
    pub not_understood: Vec<NotUnderstood>,
    /// Findings about the settings themselves, the worst first.
    pub lints: Vec<Lint>,
}

impl Findings {
    /// The fact in effect for an option.
    #[must_use]
    pub fn get(&self, option: &OptionName) -> Option<&Fact> {
        self.facts.iter().find(|f| f.option == *option)
    }

    /// The time in effect for an option; `None` when it is unknown or off.
    #[must_use]
    pub fn time(&self, option: &OptionName) -> Option<std::time::Duration> {
        self.get(option)?.value.time()
    }
}
