//! The kernel's watchers: keepalive against retransmission, the persist timer, and what the broker's end tells.

use super::super::application::broker::rabbitmq_gives_up_after;
use super::super::conditions::State;
use super::super::draw::Clock;
use super::super::environment::Environment;
use super::super::kernel::keepalive::KeepaliveTimer;
use super::super::kernel::persist::Persist;
use super::super::kernel::retransmit::Retransmission;
use super::super::prediction::WatcherState::{NeverArmed, NeverTriggered, Suspended};
use super::super::settings::BrokerKind;
use super::super::span::Span;
use super::super::watcher::Watcher;
use super::{Findings, Scene};
use crate::units::Setting;
use std::time::Duration;

/// One end of the connection, as its kernel sees the fault.
struct End<'a> {
    env: &'a Environment,
    clock: Option<Clock>,
    keepalive: Option<KeepaliveTimer>,
    user_timeout: Option<Duration>,
    rto_max: Option<Duration>,
    /// When it sends data first.
    sends: Option<Span>,
    /// When it last heard the other end before the fault, in seconds from the fault (negative).
    heard: Span,
    /// Copies of the other end's data that still arrive, and whether they do in every phase: none unless that direction
    /// is open.
    hears: Vec<(Span, bool)>,
}

impl End<'_> {
    fn retransmission(&self) -> Retransmission {
        Retransmission::new(self.env, self.rto_max, self.user_timeout)
    }

    /// The end of data sent at `send`: last copy and end.
    fn gives_up(&self, send: Span) -> (Span, Span) {
        let timer = self.retransmission();
        match self.clock {
            None => {
                let window = timer.window();
                (window.last_chance + send, window.span + send)
            }
            Some(clock) => {
                let (now, fraction) = clock.at(send.lo_s, self.env.hz);
                let (last, end) = timer.end_at(now);
                let at =
                    |j: u64| Span::point(send.lo_s + self.env.wheel().seconds(j) - fraction / f64::from(self.env.hz));
                (at(last), at(end))
            }
        }
    }

    /// The copies of data sent at `send`, the original included.
    fn copies(&self, send: Span) -> Vec<(Span, bool)> {
        let timer = self.retransmission();
        let mut copies = vec![(send, true)];
        match self.clock {
            None => copies.extend(timer.copies().into_iter().map(|(copy, always)| (copy + send, always))),
            Some(clock) => {
                let (now, fraction) = clock.at(send.lo_s, self.env.hz);
                let tick = f64::from(self.env.hz);
                copies.extend(
                    timer
                        .copies_at(now)
                        .into_iter()
                        .map(|j| (Span::point(send.lo_s + (j as f64 - fraction) / tick), true)),
                );
            }
        }
        copies
    }

    /// Keepalive's end after the last segment heard at `last`: last probe and end.
    fn silence_ends(&self, timer: &KeepaliveTimer, last: Span, arm: f64) -> (Span, Span) {
        match self.clock {
            None => {
                let window = timer.window();
                (window.last_chance + last, window.span + last)
            }
            Some(clock) => {
                let (now, fraction) = clock.at(last.lo_s, self.env.hz);
                let (probe, end) = timer.end_at(now, arm);
                let at =
                    |j: u64| Span::point(last.lo_s + self.env.wheel().seconds(j) - fraction / f64::from(self.env.hz));
                (at(probe), at(end))
            }
        }
    }

    /// Keepalive's end while copies of the other end's data refresh the idle clock: the first gap that is too long.
    fn keepalive_end(&self, arm: f64) -> Option<(Span, Span)> {
        let timer = self.keepalive.as_ref()?;
        let mut heard = vec![(self.heard, true)];
        heard.extend(self.hears.iter().copied());
        let mut found: Option<(Span, Span)> = None;
        for (i, &(last, _)) in heard.iter().enumerate() {
            // Between copies that are further apart than the idle time a probe has gone out: the timer runs on its interval.
            let probed = timer.after_probes();
            let (chance, end) = self.silence_ends(if i == 0 { timer } else { &probed }, last, arm);
            let next = heard.get(i + 1).copied();
            // Died before the next copy arrives: possible, certain, or not at all.
            let possible = next.is_none_or(|(n, always)| !always || end.lo_s <= n.hi_s);
            if possible {
                found = Some(found.map_or((chance, end), |(c, e)| (c.hull(chance), e.hull(end))));
            }
            if next.is_none_or(|(n, _)| end.hi_s < n.lo_s) {
                break;
            }
        }
        found
    }
}

