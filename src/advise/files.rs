//! From a scenario file to arms and situations: its own faults, under its own load.

use super::answer::NotPredicted;
use super::arm::{Arm, KeepaliveParts};
use super::situations::{self, FaultName, Role, Situation};
use crate::config::{Origin, Place};
use crate::scenario::{self, Act, Scenario, Scope};
use crate::timers::{BrokerKind, FaultScope, HeartbeatThread, Keepalive, State, Subject, Traffic};
use std::time::Duration;

/// The arms of a scenario; `label` names its file. Of a command line of the user's own nothing is known.
pub(super) fn arms(label: &str, file: &Scenario) -> Vec<Arm> {
    let known = file.arms.iter().filter(|written| !written.settings.subject.is_own_command());
    known.map(|written| arm(label, file, written)).collect()
}

/// The arms of which nothing is known, with the reason.
pub(super) fn unknown_arms(file: &Scenario) -> Vec<NotPredicted> {
    let unknown = file.arms.iter().filter(|written| written.settings.subject.is_own_command());
    let told = |written: &scenario::Arm| {
        let target = written.settings.command.as_ref().and_then(|command| command.target.as_ref());
        let (what, live) = match target {
            Some(target) => (format!("a service that runs already (`{}`)", target.service), "inspect --container"),
            None => ("a command of your own".to_string(), "inspect --pid"),
        };
        let why = format!(
            "the model does not know what {what} sets on its sockets or waits for; `halfopen {live}` reads it off the live \
             process, `halfopen run` measures it"
        );
        NotPredicted { arm: written.name.clone(), fault: None, why }
    };
    unknown.map(told).collect()
}

/// The file's faults of which the model knows nothing, with the reason, unless the command line asks for others.
pub(super) fn unknown_faults(file: &Scenario, arm: &Arm) -> Vec<NotPredicted> {
    if asks_for_others(arm) {
        return Vec::new();
    }
    let told = |fault: &scenario::Fault| {
        let why = unknown(fault)?;
        Some(NotPredicted { arm: arm.name.clone(), fault: Some(fault.name().to_string()), why })
    };
    file.faults.iter().filter_map(told).collect()
}

fn unknown(fault: &scenario::Fault) -> Option<String> {
    match fault.in_handshake() {
        true => Some("it is in force before the client connects; `halfopen run --dry-run` has its window".to_string()),
        false => fault.unknown_to_the_model(),
    }
}

fn asks_for_others(arm: &Arm) -> bool {
    arm.ask.fault.is_some() || arm.ask.call.is_some()
}

