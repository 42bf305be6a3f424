//! The application's watchers: read and send timeouts, AMQP heartbeats, Redis pings.

use super::super::application::broker::kombu_health_window;
use super::super::conditions::{FaultKind, State};
use super::super::draw::Phase;
use super::super::kernel::blocking::{poll_timeout, socket_timeout, socket_timeout_at};
use super::super::prediction::WatcherState::{Defeated, NeverArmed, NeverTriggered};
use super::super::settings::{BrokerKind, ReadTimeoutKind, Subject};
use super::super::span::Span;
use super::super::watcher::Watcher;
use super::{Findings, Scene};
use std::time::Duration;

pub(super) fn add(scene: &Scene<'_>, out: &mut Findings) {
    amqp_heartbeat(scene, out);
    read_timeout(scene, out);
    send_timeout(scene, out);
    health_check(scene, out);
}

impl Scene<'_> {
    /// The last frame that the client's application gets, in seconds from the fault: before it, or, where the broker's
    /// data still arrives, the first one after it (the broker then stalls for want of acknowledgements).
    fn last_frame(&self) -> Option<Span> {
        let before = Span::point(0.0) - self.client_frame_age()?;
        match self.broker_sends() {
            Some(send) if self.case.fault.kind == FaultKind::ToBroker => Some(send),
            _ => Some(before),
        }
    }

    /// From a message to the next read, where the client works on it in between; nothing after a heartbeat.
    fn work(&self) -> Span {
        let work = self.case.conditions.traffic.ack_after.as_secs_f64();
        if self.draw.client_clock().is_none() { Span::new(0.0, work) } else { Span::point(work) }
    }

    /// `SO_RCVTIMEO` after a call at `call` (seconds from the fault).
    fn receive_timeout(&self, timeout: Duration, call: Span) -> Span {
        let wheel = self.case.client.wheel();
        match self.draw.client_clock() {
            None => socket_timeout(wheel, timeout).span + call,
            Some(clock) => {
                let (now, fraction) = clock.at(call.lo_s, self.case.client.hz);
                Span::point(call.lo_s + socket_timeout_at(wheel, timeout, now, fraction))
            }
        }
    }
}

fn amqp_heartbeat(scene: &Scene<'_>, out: &mut Findings) {
    let s = &scene.case.settings;
    let watcher = Watcher::AmqpHeartbeat;
    let Some(client) = s.amqp_client() else {
        return out.silent(watcher, NeverArmed, "the subject speaks no AMQP");
    };
    let Some(heartbeat) = scene.heartbeat else {
        return out.silent(watcher, NeverArmed, "negotiated to 0");
    };
    if scene.case.fault.kind == FaultKind::None {
        return out.silent(watcher, NeverTriggered, "frames arrive");
    }
    if scene.only_reads() {
        return out.silent(
            watcher,
            Defeated,
            "its check runs on the thread that waits in a read: no message, no check",
        );
    }
    if scene.client_thread_blocked() {
        return out.silent(watcher, Defeated, "its check runs on the thread that waits");
    }
    let (Some(rule), Some(last)) = (client.gives_up_after(heartbeat), scene.last_frame()) else {
        return out.silent(
            watcher,
            NeverTriggered,
            "nobody runs the check: a blocking reader, or a pool without the hub",
        );
    };
    let span = (scene.draw.within(Phase::ClientCheck, rule) + last).not_before_zero();
    let seconds = heartbeat.as_secs_f64();
    out.fire(
        watcher,
        span,
        scene.recovery_before(span),
        format!("no frame of the broker's for long enough (heartbeat {seconds} s)"),
    );
}

