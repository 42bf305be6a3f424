//! From an arm's settings and a fault to what the timer model asks for.

use crate::plan::{Plan, scheduler};
use crate::scenario::{self, BrokerKind, Directions, Scope, SubjectKind};
use crate::store::Machine;
use crate::timers::{
    BrokerKind as ModelBroker, Case, Conditions, Environment, Fault, FaultKind, FaultScope, HeartbeatThread, Keepalive,
    Peer, Row, Settings, State, Subject, Traffic,
};
use crate::units::Setting;
use std::collections::BTreeMap;
use std::time::Duration;

/// RabbitMQ's own `heartbeat` and `consumer_timeout` when nobody sets them (3.8.17 and later).
const RABBITMQ_HEARTBEAT: Setting = Setting::After(Duration::from_secs(60));
const RABBITMQ_CONSUMER_TIMEOUT: Duration = Duration::from_secs(1800);

/// The kernel that the model is told of: version, HZ and sysctls; what the machine does not say stays as on the
/// reference machine.
#[must_use]
pub fn environment(machine: &Machine) -> Environment {
    let mut env = Environment::default();
    if let Ok(kernel) = machine.kernel.parse() {
        env.kernel = kernel;
    }
    env.hz = machine.hz.unwrap_or(env.hz);
    let sysctls: BTreeMap<String, i64> =
        machine.sysctls.iter().filter_map(|(name, text)| Some((name.clone(), text.trim().parse().ok()?))).collect();
    env.with_sysctls(&sysctls)
}

/// The case of an arm under a fault.
#[must_use]
pub fn case(plan: &Plan, arm: usize, fault: usize, env: &Environment) -> Case {
    let scenario = &plan.scenario;
    let load = scenario.load_of(&scenario.arms[arm]);
    let (arm, fault) = (&scenario.arms[arm].settings, &scenario.faults[fault]);
    let peer = match arm.subject.broker() {
        BrokerKind::Rabbitmq => Peer {
            consumer_timeout: Setting::After(scenario.broker.consumer_timeout.unwrap_or(RABBITMQ_CONSUMER_TIMEOUT)),
            ..Peer::default()
        },
        // `tcp-keepalive 300` becomes 300/100/3.
        BrokerKind::Redis => Peer { keepalive: Some(Keepalive::from_secs(300, 100, 3)), ..Peer::default() },
        BrokerKind::None => Peer::default(),
    };
    let mut settings = Settings {
        subject: subject(arm.subject),
        broker: broker(arm.subject.broker()),
        connect_timeout: arm.connect_timeout,
        read_timeout: arm.read_timeout,
        heartbeat: arm.heartbeat,
        broker_heartbeat: scenario.broker.heartbeat.unwrap_or(RABBITMQ_HEARTBEAT),
        heartbeat_thread: match arm.heartbeat_thread {
            Some(scenario::HeartbeatThread::Own) => HeartbeatThread::Own,
            _ => HeartbeatThread::Same,
        },
        keepalive: arm.keepalive.map(|k| Keepalive { idle: k.idle, interval: k.interval, probes: k.probes }),
        tcp_user_timeout: arm.tcp_user_timeout,
        prefetch: arm.prefetch.map_or(1, u32::from),
        peer,
        ..Settings::default()
    };
    settings.reaper.airflow = scenario.reaper.as_ref().map(scheduler);
    let messages = load.is_some() || scenario.tasks.is_some();
    let conditions = Conditions {
        state: if arm.sync_call.is_some() { State::InFlight } else { State::Idle },
        traffic: traffic(arm.subject, arm.read_timeout.get(), load),
        unacked_delivery: messages && arm.subject.broker() == BrokerKind::Rabbitmq,
        synchronous_call: arm.sync_call.is_some(),
        row: scenario.reaper.is_some().then_some(Row::Queued),
        ..Conditions::default()
    };
    let fault = Fault {
        kind: kind(fault.drop),
        scope: match fault.scope {
            Scope::Flow => FaultScope::Flow,
            Scope::Pair => FaultScope::Pair,
            Scope::Host => FaultScope::Host,
        },
        duration: fault.duration.get(),
    };
    let client = env.clone().with_sysctls(&arm.sysctl);
    Case { settings, client, broker: env.clone(), fault, conditions }
}

fn kind(drop: Directions) -> FaultKind {
    match (drop.to_broker, drop.to_client) {
        (true, true) => FaultKind::Both,
        (true, false) => FaultKind::ToBroker,
        (false, true) => FaultKind::ToClient,
        (false, false) => FaultKind::None,
    }
}

fn subject(kind: SubjectKind) -> Subject {
    match kind {
        SubjectKind::TcpReader => Subject::TcpReader,
        SubjectKind::TcpWriter => Subject::TcpWriter,
        SubjectKind::Lapin => Subject::Lapin,
        SubjectKind::RedisBlocking => Subject::RedisBlocking,
        SubjectKind::Celery | SubjectKind::Celery5 | SubjectKind::CeleryRedis | SubjectKind::Celery5Redis => {
            Subject::Celery
        }
        SubjectKind::Pika | SubjectKind::Dramatiq | SubjectKind::Command => Subject::Pika,
        SubjectKind::AioPika => Subject::AioPika,
        SubjectKind::RedisPy | SubjectKind::RedisPy5 | SubjectKind::CommandRedis => Subject::RedisPy,
        SubjectKind::AmqpBlocking => Subject::AmqpBlocking,
    }
}

fn broker(kind: BrokerKind) -> ModelBroker {
    match kind {
        BrokerKind::None => ModelBroker::None,
        BrokerKind::Rabbitmq => ModelBroker::RabbitMq,
        BrokerKind::Redis => ModelBroker::Redis,
    }
}

/// Who sends what, beside heartbeats.
fn traffic(subject: SubjectKind, read_timeout: Option<Duration>, load: Option<Duration>) -> Traffic {
    match subject {
        SubjectKind::TcpReader => Traffic { broker_messages: load, ..Traffic::default() },
        SubjectKind::TcpWriter => Traffic { client_messages: load, ..Traffic::default() },
        _ if subject.broker() == BrokerKind::Rabbitmq => {
            Traffic { broker_messages: load, client_acks: load.is_some(), ..Traffic::default() }
        }
        _ => {
            // The server answers a BRPOP within half of the read timeout, with a message or without, and the client
            // asks again at once.
            let poll = read_timeout.map(|limit| limit / 2);
            let answers = [poll, load].into_iter().flatten().min();
            Traffic { broker_messages: answers, client_acks: answers.is_some(), ..Traffic::default() }
        }
    }
}
