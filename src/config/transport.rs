//! Which keys of `broker_transport_options` each transport reads; all others are swallowed without a word.
//!
//! AMQP: `kombu/transport/pyamqp.py` (5.7.0), `establish_connection` merges them into `amqp.Connection(**opts)`;
//! `amqp/connection.py` (5.4.2), `Connection.__init__` takes the names below and swallows the rest in `**kwargs`.
//! Redis: `kombu/transport/redis.py` (5.7.0), `Channel.from_transport_options` (and the Sentinel channel's), applied by
//! `virtual/base.py`, `Channel.__init__`, which looks only for those names.

use super::model::OptionName;
use super::nearest::nearest;

/// A transport whose rules are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// `amqp://`, `pyamqp://`: py-amqp.
    Pyamqp,
    /// `redis://`, `rediss://`, `sentinel://`: redis-py.
    Redis,
}

/// What a key is to a transport.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    /// A fact, in seconds unless its option says otherwise.
    Option(OptionName),
    /// A mapping of TCP option numbers to values.
    SocketOptions,
    /// Read, and without influence on who notices.
    Harmless,
    /// Swallowed.
    Ignored,
}

/// Read by `kombu/connection.py`, `_extract_failover_opts`, on every transport.
const ANY: [&str; 7] = [
    "callback",
    "connect_retries_timeout",
    "errback",
    "interval_max",
    "interval_start",
    "interval_step",
    "max_retries",
];

const PYAMQP: [&str; 19] = [
    "authentication",
    "channel_max",
    "client_properties",
    "confirm_publish",
    "frame_handler",
    "frame_max",
    "frame_writer",
    "host",
    "insist",
    "locale",
    "login_method",
    "login_response",
    "on_blocked",
    "on_open",
    "on_tune_ok",
    "on_unblocked",
    "password",
    "ssl",
    "userid",
];

const REDIS: [&str; 23] = [
    "ack_emulation",
    "body_encoding",
    "client_name",
    "deadletter_queue",
    "fanout_patterns",
    "fanout_prefix",
    "global_keyprefix",
    "master_name",
    "max_connections",
    "min_other_sentinels",
    "polling_interval",
    "priority_steps",
    "queue_order_strategy",
    "reauth_check_interval",
    "retry_on_timeout",
    "sentinel_fanout_compat",
    "sentinel_kwargs",
    "sep",
    "unacked_index_key",
    "unacked_key",
    "unacked_mutex_expire",
    "unacked_mutex_key",
    "unacked_restore_limit",
];

const PYAMQP_OPTIONS: [(&str, OptionName); 4] = [
    ("connect_timeout", OptionName::ConnectTimeout),
    ("heartbeat", OptionName::Heartbeat),
    ("read_timeout", OptionName::ReadTimeout),
    ("write_timeout", OptionName::WriteTimeout),
];

const REDIS_OPTIONS: [(&str, OptionName); 7] = [
    ("health_check_interval", OptionName::HealthCheckInterval),
    ("socket_connect_timeout", OptionName::ConnectTimeout),
    ("socket_keepalive", OptionName::Keepalive),
    ("socket_timeout", OptionName::ReadTimeout),
    ("unacked_restore_interval", OptionName::VisibilityInterval),
    ("unacked_restore_throttle", OptionName::VisibilityThrottle),
    ("visibility_timeout", OptionName::VisibilityTimeout),
];

/// The key of the other transport that does what one wants here.
const COUNTERPARTS: [(&str, &str); 4] = [
    ("connect_timeout", "socket_connect_timeout"),
    ("read_timeout", "socket_timeout"),
    ("socket_settings", "socket_keepalive_options"),
    ("socket_settings", "socket_keepalive"),
];

