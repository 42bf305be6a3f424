//! What the broker notices by itself: RabbitMQ's heartbeat and `consumer_timeout`, kombu's visibility sweep on Redis.

use super::super::span::Span;
use crate::units::Setting;
use std::time::Duration;

/// RabbitMQ gives up 2 to 3 heartbeats after the last data: it looks once a heartbeat, and twice without a change
/// (`start_heartbeat_receiver` in `rabbit_heartbeat.erl`). It then closes with a RST (`rabbit_net:fast_close`).
#[must_use]
pub fn rabbitmq_gives_up_after(heartbeat: Duration) -> Span {
    let hb = heartbeat.as_secs_f64();
    Span::new(2.0 * hb, 3.0 * hb)
}

/// The longest silence of a healthy RabbitMQ: it looks every heartbeat / 2 and sends when nothing went out since the
/// last look (`start_heartbeat_sender`): heartbeat / 2 when idle, up to a heartbeat after a message of its own.
#[must_use]
pub fn rabbitmq_longest_silence(heartbeat: Duration, messages_every: Option<Duration>) -> Duration {
    match messages_every {
        None => heartbeat / 2,
        Some(period) if period <= heartbeat / 2 => period,
        Some(_) => heartbeat,
    }
}

/// A RabbitMQ version, for the defaults that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RabbitMqVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

/// The default `consumer_timeout` of a version: none before 3.8.15, 15 min in 3.8.15 and 3.8.16, 30 min from 3.8.17; from
/// 4.3 classic queues have none (release notes).
#[must_use]
pub fn default_consumer_timeout(version: RabbitMqVersion, quorum_queue: bool) -> Setting {
    let v = |major, minor, patch| RabbitMqVersion { major, minor, patch };
    if version < v(3, 8, 15) || (version >= v(4, 3, 0) && !quorum_queue) {
        Setting::None
    } else if version < v(3, 8, 17) {
        Setting::After(Duration::from_secs(900))
    } else {
        Setting::After(Duration::from_secs(1800))
    }
}

/// `consumer_timeout` from the delivery: checked every 60 s (`channel_tick_interval`).
#[must_use]
pub fn consumer_timeout_window(timeout: Duration) -> Span {
    Span::new(timeout.as_secs_f64(), timeout.as_secs_f64() + 60.0)
}

/// kombu's `visibility_timeout` from the delivery: a healthy worker looks every `sweep` (10 s × 10 in `redis.py`).
#[must_use]
pub fn visibility_window(timeout: Duration, sweep: Duration) -> Span {
    Span::new(timeout.as_secs_f64(), (timeout + sweep).as_secs_f64())
}

/// kombu's Redis health check from the fault: a PING at the next interval, judged at the one after (`check_health`,
/// `maybe_check_subclient_health`), plus the second that a BRPOP takes; kombu before 5.7 looks only at pub/sub.
#[must_use]
pub fn kombu_health_window(interval: Duration) -> Span {
    let s = interval.as_secs_f64();
    Span::new(s, 2.0 * s + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_cells_lie_in_the_windows() {
        for (hb, measured) in [(5, [10.3, 13.4]), (10, [21.5, 29.6]), (20, [49.0, 55.7]), (60, [147.0, 171.5])] {
            let hb = Duration::from_secs(hb);
            let window = rabbitmq_gives_up_after(hb) - Span::new(0.0, hb.as_secs_f64() / 2.0);
            assert!(measured.iter().all(|&m| window.holds(m, 0.0)));
        }
        let window = kombu_health_window(Duration::from_secs(5));
        assert!(window.holds(6.5, 0.0) && window.holds(11.0, 0.0));
    }

    #[test]
    fn the_default_of_consumer_timeout_follows_the_version() {
        let of = |major, minor, patch, quorum| {
            default_consumer_timeout(RabbitMqVersion { major, minor, patch }, quorum).get().map(|d| d.as_secs())
        };
        assert_eq!(
            [of(3, 8, 14, false), of(3, 8, 16, false), of(3, 10, 8, false), of(4, 3, 0, false), of(4, 3, 0, true)],
            [None, Some(900), Some(1800), None, Some(1800)]
        );
    }
}
