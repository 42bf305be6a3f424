//! Composition: settings, machine, fault and conditions become one answer.
//!
//! Each watcher's rule is written once. Over all phases its arithmetic is that of intervals and yields a window; with
//! drawn phases every interval is a point and yields an instant. An instant therefore lies in the window by
//! construction, and a property test holds it to that.
//!
//! Left out: the second order of windows (two watchers that share a phase are combined as if they didn't, so a window
//! can be wider than the truth, never narrower), a frozen peer's receive buffer filling up, and a congestion window
//! that is already reduced at the fault.

mod application;
mod kernel;
mod price;
mod store;

use super::application::amqp::Client;
use super::application::broker::rabbitmq_longest_silence;
use super::conditions::{Case, State};
use super::draw::{Draw, Phase, Phases};
use super::prediction::{Detection, Instant, Prediction, Trace, WatcherPrediction, WatcherState};
use super::settings::BrokerKind;
use super::span::Span;
use super::watcher::{Side, Watcher};
use std::time::Duration;

/// Why a watcher that nobody set stays silent.
pub const OFF: &str = "it is off";

/// A watcher that fires.
#[derive(Debug, Clone)]
struct Fire {
    watcher: Watcher,
    span: Span,
    /// False: whether it fires at all depends on the phase.
    certain: bool,
    /// The phase decides between this one and its counterpart (keepalive, retransmission): one of them fires for certain.
    either: bool,
    /// A fault that heals before this is survived, one that heals after it is not.
    last_chance: Span,
    why: String,
}

/// What was found out about every watcher.
#[derive(Debug, Default)]
struct Findings {
    fires: Vec<Fire>,
    silent: Vec<(Watcher, WatcherState, String)>,
}

impl Findings {
    fn fire(&mut self, watcher: Watcher, span: Span, last_chance: Span, why: impl Into<String>) {
        self.maybe(watcher, span, last_chance, true, why);
    }

    fn maybe(&mut self, watcher: Watcher, span: Span, last_chance: Span, certain: bool, why: impl Into<String>) {
        let span = span.not_before_zero();
        self.fires.push(Fire { watcher, span, certain, either: false, last_chance, why: why.into() });
    }

    /// Like `maybe`, for keepalive and retransmission: where it is not certain, its counterpart fires instead.
    fn one_of(&mut self, watcher: Watcher, span: Span, last_chance: Span, certain: bool, why: impl Into<String>) {
        let span = span.not_before_zero();
        self.fires.push(Fire { watcher, span, certain, either: !certain, last_chance, why: why.into() });
    }

    fn silent(&mut self, watcher: Watcher, state: WatcherState, why: impl Into<String>) {
        self.silent.push((watcher, state, why.into()));
    }
}

/// A case with what it draws from, and what follows from the settings.
struct Scene<'a> {
    case: &'a Case,
    draw: Draw<'a>,
    heartbeat: Option<Duration>,
}

impl<'a> Scene<'a> {
    fn new(case: &'a Case, draw: Draw<'a>) -> Self {
        Self { case, draw, heartbeat: case.settings.negotiated_heartbeat() }
    }

    /// The client's checks and heartbeats stand still: their thread waits for a reply or for messages, or computes.
    fn client_thread_blocked(&self) -> bool {
        let c = &self.case.conditions;
        let client = self.case.settings.amqp_client();
        let same_thread = client.is_some_and(Client::checks_on_the_calling_thread);
        c.application_busy || (c.synchronous_call && same_thread) || client.is_some_and(Client::waits_in_the_read)
    }

    /// The thread waits in a read for messages, and in nothing else.
    fn only_reads(&self) -> bool {
        let c = &self.case.conditions;
        let reads = self.case.settings.amqp_client().is_some_and(Client::waits_in_the_read);
        reads && !c.synchronous_call && !c.application_busy
    }

    /// On a healthy link: such a thread answers too few messages to satisfy the broker's heartbeat check.
    fn reader_starves(&self) -> bool {
        let answers = |heartbeat| self.client_period(false).is_some_and(|period| period < heartbeat);
        self.only_reads() && self.heartbeat.is_some_and(|heartbeat| !answers(heartbeat))
    }

    /// The longest silence between the broker's frames on a healthy link, as the client's application sees it.
    fn broker_frame_silence(&self) -> Option<Duration> {
        let messages = self.case.conditions.traffic.broker_messages;
        match self.heartbeat {
            Some(hb) => Some(rabbitmq_longest_silence(hb, messages)),
            None => messages,
        }
    }

