//! Defaults of the clients and servers, as facts of their own: what holds where nobody wrote anything.

use super::celery_names::Style;
use super::entry::{Domain, Entry};
use super::interpret::Work;
use super::model::{OptionName, Origin, Place, Value};
use super::transport::Transport;
use crate::units::Setting;
use std::time::Duration;

type Default = (OptionName, Value);

fn secs(seconds: u64) -> Value {
    Value::Time(Setting::After(Duration::from_secs(seconds)))
}

const OFF: Value = Value::Time(Setting::None);

pub(crate) fn add(work: &mut Work, entries: &[&Entry]) {
    if work.kombu {
        celery(work);
    } else if work.transport == Some(Transport::Redis) {
        // redis/_defaults.py and redis/connection.py
        let defaults = vec![
            (OptionName::ReadTimeout, secs(5)),
            (OptionName::ConnectTimeout, secs(5)),
            (OptionName::Keepalive, Value::Flag(true)),
            (OptionName::KeepaliveIdle, secs(30)),
            (OptionName::KeepaliveInterval, secs(5)),
            (OptionName::KeepaliveProbes, Value::Count(3)),
            (OptionName::TcpUserTimeout, OFF),
            (OptionName::HealthCheckInterval, OFF),
        ];
        put(
            work,
            "default of redis-py 8.1.0",
            "redis/_defaults.py",
            defaults,
            Some("redis-py 5.2.1 has none of these: no timeout, no keepalive"),
        );
    }
    let has = |domain| entries.iter().any(|e| e.domain == domain);
    if work.transport == Some(Transport::Pyamqp) || has(Domain::Rabbitmq) {
        // rabbitmq-server deps/rabbit/Makefile and docs: heartbeat, consumer_timeout (since 3.8.17), handshake_timeout
        let defaults = vec![
            (OptionName::BrokerHeartbeat, secs(60)),
            (OptionName::ConsumerTimeout, secs(1800)),
            (OptionName::BrokerKeepalive, Value::Flag(false)),
        ];
        let note = "consumer_timeout: none before 3.8.15, 900 s in 3.8.15 and .16, quorum queues only from 4.3";
        put(work, "default of RabbitMQ", "rabbit", defaults, Some(note));
    }
    if work.transport == Some(Transport::Redis) || has(Domain::RedisServer) {
        let defaults = vec![(OptionName::BrokerIdleTimeout, OFF), (OptionName::BrokerKeepaliveIdle, secs(300))];
        put(work, "default of Redis 7", "redis.conf", defaults, None);
    }
}

fn celery(work: &mut Work) {
    if work.airflow {
        // airflow-core 3.3.2 config.yml; celery provider 3.26.0 default_celery.py
        let defaults = vec![
            (OptionName::QueuedTimeout, secs(600)),
            (OptionName::QueuedCheckInterval, secs(120)),
            (OptionName::TaskHeartbeatTimeout, secs(300)),
            (OptionName::TaskHeartbeatCheckInterval, secs(10)),
        ];
        put(work, "default of Airflow 3.3.2", "config.yml [scheduler]", defaults, None);
        let mut defaults = vec![
            (OptionName::Ack, Value::Word("late".to_string())),
            (OptionName::PrefetchMultiplier, Value::Count(1)),
            (OptionName::Concurrency, Value::Count(16)),
        ];
        if work.transport == Some(Transport::Redis) {
            defaults.push((OptionName::VisibilityTimeout, secs(86_400)));
        }
        put(work, "default of Airflow's Celery provider 3.26.0", "default_celery.py", defaults, None);
    } else {
        let defaults = vec![
            (OptionName::Ack, Value::Word("early".to_string())),
            (OptionName::PrefetchMultiplier, Value::Count(4)),
        ];
        put(work, "default of Celery 5.7.0", "celery/app/defaults.py", defaults, None);
    }
    match work.transport {
        Some(Transport::Pyamqp) => {
            let defaults = vec![
                (OptionName::ConnectTimeout, secs(4)),
                (OptionName::Heartbeat, secs(120)),
                (OptionName::HeartbeatCheckrate, Value::Count(3)),
            ];
            put(work, "default of Celery 5.7.0", "celery/app/defaults.py", defaults, None);
            // amqp/transport.py, DEFAULT_SOCKET_SETTINGS and `_init_socket`; amqp/connection.py
            let defaults = vec![
                (OptionName::Keepalive, Value::Flag(true)),
                (OptionName::KeepaliveIdle, secs(60)),
                (OptionName::KeepaliveInterval, secs(10)),
                (OptionName::KeepaliveProbes, Value::Count(9)),
                (OptionName::TcpUserTimeout, Value::Time(Setting::After(Duration::from_millis(1000)))),
                (OptionName::ReadTimeout, OFF),
                (OptionName::WriteTimeout, OFF),
            ];
            put(work, "default of py-amqp 5.4.2", "amqp/transport.py", defaults, None);
        }
        Some(Transport::Redis) => {
            let defaults = vec![
                (OptionName::ReadTimeout, OFF),
                (OptionName::ConnectTimeout, OFF),
                (OptionName::Keepalive, Value::Flag(false)),
                (OptionName::TcpUserTimeout, OFF),
                (OptionName::HealthCheckInterval, if work.pings_while_waiting { secs(25) } else { OFF }),
                (OptionName::VisibilityTimeout, secs(3600)),
                (OptionName::VisibilityInterval, secs(10)),
                (OptionName::VisibilityThrottle, Value::Count(10)),
            ];
            let note = "passed to redis-py explicitly, so that redis-py's own defaults never apply";
            put(work, "default of kombu 5.7.0", "kombu/transport/redis.py", defaults, Some(note));
        }
        None => {}
    }
}

fn put(work: &mut Work, label: &str, source: &str, defaults: Vec<Default>, note: Option<&str>) {
    for (option, value) in defaults {
        let place = Place { label: label.to_string(), line: None, key: source.to_string() };
        // What Airflow passes to Celery stands above what Celery's libraries would take by themselves.
        let rank = u8::from(label.contains("Airflow"));
        let relevant = matches!(
            option,
            OptionName::ConsumerTimeout | OptionName::ReadTimeout | OptionName::ConnectTimeout | OptionName::Keepalive
        );
        work.fact(option, value, Origin::Default, &place, (0, rank, Style::New), note.filter(|_| relevant));
    }
}
