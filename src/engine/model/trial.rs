//! The events of one trial, in the words that the kernel engine uses; the source is the model, whoever it stands for.

use super::course::Course;
use super::messages;
use super::path::FarReason;
use crate::events::{Cause, Counters, EffectiveOptions, Event, How, Kind, SocketSnapshot, Source, Tuple};
use crate::scenario::{BrokerKind, SubjectKind};
use crate::timers::Watcher;
use crate::units::{Offset, Setting};
use std::net::SocketAddrV4;
use std::time::Duration;

/// `asm-generic/errno.h`.
const EAGAIN: i32 = 11;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
/// The look at a socket that tells which timer is about to run out: shortly before.
const LOOK: Duration = Duration::from_millis(1);

/// All events of a trial, by time.
pub fn events(course: &Course<'_>) -> Vec<Event> {
    let mut say = Said { trial: course.trial.id, last: course.last, events: Vec::new() };
    opened(course, &mut say);
    let messages = messages::events(course);
    let flows = !messages.is_empty();
    messages.into_iter().for_each(|(at, kind)| say.at(at, kind));
    cut(course, &mut say);
    ends(course, &mut say);
    again(course, &mut say);
    let (end, why) = ended(course, flows);
    certificates(course, end, &mut say);
    say.at(end, Kind::TrialEnded { why: why.to_string() });
    say.events.retain(|event| event.offset <= end);
    // Stable: of one instant the order above.
    say.events.sort_by_key(|event| event.offset);
    say.events
}

struct Said {
    trial: u32,
    last: Offset,
    events: Vec<Event>,
}

impl Said {
    fn at(&mut self, at: Offset, kind: Kind) {
        if at <= self.last {
            self.events.push(Event::of_trial(at, Source::Model, self.trial, kind));
        }
    }
}

/// The name of a connection: the addresses of the plan, the ports counted up.
fn tuple(course: &Course<'_>, attempt: u32) -> Tuple {
    let port = 40_000 + u16::try_from(attempt % 20_000).unwrap_or(0);
    let peer = course.arm.settings.subject.broker().port();
    Tuple { local: SocketAddrV4::new(course.trial.client, port), peer: SocketAddrV4::new(course.trial.server, peer) }
}

fn effective(course: &Course<'_>) -> EffectiveOptions {
    let s = &course.arm.settings;
    let ms = |setting: Setting| setting.get().map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let whole = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
    let amqp = s.subject.broker() == BrokerKind::Rabbitmq;
    EffectiveOptions {
        so_rcvtimeo_ms: Some(ms(s.read_timeout)),
        so_sndtimeo_ms: Some(0),
        keepalive: Some(s.keepalive.is_some()),
        keepalive_idle_s: s.keepalive.map(|k| whole(k.idle)),
        keepalive_interval_s: s.keepalive.map(|k| whole(k.interval)),
        keepalive_probes: s.keepalive.map(|k| k.probes),
        tcp_user_timeout_ms: Some(u32::try_from(ms(s.tcp_user_timeout)).unwrap_or(u32::MAX)),
        nonblocking: Some(s.subject == SubjectKind::Lapin),
        heartbeat_s: amqp.then(|| course.case.settings.negotiated_heartbeat().map_or(0, whole)),
        frame_max: s.frame_max,
        prefetch: s.prefetch,
    }
}

fn opened(course: &Course<'_>, say: &mut Said) {
    say.at(Offset::ZERO, Kind::Connecting { attempt: 0 });
    say.at(Offset::ZERO, Kind::Connected { attempt: 0, tuple: tuple(course, 0) });
    say.at(Offset::ZERO, Kind::Options { attempt: 0, effective: effective(course) });
    say.at(Offset::ZERO, Kind::Ready { attempt: 0 });
}

