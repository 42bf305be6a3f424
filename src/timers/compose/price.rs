//! The false-alarm side: what the same settings do to a healthy link, or to one that comes back.

use super::super::application::broker::rabbitmq_gives_up_after;
use super::super::prediction::FalseAlarm;
use super::super::settings::{BrokerKind, ReadTimeoutKind};
use super::super::watcher::{Side, Watcher};
use super::{Findings, Scene};

/// The price of these settings under this fault.
pub(super) fn of(scene: &Scene<'_>, findings: &Findings) -> FalseAlarm {
    let s = &scene.case.settings;
    // What a transient must be shorter than: the last moment at which an answer would still have counted.
    let first = findings
        .fires
        .iter()
        .filter(|f| f.watcher.side() == Side::Subject)
        .min_by(|a, b| a.last_chance.lo_s.total_cmp(&b.last_chance.lo_s));
    let longest_silence_s = scene.longest_silence_s();
    let frames = scene.broker_frame_silence().map(|d| d.as_secs_f64());
    // The read of a call ends with its reply.
    let blocking_read =
        matches!(s.subject.read_timeout_kind(s.broker), ReadTimeoutKind::Blocking | ReadTimeoutKind::Poll)
            && !scene.case.conditions.synchronous_call;
    let fires_when_healthy = s
        .read_timeout
        .get()
        .map(|d| d.as_secs_f64())
        .filter(|&limit| blocking_read && frames.is_none_or(|gap| gap > limit))
        .map(|limit| (Watcher::ReadTimeout, limit));
    let fires_when_healthy = fires_when_healthy.or_else(|| {
        let heartbeat = scene.heartbeat.filter(|_| s.broker == BrokerKind::RabbitMq && scene.reader_starves())?;
        Some((Watcher::BrokerHeartbeat, rabbitmq_gives_up_after(heartbeat).hi_s))
    });
    FalseAlarm {
        survives_s: first.map(|f| f.last_chance.lo_s.max(0.0)),
        killer: first.map(|f| f.watcher),
        longest_silence_s,
        nat_kills_idle_link: scene
            .case
            .conditions
            .nat_idle
            .is_some_and(|limit| longest_silence_s.is_none_or(|silence| silence > limit.as_secs_f64())),
        one_lost_probe_kills: s.keepalive.is_some_and(|k| match s.tcp_user_timeout.get() {
            Some(ut) => ut <= k.idle + k.interval,
            None => k.probes <= 1,
        }),
        fires_when_healthy,
    }
}