fn read_timeout(scene: &Scene<'_>, out: &mut Findings) {
    let s = &scene.case.settings;
    let c = &scene.case.conditions;
    let watcher = Watcher::ReadTimeout;
    let Some(timeout) = s.read_timeout.get() else {
        return out.silent(watcher, NeverArmed, "it is off");
    };
    let kind = s.subject.read_timeout_kind(s.broker);
    match kind {
        ReadTimeoutKind::Ignored => {
            return out.silent(watcher, NeverArmed, "SO_RCVTIMEO does nothing on a non-blocking socket");
        }
        ReadTimeoutKind::SynchronousCallsOnly if !c.synchronous_call => {
            return out.silent(watcher, NeverTriggered, "the loop polls: only a synchronous call blocks in a read");
        }
        _ => {}
    }
    if c.state == State::ZeroWindow || s.subject == Subject::TcpWriter {
        return out.silent(watcher, NeverTriggered, "the subject writes, it does not wait in a read");
    }
    let limit = timeout.as_secs_f64();
    let silence = scene.broker_frame_silence().map(|d| d.as_secs_f64());
    if scene.case.fault.kind == FaultKind::None && silence.is_some_and(|gap| gap < limit) {
        return out.silent(watcher, NeverTriggered, "something arrives in time");
    }
    // The read began with the last frame; that of a synchronous call begins with, or after, the fault.
    let call = if kind == ReadTimeoutKind::SynchronousCallsOnly || c.synchronous_call {
        scene.last_frame().map_or(Span::point(0.0), Span::not_before_zero)
    } else {
        scene.last_frame().map_or_else(
            || Span::point(0.0) - scene.draw.within(Phase::Age, Span::new(0.0, limit)),
            |last| Span { lo_s: last.lo_s.max(-limit), hi_s: last.hi_s.max(-limit) } + scene.work(),
        )
    };
    let span = match kind {
        ReadTimeoutKind::Poll => {
            // A Celery worker renews its BRPOP every second: the deadline counts from the last one.
            let renew = if s.subject == Subject::Celery { 1.0 } else { 0.0 };
            let deadline = poll_timeout(timeout) + Span::new(0.0, renew);
            let call = if renew > 0.0 { Span::point(0.0) } else { call };
            scene.draw.within(Phase::ClientCheck, deadline) + call
        }
        _ => scene.receive_timeout(timeout, call),
    };
    let span = span.not_before_zero();
    out.fire(watcher, span, scene.recovery_before(span), "the read got nothing for that long");
}

fn send_timeout(scene: &Scene<'_>, out: &mut Findings) {
    let s = &scene.case.settings;
    let watcher = Watcher::SendTimeout;
    let Some(timeout) = s.send_timeout.get() else {
        return out.silent(watcher, NeverArmed, "it is off");
    };
    if s.subject.read_timeout_kind(s.broker) == ReadTimeoutKind::Ignored {
        return out.silent(watcher, NeverArmed, "SO_SNDTIMEO does nothing on a non-blocking socket");
    }
    if scene.case.conditions.state != State::ZeroWindow {
        return out.silent(watcher, NeverTriggered, "small writes fit into the send buffer: none blocks");
    }
    let span = scene.receive_timeout(timeout, Span::point(0.0));
    out.fire(watcher, span, span, "a write waits for room in the send buffer for that long");
}

fn health_check(scene: &Scene<'_>, out: &mut Findings) {
    let s = &scene.case.settings;
    let watcher = Watcher::HealthCheck;
    let Some(interval) = s.health_check_interval.get() else {
        return out.silent(watcher, NeverArmed, "it is off");
    };
    if s.broker != BrokerKind::Redis {
        return out.silent(watcher, NeverArmed, "an option of the Redis transport");
    }
    if s.subject != Subject::Celery {
        return out.silent(watcher, NeverTriggered, "it runs before a command, and the client waits in one");
    }
    if scene.case.fault.kind == FaultKind::None {
        return out.silent(watcher, NeverTriggered, "the ping is answered");
    }
    if scene.case.conditions.synchronous_call {
        return out.silent(watcher, Defeated, "its check runs on the thread that waits");
    }
    let span = scene.draw.within(Phase::ClientCheck, kombu_health_window(interval));
    out.fire(watcher, span, span, "the client's ping gets no answer (kombu 5.7 and later)");
}