fn cut(course: &Course<'_>, say: &mut Said) {
    if course.fault.is_control() {
        return;
    }
    // A rule of the model is in force at once: the bracket has no width.
    let heard = course.schedule.filter(|_| course.arm.settings.subject.broker() == BrokerKind::None);
    let age = heard.and_then(|s| s.last_before(course.cut)).map(|at| course.cut.since(at).as_secs_f64());
    say.at(
        course.cut,
        Kind::FaultApplied { tuple: tuple(course, 0), before: course.cut, after: course.cut, age_at_fault_s: age },
    );
    if course.arm.settings.sync_call.is_some() {
        say.at(course.cut, Kind::Called { attempt: 0, method: "basic.qos".to_string() });
    }
    let sent = |data: &Option<super::path::Lost>, cut: bool| data.as_ref().filter(|_| cut).map(|d| d.sent_s);
    let drop = course.fault.drop;
    let first = [sent(&course.client_data, drop.to_broker), sent(&course.broker_data, drop.to_client)];
    // Keepalive's probes come before later data; when the first one leaves the model does not say.
    if let Some(at) = first.into_iter().flatten().min_by(f64::total_cmp)
        && course.arm.settings.keepalive.is_none()
    {
        let at = course.after(at);
        if course.heal.is_none_or(|heal| at < heal) && course.notice.is_none_or(|(end, _)| at < end) {
            say.at(at, Kind::FirstDrop { not_before: None });
        }
    }
    if let Some(heal) = course.heal {
        say.at(heal, Kind::FaultHealed { before: heal, after: heal });
    }
}

/// The end of the connection under test: in the kernel, in the client, at the other end.
fn ends(course: &Course<'_>, say: &mut Said) {
    if let Some((at, watcher)) = course.notice {
        let own = tuple(course, 0);
        let cause = |how, errno, text: &str| Cause { how, errno, text: text.to_string() };
        let (errno, timer, cause) = match watcher {
            Watcher::Keepalive => (ETIMEDOUT, 2, cause(How::Errno, Some(ETIMEDOUT), "")),
            Watcher::UserTimeout | Watcher::Retransmit => (ETIMEDOUT, 1, cause(How::Errno, Some(ETIMEDOUT), "")),
            Watcher::Persist => (ETIMEDOUT, 4, cause(How::Errno, Some(ETIMEDOUT), "")),
            Watcher::Reset => (ECONNRESET, 0, cause(How::Errno, Some(ECONNRESET), "")),
            Watcher::ReadTimeout => (0, 0, cause(How::ReadTimeout, Some(EAGAIN), "")),
            Watcher::AmqpHeartbeat => (0, 0, cause(How::AmqpHeartbeat, None, "no frame for too long")),
            Watcher::HealthCheck => (0, 0, cause(How::HealthCheck, None, "no answer")),
            other => (0, 0, cause(How::Other, None, other.name())),
        };
        if timer > 0 {
            let socket =
                SocketSnapshot { state: 1, timer, unacked: u32::from(timer == 1), ..SocketSnapshot::default() };
            say.at((at - LOOK).max(course.cut), Kind::Snapshot { tuple: own, socket });
        }
        say.at(at, Kind::KernelEnd { tuple: own, errno: Some(errno), not_before: None, by: "model".to_string() });
        say.at(at, Kind::Notice { attempt: 0, cause });
    }
    if let Some((at, why)) = course.far_end {
        let own = tuple(course, 0);
        let kind = if course.arm.settings.subject.broker() == BrokerKind::None {
            let cause = match why {
                FarReason::Closed => Cause { how: How::Eof, errno: None, text: String::new() },
                _ => Cause { how: How::Errno, errno: Some(ETIMEDOUT), text: String::new() },
            };
            Kind::PeerEnded { tuple: own, cause }
        } else {
            let reason = match why {
                FarReason::Heartbeats => "missed_heartbeats",
                FarReason::Timeout => "timeout",
                FarReason::Closed => "closed",
            };
            Kind::BrokerEnd { tuple: own, reason: reason.to_string(), text: "model".to_string() }
        };
        say.at(at, kind);
    }
}

