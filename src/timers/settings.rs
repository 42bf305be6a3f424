//! One arm's settings, in the names of the scenario file.

use super::application::amqp::Client;
use super::kernel::keepalive::Keepalive;
use crate::units::Setting;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

macro_rules! names {
    ($(#[$doc:meta])* $type:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$vdoc])* $variant,)+ }
        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The name in scenario files.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)+ } }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|v| v.name() == text.trim()).ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.iter().map(|v| v.name()).collect();
                    format!("`{text}` is not {}; known are {}", $what, known.join(", "))
                })
            }
        }
    };
}

names! {
    /// The consumer under test.
    Subject, "a subject" {
        /// A blocking socket that reads.
        TcpReader = "tcp-reader",
        /// A blocking socket that writes.
        TcpWriter = "tcp-writer",
        /// lapin on tokio.
        Lapin = "lapin",
        /// A blocking AMQP consumer, one thread.
        AmqpBlocking = "amqp-blocking",
        /// A blocking Redis consumer, one thread.
        RedisBlocking = "redis-blocking",
        /// py-amqp without an event loop: nobody calls `heartbeat_tick`.
        PyAmqp = "py-amqp",
        /// Celery with the prefork pool and kombu's hub, over the broker's kind.
        Celery = "celery",
        /// pika with a running I/O loop.
        Pika = "pika",
        /// aio-pika (aiormq).
        AioPika = "aio-pika",
        /// amqp091-go.
        Amqp091Go = "amqp091-go",
        /// redis-py, a blocking command with the client's own response timeout.
        RedisPy = "redis-py",
    }
}

names! {
    /// What stands at the other end.
    BrokerKind, "a broker" {
        /// RabbitMQ.
        RabbitMq = "rabbitmq",
        /// Redis.
        Redis = "redis",
        /// Bare TCP: an embedded peer without timers of its own.
        None = "none",
    }
}

names! {
    /// Which thread of a blocking AMQP client ticks its heartbeat.
    HeartbeatThread, "a heartbeat thread" {
        /// One of its own.
        Own = "own",
        /// The one that consumes.
        Same = "same",
    }
}

/// How a subject's read timeout works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTimeoutKind {
    /// `SO_RCVTIMEO` on a blocking read that waits for the next message.
    Blocking,
    /// `SO_RCVTIMEO`, but only a synchronous call blocks in a read; otherwise the loop polls.
    SynchronousCallsOnly,
    /// The client polls with a deadline for each response.
    Poll,
    /// A non-blocking socket: the option does nothing at all.
    Ignored,
}

impl Subject {
    /// How this subject's read timeout works over that broker.
    #[must_use]
    pub fn read_timeout_kind(self, broker: BrokerKind) -> ReadTimeoutKind {
        match self {
            Self::TcpReader | Self::TcpWriter | Self::AmqpBlocking | Self::RedisBlocking | Self::PyAmqp => {
                ReadTimeoutKind::Blocking
            }
            Self::Celery if broker == BrokerKind::Redis => ReadTimeoutKind::Poll,
            Self::Celery => ReadTimeoutKind::SynchronousCallsOnly,
            Self::RedisPy => ReadTimeoutKind::Poll,
            Self::Lapin | Self::Pika | Self::AioPika | Self::Amqp091Go => ReadTimeoutKind::Ignored,
        }
    }
}

/// The options of one arm. `Default` is a bare blocking reader with everything off.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The consumer under test.
    pub subject: Subject,
    /// What stands at the other end.
    pub broker: BrokerKind,
    /// The application's limit on a handshake.
    pub connect_timeout: Setting,
    /// `SO_RCVTIMEO`, or the client's response timeout (Redis: `socket_timeout`).
    pub read_timeout: Setting,
    /// `SO_SNDTIMEO`.
    pub send_timeout: Setting,
    /// The AMQP heartbeat that the client asks for: `None` its library's default, `Some(Setting::None)` zero.
    pub heartbeat: Option<Setting>,
    /// The heartbeat that the broker proposes (RabbitMQ: 60 s); `none` is its zero.
    pub broker_heartbeat: Setting,
    /// Which thread of an `amqp-blocking` subject ticks the heartbeat.
    pub heartbeat_thread: HeartbeatThread,
    /// Keepalive, or off.
    pub keepalive: Option<Keepalive>,
    /// `TCP_USER_TIMEOUT`.
    pub tcp_user_timeout: Setting,
    /// `TCP_RTO_MAX_MS` (socket option 44, Linux 6.15 and later).
    pub tcp_rto_max: Setting,
    /// `TCP_SYNCNT`.
    pub tcp_syn_count: Option<u32>,
    /// Unacknowledged messages that the consumer may hold.
    pub prefetch: u32,
    /// Redis: the client's own ping.
    pub health_check_interval: Setting,
    /// The broker's side.
    pub peer: Peer,
    /// Who cleans up by the store instead of the connection.
    pub reaper: Reaper,
}

