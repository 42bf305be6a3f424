//! What the timer model says about each trial, before anything runs.
//!
//! A trial becomes one or more cases of the model ([`variants`]): what is not known beforehand (the path's round trip in a
//! busy lab, whether a segment was in flight) is varied, and the window is the hull ([`forecast`]). What is left out:
//! phases that the run itself decides (when the last message came before the cut): a window covers all of them.

use super::model::{Plan, Trial, Window};
use super::outlook::Collected;
use crate::scenario::{
    Act, Arm, BrokerKind, Fault, HeartbeatThread, RECONNECT_PAUSE, ReaperGeneration, ReaperSettings, Scenario, Scope,
    SubjectKind, Trigger,
};
use crate::timers::application::reapers::{Airflow, AirflowGeneration};
use crate::timers::{
    self, Case, Conditions, Detection, Environment, FaultKind, FaultScope, KernelVersion, Peer, Reaper, Row, State,
    Traffic, Watcher, parse_hz,
};
use crate::units::{Setting, print_duration};
use std::collections::BTreeMap;
use std::time::Duration;

/// How late user space may wake up and look at the clock: 1.0 ms at the median and 9.1 ms at most, measured on an idle
/// machine (docs/timers.md).
pub(super) const REACTION: Duration = Duration::from_millis(10);
/// Round trips in the lab: some tenths of a millisecond, up to this while hundreds of connections are opened on a few
/// processors. It moves the retransmission timeout by up to three jiffies, and settings can be bimodal in it.
const ROUND_TRIP: Duration = Duration::from_millis(12);
/// The longest that Linux holds back an acknowledgement for which it has nothing to send along (`TCP_DELACK_MIN`): the
/// broker's answer to a request that it does not answer yet. It counts as round trip, and as a segment in flight.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// From the harness' word until the window of a peer that does not read is closed, at most.
const FILLING: Duration = Duration::from_millis(300);
/// Redis looks for expired BRPOPs at its tenth of a second (`hz 10`).
const REDIS_TICK: Duration = Duration::from_millis(100);

/// Retransmission timeouts that are tried between the least and the most.
const MOST_TIMEOUTS: u32 = 256;
/// From the cut until a client that was told to has made its synchronous call, at most: the word passes two processes.
const CALLING: Duration = Duration::from_millis(300);

/// What the model has to know about the machine. The default is the reference machine: HZ 250, Linux 6.18, and the
/// sysctls that every new network namespace starts with, whatever the host's are (`tcp_sk_init` in
/// `net/ipv4/tcp_ipv4.c`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `CONFIG_HZ`; `None` is not known, and 250 is assumed.
    pub hz: Option<u32>,
    /// The head of `uname -r`; `None` is not known, and 6.18 is assumed.
    pub kernel: Option<KernelVersion>,
    /// Sysctls `net.ipv4.*` of new network namespaces, where they are not the kernel's own.
    pub sysctls: BTreeMap<String, i64>,
    /// What the model shall believe against the scenario's own sysctls: "what if".
    pub assumed: BTreeMap<String, i64>,
}

/// The sysctls that the model reads.
const KNOWN: [&str; 6] = [
    "tcp_retries2",
    "tcp_rto_min_us",
    "tcp_rto_max_ms",
    "tcp_syn_retries",
    "tcp_syn_linear_timeouts",
    "tcp_early_retrans",
];

impl Machine {
    /// Makes the model believe something else: `hz=1000`, `kernel=6.1`, `sysctl.tcp_retries2=8`.
    ///
    /// # Errors
    /// A sentence about what is not understood.
    pub fn assume(&mut self, text: &str) -> Result<(), String> {
        let shape = || format!("`{text}` is no assumption; write hz=1000, kernel=6.1 or sysctl.tcp_retries2=8");
        let (key, value) = text.split_once('=').ok_or_else(shape)?;
        match key.trim() {
            "hz" => self.hz = Some(parse_hz(value)?),
            "kernel" => self.kernel = Some(value.parse()?),
            key => {
                let name = key.strip_prefix("sysctl.").ok_or_else(shape)?;
                if !KNOWN.contains(&name) {
                    return Err(format!("the model reads no sysctl `{name}`; it reads {}", KNOWN.join(", ")));
                }
                self.assumed.insert(name.to_string(), value.trim().parse().map_err(|_| shape())?);
            }
        }
        Ok(())
    }

