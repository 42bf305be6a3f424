//! How long the timers of an arm take at the least, for the checks of a scenario: nominal values, no wheel rounding.
//!
//! What is left out: windows and reasons, which are the timer model's. Here a horizon only has to be told from one that
//! cannot show anything.

use super::model::{BrokerSettings, HeartbeatThread, Keepalive, Settings, SubjectKind};
use crate::units::{Setting, print_duration};
use std::time::Duration;

/// RabbitMQ's own heartbeat when nobody sets it (rabbitmq.com, "heartbeat").
const RABBITMQ_HEARTBEAT: Duration = Duration::from_secs(60);

/// The AMQP heartbeat that client and broker will agree on; `None` without one.
///
/// The server's 0 leaves the client's, else the smaller wins. The client's 0 adopts the server's in lapin's `tune` and is
/// none in py-amqp's `_on_tune`.
#[must_use]
pub fn heartbeat_in_force(settings: &Settings, broker: &BrokerSettings) -> Option<Duration> {
    let server = broker.heartbeat.map_or(Some(RABBITMQ_HEARTBEAT), Setting::get);
    let Some(client) = settings.heartbeat else {
        // The client's own: pika takes the server's, aiormq asks for 60.
        let asks = matches!(settings.subject, SubjectKind::Pika | SubjectKind::AioPika | SubjectKind::Dramatiq);
        return server.filter(|_| asks);
    };
    match (client.get(), server) {
        // py-amqp, pika and aiormq: the client's 0 stays 0.
        (None, _) if settings.subject.is_command() || settings.subject == SubjectKind::AmqpBlocking => None,
        (Some(client), Some(server)) => Some(client.min(server)),
        (client, server) => client.or(server),
    }
}

/// A duration as people write timeouts: seconds up to an hour (`150s`), not `2m30s`.
pub(super) fn in_seconds(time: Duration) -> String {
    let whole = time.subsec_nanos() == 0 && time.as_secs() > 0 && time.as_secs() <= 3_600;
    if whole { format!("{}s", time.as_secs()) } else { print_duration(time) }
}

/// The time that `retries2` doublings take from 200 ms, capped at `rto_max` (`model_timeout` in `tcp_timer.c`).
fn retransmissions(retries2: u32, rto_max: Duration) -> Duration {
    let base = Duration::from_millis(200);
    (0..=retries2).map(|i| base.saturating_mul(1 << i.min(20)).min(rto_max)).sum()
}

/// When keepalive ends a connection with no segment after the cut, and the sum in words.
fn keepalive_total(keepalive: Keepalive, user_timeout: Option<Duration>) -> (Duration, String) {
    let Keepalive { idle, interval, probes } = keepalive;
    let (count, by) = match user_timeout {
        // KEEPCNT is ignored: death at the first probe tick at or after the user timeout.
        Some(limit) => {
            let beyond = limit.saturating_sub(idle).as_nanos();
            (
                u32::try_from(beyond.div_ceil(interval.as_nanos().max(1))).unwrap_or(u32::MAX).max(1),
                ", by tcp_user_timeout",
            )
        }
        None => (probes, ""),
    };
    let total = idle.saturating_add(interval.saturating_mul(count));
    let sum = format!(
        "keepalive {} (idle {} + {count} × interval {}{by})",
        in_seconds(total),
        in_seconds(idle),
        in_seconds(interval)
    );
    (total, sum)
}

/// The timer of an arm that fires first on a black hole, with its time in words; `None` when nothing ever fires.
pub(super) fn first_timer(settings: &Settings, broker: &BrokerSettings) -> Option<(Duration, String)> {
    let mut timers = Vec::new();
    let user_timeout = settings.tcp_user_timeout.get();
    if let Some(time) = settings.read_bound().get() {
        let name = if settings.read_bound() == settings.read_timeout { "read_timeout" } else { "connect_timeout" };
        timers.push((time, format!("{name} {}", in_seconds(time))));
    }
    let asks = settings.ping.is_some();
    let sends =
        asks || matches!(settings.subject, SubjectKind::TcpWriter | SubjectKind::Lapin | SubjectKind::AmqpBlocking);
    // Unacknowledged data suspends keepalive, so it never ends a connection that is written to all the time.
    if let Some(keepalive) = settings.keepalive.filter(|_| settings.subject != SubjectKind::TcpWriter) {
        timers.push(keepalive_total(keepalive, user_timeout));
    }
    if let Some(limit) = user_timeout.filter(|_| sends) {
        timers.push((limit, format!("tcp_user_timeout {}", in_seconds(limit))));
    }
    if (asks || settings.subject == SubjectKind::TcpWriter) && user_timeout.is_none() {
        let sysctl = |name: &str, default: i64| settings.sysctl.get(name).copied().unwrap_or(default);
        let retries = u32::try_from(sysctl("tcp_retries2", 15)).unwrap_or(15);
        let rto_max = Duration::from_millis(u64::try_from(sysctl("tcp_rto_max_ms", 120_000)).unwrap_or(120_000));
        let total = retransmissions(retries, rto_max);
        timers.push((total, format!("tcp_retries2 = {retries}, {}", in_seconds(total))));
    }
    // On the consuming thread nobody checks while it waits.
    let checks = settings.heartbeat_thread != Some(HeartbeatThread::Same);
    if let Some(heartbeat) = heartbeat_in_force(settings, broker).filter(|_| checks) {
        let total = heartbeat * 5 / 2;
        timers.push((total, format!("2.5 × heartbeat {} = {}", in_seconds(heartbeat), in_seconds(total))));
    }
    timers.into_iter().min_by_key(|(time, _)| *time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_reproduce_the_documented_limits() {
        let cap = Duration::from_secs(120);
        assert_eq!(retransmissions(15, cap), Duration::from_millis(924_600));
        assert_eq!(retransmissions(5, cap), Duration::from_millis(12_600));
        assert_eq!(retransmissions(3, cap), Duration::from_millis(3_000));
    }

    #[test]
    fn a_user_timeout_replaces_the_probe_count() {
        let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(1), probes: 3 };
        let total = |ms: Option<u64>| keepalive_total(keepalive, ms.map(Duration::from_millis)).0.as_secs();
        assert_eq!(total(None), 8);
        assert_eq!(total(Some(1_000)), 6);
        assert_eq!(total(Some(6_500)), 7);
        assert_eq!(total(Some(9_500)), 10);
        assert_eq!(total(Some(30_000)), 30);
    }
}
