//! Which option applies to which subject, as data: asking for what cannot work is an error, never silently ignored.
//!
//! A timeout that a client accepts and does nothing with is how a rollout fails (`socket_timeout` on Celery's AMQP
//! transport), so every pair has an answer with its reason. What is left out: defaults and values, which are the
//! plan's and the scenario's.

use super::SubjectKind;
use std::fmt;

/// An option of an arm, by its name in files, in `--set` and in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptionName {
    /// The client's own bound on the handshake.
    ConnectTimeout,
    /// `SO_RCVTIMEO`.
    ReadTimeout,
    /// `SO_KEEPALIVE` with `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`.
    Keepalive,
    /// `TCP_USER_TIMEOUT`.
    TcpUserTimeout,
    /// The AMQP heartbeat.
    Heartbeat,
    /// `basic.qos`.
    Prefetch,
    /// Which thread ticks the AMQP heartbeat.
    HeartbeatThread,
    /// A call that waits for its reply at the cut.
    SyncCall,
    /// A command at intervals, and silence in between.
    Ping,
    /// When a message is acknowledged.
    Ack,
    /// How long the work on a message takes.
    Work,
    /// Under which name a killed worker comes back.
    WorkerId,
    /// Which tasks a worker begins.
    Begins,
    /// How a task's effect is made at an external provider.
    Effects,
    /// AMQP's largest frame.
    FrameMax,
    /// Whether the connections are encrypted.
    Tls,
    /// Whether the embedded peer reads what it is sent.
    PeerReads,
    /// What the path does to packets all the time.
    Link,
    /// Any `sysctl.*` of the subject's network namespace.
    Sysctl,
    /// Numbered messages on each connection.
    Load,
    /// Options in the client's own words.
    Client,
    /// The kind of exchange that messages are published to.
    Exchange,
    /// Which messages go to which queue.
    Routes,
    /// Consumers on the connection.
    Consumers,
    /// `x-max-priority`.
    MaxPriority,
    /// `x-queue-type`.
    QueueType,
    /// A queue for what consumers reject.
    DeadLetters,
    /// kombu's `visibility_timeout`.
    VisibilityTimeout,
    /// The waiting between attempts to connect.
    Reconnect,
    /// The waiting before a failed task is tried again.
    Retry,
}

impl OptionName {
    /// All options, in the order of the documentation.
    pub const ALL: [Self; 30] = [
        Self::ConnectTimeout,
        Self::ReadTimeout,
        Self::Keepalive,
        Self::TcpUserTimeout,
        Self::Heartbeat,
        Self::HeartbeatThread,
        Self::SyncCall,
        Self::Ping,
        Self::Prefetch,
        Self::Ack,
        Self::Work,
        Self::Exchange,
        Self::Routes,
        Self::Consumers,
        Self::MaxPriority,
        Self::QueueType,
        Self::DeadLetters,
        Self::VisibilityTimeout,
        Self::Reconnect,
        Self::Retry,
        Self::WorkerId,
        Self::Begins,
        Self::Effects,
        Self::FrameMax,
        Self::Tls,
        Self::PeerReads,
        Self::Link,
        Self::Sysctl,
        Self::Load,
        Self::Client,
    ];

    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectTimeout => "connect_timeout",
            Self::ReadTimeout => "read_timeout",
            Self::Keepalive => "keepalive",
            Self::TcpUserTimeout => "tcp_user_timeout",
            Self::Heartbeat => "heartbeat",
            Self::HeartbeatThread => "heartbeat_thread",
            Self::SyncCall => "sync_call",
            Self::Ping => "ping",
            Self::Prefetch => "prefetch",
            Self::Ack => "ack",
            Self::Work => "work",
            Self::WorkerId => "worker_id",
            Self::Begins => "begins",
            Self::Effects => "effects",
            Self::FrameMax => "frame_max",
            Self::Tls => "tls",
            Self::PeerReads => "peer_reads",
            Self::Link => "link",
            Self::Sysctl => "sysctl",
            Self::Load => "load",
            Self::Client => "client",
            Self::Exchange => "exchange",
            Self::Routes => "routes",
            Self::Consumers => "consumers",
            Self::MaxPriority => "max_priority",
            Self::QueueType => "queue_type",
            Self::DeadLetters => "dead_letters",
            Self::VisibilityTimeout => "visibility_timeout",
            Self::Reconnect => "reconnect",
            Self::Retry => "retry",
        }
    }

    /// The option that a key belongs to: `keepalive.idle` is keepalive, `sysctl.tcp_retries2` is sysctl.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        let head = key.split('.').next().unwrap_or(key);
        Self::ALL.into_iter().find(|option| option.name() == head)
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an option does anything for a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// It does.
    Yes,
    /// It can't, and a scenario that asks for it is wrong.
    No {
        /// The reason, as the end of a sentence: "read_timeout does not apply to lapin: …".
        why: &'static str,
    },
}

