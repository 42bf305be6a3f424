//! From the facts that `config` found in people's own settings to an arm.

use super::arm::{Arm, KERNEL_KEEPALIVE, KeepaliveParts};
use super::request::AdviceError;
use crate::config::{Fact, Findings, OptionName, Value};
use crate::timers::{BrokerKind, Keepalive, Subject};
use crate::units::Setting;
use std::time::Duration;

/// The arm that the facts describe; `subject` and `broker` are what the command line says beyond them.
///
/// # Errors
/// [`AdviceError`] where no source says which client connects, or to which broker.
pub(super) fn arm(
    findings: &Findings,
    subject: Option<Subject>,
    broker: Option<BrokerKind>,
) -> Result<Arm, AdviceError> {
    let word = |option: &OptionName| findings.get(option).map(|f| f.value.to_string());
    let client = match word(&OptionName::Client).as_deref() {
        Some("celery") => Some(Subject::Celery),
        Some("redis-py") => Some(Subject::RedisPy),
        _ => None,
    };
    let named = match word(&OptionName::BrokerKind).as_deref() {
        Some("rabbitmq") => Some(BrokerKind::RabbitMq),
        Some("redis") => Some(BrokerKind::Redis),
        Some(other) if broker.is_none() => return Err(AdviceError::Transport(other.to_string())),
        _ => None,
    };
    let celery = findings.facts.iter().any(|f| matches!(f.option, OptionName::Ack | OptionName::PrefetchMultiplier));
    let subject = match subject.or(client) {
        Some(subject) => subject,
        None if celery => Subject::Celery,
        None if named.is_none() && broker.is_none() && only_sysctls(findings) => Subject::TcpReader,
        None => return Err(AdviceError::WhichClient),
    };
    let broker = match broker.or(named) {
        Some(broker) => broker,
        None if subject == Subject::Celery => return Err(AdviceError::WhichBroker),
        None => Arm::usual_broker(subject),
    };
    let mut arm = Arm::stock(subject, broker);
    for fact in &findings.facts {
        take(&mut arm, fact).map_err(|why| AdviceError::Fact { place: fact.place.to_string(), why })?;
    }
    if let (Some(interval), Some(throttle)) =
        (findings.time(&OptionName::VisibilityInterval), findings.get(&OptionName::VisibilityThrottle))
        && let Value::Count(throttle) = throttle.value
    {
        arm.settings.peer.visibility_sweep = interval.saturating_mul(u32::try_from(throttle).unwrap_or(1).max(1));
    }
    arm.assumed.extend(from_defaults(findings));
    Ok(arm)
}

fn only_sysctls(findings: &Findings) -> bool {
    !findings.facts.is_empty() && findings.facts.iter().all(|f| matches!(f.option, OptionName::Sysctl(_)))
}

/// Whose defaults fill the gaps, in one sentence.
fn from_defaults(findings: &Findings) -> Option<String> {
    let mut labels: Vec<&str> = findings
        .facts
        .iter()
        .filter_map(|f| f.place.label.strip_prefix("default of "))
        .filter(|label| !label.contains("Airflow 3"))
        .collect();
    labels.sort_unstable();
    labels.dedup();
    (!labels.is_empty()).then(|| format!("where nothing is written, the defaults of {}", labels.join(", ")))
}

fn take(arm: &mut Arm, fact: &Fact) -> Result<(), String> {
    arm.places.insert(fact.option.name(), (fact.origin, fact.place.clone()));
    let time = match fact.value {
        Value::Time(setting) => setting,
        _ => Setting::None,
    };
    let count = match fact.value {
        Value::Count(n) => n,
        _ => 0,
    };
    let number = || u32::try_from(count).map_err(|_| format!("{count} is out of range"));
    let s = &mut arm.settings;
    match &fact.option {
        OptionName::ConnectTimeout => s.connect_timeout = time,
        OptionName::ReadTimeout => s.read_timeout = time,
        OptionName::WriteTimeout => s.send_timeout = time,
        OptionName::Keepalive => {
            arm.keepalive.on = fact.value == Value::Flag(true);
            if arm.keepalive.on && arm.settings.keepalive.is_none() {
                arm.keepalive = KeepaliveParts { on: true, ..arm.keepalive };
            }
        }
        OptionName::KeepaliveIdle => arm.keepalive.idle = time.get(),
        OptionName::KeepaliveInterval => arm.keepalive.interval = time.get(),
        OptionName::KeepaliveProbes => arm.keepalive.probes = Some(number()?),
        OptionName::TcpUserTimeout => s.tcp_user_timeout = time,
        OptionName::SynRetries => s.tcp_syn_count = Some(number()?),
        OptionName::Heartbeat => s.heartbeat = Some(time),
        OptionName::Prefetch => s.prefetch = number()?,
        OptionName::VisibilityTimeout => s.peer.visibility_timeout = time,
        OptionName::HealthCheckInterval => s.health_check_interval = time,
        OptionName::ConsumerTimeout => s.peer.consumer_timeout = time,
        OptionName::BrokerHeartbeat => s.broker_heartbeat = time,
        OptionName::BrokerKeepalive => {
            let on = fact.value == Value::Flag(true);
            arm.peer_keepalive = KeepaliveParts::of(on.then_some(KERNEL_KEEPALIVE));
        }
        OptionName::BrokerKeepaliveIdle => arm.peer_keepalive = KeepaliveParts::of(time.get().map(redis_keepalive)),
        OptionName::QueuedTimeout | OptionName::QueuedCheckInterval => {
            let time = time.get().unwrap_or(Duration::MAX);
            let airflow = arm.airflow();
            if fact.option == OptionName::QueuedTimeout {
                airflow.queued_timeout = time;
            } else {
                airflow.queued_check = time;
            }
        }
        OptionName::TaskHeartbeatTimeout | OptionName::TaskHeartbeatCheckInterval => {
            let time = time.get().unwrap_or(Duration::MAX);
            let airflow = arm.airflow();
            if fact.option == OptionName::TaskHeartbeatTimeout {
                airflow.task_heartbeat_timeout = time;
            } else {
                airflow.task_heartbeat_check = time;
            }
        }
        OptionName::Sysctl(name) => arm.sysctl(&name.clone(), count)?,
        _ => arm.other_facts.push(fact.clone()),
    }
    Ok(())
}

/// Redis' `tcp-keepalive t`: idle t, interval t / 3, 3 probes (`anetKeepAlive`).
pub(super) fn redis_keepalive(idle: Duration) -> Keepalive {
    let interval = Duration::from_secs((idle.as_secs() / 3).max(1));
    Keepalive { idle, interval, probes: 3 }
}
