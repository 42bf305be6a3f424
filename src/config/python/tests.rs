use super::*;
use crate::config::entry::Domain;

fn keys(text: &str) -> Vec<(Domain, String, Option<f64>, u32)> {
    read("celeryconfig.py", text)
        .entries
        .iter()
        .map(|e| (e.domain, e.key.clone(), e.value.number(), e.place.line.unwrap()))
        .collect()
}

fn celery(key: &str, value: f64, line: u32) -> (Domain, String, Option<f64>, u32) {
    (Domain::Celery, key.to_string(), Some(value), line)
}

fn option(key: &str, value: f64, line: u32) -> (Domain, String, Option<f64>, u32) {
    (Domain::Transport, key.to_string(), Some(value), line)
}

#[test]
fn a_plain_module() {
    let text = "\
'''Settings.

broker_heartbeat = 1  (only in the docstring)
'''
from celery.schedules import crontab
MINUTE = 60
broker_heartbeat = 2 * MINUTE  # two minutes
task_time_limit = 60*5 + 0
broker_connection_timeout: float = 1_0.5
worker_prefetch_multiplier = worker_concurrency = 2
broker_transport_options = {
    'visibility_timeout': 12 * 60 * 60,   # 12 h
    \"socket_timeout\": 30.0,
    'retry_policy': {'timeout': 5.0},
}
";
    assert_eq!(
        keys(text)[..7],
        [
            celery("broker_heartbeat", 120.0, 7),
            celery("task_time_limit", 300.0, 8),
            celery("broker_connection_timeout", 10.5, 9),
            celery("worker_prefetch_multiplier", 2.0, 10),
            celery("worker_concurrency", 2.0, 10),
            option("visibility_timeout", 43_200.0, 12),
            option("socket_timeout", 30.0, 13),
        ]
    );
}

#[test]
fn an_app_that_is_configured_in_code() {
    let text = "\
import socket
app = Celery('proj', broker='amqp://u:s3cret@rabbit//', backend='rpc://')
app.conf.broker_heartbeat = 30
app.conf['broker_connection_timeout'] = 5
app.conf.update(
    task_acks_late=True,
    broker_transport_options=dict(read_timeout=60, socket_settings={socket.TCP_USER_TIMEOUT: 30_000}),
)
app.conf.update({'worker_concurrency': 8})
app.conf.broker_transport_options['write_timeout'] = 7
app.conf[\"broker_transport_options\"][\"confirm_publish\"] = True
app.conf.broker_transport_options.update({'max_retries': 3})
";
    let reading = read("app.py", text);
    let found: Vec<(&str, u32)> = reading.entries.iter().map(|e| (e.key.as_str(), e.place.line.unwrap())).collect();
    assert_eq!(
        found,
        [
            ("broker_url", 2),
            ("result_backend", 2),
            ("broker_heartbeat", 3),
            ("broker_connection_timeout", 4),
            ("task_acks_late", 6),
            ("read_timeout", 7),
            ("socket_settings", 7),
            ("worker_concurrency", 9),
            ("write_timeout", 10),
            ("confirm_publish", 11),
            ("max_retries", 12),
        ]
    );
    let Literal::Dict(settings) = &reading.entries[6].value else { panic!("{:?}", reading.entries[6].value) };
    assert_eq!((settings[0].key.clone(), settings[0].value.clone()), (Some(Literal::Int(18)), Literal::Int(30_000)));
    assert!(!format!("{reading:?}").contains("s3cret"));
}

#[test]
fn django_classes_and_airflow_dictionaries() {
    let django =
        "CELERY_BROKER_HEARTBEAT = 10\nCELERY_TASK_ACKS_LATE = True\nDATABASES = {'default': {'PASSWORD': 'x'}}\n";
    assert_eq!(keys(django), [celery("broker_heartbeat", 10.0, 1), celery("task_acks_late", 1.0, 2)]);
    let class = "class Config(object):\n    broker_heartbeat = 20\n    CELERYD_CONCURRENCY = 4\n";
    assert_eq!(keys(class), [celery("broker_heartbeat", 20.0, 2), celery("worker_concurrency", 4.0, 3)]);
    let airflow = "from a import DEFAULT_CELERY_CONFIG\nCELERY_CONFIG = {\n    **DEFAULT_CELERY_CONFIG,\n    'broker_heartbeat': 15,\n}\n";
    let reading = read("x.py", airflow);
    assert_eq!(reading.entries[0].place.line, Some(4));
    assert_eq!(reading.not_understood[0].place.line, Some(3));
}

#[test]
fn what_is_not_a_literal_is_reported_by_its_line_and_never_guessed() {
    let text = "\
import os
broker_heartbeat = int(os.environ.get('HB', 60))
broker_url = f'amqp://{USER}:{PASSWORD}@rabbit'
if DEBUG:
    broker_connection_timeout = 1
else:
    broker_connection_timeout = 2
broker_transport_options = {'read_timeout': timeout(), 'write_timeout': 5, **more}
worker_concurrency += 1
task_time_limit = 10 if FAST else 20
";
    let reading = read("c.py", text);
    let refused: Vec<u32> = reading.not_understood.iter().map(|n| n.place.line.unwrap()).collect();
    assert_eq!(refused, [2, 3, 5, 7, 8, 8, 9, 10]);
    assert_eq!(reading.entries.len(), 1);
    assert_eq!(reading.entries[0].key, "write_timeout");
    assert!(reading.not_understood[0].why.contains("environment"), "{:?}", reading.not_understood[0]);
}

#[test]
fn slips_are_found() {
    let reading = read("c.py", "broker_hearbeat = 10\nCELERY_SOCKET_TIMEOUT = 60\nmy_own = 3\n");
    let meant: Vec<&str> = reading.unknown.iter().map(|u| u.3.meant.as_deref().unwrap()).collect();
    assert_eq!(meant, ["broker_heartbeat", "broker_transport_options[\"socket_timeout\"]"]);
}

#[test]
fn a_bracket_that_is_never_closed_is_reported_with_its_line() {
    let text =
        "broker_heartbeat = 10\n\nbroker_transport_options = {\n    'read_timeout': (5),\n\nworker_concurrency = 4\n";
    let reading = read("c.py", text);
    let lines: Vec<_> = reading.not_understood.iter().map(|n| (n.place.line, n.why.contains("never closed"))).collect();
    assert!(lines.contains(&(Some(3), true)), "{lines:?}");
    let closed = read("c.py", "x = {\n'a': [1, (2)],\n}\n");
    assert!(!closed.not_understood.iter().any(|n| n.why.contains("never closed")));
}

#[test]
fn deep_nesting_ends() {
    for text in [
        "x = ".to_string() + &"(".repeat(10_000),
        "x = ".to_string() + &"[{".repeat(10_000),
        "-".repeat(10_000),
        "a(".repeat(10_000),
    ] {
        assert!(read("c.py", &text).entries.is_empty());
    }
}