impl Scene<'_> {
    pub(super) fn client_keepalive(&self) -> Option<KeepaliveTimer> {
        let s = &self.case.settings;
        let heard_every = [self.broker_frame_silence(), self.client_period(false)].into_iter().flatten().min();
        s.keepalive.map(|k| {
            let quiet = heard_every.is_none() && self.case.conditions.keepalive_probed;
            let timer = KeepaliveTimer::new(self.case.client.wheel(), k, s.tcp_user_timeout.get(), quiet);
            // Nothing is late by a tenth of the idle time: then no probe ever goes out on the healthy link.
            let probes = heard_every.map_or(quiet, |every| every + k.idle / 10 >= k.idle);
            if probes { timer } else { timer.after_data() }
        })
    }

    fn client_end(&self) -> End<'_> {
        let s = &self.case.settings;
        let mut end = End {
            env: &self.case.client,
            clock: self.draw.client_clock(),
            keepalive: self.client_keepalive(),
            user_timeout: s.tcp_user_timeout.get(),
            rto_max: s.tcp_rto_max.get(),
            sends: self.client_sends(),
            heard: Span::point(0.0) - self.client_age(),
            hears: Vec::new(),
        };
        if self.case.fault.kind.drops() && self.case.fault.kind.client_hears() {
            let broker = self.broker_end();
            if let Some(send) = broker.sends {
                end.hears = broker.copies(send);
            }
        }
        end
    }

    fn broker_end(&self) -> End<'_> {
        let peer = &self.case.settings.peer;
        let wheel = self.case.broker.wheel();
        let silence = self.client_period(false).map(|d| d.as_secs_f64());
        let keepalive =
            peer.keepalive.map(|k| KeepaliveTimer::new(wheel, k, peer.tcp_user_timeout.get(), silence.is_none()));
        let probes = keepalive.as_ref().map(|timer| timer.probe_window().hi_s);
        let longest = [silence, probes].into_iter().flatten().reduce(f64::min).unwrap_or(0.0);
        End {
            env: &self.case.broker,
            clock: self.draw.broker_clock(),
            keepalive,
            user_timeout: peer.tcp_user_timeout.get(),
            rto_max: None,
            sends: self.broker_sends(),
            heard: Span::point(0.0) - self.draw.within(super::Phase::Age, Span::new(0.0, longest)),
            hears: Vec::new(),
        }
    }

    /// When the copies of the broker's lost data reach the client again after a path heals, before `end`.
    pub(super) fn recovery_before(&self, end: Span) -> Span {
        let broker = self.broker_end();
        let copies = broker.sends.map(|send| broker.copies(send)).unwrap_or_default();
        let lo = copies
            .iter()
            .filter(|(c, always)| *always && c.hi_s < end.lo_s)
            .map(|(c, _)| c.lo_s)
            .reduce(f64::max)
            .unwrap_or(0.0);
        if self.draw.client_clock().is_some() { Span::point(lo) } else { Span::new(lo, end.hi_s) }
    }
}

