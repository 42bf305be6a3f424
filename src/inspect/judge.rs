//! From the facts of a connection to who would notice, by the same `timers` room as every prediction. Pure.
//!
//! What a look can't know is varied, and the answer covers all of it: the round trip of the next loss, the age of the last
//! segment at the cut, a heartbeat that nobody told. Where an application may have a timer of its own that can't be seen,
//! the answer is an upper bound and says so; where an option could not be read it is *unknown*, never a guess.

use super::advice::{Advice, advice};
use super::client::Protocol;
use super::facts::{Facts, Heartbeat, ReadDeadline};
use super::look::Namespace;
use super::options::Options;
use crate::timers::{
    self, BrokerKind, Case, Conditions, Detection, Environment, Fault, FaultKind, Keepalive, Reaper, Row, Settings,
    Side, State, Subject, Watcher, WatcherPrediction, WatcherState,
};
use crate::units::Setting;
use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// How a connection can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Both directions, and nobody sends.
    Idle,
    /// Both directions, just as data was sent; counts from that send.
    InFlight,
    /// Only what it sends is lost.
    ToPeer,
    /// Only what the peer sends is lost.
    FromPeer,
    /// The peer stands still above TCP: its kernel goes on acknowledging.
    Frozen,
}

impl Class {
    /// Every class, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Idle, Self::InFlight, Self::ToPeer, Self::FromPeer, Self::Frozen];
    /// The silent cuts: what `--fail-over` judges.
    pub const CUTS: [Self; 4] = [Self::Idle, Self::InFlight, Self::ToPeer, Self::FromPeer];

    /// Its name in tables and arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::InFlight => "in-flight",
            Self::ToPeer => "to-peer",
            Self::FromPeer => "from-peer",
            Self::Frozen => "frozen",
        }
    }

    fn fault(self) -> FaultKind {
        match self {
            Self::Idle | Self::InFlight => FaultKind::Both,
            Self::ToPeer => FaultKind::ToBroker,
            Self::FromPeer => FaultKind::ToClient,
            Self::Frozen => FaultKind::FrozenPeer,
        }
    }
}

/// How much an answer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// Everything that it depends on was seen.
    Exact,
    /// Not later than this; the application may have a timer of its own that can't be seen.
    AtMost,
    /// Something that it depends on could not be read.
    Unknown,
}

/// The answer for one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Which class.
    pub class: Class,
    /// How much it knows.
    pub knowledge: Knowledge,
    /// Who may be the first to notice on this side of the connection.
    pub watchers: Vec<Watcher>,
    /// The earliest second from the cut (of data in flight: from the send).
    pub lo_s: Option<f64>,
    /// The latest; `None` with `lo_s` `None` is never, else perhaps never.
    pub hi_s: Option<f64>,
    /// When broker or reaper give the work to somebody else, where they are known.
    pub freed: Option<Detection>,
    /// Every watcher with its reason.
    #[serde(skip)]
    pub lines: Rc<Vec<WatcherPrediction>>,
}

/// How late user space may wake up and look at the clock (docs/timers.md).
const REACTION_S: f64 = 0.010;
/// Round trips vary: a delayed acknowledgement (`TCP_DELACK_MIN`) and a busy machine.
const ROUND_TRIP_SPREAD: Duration = Duration::from_millis(52);
/// The most retransmission timeouts that are tried between the least and the most.
const MOST_TIMEOUTS: u64 = 24;

/// Answers for the connections of one machine; equal facts are asked once.
pub struct Judge {
    environments: Vec<Environment>,
    reaper: Reaper,
    row: Option<Row>,
    known: HashMap<Facts, Rc<Vec<Answer>>>,
    advised: HashMap<Facts, Vec<Advice>>,
}

impl Judge {
    /// For the namespaces of a look on this kernel; what is not known of it is the reference machine's.
    #[must_use]
    pub fn new(hz: Option<u32>, release: &str, namespaces: &[Namespace], reaper: Reaper, row: Option<Row>) -> Self {
        let mut base = Environment::default();
        base.hz = hz.unwrap_or(base.hz);
        base.kernel = release.parse().unwrap_or(base.kernel);
        let environments = namespaces.iter().map(|ns| base.clone().with_sysctls(&ns.sysctls)).collect();
        Self { environments, reaper, row, known: HashMap::new(), advised: HashMap::new() }
    }

    /// The answers for one connection, in the order of [`Class::ALL`].
    pub fn answers(&mut self, facts: &Facts) -> Rc<Vec<Answer>> {
        if let Some(known) = self.known.get(facts) {
            return known.clone();
        }
        let answers = Rc::new(Class::ALL.map(|class| self.answer(facts, class)).to_vec());
        self.known.insert(facts.clone(), answers.clone());
        answers
    }

    /// Proposals for one connection; equal facts are asked once.
    pub fn advice(&mut self, facts: &Facts, answers: &[Answer]) -> Vec<Advice> {
        if let Some(known) = self.advised.get(facts) {
            return known.clone();
        }
        let advice = advice(facts, answers, self);
        self.advised.insert(facts.clone(), advice.clone());
        advice
    }