/// The broker's own options.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    /// Keepalive of the broker's socket: RabbitMQ none, Redis 300/100/3 (`tcp-keepalive 300`).
    pub keepalive: Option<Keepalive>,
    /// `TCP_USER_TIMEOUT` of the broker's socket.
    pub tcp_user_timeout: Setting,
    /// RabbitMQ's `consumer_timeout`.
    pub consumer_timeout: Setting,
    /// Celery's `visibility_timeout` on Redis.
    pub visibility_timeout: Setting,
    /// How often kombu looks for invisible messages (10 s × 10).
    pub visibility_sweep: Duration,
}

/// Watchers that judge by a store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reaper {
    /// Airflow's scheduler, where there is one.
    pub airflow: Option<super::application::reapers::Airflow>,
    /// A liveness key and the sweep that reads it.
    pub liveness: Option<super::application::reapers::Liveness>,
    /// A sweep that fails tasks by age alone.
    pub ages: Option<super::application::reapers::Ages>,
    /// Nothing was taken for this long while work waits.
    pub progress: Setting,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            keepalive: None,
            tcp_user_timeout: Setting::None,
            consumer_timeout: Setting::None,
            visibility_timeout: Setting::None,
            visibility_sweep: Duration::from_secs(100),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            subject: Subject::TcpReader,
            broker: BrokerKind::None,
            connect_timeout: Setting::None,
            read_timeout: Setting::None,
            send_timeout: Setting::None,
            heartbeat: None,
            broker_heartbeat: Setting::None,
            heartbeat_thread: HeartbeatThread::Same,
            keepalive: None,
            tcp_user_timeout: Setting::None,
            tcp_rto_max: Setting::None,
            tcp_syn_count: None,
            prefetch: 1,
            health_check_interval: Setting::None,
            peer: Peer::default(),
            reaper: Reaper::default(),
        }
    }
}

const fn secs(seconds: u64) -> Setting {
    Setting::After(Duration::from_secs(seconds))
}

impl Settings {
    /// The defaults that a client brings when nobody sets anything, over a stock broker.
    ///
    /// Sources: py-amqp `transport.py` (`KNOWN_TCP_OPTS`: user timeout 1000 ms, keepalive 60/10/9), Celery
    /// `broker_connection_timeout` 4 s, kombu `redis.py` (`health_check_interval` 25, `visibility_timeout` 3600),
    /// RabbitMQ (heartbeat 60, `consumer_timeout` 30 min), Redis (`tcp-keepalive 300`, which becomes 300/100/3).
    #[must_use]
    pub fn stock(subject: Subject, broker: BrokerKind) -> Self {
        let mut s = Self { subject, broker, prefetch: 4, ..Self::default() };
        match broker {
            BrokerKind::RabbitMq => {
                s.broker_heartbeat = secs(60);
                s.peer.consumer_timeout = secs(1800);
            }
            BrokerKind::Redis => s.peer.keepalive = Some(Keepalive::from_secs(300, 100, 3)),
            BrokerKind::None => {}
        }
        match (subject, broker) {
            (Subject::Celery, BrokerKind::Redis) => {
                s.connect_timeout = secs(4);
                s.health_check_interval = secs(25);
                s.peer.visibility_timeout = secs(3600);
            }
            (Subject::Celery | Subject::PyAmqp, _) => {
                s.connect_timeout = secs(4);
                s.tcp_user_timeout = secs(1);
                s.keepalive = Some(Keepalive::from_secs(60, 10, 9));
            }
            _ => {}
        }
        s
    }

    /// The AMQP client inside, where there is one.
    #[must_use]
    pub fn amqp_client(&self) -> Option<Client> {
        match (self.subject, self.heartbeat_thread) {
            (Subject::Lapin, _) => Some(Client::Lapin),
            (Subject::AmqpBlocking, HeartbeatThread::Own) => Some(Client::BlockingOwnThread),
            (Subject::AmqpBlocking, HeartbeatThread::Same) => Some(Client::Blocking),
            (Subject::PyAmqp, _) => Some(Client::PyAmqp),
            (Subject::Celery, _) if self.broker != BrokerKind::Redis => Some(Client::CeleryHub),
            (Subject::Pika, _) => Some(Client::Pika),
            (Subject::AioPika, _) => Some(Client::Aiormq),
            (Subject::Amqp091Go, _) => Some(Client::Amqp091Go),
            _ => None,
        }
    }

    /// The negotiated AMQP heartbeat; none where the subject speaks no AMQP or either rule turns it off.
    #[must_use]
    pub fn negotiated_heartbeat(&self) -> Option<Duration> {
        let client = self.amqp_client()?;
        if self.broker == BrokerKind::None {
            // An embedded peer proposes what it was told to; without a proposal the client's value stands alone.
            let proposal = self.broker_heartbeat.get().or_else(|| self.heartbeat.and_then(Setting::get));
            return client.negotiate(self.heartbeat, proposal);
        }
        client.negotiate(self.heartbeat, self.broker_heartbeat.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_are_refused() {
        for &s in Subject::ALL {
            assert_eq!(s.name().parse::<Subject>(), Ok(s));
        }
        assert!("kafka".parse::<BrokerKind>().unwrap_err().contains("rabbitmq"));
    }

    #[test]
    fn celerys_two_minutes_become_one_against_a_stock_broker() {
        let s = Settings::stock(Subject::Celery, BrokerKind::RabbitMq);
        assert_eq!(s.negotiated_heartbeat(), Some(Duration::from_secs(60)));
    }
}