fn arm(label: &str, file: &Scenario, written: &scenario::Arm) -> Arm {
    let s = &written.settings;
    let (subject, broker) = match s.subject {
        scenario::SubjectKind::TcpReader => (Subject::TcpReader, BrokerKind::None),
        scenario::SubjectKind::TcpWriter => (Subject::TcpWriter, BrokerKind::None),
        scenario::SubjectKind::Lapin => (Subject::Lapin, BrokerKind::RabbitMq),
        scenario::SubjectKind::AmqpBlocking => (Subject::AmqpBlocking, BrokerKind::RabbitMq),
        scenario::SubjectKind::RedisBlocking => (Subject::RedisBlocking, BrokerKind::Redis),
        scenario::SubjectKind::Celery | scenario::SubjectKind::Celery5 => (Subject::Celery, BrokerKind::RabbitMq),
        scenario::SubjectKind::CeleryRedis | scenario::SubjectKind::Celery5Redis => {
            (Subject::Celery, BrokerKind::Redis)
        }
        // dramatiq consumes through pika.
        scenario::SubjectKind::Pika | scenario::SubjectKind::Dramatiq => (Subject::Pika, BrokerKind::RabbitMq),
        scenario::SubjectKind::AioPika => (Subject::AioPika, BrokerKind::RabbitMq),
        scenario::SubjectKind::RedisPy | scenario::SubjectKind::RedisPy5 => (Subject::RedisPy, BrokerKind::Redis),
        // Left out above.
        scenario::SubjectKind::Command => (Subject::TcpReader, BrokerKind::RabbitMq),
        scenario::SubjectKind::CommandRedis => (Subject::TcpReader, BrokerKind::Redis),
    };
    let mut arm = Arm::stock(subject, broker);
    arm.name.clone_from(&written.name);
    arm.settings.connect_timeout = s.connect_timeout;
    arm.settings.read_timeout = s.read_timeout;
    arm.settings.tcp_user_timeout = s.tcp_user_timeout;
    arm.settings.heartbeat = s.heartbeat;
    if s.heartbeat_thread == Some(scenario::HeartbeatThread::Own) {
        arm.settings.heartbeat_thread = HeartbeatThread::Own;
    }
    if s.sync_call.is_some() {
        arm.conditions.synchronous_call = true;
    }
    arm.settings.prefetch = s.prefetch.map_or(arm.settings.prefetch, u32::from);
    arm.keepalive =
        KeepaliveParts::of(s.keepalive.map(|k| Keepalive { idle: k.idle, interval: k.interval, probes: k.probes }));
    if let Some(heartbeat) = file.broker.heartbeat.filter(|_| broker == BrokerKind::RabbitMq) {
        arm.settings.broker_heartbeat = heartbeat;
    }
    if let Some(timeout) = file.broker.consumer_timeout.filter(|_| broker == BrokerKind::RabbitMq) {
        arm.settings.peer.consumer_timeout = crate::units::Setting::After(timeout);
    }
    if let Some(link) = s.link {
        let round_trip = link.round_trip().1;
        (arm.client.rtt, arm.broker.rtt) = (round_trip, round_trip);
        arm.assumed.extend(link.unknown_to_the_model().map(|why| format!("{}: {why}", written.name)));
    }
    for (name, value) in &s.sysctl {
        // The scenario's reader has checked the ranges.
        let _ = arm.sysctl(name, *value);
    }
    if let Some(every) = file.load_interval {
        arm.conditions.traffic = match subject {
            Subject::TcpWriter => Traffic { client_messages: Some(every), ..Traffic::default() },
            // lapin acknowledges each message, a blocking BRPOP asks for the next one; a bare reader says nothing.
            _ => Traffic {
                broker_messages: Some(every),
                client_acks: subject != Subject::TcpReader,
                ..Traffic::default()
            },
        };
    }
    let place = Place { label: label.to_string(), line: None, key: format!("[[arm]] {}", written.name) };
    for option in ["read_timeout", "heartbeat", "keepalive", "keepalive.idle", "tcp_user_timeout", "connect_timeout"] {
        arm.places.insert(option.to_string(), (Origin::Written, place.clone()));
    }
    arm
}

/// The file's faults as situations of an arm, unless the command line asks for others.
pub(super) fn situations(file: &Scenario, arm: &Arm) -> Vec<Situation> {
    if asks_for_others(arm) {
        let mut asked = situations::of(arm);
        asked.iter_mut().for_each(|s| s.horizon = Some(file.horizon));
        return asked;
    }
    let known = file.faults.iter().filter(|fault| unknown(fault).is_none());
    known.filter_map(|fault| situation(arm, fault, file.horizon)).collect()
}

fn situation(arm: &Arm, written: &scenario::Fault, horizon: Duration) -> Option<Situation> {
    let name = match (written.act, written.drop.to_broker, written.drop.to_client) {
        (Some(Act::FreezeBroker), ..) => FaultName::FrozenPeer,
        (Some(Act::FreezeProxy | Act::SwallowProxy), ..) => FaultName::FrozenProxy,
        // The client hears nothing, and nothing that it sends gets through.
        (Some(Act::ForgetEntry), ..) | (_, true, true) => FaultName::Blackhole,
        (_, true, false) => FaultName::ToBroker,
        (_, false, true) => FaultName::ToClient,
        (_, false, false) => FaultName::None,
    };
    let scope = match written.scope {
        Scope::Flow => FaultScope::Flow,
        Scope::Pair => FaultScope::Pair,
        Scope::Host => FaultScope::Host,
    };
    let mut narrowed = arm.clone();
    narrowed.ask.fault = Some(name);
    // A call is made when the cut is in force: its own segment is the one that is lost.
    let call = arm.conditions.synchronous_call;
    narrowed.ask.call = Some(call);
    narrowed.ask.state = Some(arm.ask.state.unwrap_or(if call { State::InFlight } else { State::Idle }));
    narrowed.ask.scope = Some(arm.ask.scope.unwrap_or(scope));
    narrowed.ask.duration = Some(arm.ask.duration.unwrap_or_else(|| written.duration.get()));
    let mut situation = situations::of(&narrowed).pop()?;
    situation.horizon = Some(horizon);
    situation.role = Role::Asked;
    // Under a load, or with heartbeats, whether the connection is idle depends on the phase.
    if arm.ask.state.is_none() {
        situation.title = situation.title.replace(", idle", "");
    }
    Some(situation)
}