/// All kernel watchers of the subject, and what the broker's end tells it.
pub(super) fn add(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    let kind = case.fault.kind;
    let s = &case.settings;
    for (watcher, set) in [(Watcher::ConnectTimeout, s.connect_timeout != Setting::None), (Watcher::SynRetries, true)] {
        let state = if set { NeverTriggered } else { NeverArmed };
        out.silent(watcher, state, "the connection is established; it bounds reconnecting");
    }
    out.silent(Watcher::Fin, NeverTriggered, "a silent fault sends none");
    out.silent(Watcher::Unreachable, NeverTriggered, "no ICMP and no local route tells");
    if case.conditions.state == State::ZeroWindow {
        zero_window(scene, out);
        out.silent(Watcher::Reset, NeverTriggered, "the peer sends none");
        return;
    }
    out.silent(Watcher::Persist, NeverTriggered, "the peer's window is open");
    if !kind.drops() {
        let why = "the peer's kernel acknowledges every segment";
        out.silent(Watcher::Retransmit, NeverTriggered, why);
        let ut = if s.tcp_user_timeout == Setting::None { NeverArmed } else { NeverTriggered };
        out.silent(Watcher::UserTimeout, ut, if ut == NeverArmed { "it is off" } else { why });
        let ka = if s.keepalive.is_none() { NeverArmed } else { NeverTriggered };
        out.silent(
            Watcher::Keepalive,
            ka,
            if ka == NeverArmed { "it is off" } else { "the peer's kernel answers every probe" },
        );
        out.silent(Watcher::Reset, NeverTriggered, "the peer sends none");
        return;
    }
    idle_or_sending(scene, out);
    told_by_the_broker(scene, out);
}

fn idle_or_sending(scene: &Scene<'_>, out: &mut Findings) {
    let client = scene.client_end();
    let keepalive = client.keepalive_end(scene.draw.keepalive_arm());
    let data = client.sends.map(|send| (send, client.gives_up(send)));
    let (active, other) = match client.user_timeout {
        Some(_) => (Watcher::UserTimeout, Watcher::Retransmit),
        None => (Watcher::Retransmit, Watcher::UserTimeout),
    };
    // Which of the two runs is decided by what comes first: a send, or keepalive's end.
    let (ka_fires, data_fires) = match (&keepalive, &data) {
        (Some((_, end)), Some((send, _))) => {
            (if end.lo_s > send.hi_s { None } else { Some(end.hi_s <= send.lo_s) }, Some(end.lo_s > send.hi_s))
        }
        (Some(_), None) => (Some(true), None),
        (None, Some(_)) => (None, Some(true)),
        (None, None) => (None, None),
    };
    match (keepalive, ka_fires) {
        (Some((chance, end)), Some(certain)) => {
            let refreshed =
                if client.hears.is_empty() { "" } else { "; the broker's copies refresh its idle clock first" };
            out.one_of(
                Watcher::Keepalive,
                end,
                chance,
                certain,
                format!("the link is silent and probes go unanswered{refreshed}"),
            );
        }
        (Some(_), None) => out.silent(Watcher::Keepalive, Suspended, "data in flight suspends it"),
        (None, _) => out.silent(Watcher::Keepalive, NeverArmed, "it is off"),
    }
    match (data, data_fires) {
        (Some((_, (chance, end))), Some(certain)) => {
            // A keepalive that certainly ends the connection before the send leaves nothing to retransmit.
            if ka_fires == Some(true) {
                out.silent(active, NeverTriggered, "keepalive ends the connection before anything is sent");
            } else {
                let why = if active == Watcher::UserTimeout {
                    "sent data stays unacknowledged for that long"
                } else {
                    "sent data stays unacknowledged"
                };
                out.one_of(active, end, chance, certain, why);
            }
        }
        _ if active == Watcher::UserTimeout && client.keepalive.is_some() => {
            out.silent(active, NeverTriggered, "nothing was sent; it only decides at which probe keepalive gives up");
        }
        _ => out.silent(active, NeverTriggered, "nothing was sent"),
    }
    match other {
        Watcher::Retransmit => out.silent(other, NeverTriggered, "TCP_USER_TIMEOUT replaces tcp_retries2"),
        _ => out.silent(other, NeverArmed, "it is off"),
    }
}

