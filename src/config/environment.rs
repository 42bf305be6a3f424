//! Environment variables and `.env` files: `AIRFLOW__SECTION__KEY`, `CELERY_*`, broker addresses.
//!
//! Every other variable is passed over without a trace: an environment is full of secrets.

use super::address::Address;
use super::airflow;
use super::celery_names::{self, Name};
use super::entry::Reading;
use super::literal::Literal;
use super::model::SourceKind;

/// Reads variables as (name, value) pairs.
pub(super) fn read<'a>(label: &str, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Reading {
    let mut reading = Reading::new(label, SourceKind::Environment);
    for (name, value) in variables {
        variable(&mut reading, name, &Literal::word(value), None);
    }
    reading
}

fn variable(reading: &mut Reading, name: &str, value: &Literal, line: Option<u32>) {
    if let Some((section, key)) = name.strip_prefix("AIRFLOW__").and_then(|rest| rest.split_once("__")) {
        airflow::option(reading, section, key, value, line, name);
        return;
    }
    let rank = reading.rank();
    match celery_names::look_up(name) {
        Name::Setting("broker_transport_options", style) => {
            match value.as_str().and_then(|t| super::json::parse(t).ok()) {
                Some(options) => reading.transport_options(name, &options, line, style, rank),
                None => reading.refuse(line, name, "not a JSON mapping"),
            }
        }
        Name::Setting(..) if name.chars().all(|c| !c.is_ascii_lowercase()) => {
            reading.celery(name, value, line, rank);
        }
        Name::Foreign if name.starts_with("CELERY_") || name.starts_with("BROKER_") => {
            reading.foreign(name, value, line)
        }
        Name::Foreign
            if matches!(name, "REDIS_URL" | "RABBITMQ_URL" | "AMQP_URL" | "CLOUDAMQP_URL" | "RABBITMQ_BIGWIG_URL") =>
        {
            if let Some(address) = value.as_str().and_then(Address::parse) {
                let place = reading.place(line, name);
                reading.addresses.push((address, place, rank));
            }
        }
        _ => {}
    }
}

/// Reads a `.env` file: `export`, single and double quotes (also over several lines), comments. A value that refers to
/// another variable (`${X}`) is not expanded.
pub(super) fn read_file(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::EnvFile);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let raw = lines[at].trim_start_matches('\u{feff}').trim();
        at += 1;
        let raw = raw.strip_prefix("export ").unwrap_or(raw).trim_start();
        if raw.is_empty() || raw.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = raw.split_once('=') else { continue };
        let name = name.trim();
        let rest = rest.trim_start();
        let (value, expands) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let mut whole = rest[1..].to_string();
                while !closes(&whole, quote) && at < lines.len() {
                    whole.push('\n');
                    whole.push_str(lines[at]);
                    at += 1;
                }
                let value = quoted(&whole, quote);
                let expands = quote == '"' && value.contains('$');
                (value, expands)
            }
            _ => {
                let value =
                    rest.split(" #").next().unwrap_or(rest).split("\t#").next().unwrap_or(rest).trim().to_string();
                let expands = value.contains("${") || value.starts_with('$') || value.contains("$(");
                (value, expands)
            }
        };
        let reference = expands && !value.contains("://");
        let value =
            if reference { Literal::Unknown("refers to another variable".to_string()) } else { Literal::word(&value) };
        variable(&mut reading, name, &value, Some(line));
    }
    reading
}

fn closes(text: &str, quote: char) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let end = c == quote && !escaped;
        escaped = c == '\\' && quote == '"' && !escaped;
        end
    })
}

fn quoted(text: &str, quote: char) -> String {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => break,
            '\\' if quote == '"' => match chars.next() {
                Some('n') => value.push('\n'),
                Some(other @ ('"' | '\\' | '$' | '`')) => value.push(other),
                Some(other) => value.extend(['\\', other]),
                None => break,
            },
            c => value.push(c),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::entry::Domain;

    const SAMPLE: &str = r#"
# broker
export AIRFLOW__CELERY__BROKER_URL="amqp://airflow:s3cret@rabbit:5672//"   # not shown
AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__SOCKET_TIMEOUT = 60
AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT='1200.0'
CELERY_BROKER_HEARTBEAT=10 # seconds
DATABASE_PASSWORD=hunter2
PRIVATE_KEY="-----BEGIN
MIIEvQIBADANBg==
CELERY_BROKER_HEARTBEAT=99
-----END"
CELERY_WORKER_PREFETCH_MULTIPLIER=${PREFETCH}
"#;

    #[test]
    fn a_real_env_file() {
        let reading = read_file(".env", SAMPLE);
        let keys: Vec<(Domain, &str, Option<u32>)> =
            reading.entries.iter().map(|e| (e.domain, e.key.as_str(), e.place.line)).collect();
        assert_eq!(
            keys,
            [
                (Domain::Transport, "socket_timeout", Some(4)),
                (Domain::Airflow, "scheduler.task_queued_timeout", Some(5)),
                (Domain::Celery, "broker_heartbeat", Some(6)),
            ]
        );
        assert_eq!(reading.entries[1].value.number(), Some(1200.0));
        assert_eq!(reading.entries[2].value.number(), Some(10.0));
        assert_eq!(reading.addresses[0].0.shown(), "amqp://rabbit:5672");
        assert_eq!(reading.not_understood.len(), 1, "${{PREFETCH}}: {:?}", reading.not_understood);
        let shown = format!("{reading:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("hunter2") && !shown.contains("MIIE"));
    }

    #[test]
    fn variables_of_others_leave_no_trace() {
        let reading = read("environment", [("PATH", "/bin"), ("MY_HEARTBEAT", "3"), ("CELERY_BROKER_HEARTBEET", "5")]);
        assert!(reading.entries.is_empty());
        assert_eq!(reading.unknown.len(), 1);
        assert_eq!(reading.unknown[0].3.meant.as_deref(), Some("CELERY_BROKER_HEARTBEAT"));
    }

    #[test]
    fn transport_options_as_json_in_a_variable() {
        let reading = read("environment", [("CELERY_BROKER_TRANSPORT_OPTIONS", r#"{"visibility_timeout": 43200}"#)]);
        assert_eq!(reading.entries[0].key, "visibility_timeout");
        assert_eq!(reading.entries[0].place.line, None);
    }
}