    /// A namespace like this one with another `tcp_retries2`: its number, for proposals.
    pub fn with_retries(&mut self, namespace: usize, retries: u32) -> usize {
        let like = self.environments.get(namespace).cloned().unwrap_or_default();
        let wanted = Environment { tcp_retries2: retries, ..like };
        self.environments.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.environments.push(wanted);
            self.environments.len() - 1
        })
    }

    fn answer(&self, facts: &Facts, class: Class) -> Answer {
        let Some(options) = facts.options else {
            return without_options(facts, class);
        };
        let knowledge = knowledge(facts, class);
        if knowledge == Knowledge::Unknown {
            return Answer { knowledge, ..never(class) };
        }
        let quiet = self.hull(facts, options, class, self.settings(facts, options), class == Class::InFlight);
        if facts.heartbeat != Heartbeat::Unknown || class == Class::Frozen || class == Class::InFlight {
            return Answer { knowledge, ..quiet };
        }
        // A heartbeat may be sent at any moment before keepalive ends the connection, and then data is in flight.
        let busy = self.hull(facts, options, Class::InFlight, self.settings(facts, options), true);
        let mut watchers = quiet.watchers.clone();
        watchers.extend(busy.watchers.iter().filter(|w| !quiet.watchers.contains(w)));
        Answer {
            knowledge,
            watchers,
            lo_s: [quiet.lo_s, busy.lo_s].into_iter().flatten().reduce(f64::min),
            hi_s: quiet.hi_s.zip(busy.hi_s).map(|(quiet, busy)| quiet + busy),
            ..quiet
        }
    }

    /// The hull over what a look can't know of the path.
    fn hull(&self, facts: &Facts, options: Options, class: Class, settings: Settings, in_flight: bool) -> Answer {
        let mut answer = never(class);
        let mut first = true;
        let base = self.environments.get(facts.namespace).cloned().unwrap_or_default();
        for client in paths(&base, facts) {
            let case = Case {
                settings: settings.clone(),
                broker: base.clone(),
                client,
                fault: Fault::of(class.fault()),
                conditions: self.conditions(facts, options, in_flight),
            };
            let prediction = timers::predict(&case);
            let found = prediction.detection;
            let hi_s = found.hi_s.map(|hi| hi + REACTION_S);
            (answer.lo_s, answer.hi_s) = match first {
                true => (found.lo_s, hi_s),
                false => (
                    [answer.lo_s, found.lo_s].into_iter().flatten().reduce(f64::min),
                    answer.hi_s.zip(hi_s).map(|(a, b)| a.max(b)),
                ),
            };
            for watcher in prediction.contenders {
                if !answer.watchers.contains(&watcher) {
                    answer.watchers.push(watcher);
                }
            }
            if first {
                answer.freed = freed(&prediction.watchers);
                answer.lines = Rc::new(prediction.watchers);
            }
            first = false;
        }
        answer
    }

    fn settings(&self, facts: &Facts, options: Options) -> Settings {
        let known_heartbeat = match facts.heartbeat {
            Heartbeat::Known(seconds) => seconds,
            Heartbeat::Unknown | Heartbeat::NotSpoken => 0,
        };
        let (subject, broker) = model_of(facts);
        let heartbeat = setting_ms(u64::from(known_heartbeat) * 1000);
        let read_timeout = match facts.read {
            ReadDeadline::Blocking(ms) | ReadDeadline::Poll(ms) => setting_ms(ms),
            // The model knows in which of its calls Celery blocks in a read.
            ReadDeadline::Unseen if facts.client.is_some() && !options.nonblocking => setting_ms(options.rcvtimeo_ms),
            ReadDeadline::Unseen | ReadDeadline::None => Setting::None,
        };
        let stock = Settings { subject, broker, ..Settings::default() };
        let mut settings = Settings {
            read_timeout,
            send_timeout: if options.nonblocking { Setting::None } else { setting_ms(options.sndtimeo_ms) },
            heartbeat: Some(heartbeat),
            broker_heartbeat: heartbeat,
            keepalive: options.keepalive.then(|| {
                let (idle, interval) = (options.keepalive_idle_s.into(), options.keepalive_interval_s.into());
                Keepalive::from_secs(idle, interval, options.keepalive_probes)
            }),
            tcp_user_timeout: setting_ms(options.user_timeout_ms.into()),
            tcp_rto_max: options.rto_max_ms.map_or(Setting::None, |ms| setting_ms(ms.into())),
            tcp_syn_count: Some(options.syn_count),
            prefetch: facts.broker.prefetch.unwrap_or(stock.prefetch),
            reaper: self.reaper.clone(),
            ..stock
        };
        settings.peer.consumer_timeout = facts.broker.consumer_timeout_ms.map_or(Setting::None, setting_ms);
        settings
    }

    fn conditions(&self, facts: &Facts, options: Options, in_flight: bool) -> Conditions {
        let mut conditions = Conditions { row: self.row, ..Conditions::default() };
        conditions.state = match in_flight {
            true if facts.window_closed => State::ZeroWindow,
            true => State::InFlight,
            false => State::Idle,
        };
        conditions.synchronous_call = facts.in_call && !options.nonblocking;
        conditions.unacked_delivery = facts.broker.unacked;
        // A library that nobody knows still sends and gets frames at least once a heartbeat.
        if let (Heartbeat::Known(seconds @ 1..), None) = (facts.heartbeat, facts.client) {
            let every = Some(Duration::from_secs(seconds.into()));
            conditions.traffic.client_messages = every;
            conditions.traffic.broker_messages = every;
        }
        conditions
    }
}

