//! The servers' own configuration: `rabbitmq.conf`, `redis.conf`, Redis' `CONFIG GET`; and sysctls.

use super::entry::{Domain, Reading, UnknownKey};
use super::literal::{Literal, showable_key};
use super::model::SourceKind;
use super::nearest::nearest;

/// Keys of `rabbitmq.conf` that matter here (rabbitmq-server `deps/rabbit/priv/schema/rabbit.schema`).
pub(super) const RABBITMQ: [&str; 10] = [
    "heartbeat",
    "consumer_timeout",
    "handshake_timeout",
    "tcp_listen_options.keepalive",
    "tcp_listen_options.backlog",
    "tcp_listen_options.nodelay",
    "tcp_listen_options.linger.timeout",
    "tcp_listen_options.exit_on_close",
    "tcp_listen_options.send_timeout",
    "net_ticktime",
];

/// Redis' settings that matter here (`redis.conf`, Redis 7).
pub(super) const REDIS: [&str; 2] = ["timeout", "tcp-keepalive"];

/// Sysctls that decide when a connection ends (`Documentation/networking/ip-sysctl.rst`).
pub(super) const SYSCTLS: [&str; 12] = [
    "tcp_keepalive_time",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
    "tcp_retries1",
    "tcp_retries2",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_syn_linear_timeouts",
    "tcp_orphan_retries",
    "tcp_rto_max_ms",
    "tcp_rto_min_us",
    "tcp_early_retrans",
];

fn numbered(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().enumerate().map(|(i, l)| (u32::try_from(i + 1).unwrap_or(u32::MAX), l.trim()))
}

fn near_miss(reading: &mut Reading, key: &str, value: &str, line: u32, known: &[&str], whose: &str) {
    let Some(key) = showable_key(key) else { return };
    if let Some(meant) = nearest(key, known.iter().map(|k| (*k).to_string()), 0.82) {
        let place = reading.place(Some(line), key);
        let unknown = UnknownKey { why: format!("{whose} has no setting of this name"), meant: Some(meant) };
        reading.unknown.push((key.to_string(), Literal::word(value), place, unknown));
    }
}

/// Reads `rabbitmq.conf`: `key = value`, comments after `#`. `advanced.config` (Erlang) is not read.
pub(super) fn rabbitmq(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::RabbitmqConf);
    for (line, raw) in numbered(text) {
        let raw = raw.split('#').next().unwrap_or(raw).trim();
        let Some((key, value)) = raw.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim().trim_matches('\''));
        if RABBITMQ.contains(&key) {
            reading.push(Domain::Rabbitmq, key, Literal::word(value), Some(line), key);
        } else {
            near_miss(&mut reading, key, value, line, &RABBITMQ, "RabbitMQ");
        }
    }
    reading
}

/// Reads `redis.conf`: `key value`, comments on lines of their own.
pub(super) fn redis(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::RedisConf);
    for (line, raw) in numbered(text) {
        let Some((key, value)) = raw.split_once(char::is_whitespace) else { continue };
        if !raw.starts_with('#') {
            redis_pair(&mut reading, &key.to_ascii_lowercase(), value.trim().trim_matches('"'), line);
        }
    }
    reading
}

fn redis_pair(reading: &mut Reading, key: &str, value: &str, line: u32) {
    if REDIS.contains(&key) {
        reading.push(Domain::RedisServer, key, Literal::word(value), Some(line), key);
    } else if key.starts_with("tcp-") && key != "tcp-backlog" {
        near_miss(reading, key, value, line, &REDIS, "Redis");
    }
}

/// Reads `CONFIG GET`'s answer: one item a line, as a pipe gets it; `1) "timeout"` as a terminal does; `1# "a" => "b"` in
/// RESP 3.
pub(super) fn redis_config_get(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::RedisConfigGet);
    let mut items: Vec<(u32, String)> = Vec::new();
    for (line, raw) in numbered(text) {
        if raw.starts_with("127.0.0.1:") || raw.to_ascii_lowercase().contains("config get") {
            continue; // the prompt and the command
        }
        let body = strip_number(raw);
        let parts: Vec<&str> = if body.contains(" => ") { body.split(" => ").collect() } else { vec![body] };
        // An empty value is an empty line in a pipe; empty lines before the first item are none.
        if body.is_empty() && (items.len().is_multiple_of(2) || raw != body) {
            continue;
        }
        items.extend(parts.into_iter().map(|p| (line, p.trim().trim_matches('"').to_string())));
    }
    for pair in items.chunks_exact(2) {
        redis_pair(&mut reading, &pair[0].1.to_ascii_lowercase(), &pair[1].1, pair[0].0);
    }
    reading
}