    /// One end's kernel: the machine's, the namespace's own sysctls, and what is assumed.
    pub(super) fn environment(&self, own: &BTreeMap<String, i64>, round_trip: Duration) -> Environment {
        let mut env = Environment { rtt: round_trip, ..Environment::default() };
        env.hz = self.hz.unwrap_or(env.hz);
        env.kernel = self.kernel.unwrap_or(env.kernel);
        env.with_sysctls(self.sysctls.iter().chain(own).chain(&self.assumed))
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.hz.is_none() {
            doubts.push("the machine's HZ is not known: 250 is assumed".to_string());
        }
        if self.kernel.is_none() {
            doubts.push("the machine's kernel version is not known: 6.18 is assumed".to_string());
        }
        for (name, value) in &self.assumed {
            doubts.push(format!("the model was told to believe {name} = {value}"));
        }
        doubts.extend(self.environment(&BTreeMap::new(), Duration::ZERO).doubts());
        doubts
    }
}

/// One case that a trial may turn out to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// The case.
    pub case: Case,
    /// How much earlier than the cut the segment in flight may have left.
    pub sent_before: Duration,
    /// How much later than the cut a segment that had passed it may still arrive.
    pub arrives_after: Duration,
    /// How much later than the cut a segment may leave: an acknowledgement that was being worked for, or a call that the cut
    /// brings about.
    pub sent_after: Duration,
}

/// The model's answer for a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The window of the time to detect, from the cut.
    pub window: Window,
    /// Who may be the first; `none` alone is nobody, ever.
    pub watchers: Vec<Watcher>,
}

/// Fills in what the model predicts for every trial of the plan; where it knows nothing, [`Plan::doubts`] says why.
pub fn predict(plan: &mut Plan, machine: &Machine) {
    let mut known: BTreeMap<(usize, usize, Duration), Result<Forecast, String>> = BTreeMap::new();
    let mut outlooks = Collected::default();
    plan.doubts = machine.doubts();
    plan.unanswered = super::handshake::unanswered(plan, machine);
    for trial in &mut plan.trials {
        let Some(arm) = plan.scenario.arms.get(trial.arm) else { continue };
        // Only a window's age at the cut depends on the drawn phase.
        let phase = if arm.settings.peer_reads { Duration::ZERO } else { trial.phase };
        let answer = known.entry((trial.arm, trial.fault, phase)).or_insert_with(|| {
            let (arm, fault) = (&plan.scenario.arms[trial.arm], &plan.scenario.faults[trial.fault]);
            if fault.in_handshake() {
                return super::handshake::unsaid(arm, fault, machine);
            }
            if let Some(known) = reconnect(&plan.scenario, trial, machine) {
                return known;
            }
            let variants = variants(&plan.scenario, trial, machine)?;
            let known = heals_too_late(&plan.scenario.faults[trial.fault], forecast(&variants))?;
            outlooks.add(trial.arm, trial.fault, &variants);
            Ok(known)
        });
        let forecast = answer.as_ref().ok();
        trial.predicted = forecast.map(|forecast| forecast.window);
        trial.predicted_watchers = forecast.map(|forecast| forecast.watchers.clone()).unwrap_or_default();
    }
    plan.outlooks = outlooks.finish();
    for ((arm, fault, _), answer) in &known {
        let Err(why) = answer else { continue };
        // That a control has no window needs no words.
        if plan.scenario.faults[*fault].is_control() {
            continue;
        }
        let doubt = format!(
            "{} under {}: not predicted: {why}",
            plan.scenario.arms[*arm].name,
            plan.scenario.faults[*fault].name()
        );
        if !plan.doubts.contains(&doubt) {
            plan.doubts.push(doubt);
        }
    }
}

