//! The keys of `--set`: one table from which reading, errors and documentation are made.
//!
//! Names are those of scenario files where both have them. Left out: what only a run has (trials, seeds, gates).

use super::arm::Arm;
use super::facts::redis_keepalive;
use super::situations::FaultName;
use crate::timers::application::broker::{RabbitMqVersion, default_consumer_timeout};
use crate::timers::application::reapers::AirflowGeneration;
use crate::timers::{FaultScope, Keepalive, Row, State, parse_hz};
use crate::units::{Setting, parse_duration, parse_rate};
use std::time::Duration;

/// One key.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Other names by which people know it.
    pub(super) aliases: &'static [&'static str],
    /// The option in facts, where it is a setting and named otherwise; empty where it is the same.
    pub(super) option: &'static str,
    pub(super) example: &'static str,
    pub(super) doc: &'static str,
    pub(super) apply: fn(&mut Arm, &str) -> Result<(), String>,
}

/// A key as documentation shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLine {
    /// Its name.
    pub name: &'static str,
    /// A value that is right.
    pub example: &'static str,
    /// What it is.
    pub doc: &'static str,
}

/// Every key of `--set`, in the order of the documentation.
pub fn key_lines() -> impl Iterator<Item = KeyLine> {
    KEYS.iter().map(|k| KeyLine { name: k.name, example: k.example, doc: k.doc })
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// A time, or `none`; zero is none, as it is to the kernel.
fn setting(text: &str) -> Result<Setting, String> {
    match text {
        "none" | "off" | "0" => Ok(Setting::None),
        _ => time(text).map(|d| if d.is_zero() { Setting::None } else { Setting::After(d) }),
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

/// Whole seconds, as the kernel takes keepalive's (`TCP_KEEPIDLE`, `TCP_KEEPINTVL`: 1 to 32767).
fn kernel_seconds(text: &str) -> Result<Duration, String> {
    match time(text)? {
        d if d.subsec_nanos() != 0 => Err(format!("`{text}` is not whole seconds, which is all that the kernel takes")),
        d if (1..=32_767).contains(&d.as_secs()) => Ok(d),
        _ => Err(format!("`{text}` is out of range; the kernel takes 1s to 32767s")),
    }
}

/// A count that the kernel takes from 1 to 127 (`TCP_KEEPCNT`, `TCP_SYNCNT`).
fn tries(text: &str) -> Result<u32, String> {
    match number(text)? {
        n @ 1..=127 => Ok(n),
        _ => Err(format!("`{text}` is out of range; the kernel takes 1 to 127")),
    }
}

/// A limit of at least a millisecond, or `none`.
fn millis(text: &str) -> Result<Setting, String> {
    match setting(text)? {
        Setting::After(d) if d.as_millis() == 0 => {
            Err(format!("`{text}` is below a millisecond, the kernel's unit here"))
        }
        other => Ok(other),
    }
}

/// An AMQP heartbeat: whole seconds, at most 65535 (a 16-bit field of `connection.tune`).
fn heartbeat(text: &str) -> Result<Setting, String> {
    match setting(text)? {
        Setting::After(d) if d.subsec_nanos() != 0 || d.as_secs() > 65_535 => {
            Err(format!("`{text}` is no AMQP heartbeat; write whole seconds, 1s to 65535s, or none"))
        }
        other => Ok(other),
    }
}

/// The back-off limit as the kernel takes it.
fn rto_max(limit: Duration) -> Result<Duration, String> {
    if (Duration::from_secs(1)..=Duration::from_secs(120)).contains(&limit) {
        Ok(limit)
    } else {
        Err("the kernel takes 1s to 120s".to_string())
    }
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// An interval, or a rate as scenario files write it.
fn every(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "none" | "off" => Ok(None),
        _ if text.contains('/') => parse_rate(text).map(Some),
        _ => time(text).map(Some),
    }
}

fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

fn three(text: &str) -> Result<(u32, u32, u32), String> {
    let mut parts = text.split('.').map(|p| p.chars().take_while(char::is_ascii_digit).collect::<String>());
    let mut next = || parts.next().map_or(Ok(0), |p| p.parse::<u32>());
    match (next(), next(), next()) {
        (Ok(a), Ok(b), Ok(c)) => Ok((a, b, c)),
        _ => Err(format!("`{text}` is not a version; write for example `3.8.9`")),
    }
}

macro_rules! keys {
    ($($name:literal $(| $alias:literal)* $(as $option:literal)?, $example:literal, $doc:literal, $apply:expr;)+) => {
        pub(super) const KEYS: &[Key] = &[$(Key {
            name: $name,
            aliases: &[$($alias,)*],
            option: concat!("", $($option)?),
            example: $example,
            doc: $doc,
            apply: $apply,
        },)+];
    };
}

keys! {
    "subject" as "client", "celery", "who consumes; its library's defaults fill what you do not set", |_, _| Ok(());
    "broker" | "broker.kind" as "broker.kind", "redis", "rabbitmq, redis or none (bare TCP)", |_, _| Ok(());
    "connect_timeout", "4s", "the client's bound on the handshake", |a, t| { a.settings.connect_timeout = setting(t)?; Ok(()) };
    "read_timeout", "60s", "SO_RCVTIMEO, or the client's response timeout", |a, t| { a.settings.read_timeout = setting(t)?; Ok(()) };
    "send_timeout" | "write_timeout" as "write_timeout", "30s", "SO_SNDTIMEO", |a, t| { a.settings.send_timeout = setting(t)?; Ok(()) };
    "heartbeat_thread", "own", "own or same: which thread of an amqp-blocking client ticks its heartbeat", |a, t| { a.settings.heartbeat_thread = t.parse()?; Ok(()) };
    "heartbeat", "10s", "the AMQP heartbeat that the client asks for; none is 0", |a, t| { a.settings.heartbeat = Some(heartbeat(t)?); Ok(()) };
    "broker_heartbeat" | "broker.heartbeat", "60s", "what RabbitMQ proposes", |a, t| { a.settings.broker_heartbeat = heartbeat(t)?; Ok(()) };
    "keepalive", "on", "on or off; what you do not set follows the sysctls (7200/75/9)", |a, t| { a.keepalive.on = flag(t)?; Ok(()) };
    "keepalive.idle", "60s", "TCP_KEEPIDLE", |a, t| { a.keepalive.on = true; a.keepalive.idle = Some(kernel_seconds(t)?); Ok(()) };
    "keepalive.interval", "10s", "TCP_KEEPINTVL", |a, t| { a.keepalive.on = true; a.keepalive.interval = Some(kernel_seconds(t)?); Ok(()) };
    "keepalive.probes", "6", "TCP_KEEPCNT", |a, t| { a.keepalive.on = true; a.keepalive.probes = Some(tries(t)?); Ok(()) };
    "tcp_user_timeout", "30s", "TCP_USER_TIMEOUT", |a, t| { a.settings.tcp_user_timeout = millis(t)?; Ok(()) };
    "tcp_rto_max", "20s", "TCP_RTO_MAX_MS of the socket (Linux 6.15)", |a, t| {
        a.settings.tcp_rto_max = setting(t)?;
        a.settings.tcp_rto_max.get().map_or(Ok(()), |limit| rto_max(limit).map(|_| ()))
    };
    "tcp_syn_count" | "syn_retries" as "syn_retries", "2", "TCP_SYNCNT", |a, t| { a.settings.tcp_syn_count = Some(tries(t)?); Ok(()) };
    "prefetch", "1", "messages that one consumer may hold", |a, t| { a.settings.prefetch = number(t)?; Ok(()) };
    "health_check_interval", "25s", "kombu's ping on Redis", |a, t| { a.settings.health_check_interval = setting(t)?; Ok(()) };
    "visibility_timeout", "1h", "Celery on Redis: an unacknowledged message is delivered again after this", |a, t| { a.settings.peer.visibility_timeout = setting(t)?; Ok(()) };
    "consumer_timeout" | "broker.consumer_timeout", "30m", "RabbitMQ: an unacknowledged delivery closes the channel", |a, t| { a.settings.peer.consumer_timeout = setting(t)?; Ok(()) };
    "broker.version", "3.8.9", "RabbitMQ's version, for the default of consumer_timeout", |a, t| {
        let (major, minor, patch) = three(t)?;
        a.settings.peer.consumer_timeout = default_consumer_timeout(RabbitMqVersion { major, minor, patch }, false);
        Ok(())
    };
    "broker_keepalive" as "broker_keepalive.idle", "300s", "Redis' tcp-keepalive; off for none", |a, t| {
        a.peer_keepalive = super::arm::KeepaliveParts::of(setting(t)?.get().map(redis_keepalive));
        Ok(())
    };
    "broker_keepalive.idle", "300s", "the same", |a, t| {
        let k = redis_keepalive(time(t)?);
        a.peer_keepalive = super::arm::KeepaliveParts::of(Some(Keepalive { idle: k.idle, ..k }));
        Ok(())
    };
    "queued_timeout", "1200s", "Airflow's task_queued_timeout", |a, t| { a.airflow().queued_timeout = time(t)?; Ok(()) };
    "queued_check_interval", "120s", "how often Airflow looks for it", |a, t| { a.airflow().queued_check = time(t)?; Ok(()) };
    "task_heartbeat_timeout", "300s", "Airflow's task_instance_heartbeat_timeout", |a, t| { a.airflow().task_heartbeat_timeout = time(t)?; Ok(()) };
    "task_heartbeat_check_interval", "10s", "how often Airflow looks for it", |a, t| { a.airflow().task_heartbeat_check = time(t)?; Ok(()) };
    "airflow.version", "2.10.3", "from 2.10.4 a row that was queued for too long is requeued twice first", |a, t| {
        let generation =
            if three(t)? >= (2, 10, 4) { AirflowGeneration::RequeuesTwice } else { AirflowGeneration::FailsAtOnce };
        a.airflow().generation = generation;
        a.airflow_said = true;
        Ok(())
    };
    "liveness.ttl", "90s", "time to live of the worker's liveness key", |a, t| { a.liveness().ttl = time(t)?; Ok(()) };
    "liveness.period", "30s", "how often the worker renews it", |a, t| { a.liveness().period = time(t)?; Ok(()) };
    "liveness.sweep", "5m", "how often a reaper looks for it", |a, t| { a.liveness().sweep = time(t)?; Ok(()) };
    "pending_timeout", "5m", "a PENDING task is failed at this age", |a, t| { a.ages().pending = time(t)?; Ok(()) };
    "processing_timeout", "20m", "a PROCESSING task is failed at this age", |a, t| { a.ages().processing = time(t)?; Ok(()) };
    "reaper_sweep", "5m", "how often the reaper looks at ages", |a, t| { a.ages().sweep = time(t)?; Ok(()) };
    "progress", "10m", "somebody watches that waiting work is taken within this", |a, t| { a.settings.reaper.progress = setting(t)?; Ok(()) };
    "fault", "blackhole", "blackhole, to-broker, to-client, frozen-peer, frozen-proxy or none, instead of the whole set", |a, t| {
        a.ask.fault = Some(t.parse::<FaultName>()?);
        Ok(())
    };
    "scope", "host", "flow (this connection), pair (all between the two hosts, reconnects too) or host (all of the client's host)", |a, t| {
        let known = [("flow", FaultScope::Flow), ("pair", FaultScope::Pair), ("host", FaultScope::Host)];
        a.ask.scope = Some(one_of(t, &known)?);
        Ok(())
    };
    "duration", "30s", "the fault heals after this; none: never", |a, t| { a.ask.duration = Some(setting(t)?.get()); Ok(()) };
    "state", "in-flight", "idle, in-flight (counts from the send that was lost) or zero-window, instead of the whole set", |a, t| {
        let known = [("idle", State::Idle), ("in-flight", State::InFlight), ("zero-window", State::ZeroWindow)];
        a.ask.state = Some(one_of(t, &known)?);
        Ok(())
    };
    "synchronous_call" | "call" | "sync_call", "true", "the client waits for the reply to a call (basic.qos is true, none is false)", |a, t| {
        a.ask.call = Some(match t {
            "basic.qos" => true,
            "none" => false,
            _ => flag(t)?,
        });
        Ok(())
    };
    "age_at_fault", "0s", "time since the last segment at the cut; any: all", |a, t| {
        a.conditions.age_at_fault = if t == "any" { None } else { Some(time(t)?) };
        Ok(())
    };
    "window_closed_for", "60s", "zero-window: how long it had been closed; any: all", |a, t| {
        a.conditions.window_closed_for = if t == "any" { None } else { Some(time(t)?) };
        Ok(())
    };
    "broker_messages" | "rate", "1/s", "the broker sends this often (an interval or a rate)", |a, t| { a.conditions.traffic.broker_messages = every(t)?; Ok(()) };
    "client_messages", "20s", "the client sends this often on its own account", |a, t| { a.conditions.traffic.client_messages = every(t)?; Ok(()) };
    "client_acks", "true", "the client answers each message", |a, t| { a.conditions.traffic.client_acks = flag(t)?; Ok(()) };
    "application_busy" | "busy", "true", "the application does not look at its socket", |a, t| { a.conditions.application_busy = flag(t)?; Ok(()) };
    "unacked_delivery", "false", "the consumer holds an unacknowledged message (assumed with a broker)", |a, t| { a.ask.unacked = Some(flag(t)?); Ok(()) };
    "row", "running", "queued, running, pending, processing or none: what the scheduler's store says", |a, t| {
        let known = [
            ("queued", Some(Row::Queued)),
            ("running", Some(Row::Running)),
            ("pending", Some(Row::Pending)),
            ("processing", Some(Row::Processing)),
            ("none", None),
        ];
        a.ask.row = Some(one_of(t, &known)?);
        Ok(())
    };
    "nat_idle", "350s", "a middlebox forgets a flow that was silent for this long", |a, t| { a.conditions.nat_idle = setting(t)?.get(); Ok(()) };
    "kernel", "6.1", "the kernel's version, at both ends", |a, t| {
        a.client.kernel = t.parse()?;
        a.broker.kernel = a.client.kernel;
        Ok(())
    };
    "hz", "250", "CONFIG_HZ, at both ends", |a, t| {
        let hz = parse_hz(t)?;
        (a.client.hz, a.broker.hz) = (hz, hz);
        Ok(())
    };
    "rtt", "20ms", "the path's round-trip time", |a, t| { (a.client.rtt, a.broker.rtt) = (time(t)?, time(t)?); Ok(()) };
    "srtt", "20ms", "the client's measured smoothed round-trip time (tcpi_rtt)", |a, t| { a.client.srtt = Some(time(t)?); Ok(()) };
    "rto", "220ms", "the client's measured retransmission timeout (tcpi_rto)", |a, t| { a.client.rto = Some(time(t)?); Ok(()) };
    "cold", "true", "only one round trip has been measured so far", |a, t| { a.client.cold = flag(t)?; Ok(()) };
    "sysctl.tcp_retries2", "5", "retransmissions before giving up", |a, t| sysctl(a, "tcp_retries2", t);
    "sysctl.tcp_rto_max" | "sysctl.tcp_rto_max_ms", "20s", "the longest back-off (Linux 6.15); a plain number is milliseconds", |a, t| {
        let limit = t.parse::<u64>().map_or_else(|_| time(t), |ms| Ok(Duration::from_millis(ms)))?;
        a.client.tcp_rto_max = rto_max(limit)?;
        Ok(())
    };
    "sysctl.tcp_rto_min" | "sysctl.tcp_rto_min_us", "200ms", "the shortest retransmission timeout; a plain number is microseconds", |a, t| {
        a.client.tcp_rto_min = t.parse::<u64>().map_or_else(|_| time(t), |us| Ok(Duration::from_micros(us)))?;
        Ok(())
    };
    "sysctl.tcp_syn_retries", "6", "SYNs before giving up", |a, t| sysctl(a, "tcp_syn_retries", t);
    "sysctl.tcp_syn_linear_timeouts", "4", "SYNs that are one second apart (Linux 6.5)", |a, t| sysctl(a, "tcp_syn_linear_timeouts", t);
    "sysctl.tcp_early_retrans", "3", "tail loss probes; 0: none", |a, t| sysctl(a, "tcp_early_retrans", t);
    "sysctl.tcp_keepalive_time", "7200", "default of keepalive.idle, in seconds", |a, t| sysctl(a, "tcp_keepalive_time", t);
    "sysctl.tcp_keepalive_intvl", "75", "default of keepalive.interval, in seconds", |a, t| sysctl(a, "tcp_keepalive_intvl", t);
    "sysctl.tcp_keepalive_probes", "9", "default of keepalive.probes", |a, t| sysctl(a, "tcp_keepalive_probes", t);
}

fn sysctl(arm: &mut Arm, name: &str, text: &str) -> Result<(), String> {
    // Seconds may be written with their unit, as everywhere else.
    let seconds = name.starts_with("tcp_keepalive") && !name.ends_with("probes");
    match text.parse::<i64>() {
        Ok(value) => arm.sysctl(name, value),
        Err(_) if seconds => arm.sysctl(name, i64::try_from(time(text)?.as_secs()).unwrap_or(i64::MAX)),
        Err(_) => Err(format!("`{text}` is not a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::{BrokerKind, Subject};

    #[test]
    fn every_example_is_accepted_and_every_key_refuses_nonsense() {
        for key in KEYS.iter().filter(|k| !matches!(k.name, "subject" | "broker")) {
            let mut arm = Arm::stock(Subject::Celery, BrokerKind::RabbitMq);
            assert_eq!((key.apply)(&mut arm, key.example), Ok(()), "{}", key.name);
            let mut arm = Arm::stock(Subject::Celery, BrokerKind::RabbitMq);
            let refused = (key.apply)(&mut arm, "x/y");
            assert!(refused.is_err(), "{} takes nonsense", key.name);
        }
    }

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = KEYS.iter().flat_map(|k| k.aliases.iter().copied().chain([k.name])).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
