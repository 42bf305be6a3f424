//! The two kernels beside the watchers of the model: when each end's data leaves, when its copies do, and when the
//! broker's end gives up.
//!
//! What is left out: more than one segment in flight, and a congestion window that is already reduced.

use super::draw::{broker_silence, client_period};
use crate::timers::kernel::keepalive::KeepaliveTimer;
use crate::timers::kernel::retransmit::Retransmission;
use crate::timers::{BrokerKind, Case, Environment, Instant, Phases, State, Trace, Watcher};
use std::time::Duration;

/// The jiffy counter starts here: high enough for any age, and a multiple of every level of the wheel.
const BASE: f64 = (1u64 << 40) as f64;

/// Data of one end that is lost: when it leaves, and what its kernel does about it. Seconds from the cut.
#[derive(Debug, Clone)]
pub struct Lost {
    /// The first copy.
    pub sent_s: f64,
    /// All copies, the first included, until the kernel gives up.
    pub copies_s: Vec<f64>,
    /// The kernel gives up.
    pub end_s: f64,
}

impl Lost {
    fn new(env: &Environment, user_timeout: Option<Duration>, at_fault: f64, sent_s: f64) -> Self {
        let hz = f64::from(env.hz);
        let now = BASE + at_fault + sent_s * hz;
        let (jiffy, fraction) = (now.floor() as u64, now.fract());
        let timer = Retransmission::new(env, None, user_timeout);
        let seconds = |jiffies: u64| sent_s + (jiffies as f64 - fraction) / hz;
        let copies = timer.copies_at(jiffy).into_iter().map(seconds);
        let (_, end) = timer.end_at(jiffy);
        let end_s = seconds(end);
        // The tick that gives up sends nothing.
        let copies_s = std::iter::once(sent_s).chain(copies.filter(|at| *at < end_s)).collect();
        Self { sent_s, copies_s, end_s }
    }

    /// The copies that leave until then.
    #[must_use]
    pub fn copies_until(&self, until_s: f64) -> u64 {
        self.copies_s.iter().filter(|at| **at <= until_s).count() as u64
    }

    /// The first copy that gets through when the path heals then; none: the kernel has given up.
    #[must_use]
    pub fn through_at(&self, heal_s: f64) -> Option<f64> {
        self.copies_s.iter().copied().find(|at| *at >= heal_s)
    }
}

/// The client's first data after the cut; none: it has nothing to send.
#[must_use]
pub fn of_client(case: &Case, phases: &Phases) -> Option<Lost> {
    let sent_s = match case.conditions.state {
        State::InFlight => 0.0,
        _ => phases.client_send * client_period(case)?.as_secs_f64(),
    };
    let clock = phases.client_jiffies as f64 + phases.client_tick;
    Some(Lost::new(&case.client, case.settings.tcp_user_timeout.get(), clock, sent_s))
}

/// The broker's first data after the cut. `at_once`: a message leaves with the cut.
#[must_use]
pub fn of_broker(case: &Case, phases: &Phases, at_once: bool) -> Option<Lost> {
    let beats = broker_silence(case).map(|silence| phases.broker_send * silence.as_secs_f64());
    let sent_s = if at_once { 0.0 } else { beats? };
    let clock = phases.broker_jiffies as f64 + phases.broker_tick;
    Some(Lost::new(&case.broker, case.settings.peer.tcp_user_timeout.get(), clock, sent_s))
}

/// Why the other end gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarReason {
    /// RabbitMQ missed heartbeats.
    Heartbeats,
    /// Its kernel did: `ETIMEDOUT`.
    Timeout,
    /// The client's FIN arrived.
    Closed,
}

/// When and why the other end gives the connection up by itself, in seconds from the cut.
#[must_use]
pub fn far_end(case: &Case, phases: &Phases, trace: &Trace, data: Option<&Lost>) -> Option<(f64, FarReason)> {
    let fires = |watcher| trace.fires.iter().find(|i: &&Instant| i.watcher == watcher).map(|i| i.at_s);
    let rabbit = case.settings.broker == BrokerKind::RabbitMq;
    // A reset that reaches the client says when the broker gave up; without one its own heartbeat does.
    let told = fires(Watcher::Reset).map(|at| (at, if rabbit { FarReason::Heartbeats } else { FarReason::Timeout }));
    let heartbeat = fires(Watcher::BrokerHeartbeat).filter(|_| told.is_none()).map(|at| (at, FarReason::Heartbeats));
    let healed = |end_s: f64, chance_s: f64| {
        case.fault.duration.is_none_or(|d| d.as_secs_f64() > chance_s).then_some((end_s, FarReason::Timeout))
    };
    let kernel = match data.filter(|_| case.fault.kind.drops()) {
        Some(lost) => healed(lost.end_s, lost.copies_s.last().copied().unwrap_or(0.0)),
        None if case.fault.kind.drops() => keepalive(case, phases).and_then(|(chance, end)| healed(end, chance)),
        None => None,
    };
    [told, heartbeat, kernel].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Keepalive of the broker's socket: the last probe and the end.
fn keepalive(case: &Case, phases: &Phases) -> Option<(f64, f64)> {
    let options = case.settings.peer.keepalive?;
    let quiet = client_period(case).is_none();
    let timer = KeepaliveTimer::new(case.broker.wheel(), options, case.settings.peer.tcp_user_timeout.get(), quiet);
    let longest = timer.probe_window().hi_s;
    let heard_s = -phases.age * client_period(case).map_or(longest, |p| p.as_secs_f64().min(longest));
    let hz = f64::from(case.broker.hz);
    let now = BASE + phases.broker_jiffies as f64 + phases.broker_tick + heard_s * hz;
    let (last, end) = timer.end_at(now.floor() as u64, phases.keepalive_arm);
    let seconds = |jiffies: u64| heard_s + (jiffies as f64 - now.fract()) / hz;
    Some((seconds(last), seconds(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::{Conditions, Fault, FaultKind, Settings, Subject, step};

    #[test]
    fn a_broker_without_heartbeats_dies_of_its_own_message() {
        let case = Case::new(
            Settings::stock(Subject::RedisBlocking, BrokerKind::RabbitMq),
            Environment::default(),
            Fault::of(FaultKind::Both),
            Conditions::default(),
        );
        let phases = Phases::from_uniform(|| 0.5);
        let lost = of_broker(&case, &phases, true).unwrap();
        assert!((936.0..941.0).contains(&lost.end_s) && lost.copies_s.len() >= 16, "{lost:?}");
        let (at, why) = far_end(&case, &phases, &step(&case, &phases), Some(&lost)).unwrap();
        assert_eq!((at, why), (lost.end_s, FarReason::Timeout));
        // 7 s is between two copies: the next one gets through.
        let through = lost.through_at(7.0).unwrap();
        assert!(through > 7.0 && through < 14.0, "{through}");
    }
}