    /// How often the client sends, at least, while the fault lasts.
    fn client_period(&self, faulty: bool) -> Option<Duration> {
        let t = self.case.conditions.traffic;
        let beats = self.client_heartbeat_period();
        let hears_messages = !faulty || (self.case.fault.kind.client_hears() && !self.case.fault.kind.freezes());
        let acks = t.broker_messages.filter(|_| t.client_acks && hears_messages);
        [beats, t.client_messages, acks].into_iter().flatten().min()
    }

    fn client_heartbeat_period(&self) -> Option<Duration> {
        let hb = self.heartbeat.filter(|_| !self.client_thread_blocked())?;
        let client = self.case.settings.amqp_client()?;
        client.sends_every(hb).map(|s| Duration::from_secs_f64(s.hi_s))
    }

    /// When the client's first segment with data leaves after the fault; none: it has nothing to send.
    fn client_sends(&self) -> Option<Span> {
        match self.case.conditions.state {
            State::InFlight => Some(Span::point(0.0)),
            State::ZeroWindow => None,
            State::Idle => {
                let period = self.client_period(true)?;
                // An answer follows its message by the work in between.
                let works = self.case.conditions.traffic.broker_messages == Some(period);
                let after = if works { self.case.conditions.traffic.ack_after } else { Duration::ZERO };
                Some(self.draw.within(Phase::ClientSend, Span::new(0.0, (period + after).as_secs_f64())))
            }
        }
    }

    /// When the broker's first segment with data leaves after the fault.
    fn broker_sends(&self) -> Option<Span> {
        if self.case.fault.kind.freezes() {
            return None;
        }
        let period = self.broker_frame_silence()?.as_secs_f64();
        Some(self.draw.within(Phase::BrokerSend, Span::new(0.0, period)))
    }

    /// The longest time between two segments at the client on a healthy link; none: unbounded.
    fn longest_silence_s(&self) -> Option<f64> {
        let frames = self.broker_frame_silence().map(|d| d.as_secs_f64());
        let answers = self.client_period(false).map(|d| d.as_secs_f64());
        let probes = self.client_keepalive().map(|timer| timer.probe_window().hi_s);
        [frames, answers, probes].into_iter().flatten().reduce(f64::min)
    }

    /// Time since the last segment arrived at the client.
    fn client_age(&self) -> Span {
        match self.case.conditions.age_at_fault {
            Some(age) => Span::point(age.as_secs_f64()),
            None => self.draw.within(Phase::Age, Span::new(0.0, self.longest_silence_s().unwrap_or(0.0))),
        }
    }

    /// Time since the client's application last got something; none: it never need have.
    fn client_frame_age(&self) -> Option<Span> {
        let silence = self.broker_frame_silence()?.as_secs_f64();
        let least = self.case.conditions.age_at_fault.map_or(0.0, |d| d.as_secs_f64());
        Some(self.draw.within(Phase::Age, Span::new(least.min(silence), silence)))
    }

    fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        kernel::add(self, &mut findings);
        application::add(self, &mut findings);
        store::add(self, &mut findings);
        self.heal(&mut findings);
        if self.case.conditions.application_busy {
            busy(&mut findings);
        }
        findings
    }

    /// A fault that ends: whoever had a last chance before it survives.
    fn heal(&self, findings: &mut Findings) {
        let Some(duration) = self.case.fault.duration.map(|d| d.as_secs_f64()) else { return };
        let mut kept = Vec::new();
        for mut fire in std::mem::take(&mut findings.fires) {
            if fire.watcher.side() == Side::Reaper || duration > fire.last_chance.hi_s {
                kept.push(fire);
            } else if duration <= fire.last_chance.lo_s {
                findings.silent(fire.watcher, WatcherState::NeverTriggered, "the fault heals before it could");
            } else {
                (fire.certain, fire.either) = (false, false);
                kept.push(fire);
            }
        }
        findings.fires = kept;
    }
}