fn again(course: &Course<'_>, say: &mut Said) {
    for attempt in &course.attempts {
        let number = attempt.number;
        say.at(attempt.begins, Kind::Connecting { attempt: number });
        match attempt.ends {
            Ok(at) => {
                say.at(at, Kind::Connected { attempt: number, tuple: tuple(course, number) });
                say.at(at, Kind::Ready { attempt: number });
            }
            Err((at, own)) => {
                let (how, errno) = if own { (How::ConnectTimeout, None) } else { (How::Errno, Some(ETIMEDOUT)) };
                say.at(at, Kind::ConnectFailed { attempt: number, cause: Cause { how, errno, text: String::new() } });
            }
        }
    }
}

/// The end of the watch: the horizon, or sooner when nothing more can happen, as the kernel engine decides it.
fn ended(course: &Course<'_>, flows: bool) -> (Offset, &'static str) {
    let can_recover = course.fault.scope.lets_reconnect() || course.fault.duration.get().is_some();
    let notice = course.notice.map(|(at, _)| at);
    let recovered = if can_recover { course.ready_again().map(|(_, at)| at) } else { notice };
    let told = match course.arm.settings.subject.broker() {
        BrokerKind::Rabbitmq => course.far_end.map(|(at, _)| at),
        _ => notice,
    };
    let healed = course.heal.or(notice);
    match (notice, recovered, told, healed) {
        (Some(a), Some(b), Some(c), Some(d)) if !flows && !course.fault.is_control() => {
            let at = a.max(b).max(c).max(d);
            if at < course.last { (at, "complete") } else { (course.last, "horizon") }
        }
        _ => (course.last, "horizon"),
    }
}

/// Readings at the notice, before the healing and at the end. What the model sends, at the least; nothing is counted.
fn certificates(course: &Course<'_>, end: Offset, say: &mut Said) {
    if course.fault.is_control() {
        return;
    }
    let notice = course.notice.map(|(at, _)| at).filter(|at| course.heal.is_none_or(|heal| *at < heal));
    for at in [notice, course.heal, Some(end)].into_iter().flatten() {
        let kind = Kind::Certificate { counters: counters(course, at), intact: true };
        // Before the healing of the same instant.
        let event = Event::of_trial(at, Source::Model, course.trial.id, kind);
        let place = say.events.iter().position(|e| matches!(e.kind, Kind::FaultHealed { .. }));
        match place.filter(|_| Some(at) == course.heal) {
            Some(place) => say.events.insert(place, event),
            None => say.events.push(event),
        }
    }
}

fn counters(course: &Course<'_>, until: Offset) -> Counters {
    let until_s = until.since(course.cut).as_secs_f64();
    let client_until = course.notice.map_or(until_s, |(at, _)| at.since(course.cut).as_secs_f64().min(until_s));
    let to_broker = match (&course.client_data, course.notice) {
        (_, Some((at, Watcher::Keepalive))) if at <= until => {
            course.arm.settings.keepalive.map_or(0, |k| u64::from(k.probes))
        }
        (Some(data), _) => data.copies_until(client_until),
        (None, _) => 0,
    };
    let to_client = course.broker_data.as_ref().map_or(0, |data| data.copies_until(until_s));
    let reset = course.notice.is_some_and(|(at, watcher)| watcher == Watcher::Reset && at <= until);
    let reset = u64::from(reset && !course.fault.drop.to_client);
    let drop = course.fault.drop;
    let split = |n: u64, cut: bool| if cut { (n, 0) } else { (0, n) };
    let (dropped_to_broker, passed_to_broker) = split(to_broker, drop.to_broker);
    let (dropped_to_client, passed_to_client) = split(to_client + reset, drop.to_client);
    Counters {
        offered_to_broker: to_broker,
        offered_to_client: to_client + reset,
        dropped_to_broker,
        dropped_to_client,
        passed_to_broker,
        passed_to_client,
        rst_to_client: reset,
        ..Counters::default()
    }
}