impl Applies {
    /// Whether the option does anything.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

const NO_HEARTBEAT_TCP: Applies = Applies::No { why: "bare TCP has no heartbeat; `keepalive` is the kernel's nearest" };
const NO_AMQP_TCP: Applies = Applies::No { why: "bare TCP speaks no AMQP" };
const NO_NATIVE: Applies = Applies::No { why: "it is part of this harness; its options have names of their own here" };
const NO_ACK_TCP: Applies = Applies::No { why: "a bare TCP peer delivers nothing that could be acknowledged" };

/// Whether `option` does anything for `subject`, and why not.
///
/// Sources: `docs` of `tcp(7)` and `socket(7)` for the kernel's options (a non-blocking socket never waits, so
/// `SO_RCVTIMEO` has nothing to bound), the AMQP 0-9-1 specification, and Redis' `BRPOP`.
#[must_use]
pub fn applies(subject: SubjectKind, option: OptionName) -> Applies {
    use OptionName as O;
    use SubjectKind as S;
    match (subject, option) {
        (S::TcpReader | S::TcpWriter, O::Tls) => Applies::No { why: "bare TCP has nothing that would encrypt it" },
        (_, O::Tls) => Applies::Yes,
        // The user's own program: nothing is known of its options.
        (S::Command | S::CommandRedis, O::Link | O::Sysctl | O::Load | O::Client) => Applies::Yes,
        (S::Command | S::CommandRedis, _) => Applies::No {
            why: "the program is your own; write `client = { NAME = … }` and `{client.NAME}` or `{conf}` in its command",
        },
        (S::Celery | S::Celery5, O::Keepalive | O::TcpUserTimeout) => Applies::No {
            why: "py-amqp sets its own (60/10/9 and 1000 ms); write `client.broker_transport_options.socket_settings`",
        },
        (S::CeleryRedis | S::Celery5Redis, O::Keepalive | O::TcpUserTimeout) => {
            Applies::No { why: "kombu has a switch alone; write `client.broker_transport_options.socket_keepalive`" }
        }
        (S::Pika | S::AioPika | S::Dramatiq, O::Keepalive | O::TcpUserTimeout) => {
            Applies::No { why: "the adapter has no name for it; set `sysctl`, or use a command line of your own" }
        }
        (S::RedisPy | S::RedisPy5, O::TcpUserTimeout) => Applies::No {
            why: "redis-py takes it among `socket_keepalive_options`; write `client.socket_keepalive_options.TCP_USER_TIMEOUT`",
        },
        (S::Lapin, O::Exchange | O::Routes | O::Consumers | O::Retry) => Applies::Yes,
        (_, O::Exchange | O::Routes | O::Consumers | O::Retry) => {
            Applies::No { why: "several queues and failing tasks are for `lapin`" }
        }
        (S::Lapin | S::Celery | S::Celery5, O::MaxPriority | O::QueueType | O::DeadLetters) => Applies::Yes,
        (_, O::MaxPriority | O::QueueType | O::DeadLetters) => {
            Applies::No { why: "they are arguments of a RabbitMQ queue, for `lapin` and Celery" }
        }
        (S::RedisBlocking, O::VisibilityTimeout) => Applies::Yes,
        (S::CeleryRedis | S::Celery5Redis, O::VisibilityTimeout) => {
            Applies::No { why: "it is kombu's own; write `client.broker_transport_options.visibility_timeout`" }
        }
        (_, O::VisibilityTimeout) => Applies::No { why: "it is kombu's on Redis; RabbitMQ has `consumer_timeout`" },
        (kind, O::Reconnect) if kind.is_command() => Applies::No {
            why: "a client of somebody else's reconnects as it does; write its own options into `client`",
        },
        (_, O::Reconnect) => Applies::Yes,
        // The kernel's options work on every TCP socket, every subject bounds its own handshake, and the path is below all.
        (_, O::ConnectTimeout | O::Keepalive | O::TcpUserTimeout | O::Link | O::Sysctl | O::Load) => Applies::Yes,

        // kombu hands `broker_transport_options.read_timeout` to py-amqp, which makes it SO_RCVTIMEO (amqp/transport.py).
        (kind, O::Work) if kind.is_command() => Applies::No {
            why: "a client of somebody else's works as its own tasks do; a Celery task with an ETA waits: `[load] eta`",
        },
        (S::Celery | S::Celery5, O::ReadTimeout | O::Heartbeat | O::Prefetch | O::Ack | O::Client) => Applies::Yes,
        // On Redis `broker_transport_options.socket_timeout` is redis-py's.
        (S::CeleryRedis | S::Celery5Redis, O::ReadTimeout | O::Prefetch | O::Ack | O::Client) => Applies::Yes,
        (S::CeleryRedis | S::Celery5Redis | S::RedisPy | S::RedisPy5, O::Heartbeat) => Applies::No {
            why: "the Redis protocol has no heartbeat; use `read_timeout`, or `client` with `health_check_interval`",
        },
        (S::Pika | S::AioPika, O::Heartbeat | O::Prefetch | O::Ack | O::Client) => Applies::Yes,
        (S::Dramatiq, O::Heartbeat | O::Prefetch | O::Client) => Applies::Yes,
        (S::Dramatiq, O::Ack) => Applies::No { why: "dramatiq acknowledges after the work, and offers nothing else" },
        (S::Pika | S::AioPika | S::Dramatiq, O::ReadTimeout) => {
            Applies::No { why: "its socket is non-blocking, where SO_RCVTIMEO does nothing; use `heartbeat`" }
        }
        (S::RedisPy | S::RedisPy5, O::ReadTimeout | O::Client) => Applies::Yes,
        (S::RedisPy | S::RedisPy5, O::Prefetch) => Applies::No { why: "BRPOP takes one message at a time" },
        (S::RedisPy | S::RedisPy5, O::Ack) => {
            Applies::No { why: "BRPOP removes the message as it delivers it: there is nothing to acknowledge" }
        }
        (S::CeleryRedis | S::Celery5Redis | S::RedisPy | S::RedisPy5, O::FrameMax) => {
            Applies::No { why: "the Redis protocol has no frames" }
        }
        (S::Pika | S::AioPika | S::Dramatiq, O::FrameMax) => {
            Applies::No { why: "the adapter takes the broker's; write `client` if you must" }
        }
        (S::Celery | S::Celery5, O::FrameMax) => {
            Applies::No { why: "py-amqp takes the broker's; write `client` if you must" }
        }
        (kind, O::HeartbeatThread) if kind.is_command() => {
            Applies::No { why: "a client of somebody else's decides by itself which thread ticks" }
        }
        (kind, O::SyncCall) if kind.is_command() => Applies::No {
            why: "a real worker makes its own calls; a Celery task with an ETA in flight forces one: `[load] eta`",
        },
        (_, O::Client) => NO_NATIVE,
        (S::RedisBlocking, O::Ping) => Applies::Yes,
        (_, O::Ping) => Applies::No { why: "PING is a command of Redis; it is for a `redis-blocking` subject" },

        (S::TcpReader | S::RedisBlocking | S::AmqpBlocking, O::ReadTimeout) => Applies::Yes,
        (S::TcpWriter, O::ReadTimeout) => {
            Applies::No { why: "the writer never waits in a read: it sleeps in poll(), where SO_RCVTIMEO does nothing" }
        }
        (S::Lapin, O::ReadTimeout) => {
            Applies::No { why: "its socket is non-blocking, where SO_RCVTIMEO does nothing; use `heartbeat`" }
        }

        (S::TcpWriter, O::PeerReads) => Applies::Yes,
        (S::TcpReader, O::PeerReads) => {
            Applies::No { why: "the reader sends nothing that its peer could leave unread; it is for a `tcp-writer`" }
        }
        (_, O::PeerReads) => {
            Applies::No { why: "a real broker always reads; it is for a `tcp-writer` against the embedded peer" }
        }

        (S::Lapin | S::AmqpBlocking | S::RedisBlocking, O::Work | O::WorkerId | O::Begins | O::Effects) => Applies::Yes,
        (_, O::WorkerId | O::Begins | O::Effects) => Applies::No {
            why: "the worker is one of this harness' own with a broker: `lapin`, `amqp-blocking`, `redis-blocking`",
        },
        (S::TcpReader | S::TcpWriter, O::Work) => {
            Applies::No { why: "what a bare TCP connection carries is read and done with" }
        }

        (S::Lapin | S::AmqpBlocking, O::Heartbeat | O::Prefetch | O::Ack | O::FrameMax) => Applies::Yes,

        (S::AmqpBlocking, O::HeartbeatThread | O::SyncCall) => Applies::Yes,
        (S::Lapin, O::HeartbeatThread) => {
            Applies::No { why: "its heartbeats are timers of its own event loop, which nothing blocks" }
        }
        (S::Lapin, O::SyncCall) => {
            Applies::No { why: "its calls are asynchronous: none blocks the thread that reads; use `amqp-blocking`" }
        }
        (S::TcpReader | S::TcpWriter | S::RedisBlocking, O::HeartbeatThread) => {
            Applies::No { why: "it has no heartbeat that a thread could tick" }
        }
        (S::TcpReader | S::TcpWriter, O::SyncCall) => NO_AMQP_TCP,
        (S::RedisBlocking, O::SyncCall) => Applies::No { why: "a BRPOP is a call that waits for its reply already" },

        (S::TcpReader | S::TcpWriter, O::Heartbeat) => NO_HEARTBEAT_TCP,
        (S::TcpReader | S::TcpWriter, O::Prefetch | O::FrameMax) => NO_AMQP_TCP,
        (S::TcpReader | S::TcpWriter, O::Ack) => NO_ACK_TCP,

        (S::RedisBlocking, O::Heartbeat) => {
            Applies::No { why: "the Redis protocol has no heartbeat; `read_timeout` bounds a blocking BRPOP" }
        }
        (S::RedisBlocking, O::Prefetch) => Applies::No { why: "BRPOP takes one message at a time" },
        (S::RedisBlocking, O::Ack) => Applies::Yes,
        (S::RedisBlocking, O::FrameMax) => Applies::No { why: "the Redis protocol has no frames" },
        // Every client of somebody else's has its answers above.
        (_, _) => Applies::No { why: "it is no option of this client" },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_an_answer_and_every_no_a_reason() {
        let mut yes = 0;
        for subject in SubjectKind::ALL {
            for option in OptionName::ALL {
                match applies(subject, option) {
                    Applies::Yes => yes += 1,
                    Applies::No { why } => assert!(why.len() > 10, "{subject} × {option} has no reason"),
                }
            }
        }
        // 6 for the five of our own, read_timeout for the three that block, 4 of AMQP for each of its clients and 2 for the
        // one that blocks, work and the worker's three for the three with a broker, peer_reads for the writer, ping for Redis, 9
        // of each Celery on RabbitMQ, 8 of each on Redis, 8 of pika and aio-pika, 7 of dramatiq, 7 of each redis-py, and 4 of
        // each command line; TLS for all but bare TCP. Of delivery: reconnect for the five of our own, 4 that are lapin's, 3
        // arguments of a queue for it and two Celerys, and ack and visibility_timeout on Redis.
        let delivery = 5 + 4 + 3 * 3 + 2;
        let own = 6 * 5 + 3 + 4 * 2 + 2 + 3 * 4 + 1 + 1;
        assert_eq!(yes, own + 2 * 9 + 2 * 8 + 2 * 8 + 7 + 2 * 7 + 2 * 4 + 14 + delivery);
    }

    #[test]
    fn a_read_timeout_is_for_blocking_readers_only() {
        let with = |subject| applies(subject, OptionName::ReadTimeout).is_yes();
        let yes: Vec<&str> = SubjectKind::ALL.into_iter().filter(|kind| with(*kind)).map(SubjectKind::name).collect();
        assert_eq!(
            yes,
            [
                "tcp-reader",
                "redis-blocking",
                "amqp-blocking",
                "celery",
                "celery-5",
                "celery-redis",
                "celery-5-redis",
                "redis-py",
                "redis-py-5",
            ]
        );
    }

    #[test]
    fn dotted_keys_find_their_option() {
        assert_eq!(OptionName::of_key("keepalive.idle"), Some(OptionName::Keepalive));
        assert_eq!(OptionName::of_key("sysctl.tcp_retries2"), Some(OptionName::Sysctl));
        assert_eq!(OptionName::of_key("load.rate"), Some(OptionName::Load));
        assert_eq!(OptionName::of_key("socket_timeout"), None);
        for option in OptionName::ALL {
            assert_eq!(OptionName::of_key(option.name()), Some(option));
        }
    }
}