impl Transport {
    /// kombu's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyamqp => "pyamqp",
            Self::Redis => "redis",
        }
    }

    /// How sentences call it.
    pub(crate) fn spoken(self) -> &'static str {
        match self {
            Self::Pyamqp => "the AMQP transport (py-amqp)",
            Self::Redis => "the Redis transport",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Pyamqp => Self::Redis,
            Self::Redis => Self::Pyamqp,
        }
    }

    fn options(self) -> &'static [(&'static str, OptionName)] {
        match self {
            Self::Pyamqp => &PYAMQP_OPTIONS,
            Self::Redis => &REDIS_OPTIONS,
        }
    }

    /// What `key` is to this transport.
    pub(crate) fn rule(self, key: &str) -> Rule {
        if let Some((_, option)) = self.options().iter().find(|(name, _)| *name == key) {
            return Rule::Option(option.clone());
        }
        match (self, key) {
            (Self::Pyamqp, "socket_settings") | (Self::Redis, "socket_keepalive_options") => Rule::SocketOptions,
            (Self::Pyamqp, "virtual_host") => Rule::Harmless,
            _ if ANY.contains(&key) => Rule::Harmless,
            (Self::Pyamqp, key) if PYAMQP.contains(&key) => Rule::Harmless,
            (Self::Redis, key) if REDIS.contains(&key) => Rule::Harmless,
            _ => Rule::Ignored,
        }
    }

    /// Why this transport ignores `key`, and which key of its own was meant.
    pub(crate) fn why_ignored(self, key: &str) -> (String, Option<String>) {
        if self.other().rule(key) != Rule::Ignored {
            let pairs = COUNTERPARTS.iter().map(|(amqp, redis)| match self {
                Self::Pyamqp => (amqp, redis),
                Self::Redis => (redis, amqp),
            });
            let meant = pairs.into_iter().find(|(_, theirs)| **theirs == key).map(|(mine, _)| (*mine).to_string());
            return (format!("belongs to {}; {} silently ignores it", self.other().spoken(), self.spoken()), meant);
        }
        let near = nearest(key, self.all_keys().map(String::from), 0.7);
        (format!("{} has no option of this name and silently ignores it", self.spoken()), near)
    }

    fn all_keys(self) -> impl Iterator<Item = &'static str> {
        let (harmless, socket): (&[&str], &str) = match self {
            Self::Pyamqp => (&PYAMQP, "socket_settings"),
            Self::Redis => (&REDIS, "socket_keepalive_options"),
        };
        self.options().iter().map(|(name, _)| *name).chain(harmless.iter().copied()).chain([socket])
    }
}

/// Whether some transport reads this key and it bears on who notices.
pub(crate) fn is_an_option_somewhere(key: &str) -> bool {
    // `connect_timeout` and `heartbeat` alone are too common as names to be blamed on a transport.
    matches!(key, "socket_settings" | "socket_keepalive_options")
        || [Transport::Pyamqp, Transport::Redis].iter().any(|t| t.options().iter().any(|(name, _)| *name == key))
}

/// Whether a key's value may be shown: no name that smells of a secret.
pub(crate) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "pwd", "secret", "token", "key", "auth", "cred", "user", "login", "sig"]
        .iter()
        .any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_fix_is_ignored_on_amqp_and_the_mend_is_named() {
        for (key, mend) in [
            ("socket_timeout", "read_timeout"),
            ("socket_connect_timeout", "connect_timeout"),
            ("socket_keepalive", "socket_settings"),
        ] {
            assert_eq!(Transport::Pyamqp.rule(key), Rule::Ignored);
            let (why, meant) = Transport::Pyamqp.why_ignored(key);
            assert_eq!(meant.as_deref(), Some(mend));
            assert!(why.contains("Redis transport"), "{why}");
        }
        for key in ["retry_on_timeout", "visibility_timeout", "health_check_interval", "max_connections"] {
            assert_eq!(Transport::Pyamqp.rule(key), Rule::Ignored);
            assert_eq!(Transport::Pyamqp.why_ignored(key).1, None, "{key} has no counterpart on AMQP");
        }
    }

    #[test]
    fn amqp_options_are_ignored_on_redis() {
        assert_eq!(Transport::Redis.rule("read_timeout"), Rule::Ignored);
        assert_eq!(Transport::Redis.why_ignored("read_timeout").1.as_deref(), Some("socket_timeout"));
        assert_eq!(Transport::Redis.rule("socket_timeout"), Rule::Option(OptionName::ReadTimeout));
        assert_eq!(Transport::Redis.rule("visibility_timeout"), Rule::Option(OptionName::VisibilityTimeout));
    }

    #[test]
    fn slips_name_the_nearest_key() {
        assert_eq!(Transport::Pyamqp.why_ignored("read_timout").1.as_deref(), Some("read_timeout"));
        assert_eq!(Transport::Redis.why_ignored("visiblity_timeout").1.as_deref(), Some("visibility_timeout"));
        assert_eq!(Transport::Redis.why_ignored("zzz").1, None);
    }

    #[test]
    fn options_that_kombu_reads_itself_are_known_everywhere() {
        assert_eq!(Transport::Pyamqp.rule("max_retries"), Rule::Harmless);
        assert_eq!(Transport::Redis.rule("interval_start"), Rule::Harmless);
        assert_eq!(Transport::Pyamqp.rule("confirm_publish"), Rule::Harmless);
    }
}
