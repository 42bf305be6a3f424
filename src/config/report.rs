//! The output of `celery -A proj report` (`celery/app/utils.py`, `bugreport`): versions, then the settings that differ from
//! the defaults in Python's notation. Celery masks passwords there itself; that is not relied on.

use super::entry::Reading;
use super::literal::Literal;
use super::model::SourceKind;

const PROGRAMS: [(&str, &str); 5] =
    [("celery", "celery:"), ("kombu", "kombu:"), ("py-amqp", "py-amqp:"), ("redis-py", "redis:"), ("python", "py:")];

/// Reads a report.
pub(super) fn read(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::CeleryReport);
    let lines: Vec<&str> = text.lines().collect();
    let mut in_header = true;
    let mut at = 0;
    while at < lines.len() {
        let line = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let raw = lines[at].trim_end();
        at += 1;
        let header = raw.contains(" -> ") || (raw.starts_with(' ') && in_header);
        if header {
            versions(&mut reading, raw, line);
            continue;
        }
        if raw.is_empty() || raw.starts_with([' ', '\t']) {
            continue;
        }
        in_header = false;
        let Some((key, first)) = raw.split_once(':') else { continue };
        let mut value = first.to_string();
        while at < lines.len() && lines[at].starts_with([' ', '\t', '}', ']', ')']) {
            value.push('\n');
            value.push_str(lines[at]);
            at += 1;
        }
        // `pretty()` leaves the opening brace of a mapping out.
        let text = value.trim_end();
        let value = if text.ends_with('}') && !text.trim_start().starts_with('{') {
            format!("{{{text}")
        } else {
            text.to_string()
        };
        let literal =
            super::python::literal(&value, line).unwrap_or_else(|| Literal::Unknown("not a literal".to_string()));
        let key = key.trim();
        if !reading.celery(key, &literal, Some(line), 0) {
            reading.foreign(key, &literal, Some(line));
        }
    }
    reading
}

fn versions(reading: &mut Reading, raw: &str, line: u32) {
    for word in raw.split_whitespace() {
        for (program, prefix) in PROGRAMS {
            if let Some(version) = word.strip_prefix(prefix)
                && version.len() <= 20
                && version.starts_with(|c: char| c.is_ascii_digit())
                && version.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
            {
                let place = reading.place(Some(line), program);
                reading.versions.push((program, version.to_string(), place));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Celery 5.7.0 prints for an application with these settings.
    const SAMPLE: &str = "
software -> celery:5.7.0 (collider) kombu:5.7.0 py:3.11.7
            billiard:4.3.2 py-amqp:5.4.2
platform -> system:Linux arch:64bit, ELF
            kernel version:6.18.44 imp:CPython
loader   -> celery.loaders.app.AppLoader
settings -> transport:amqp results:redis://:********@r/0

broker_url: 'amqp://user:********@rabbit:5672//'
deprecated_settings: None
broker_transport_options: 
    'password': '********',
    'read_timeout': 30,
    'socket_settings': {18: 30000},
    'socket_timeout': 60}
broker_heartbeat: 60
task_acks_late: True
worker_prefetch_multiplier: 1
result_backend: 'redis://:********@r/0'
imports: 
    ('a.b', 'c')
task_time_limit: 1800
beat_schedule: 
 'x': {'schedule': <crontab: * * * * * (m/h/dM/MY/d)>, 'task': 'y'}}
";

    #[test]
    fn a_real_report() {
        let reading = read("report.txt", SAMPLE);
        let keys: Vec<(&str, Option<u32>)> = reading.entries.iter().map(|e| (e.key.as_str(), e.place.line)).collect();
        for expected in [
            ("read_timeout", Some(12)),
            ("socket_settings", Some(13)),
            ("socket_timeout", Some(14)),
            ("broker_heartbeat", Some(15)),
            ("task_acks_late", Some(16)),
            ("task_time_limit", Some(21)),
        ] {
            // The mapping's first line carries its key, its items start on the next.
            let found = keys.iter().find(|(k, _)| *k == expected.0).unwrap();
            assert!(found.1.unwrap().abs_diff(expected.1.unwrap()) <= 1, "{found:?} against {expected:?}");
        }
        let versions: Vec<(&str, &str)> = reading.versions.iter().map(|(p, v, _)| (*p, v.as_str())).collect();
        assert_eq!(versions, [("celery", "5.7.0"), ("kombu", "5.7.0"), ("python", "3.11.7"), ("py-amqp", "5.4.2")]);
        assert!(reading.not_understood.is_empty(), "{:?}", reading.not_understood);
    }
}