/// An application that does not look: what fires in its kernel is not acted on, what it would have to run itself never does.
fn busy(findings: &mut Findings) {
    for fire in std::mem::take(&mut findings.fires) {
        let in_kernel = matches!(
            fire.watcher,
            Watcher::Keepalive | Watcher::UserTimeout | Watcher::Retransmit | Watcher::Persist | Watcher::Reset
        );
        if in_kernel {
            let why = format!("after {:.1}–{:.1} s, but the application does not look", fire.span.lo_s, fire.span.hi_s);
            findings.silent(fire.watcher, WatcherState::FiredNotActedOn, why);
        } else if fire.watcher.side() == Side::Subject {
            findings.silent(fire.watcher, WatcherState::Defeated, "the application's thread is busy");
        } else {
            findings.fires.push(fire);
        }
    }
}

/// The earliest of some fires: the bounds, and who may be first.
fn earliest<'f>(fires: impl Iterator<Item = &'f Fire> + Clone) -> (Detection, Vec<Watcher>) {
    let Some(lo) = fires.clone().map(|f| f.span.lo_s).reduce(f64::min) else {
        return (Detection::NEVER, Vec::new());
    };
    let certain = fires.clone().filter(|f| f.certain).map(|f| f.span.hi_s).reduce(f64::min);
    // Keepalive and retransmission: which of the two depends on the phase, that one of them does not.
    let either = {
        let of = |w: &[Watcher]| fires.clone().find(|f| w.contains(&f.watcher) && f.either).map(|f| f.span.hi_s);
        match (of(&[Watcher::Keepalive]), of(&[Watcher::Retransmit, Watcher::UserTimeout])) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        }
    };
    let hi = [certain, either].into_iter().flatten().reduce(f64::min);
    let mut first: Vec<&Fire> = fires.filter(|f| hi.is_none_or(|hi| f.span.lo_s <= hi)).collect();
    let middle = |f: &Fire| f.span.lo_s + f.span.hi_s;
    first.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let watcher = first.first().map(|f| f.watcher);
    (Detection { watcher, lo_s: Some(lo), hi_s: hi }, first.into_iter().map(|f| f.watcher).collect())
}

/// Who notices, in which window over all phases, and why each of the others stays silent.
#[must_use]
pub fn predict(case: &Case) -> Prediction {
    let scene = Scene::new(case, Draw::All);
    let findings = scene.findings();
    let (detection, contenders) = earliest(findings.fires.iter().filter(|f| f.watcher.side() == Side::Subject));
    let (resolution, _) = earliest(findings.fires.iter());
    let line = |watcher: Watcher| -> WatcherPrediction {
        let side = watcher.side();
        if let Some(fire) = findings.fires.iter().find(|f| f.watcher == watcher) {
            let later = detection.hi_s.is_some_and(|hi| fire.span.lo_s > hi) && side != Side::Reaper;
            return WatcherPrediction {
                watcher,
                side,
                state: if later { WatcherState::Later } else { WatcherState::Fires },
                lo_s: Some(fire.span.lo_s),
                hi_s: fire.certain.then_some(fire.span.hi_s),
                why: fire.why.clone(),
            };
        }
        let (state, why) = match findings.silent.iter().find(|(w, ..)| *w == watcher) {
            Some((_, state, why)) => (*state, why.clone()),
            None => (WatcherState::NeverArmed, OFF.to_string()),
        };
        WatcherPrediction { watcher, side, state, lo_s: None, hi_s: None, why }
    };
    Prediction {
        detection,
        resolution,
        contenders,
        watchers: Watcher::ALL.iter().copied().filter(|w| *w != Watcher::None).map(line).collect(),
        false_alarm: price::of(&scene, &findings),
        notes: notes(case),
    }
}

/// What one trial does: the same rules, stepped with drawn phases.
#[must_use]
pub fn step(case: &Case, phases: &Phases) -> Trace {
    let findings = Scene::new(case, Draw::At(phases)).findings();
    let mut fires: Vec<Instant> = findings
        .fires
        .iter()
        .filter(|f| f.certain)
        .map(|f| Instant { watcher: f.watcher, at_s: f.span.lo_s })
        .collect();
    fires.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    Trace { detection: fires.iter().copied().find(|i| i.watcher.side() == Side::Subject), fires }
}

fn notes(case: &Case) -> Vec<String> {
    let mut notes = case.client.doubts();
    let s = &case.settings;
    if s.tcp_user_timeout.get().is_some() && s.keepalive.is_none() {
        notes.push("TCP_USER_TIMEOUT without keepalive does nothing for a side that only reads".to_string());
    }
    if s.broker == BrokerKind::Redis && s.heartbeat.is_some() {
        notes.push("heartbeat is an AMQP option; Redis has none".to_string());
    }
    notes
}