/// A RST from the broker's end, where the way to the client is open.
fn told_by_the_broker(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    if !case.fault.kind.client_hears() {
        return out.silent(Watcher::Reset, NeverTriggered, "nothing of the broker's reaches the client");
    }
    let broker = scene.broker_end();
    let silent_death = broker.sends.map(|send| broker.gives_up(send).1);
    let heartbeat = scene.heartbeat.filter(|_| case.settings.broker == BrokerKind::RabbitMq);
    let rst = match (heartbeat, broker.keepalive_end(scene.draw.keepalive_arm())) {
        (Some(hb), _) => {
            let missed = scene.draw.within(super::Phase::BrokerCheck, rabbitmq_gives_up_after(hb)) + broker.heard;
            Some((missed, "the broker misses heartbeats and resets"))
        }
        (None, Some((_, end))) if broker.sends.is_none() => Some((end, "the broker's keepalive gives up and resets")),
        _ => None,
    };
    match (rst, silent_death) {
        (Some((at, _)), Some(death)) if death.hi_s < at.lo_s => {
            out.silent(
                Watcher::Reset,
                NeverTriggered,
                "the broker's kernel gives up retransmitting first, and that is silent",
            );
        }
        (Some((at, why)), death) => {
            let certain = death.is_none_or(|d| at.hi_s <= d.lo_s);
            out.maybe(Watcher::Reset, at, at, certain, why);
        }
        (None, Some(_)) => out.silent(Watcher::Reset, NeverTriggered, "the broker's end by retransmission is silent"),
        (None, None) => out.silent(Watcher::Reset, NeverTriggered, "the broker does not notice either"),
    }
}

fn zero_window(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    let s = &case.settings;
    let timer = Persist::new(&case.client, s.tcp_rto_max.get(), s.tcp_user_timeout.get());
    let off =
        if s.keepalive.is_none() { (NeverArmed, "it is off") } else { (Suspended, "bytes wait in the write queue") };
    out.silent(Watcher::Keepalive, off.0, off.1);
    out.silent(Watcher::Retransmit, NeverTriggered, "the window is closed: the persist timer runs instead");
    let (active, other, off_why) = match s.tcp_user_timeout {
        Setting::None => (Watcher::Persist, Watcher::UserTimeout, "it is off"),
        Setting::After(_) => (Watcher::UserTimeout, Watcher::Persist, "TCP_USER_TIMEOUT comes first"),
    };
    let off_state = if active == Watcher::Persist { NeverArmed } else { NeverTriggered };
    out.silent(other, off_state, off_why);
    let closed = match case.conditions.window_closed_for {
        Some(age) => {
            let longest = age + case.conditions.window_closed_spread;
            scene.draw.within(super::Phase::Age, Span::new(age.as_secs_f64(), longest.as_secs_f64()))
        }
        None => {
            let longest = s.tcp_user_timeout.get().map_or(timer.settled_s(), |ut| ut.as_secs_f64());
            scene.draw.within(super::Phase::Age, Span::new(0.0, longest))
        }
    };
    if case.fault.kind.drops() {
        let (chance, span) = match scene.draw.client_clock() {
            None => {
                let window = timer.window_cut(closed);
                (window.last_chance, window.span)
            }
            Some(clock) => {
                let (last, end) = timer.end_at(clock.at(-closed.lo_s, case.client.hz).0, closed.lo_s);
                (Span::point(last), Span::point(end))
            }
        };
        out.fire(active, span, chance, "window probes go unanswered");
    } else if let Some(window) = timer.window_alive() {
        let span = match scene.draw.client_clock() {
            None => window.span,
            Some(clock) => {
                let now = clock.at(-closed.lo_s, case.client.hz).0;
                Span::point(case.client.wheel().seconds(timer.alive_end_at(now).unwrap_or(0)))
            }
        };
        let span = (span - closed).not_before_zero();
        let why = match active {
            Watcher::UserTimeout => "the window stays closed for that long, although the peer answers",
            _ => "window probes follow one another too closely for the peer to answer each (tcp_invalid_ratelimit)",
        };
        out.fire(active, span, span, why);
    } else {
        out.silent(active, NeverTriggered, "the peer answers every window probe: there is no limit");
    }
}
