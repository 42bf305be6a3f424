//! Who consumes, and over which broker.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who consumes. The names are contract: the same in files, in `--set` and in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// A bare TCP connection that only reads, against the embedded peer.
    TcpReader,
    /// A bare TCP connection that only writes, against the embedded peer.
    TcpWriter,
    /// The real `lapin` client on RabbitMQ.
    Lapin,
    /// A blocking `BRPOP` of the real `redis` client on Redis.
    RedisBlocking,
    /// A blocking AMQP consumer that behaves as py-amqp does, on RabbitMQ.
    AmqpBlocking,
    /// A real Celery worker on RabbitMQ, unchanged, as a process tree of its own that is watched from outside.
    Celery,
    /// The same of an older generation: Celery 5.5, kombu 5.5, py-amqp 5.3.
    #[serde(rename = "celery-5")]
    Celery5,
    /// A real Celery worker on Redis.
    CeleryRedis,
    /// The same of an older generation: Celery 5.5, kombu 5.5, redis-py 5.2.
    #[serde(rename = "celery-5-redis")]
    Celery5Redis,
    /// pika's `BlockingConnection` on RabbitMQ.
    Pika,
    /// aio-pika's `connect_robust` on RabbitMQ.
    AioPika,
    /// redis-py's `BRPOP` on Redis.
    RedisPy,
    /// The same of an older generation: redis-py 5.2.
    #[serde(rename = "redis-py-5")]
    RedisPy5,
    /// A dramatiq worker on RabbitMQ.
    Dramatiq,
    /// A command line of the user's own, on RabbitMQ.
    Command,
    /// A command line of the user's own, on Redis.
    CommandRedis,
}

impl SubjectKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::TcpReader,
        Self::TcpWriter,
        Self::Lapin,
        Self::RedisBlocking,
        Self::AmqpBlocking,
        Self::Celery,
        Self::Celery5,
        Self::CeleryRedis,
        Self::Celery5Redis,
        Self::Pika,
        Self::AioPika,
        Self::RedisPy,
        Self::RedisPy5,
        Self::Dramatiq,
        Self::Command,
        Self::CommandRedis,
    ];

    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpReader => "tcp-reader",
            Self::TcpWriter => "tcp-writer",
            Self::Lapin => "lapin",
            Self::RedisBlocking => "redis-blocking",
            Self::AmqpBlocking => "amqp-blocking",
            Self::Celery => "celery",
            Self::Celery5 => "celery-5",
            Self::CeleryRedis => "celery-redis",
            Self::Celery5Redis => "celery-5-redis",
            Self::Pika => "pika",
            Self::AioPika => "aio-pika",
            Self::RedisPy => "redis-py",
            Self::RedisPy5 => "redis-py-5",
            Self::Dramatiq => "dramatiq",
            Self::Command => "command",
            Self::CommandRedis => "command-redis",
        }
    }

    /// The broker that it speaks to.
    #[must_use]
    pub fn broker(self) -> BrokerKind {
        match self {
            Self::TcpReader | Self::TcpWriter => BrokerKind::None,
            Self::Lapin
            | Self::AmqpBlocking
            | Self::Celery
            | Self::Celery5
            | Self::Pika
            | Self::AioPika
            | Self::Dramatiq
            | Self::Command => BrokerKind::Rabbitmq,
            Self::RedisBlocking
            | Self::CeleryRedis
            | Self::Celery5Redis
            | Self::RedisPy
            | Self::RedisPy5
            | Self::CommandRedis => BrokerKind::Redis,
        }
    }

    /// Whether it is a program of somebody else's that is only watched from outside.
    #[must_use]
    pub fn is_command(self) -> bool {
        !matches!(self, Self::TcpReader | Self::TcpWriter | Self::Lapin | Self::RedisBlocking | Self::AmqpBlocking)
    }

    /// Whether it is a command line of the user's own.
    #[must_use]
    pub fn is_own_command(self) -> bool {
        matches!(self, Self::Command | Self::CommandRedis)
    }

    /// Whether it is a Celery worker, over whatever transport.
    #[must_use]
    pub fn is_celery(self) -> bool {
        matches!(self, Self::Celery | Self::Celery5 | Self::CeleryRedis | Self::Celery5Redis)
    }
}

impl fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which server the subjects talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokerKind {
    /// Bare TCP against the embedded peer.
    None,
    /// A real `rabbitmq-server`, port 5672.
    Rabbitmq,
    /// A real `redis-server`, port 6379.
    Redis,
}

impl BrokerKind {
    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rabbitmq => "rabbitmq",
            Self::Redis => "redis",
        }
    }

    /// The TCP port that it listens on inside the lab.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::None => 7000,
            Self::Rabbitmq => 5672,
            Self::Redis => 6379,
        }
    }

    /// The TCP port of its listener with a certificate, beside the plain one. The embedded peer has none.
    #[must_use]
    pub fn tls_port(self) -> u16 {
        match self {
            Self::None => Self::None.port(),
            Self::Rabbitmq => 5671,
            Self::Redis => 6380,
        }
    }
}

impl fmt::Display for BrokerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