/// What a reconnect into the cut comes to, whose SYN is never answered; `None` for any other trial.
fn reconnect(scenario: &Scenario, trial: &Trial, machine: &Machine) -> Option<Result<Forecast, String>> {
    let (arm, fault) = (scenario.arms.get(trial.arm)?, scenario.faults.get(trial.fault)?);
    if fault.trigger != Some(Trigger::Reconnect) || fault.scope.lets_reconnect() {
        return None;
    }
    let window = super::handshake::attempt(arm, machine);
    let unknown = || "a broker's client waits for more than the handshake; the model knows the kernel's".to_string();
    let (earliest, latest) = until_the_syn(scenario, arm);
    Some(window.ok_or_else(unknown).map(|Window { lo_s, hi_s }| {
        Forecast {
            window: Window {
                lo_s: lo_s.map(|lo| lo + earliest.as_secs_f64()),
                hi_s: hi_s.map(|hi| hi + latest.as_secs_f64()),
            },
            // Whichever is shorter, and all where that is not sure.
            watchers: [
                (arm.settings.connect_timeout != Setting::None).then_some(Watcher::ConnectTimeout),
                (arm.settings.tcp_user_timeout != Setting::None).then_some(Watcher::UserTimeout),
                Some(Watcher::SynRetries),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }))
}

/// From the RST that ends a connection to its client's next SYN, at least and at most. No timer runs between the two: the RST
/// wakes whoever waits, in `recv` or `poll`, that takes as long as any waking up, and then it pauses as it does between two
/// attempts: by its back-off, or until a second has passed since it began to connect, which was before the `settle` time. The
/// harness adds nothing: the cut is dated later than the RST and bracketed from before it.
fn until_the_syn(scenario: &Scenario, arm: &Arm) -> (Duration, Duration) {
    let (least, most) = match &arm.settings.delivery.reconnect {
        Some(backoff) => (backoff.delay(0, 0.0), backoff.delay(0, 1.0)),
        None => (Duration::ZERO, RECONNECT_PAUSE.saturating_sub(scenario.settle)),
    };
    (least, most + REACTION)
}

/// The hull of what the model says about each of the cases.
#[must_use]
pub fn forecast(variants: &[Variant]) -> Forecast {
    let mut window: Option<Window> = None;
    let mut watchers = Vec::new();
    for variant in variants {
        let prediction = timers::predict(&variant.case);
        let never = prediction.detection == Detection::NEVER;
        let earliest = |lo: f64| (lo - variant.sent_before.as_secs_f64()).max(0.0);
        let lo_s = prediction.detection.lo_s.map(earliest);
        let late = REACTION + variant.arrives_after + variant.sent_after;
        let hi_s = prediction.detection.hi_s.map(|hi| hi + late.as_secs_f64());
        window = Some(match window {
            None => Window { lo_s, hi_s },
            Some(known) => Window {
                lo_s: [known.lo_s, lo_s].into_iter().flatten().reduce(f64::min),
                hi_s: known.hi_s.zip(hi_s).map(|(a, b)| a.max(b)),
            },
        });
        let names = if never { vec![Watcher::None] } else { prediction.contenders };
        for name in names {
            if !watchers.contains(&name) {
                watchers.push(name);
            }
        }
    }
    Forecast { window: window.unwrap_or(Window { lo_s: None, hi_s: None }), watchers }
}

/// The cases that a trial may turn out to be.
///
/// # Errors
/// Why the model does not know, in words.
pub fn variants(scenario: &Scenario, trial: &Trial, machine: &Machine) -> Result<Vec<Variant>, String> {
    let (Some(arm), Some(fault)) = (scenario.arms.get(trial.arm), scenario.faults.get(trial.fault)) else {
        return Err("the plan names no such arm or fault".to_string());
    };
    // RabbitMQ gives messages to its consumers in turn: with a second one, every other.
    let load = scenario.load_of(arm).map(|every| if scenario.second_consumer { every * 2 } else { every });
    refuse(scenario, arm, fault)?;
    let settings = settings(scenario, arm);
    let real_broker = arm.settings.subject.broker() != BrokerKind::None;
    let longest = match arm.settings.subject {
        SubjectKind::TcpReader => ROUND_TRIP,
        // Its peer answers the single messages of a slow writer at once.
        SubjectKind::TcpWriter if arm.settings.peer_reads => ROUND_TRIP,
        // The last segments before a window closes are acknowledged late: RTO 216 ms at the median.
        _ => ROUND_TRIP + DELAYED_ACK,
    };
    let jiffy = Duration::from_secs_f64(1.0 / f64::from(machine.hz.unwrap_or(250).max(1)));
    // What was silent for so long that it was forgotten has heard nothing for as long.
    let quiet = Conditions { age_at_fault: fault.idle, ..conditions(scenario, arm, trial, load) };
    if let Some((idle, every)) =
        fault.idle.zip(keeps_alive(arm, &settings, &quiet)).filter(|(idle, every)| every < idle)
    {
        let (idle, every) = (print_duration(idle), print_duration(every));
        return Err(format!(
            "something passes every {every}, so that a middlebox that waits for {idle} never forgets it"
        ));
    }
    let mut states = vec![quiet];
    if let Some(keepalive) = arm.settings.keepalive
        && (scenario.settle <= keepalive.idle.mul_f64(1.3) || fault.trigger == Some(Trigger::Reconnect))
        && states[0].traffic == Traffic::default()
    {
        states.push(Conditions { keepalive_probed: false, ..states[0] });
    }
    let sends = settings.negotiated_heartbeat().is_some() || states[0].traffic.client_acks;
    let calls = arm.settings.sync_call.is_some();
    if real_broker && sends && fault.drop.to_client && !calls {
        states.push(Conditions { state: State::InFlight, ..states[0] });
    }
    let (least, most) = arm.settings.link.map(|link| link.round_trip()).unwrap_or_default();
    if !most.is_zero() && load.is_some_and(|every| every < most * 2) {
        let why = "messages follow one another faster than its link answers them, and the model knows one in flight";
        return Err(why.to_string());
    }
    let arrives_after = arm.settings.link.map(|link| link.to_client_at_most()).unwrap_or_default();
    let mut variants = Vec::new();
    let mut round_trip = least + Duration::from_micros(100);
    while round_trip <= most + longest {
        let client = machine.environment(&arm.settings.sysctl, round_trip);
        let timeouts = if most.is_zero() { vec![None] } else { timeouts(&client, jiffy) };
        for (conditions, rto) in states.iter().flat_map(|state| timeouts.iter().map(move |rto| (state, *rto))) {
            let case = Case {
                settings: settings.clone(),
                client: Environment { rto, ..client.clone() },
                broker: Environment { rto, ..machine.environment(&BTreeMap::new(), round_trip) },
                fault: timers::Fault {
                    kind: kind(fault),
                    scope: match fault.scope {
                        Scope::Flow => FaultScope::Flow,
                        Scope::Pair => FaultScope::Pair,
                        Scope::Host => FaultScope::Host,
                    },
                    duration: None,
                },
                conditions: *conditions,
            };
            if conditions.state == State::ZeroWindow {
                lives_until_the_cut(&case, scenario.settle + trial.phase)?;
            }
            let in_flight = conditions.state == State::InFlight;
            let (sent_before, sent_after) = match in_flight {
                true if calls => (DELAYED_ACK, CALLING),
                true if conditions.traffic.client_acks => (DELAYED_ACK, conditions.traffic.ack_after),
                true => (DELAYED_ACK, Duration::ZERO),
                false => (Duration::ZERO, Duration::ZERO),
            };
            // What had passed the cut, and whose answer had not.
            variants.push(Variant { case, sent_before: sent_before.max(most), arrives_after, sent_after });
        }
        round_trip += jiffy;
    }
    Ok(variants)
}

/// The longest silence on a healthy connection, where something breaks it at all: keepalive, heartbeats, messages.
fn keeps_alive(arm: &Arm, settings: &timers::Settings, conditions: &Conditions) -> Option<Duration> {
    let probes = arm.settings.keepalive.map(|keepalive| keepalive.idle.max(keepalive.interval));
    let traffic = conditions.traffic;
    let all = [probes, settings.negotiated_heartbeat(), traffic.client_messages, traffic.broker_messages];
    all.into_iter().flatten().min()
}

/// The retransmission timeouts that a long round trip can have at the cut: its first sample sets the deviation to twice
/// itself, and it takes many more until that has fallen to the floor. A timeout in between is neither.
fn timeouts(env: &Environment, jiffy: Duration) -> Vec<Option<Duration>> {
    let (floor, first) = (env.rtt + env.tcp_rto_min, env.rtt * 3);
    let step = (first.saturating_sub(floor) / MOST_TIMEOUTS).max(jiffy);
    let mut all = vec![None];
    let mut rto = floor + step;
    while rto < first + step {
        all.push(Some(rto));
        rto += step;
    }
    all
}

/// A fault that heals after everybody who could notice has noticed is one that does not heal. For any other the model
/// says who survives it, not when the news arrives afterwards.
fn heals_too_late(fault: &Fault, forecast: Forecast) -> Result<Forecast, String> {
    match (fault.duration.get(), forecast.window.hi_s) {
        (None, _) => Ok(forecast),
        (Some(heals), Some(hi_s)) if hi_s <= heals.as_secs_f64() => Ok(forecast),
        (Some(_), _) => {
            Err("the fault heals; the model says who survives that, not when the news arrives afterwards".to_string())
        }
    }
}

/// What the model leaves out.
fn refuse(scenario: &Scenario, arm: &Arm, fault: &Fault) -> Result<(), String> {
    let settings = &arm.settings;
    if fault.is_control() {
        return Err("nothing is cut".to_string());
    }
    if settings.subject.is_command() {
        return Err(format!(
            "the model knows no whole {} worker: what it waits for follows from what it does",
            settings.subject
        ));
    }
    if let Some(why) = fault.unknown_to_the_model() {
        return Err(why);
    }
    if settings.ping.is_some() && settings.read_timeout != Setting::None {
        return Err("a PING's reply is waited for from the PING on; the model knows reads that are always outstanding"
            .to_string());
    }
    let bare = settings.subject.broker() == BrokerKind::None;
    if let Some(trigger) = fault.trigger.filter(|trigger| *trigger != Trigger::Reconnect || !bare) {
        return Err(format!("the cut waits for what the connection does (`{}`)", trigger.name()));
    }
    if settings.sysctl.get("tcp_thin_linear_timeouts").is_some_and(|on| *on != 0) {
        return Err("tcp_thin_linear_timeouts is not in the model".to_string());
    }
    if let Some(why) = settings.link.and_then(|link| link.unknown_to_the_model()) {
        return Err(why.to_string());
    }
    if let (Some(work), Some(every)) = (settings.work, scenario.load_of(arm))
        && work >= every
    {
        return Err("a message's work is not done when the next one comes; the model knows no backlog".to_string());
    }
    let told = settings.subject.broker() == BrokerKind::Rabbitmq && !fault.drop.to_client;
    if told && scenario.broker.consumer_timeout.is_some_and(|limit| limit < scenario.horizon + Duration::from_secs(60))
    {
        return Err("the broker's consumer_timeout reaches the client as the end of its channel".to_string());
    }
    Ok(())
}

/// A closed window can end a connection whose peer is alive, and do so before the cut.
fn lives_until_the_cut(case: &Case, cut: Duration) -> Result<(), String> {
    let mut healthy = case.clone();
    healthy.fault.kind = FaultKind::None;
    healthy.conditions.window_closed_for = Some(Duration::ZERO);
    healthy.conditions.window_closed_spread = Duration::ZERO;
    match timers::predict(&healthy).detection {
        Detection { watcher: Some(watcher), lo_s: Some(lo), .. } if lo < cut.as_secs_f64() => {
            Err(format!("{watcher} ends a connection whose window stays closed, and may do so before the cut"))
        }
        _ => Ok(()),
    }
}

fn kind(fault: &Fault) -> FaultKind {
    match fault.act {
        Some(Act::FreezeBroker) => return FaultKind::FrozenPeer,
        Some(Act::FreezeProxy | Act::SwallowProxy) => return FaultKind::FrozenProxy,
        // The client hears nothing, and nothing that it sends gets through. What the broker is told stays with the broker.
        Some(Act::ForgetEntry) => return FaultKind::Both,
        Some(_) | None => {}
    }
    match (fault.drop.to_broker, fault.drop.to_client) {
        (true, true) => FaultKind::Both,
        (true, false) => FaultKind::ToBroker,
        (false, true) => FaultKind::ToClient,
        (false, false) => FaultKind::None,
    }
}

/// The arm's options and its broker's in the model's words.
fn settings(scenario: &Scenario, arm: &Arm) -> timers::Settings {
    let own = &arm.settings;
    let (subject, broker) = match own.subject {
        SubjectKind::TcpReader => (timers::Subject::TcpReader, timers::BrokerKind::None),
        SubjectKind::TcpWriter => (timers::Subject::TcpWriter, timers::BrokerKind::None),
        SubjectKind::Lapin => (timers::Subject::Lapin, timers::BrokerKind::RabbitMq),
        SubjectKind::AmqpBlocking => (timers::Subject::AmqpBlocking, timers::BrokerKind::RabbitMq),
        SubjectKind::RedisBlocking => (timers::Subject::RedisBlocking, timers::BrokerKind::Redis),
        // The model is not asked about whole workers of somebody else's; `refuse` says so.
        kind => match kind.broker() {
            BrokerKind::Redis => (timers::Subject::RedisPy, timers::BrokerKind::Redis),
            _ => (timers::Subject::Celery, timers::BrokerKind::RabbitMq),
        },
    };
    let stock = timers::Settings::stock(subject, broker);
    let consumer_timeout = scenario.broker.consumer_timeout.map_or(stock.peer.consumer_timeout, Setting::After);
    timers::Settings {
        connect_timeout: own.connect_timeout,
        read_timeout: own.read_bound(),
        heartbeat: own.heartbeat,
        broker_heartbeat: scenario.broker.heartbeat.unwrap_or(stock.broker_heartbeat),
        heartbeat_thread: match own.heartbeat_thread {
            Some(HeartbeatThread::Own) => timers::HeartbeatThread::Own,
            _ => timers::HeartbeatThread::Same,
        },
        keepalive: own.keepalive.map(|k| timers::Keepalive { idle: k.idle, interval: k.interval, probes: k.probes }),
        tcp_user_timeout: own.tcp_user_timeout,
        prefetch: own.prefetch.map_or(stock.prefetch, u32::from),
        peer: Peer { consumer_timeout, ..stock.peer.clone() },
        reaper: Reaper { airflow: queued(scenario).map(scheduler), ..Reaper::default() },
        ..stock
    }
}

/// A reaper that goes by the age of queued rows: the one that the model knows.
fn queued(scenario: &Scenario) -> Option<&ReaperSettings> {
    scenario.reaper.as_ref().filter(|reaper| reaper.liveness.is_none())
}

/// The reaper's rule in the model's words.
#[must_use]
pub fn scheduler(reaper: &ReaperSettings) -> Airflow {
    Airflow {
        generation: match reaper.generation {
            ReaperGeneration::FailsAtOnce => AirflowGeneration::FailsAtOnce,
            ReaperGeneration::RequeuesTwice => AirflowGeneration::RequeuesTwice,
        },
        queued_timeout: reaper.timeout,
        queued_check: reaper.interval,
        ..Airflow::default()
    }
}

/// What the connection does until the cut.
fn conditions(scenario: &Scenario, arm: &Arm, trial: &Trial, load: Option<Duration>) -> Conditions {
    // The oldest task that nobody has begun.
    let row = queued(scenario).is_some().then_some(Row::Queued);
    let mut conditions = Conditions { row, ..Conditions::default() };
    let traffic = &mut conditions.traffic;
    match arm.settings.subject {
        SubjectKind::TcpReader => traffic.broker_messages = load,
        SubjectKind::TcpWriter if arm.settings.peer_reads => traffic.client_messages = load,
        SubjectKind::TcpWriter => {
            conditions.state = State::ZeroWindow;
            let closed = scenario.settle + trial.phase;
            conditions.window_closed_for = Some(closed.saturating_sub(FILLING));
            conditions.window_closed_spread = FILLING.min(closed);
        }
        kind if kind.broker() == BrokerKind::Rabbitmq => {
            traffic.broker_messages = load;
            traffic.client_acks = load.is_some();
            traffic.ack_after =
                if arm.settings.ack == Some(crate::scenario::Ack::Late) { arm.settings.work() } else { Duration::ZERO };
            if arm.settings.sync_call.is_some() {
                conditions.synchronous_call = true;
                conditions.state = State::InFlight;
            }
        }
        // A PING and its reply.
        SubjectKind::RedisBlocking if arm.settings.ping.is_some() => {
            traffic.client_messages = arm.settings.ping;
            traffic.broker_messages = arm.settings.ping;
        }
        _ => {
            // An idle BRPOP is answered after half of the read timeout, and followed by the next one.
            let answered = arm.settings.read_timeout.get().map(|limit| limit / 2 + REDIS_TICK);
            traffic.broker_messages = [load, answered].into_iter().flatten().min();
            traffic.client_acks = traffic.broker_messages.is_some();
        }
    }
    conditions
}

#[cfg(test)]
#[path = "predict_tests.rs"]
mod tests;
