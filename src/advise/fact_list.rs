//! An arm's settings as facts: what the lints of `config` judge and what the table shows.

use super::arm::Arm;
use crate::config::{Fact, OptionName, Origin, Place, Value};
use crate::timers::{BrokerKind, Subject};
use crate::units::Setting;
use std::time::Duration;

fn after(time: Duration) -> Value {
    Value::Time(Setting::After(time))
}

/// Every option that the arm's client or broker has, with its value and where it was written.
pub(super) fn facts(arm: &Arm) -> Vec<Fact> {
    let s = &arm.settings;
    let word = |text: &str| Value::Word(text.to_string());
    let mut list: Vec<(OptionName, Value)> = vec![
        (OptionName::Client, word(s.subject.name())),
        (OptionName::BrokerKind, word(s.broker.name())),
        (OptionName::ConnectTimeout, Value::Time(s.connect_timeout)),
        (OptionName::ReadTimeout, Value::Time(s.read_timeout)),
    ];
    if s.send_timeout != Setting::None {
        list.push((OptionName::WriteTimeout, Value::Time(s.send_timeout)));
    }
    list.push((OptionName::Keepalive, Value::Flag(s.keepalive.is_some())));
    if let Some(k) = s.keepalive {
        list.push((OptionName::KeepaliveIdle, after(k.idle)));
        list.push((OptionName::KeepaliveInterval, after(k.interval)));
        list.push((OptionName::KeepaliveProbes, Value::Count(i64::from(k.probes))));
    }
    list.push((OptionName::TcpUserTimeout, Value::Time(s.tcp_user_timeout)));
    if let Some(count) = s.tcp_syn_count {
        list.push((OptionName::SynRetries, Value::Count(i64::from(count))));
    }
    if let Some(client) = arm.amqp() {
        let asked = match s.heartbeat {
            Some(setting) => Some(setting),
            None => client.default_request().map(|d| if d.is_zero() { Setting::None } else { Setting::After(d) }),
        };
        list.extend(asked.map(|setting| (OptionName::Heartbeat, Value::Time(setting))));
        list.push((OptionName::Prefetch, Value::Count(i64::from(s.prefetch))));
    }
    match s.broker {
        BrokerKind::RabbitMq => {
            list.push((OptionName::BrokerHeartbeat, Value::Time(s.broker_heartbeat)));
            list.push((OptionName::ConsumerTimeout, Value::Time(s.peer.consumer_timeout)));
        }
        BrokerKind::Redis => {
            list.push((OptionName::HealthCheckInterval, Value::Time(s.health_check_interval)));
            if s.subject == Subject::Celery {
                list.push((OptionName::VisibilityTimeout, Value::Time(s.peer.visibility_timeout)));
            }
            let idle = s.peer.keepalive.map_or(Setting::None, |k| Setting::After(k.idle));
            list.push((OptionName::BrokerKeepaliveIdle, Value::Time(idle)));
        }
        BrokerKind::None => {}
    }
    if let Some(airflow) = s.reaper.airflow {
        list.push((OptionName::QueuedTimeout, after(airflow.queued_timeout)));
        list.push((OptionName::QueuedCheckInterval, after(airflow.queued_check)));
        list.push((OptionName::TaskHeartbeatTimeout, after(airflow.task_heartbeat_timeout)));
        list.push((OptionName::TaskHeartbeatCheckInterval, after(airflow.task_heartbeat_check)));
    }
    let mut facts: Vec<Fact> = list.into_iter().map(|(option, value)| fact(arm, option, value)).collect();
    let others = arm.other_facts.iter().filter(|o| facts.iter().all(|f| f.option != o.option)).cloned();
    let others: Vec<Fact> = others.collect();
    facts.extend(others);
    facts
}

fn fact(arm: &Arm, option: OptionName, value: Value) -> Fact {
    let stock = || {
        let label = format!("stock {}", arm.settings.subject);
        (Origin::Default, Place { label, line: None, key: String::new() })
    };
    let (origin, place) = arm.places.get(&option.name()).cloned().unwrap_or_else(stock);
    Fact { option, value, origin, place, note: None }
}