/// `12) "x"` and `12# "x"` without their number.
fn strip_number(raw: &str) -> &str {
    let digits = raw.len() - raw.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match raw[digits..].chars().next() {
        Some(')' | '#') if digits > 0 => raw[digits + 1..].trim(),
        _ => raw,
    }
}

/// Reads `sysctl -a` or a file of `/etc/sysctl.d`: `net.ipv4.x = 1`, `net/ipv4/x=1`, `-net.ipv4.x = 1`.
pub(super) fn sysctl(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::Sysctl);
    for (line, raw) in numbered(text) {
        if raw.starts_with(['#', ';']) {
            continue;
        }
        let Some((written, value)) = raw.split_once('=') else { continue };
        let written = written.trim().trim_start_matches('-');
        let key = written.replace('/', ".");
        let Some(name) = key.strip_prefix("net.ipv4.") else { continue };
        if SYSCTLS.contains(&name) {
            reading.push(Domain::Sysctl, name, Literal::word(value.trim()), Some(line), &key);
        } else if !is_neighbour(name) {
            near_miss(&mut reading, name, value.trim(), line, &SYSCTLS, "the kernel");
        }
    }
    reading
}

/// Sysctls that exist and look like one of [`SYSCTLS`].
fn is_neighbour(name: &str) -> bool {
    matches!(
        name,
        "tcp_rto_min" | "tcp_thin_linear_timeouts" | "tcp_fin_timeout" | "tcp_rfc1337" | "tcp_max_syn_backlog"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(reading: &Reading) -> Vec<(&str, Option<f64>, Option<u32>)> {
        reading.entries.iter().map(|e| (e.key.as_str(), e.value.number(), e.place.line)).collect()
    }

    #[test]
    fn rabbitmq_conf_with_comments() {
        let text = "# RabbitMQ\nlisteners.tcp.default = 5672\nheartbeat = 120 ## seconds\nconsumer_timeout = 1800\n\
                    tcp_listen_options.keepalive = true\ndefault_pass = s3cret\nconsumer_timout = 5\n";
        let reading = rabbitmq("rabbitmq.conf", text);
        assert_eq!(
            pairs(&reading)[..2],
            [("heartbeat", Some(120.0), Some(3)), ("consumer_timeout", Some(1800.0), Some(4))]
        );
        assert_eq!(reading.entries[2].value.flag(), Some(true));
        assert_eq!(reading.unknown[0].3.meant.as_deref(), Some("consumer_timeout"));
        assert!(!format!("{reading:?}").contains("s3cret"));
    }

    #[test]
    fn redis_in_four_forms() {
        let expected = [("timeout", Some(0.0)), ("tcp-keepalive", Some(300.0))];
        let conf = "# comment\nrequirepass s3cret\ntimeout 0\n  tcp-keepalive   300\n";
        let plain = "maxmemory\n0\nrequirepass\n\ntimeout\n0\ntcp-keepalive\n300\n";
        let terminal = "127.0.0.1:6379> CONFIG GET t*\n1) \"timeout\"\n2) \"0\"\n3) \"tcp-keepalive\"\n4) \"300\"\n";
        let resp3 = "1# \"timeout\" => \"0\"\n2# \"tcp-keepalive\" => \"300\"\n";
        for reading in [
            redis("redis.conf", conf),
            redis_config_get("a", plain),
            redis_config_get("b", terminal),
            redis_config_get("c", resp3),
        ] {
            let found: Vec<(&str, Option<f64>)> =
                reading.entries.iter().map(|e| (e.key.as_str(), e.value.number())).collect();
            assert_eq!(found, expected, "{:?}", reading.kind);
            assert!(!format!("{reading:?}").contains("s3cret"));
        }
    }

    #[test]
    fn sysctls_in_both_notations() {
        let text = "kernel.hostname = x\nnet.ipv4.tcp_retries2 = 8\n-net/ipv4/tcp_keepalive_time=600\n# net.ipv4.tcp_retries2 = 1\n\
                    net.ipv4.tcp_rmem = 4096 131072 6291456\nnet.ipv4.tcp_retires2 = 5\n";
        let reading = sysctl("99-net.conf", text);
        assert_eq!(
            pairs(&reading),
            [("tcp_retries2", Some(8.0), Some(2)), ("tcp_keepalive_time", Some(600.0), Some(3))]
        );
        assert_eq!(reading.unknown[0].3.meant.as_deref(), Some("tcp_retries2"));
    }
}