fn setting_ms(ms: u64) -> Setting {
    if ms == 0 { Setting::None } else { Setting::After(Duration::from_millis(ms)) }
}

/// Whom the model takes the client for. Of an unknown one only what was seen counts: a bare reader.
fn model_of(facts: &Facts) -> (Subject, BrokerKind) {
    let poll = matches!(facts.read, ReadDeadline::Poll(_));
    match (facts.client, facts.protocol) {
        (Some(client), Protocol::Amqp) => (client, BrokerKind::RabbitMq),
        (Some(Subject::Celery), Protocol::Redis) => (Subject::Celery, BrokerKind::Redis),
        _ if poll => (Subject::RedisPy, BrokerKind::None),
        _ => (Subject::TcpReader, BrokerKind::None),
    }
}

fn knowledge(facts: &Facts, class: Class) -> Knowledge {
    // The broker's own heartbeats would still arrive and keep the idle clock young, and nobody knows how long.
    if facts.heartbeat == Heartbeat::Unknown && class == Class::ToPeer {
        return Knowledge::Unknown;
    }
    let seen = facts.read != ReadDeadline::Unseen;
    match (facts.heartbeat, facts.client) {
        (Heartbeat::Unknown, _) | (Heartbeat::Known(1..), None) => Knowledge::AtMost,
        (Heartbeat::Known(_), Some(_)) => Knowledge::Exact,
        // kombu's ping is a timer of its loop.
        (Heartbeat::NotSpoken, Some(Subject::Celery)) => Knowledge::AtMost,
        _ if seen => Knowledge::Exact,
        _ => Knowledge::AtMost,
    }
}

/// What the kernel's own table tells without any right: whether the keepalive timer runs.
fn without_options(facts: &Facts, class: Class) -> Answer {
    let off = facts.keepalive_runs == Some(false) && class == Class::Idle && facts.heartbeat == Heartbeat::NotSpoken;
    Answer { knowledge: if off { Knowledge::AtMost } else { Knowledge::Unknown }, ..never(class) }
}

fn never(class: Class) -> Answer {
    Answer {
        class,
        knowledge: Knowledge::Exact,
        watchers: Vec::new(),
        lo_s: None,
        hi_s: None,
        freed: None,
        lines: Rc::default(),
    }
}

/// The earliest of broker and reaper.
fn freed(lines: &[WatcherPrediction]) -> Option<Detection> {
    let fires = lines.iter().filter(|l| l.side != Side::Subject && l.state != WatcherState::NeverArmed);
    let first =
        fires.filter(|l| l.lo_s.is_some()).min_by(|a, b| a.lo_s.unwrap_or(0.0).total_cmp(&b.lo_s.unwrap_or(0.0)))?;
    Some(Detection { watcher: Some(first.watcher), lo_s: first.lo_s, hi_s: first.hi_s })
}

/// The path as it may be at the next loss: from no round trip to twice what was measured, and a delayed acknowledgement.
fn paths(base: &Environment, facts: &Facts) -> Vec<Environment> {
    let wheel = base.wheel();
    let srtt = Duration::from_micros(facts.srtt_us.into());
    let observed = wheel.jiffies(Duration::from_micros(facts.rto_us.into()));
    let least_of = Environment { srtt: Some(srtt / 2), rto: None, ..base.clone() }.rto_jiffies();
    let most_of = Environment { srtt: Some(srtt * 2 + ROUND_TRIP_SPREAD), rto: None, ..base.clone() }.rto_jiffies();
    let least = if observed == 0 { least_of } else { observed.min(least_of) };
    let most = observed.max(most_of);
    let step = (most - least).div_ceil(MOST_TIMEOUTS).max(1);
    let mut timeouts: Vec<u64> = (least..=most).step_by(usize::try_from(step).unwrap_or(1)).collect();
    if timeouts.last() != Some(&most) {
        timeouts.push(most);
    }
    let minimum = wheel.jiffies(base.tcp_rto_min);
    // Rounded down to nanoseconds: the wheel's own way back rounds up.
    let time = |jiffies: u64| Duration::from_nanos(jiffies.saturating_mul(1_000_000_000) / u64::from(wheel.hz()));
    timeouts
        .into_iter()
        .map(|jiffies| Environment {
            srtt: Some(time(jiffies.saturating_sub(minimum))),
            rto: Some(time(jiffies)),
            ..base.clone()
        })
        .collect()
}
