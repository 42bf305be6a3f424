//! `socket_settings` (py-amqp) and `socket_keepalive_options` (redis-py): mappings of option *numbers* to values.
//!
//! py-amqp 5.4.2 (`amqp/transport.py`, `_set_socket_options`) lays them over its defaults and calls
//! `setsockopt(SOL_TCP, key, value)`: a name as key (`"TCP_USER_TIMEOUT"`, `"18"`) raises TypeError. redis-py
//! (`redis/connection.py`, `_connect`) applies them only where `socket_keepalive` is true.

use super::celery_names::Style;
use super::entry::{Domain, Entry};
use super::interpret::Work;
use super::literal::{Item, Literal};
use super::model::{OptionName, Place, Severity};
use super::transport::{Rule, Transport};

pub(crate) fn apply(work: &mut Work, entries: &[&Entry]) {
    let Some(transport) = work.transport else { return };
    for entry in
        entries.iter().filter(|e| e.domain == Domain::Transport && transport.rule(&e.key) == Rule::SocketOptions)
    {
        let keepalive = entries
            .iter()
            .rfind(|e| e.domain == Domain::Transport && e.key == "socket_keepalive")
            .and_then(|e| e.value.flag())
            .unwrap_or(false);
        match &entry.value {
            Literal::None => {}
            _ if transport == Transport::Redis && !keepalive => {
                let why = "redis-py applies it only where socket_keepalive is true".to_string();
                work.ignored(&entry.key, &entry.value, &entry.place, why, Some("socket_keepalive".to_string()));
            }
            Literal::Dict(items) => items.iter().for_each(|item| one(work, entry, item)),
            _ => work.lint(
                "socket-options-not-a-mapping",
                Severity::Error,
                format!("`{}` is not a mapping; the client raises an error when it connects", entry.key),
                &entry.place,
                mend(work),
            ),
        }
    }
}

fn mend(work: &Work) -> String {
    let base = "set it in Python, with numbers as keys: {socket.TCP_USER_TIMEOUT: 30000, socket.TCP_KEEPIDLE: 60}";
    if work.airflow {
        format!(
            "{base}; Airflow's ini file and variables cannot express that (point [celery] celery_config_options at a module)"
        )
    } else {
        base.to_string()
    }
}

fn one(work: &mut Work, entry: &Entry, item: &Item) {
    let line = entry.place.line.map(|_| item.line);
    let number = match &item.key {
        Some(Literal::Int(n)) => *n,
        Some(key) if key.as_str().is_some() => {
            let text = format!(
                "`{}` has a text as key; setsockopt takes option numbers and raises TypeError when the client connects",
                entry.key
            );
            let mend = mend(work);
            return work.lint("socket-option-name", Severity::Error, text, &entry.place, mend);
        }
        _ => return,
    };
    let (option, name, max) = match number {
        4 => (OptionName::KeepaliveIdle, "TCP_KEEPIDLE", 32_767.0),
        5 => (OptionName::KeepaliveInterval, "TCP_KEEPINTVL", 32_767.0),
        6 => (OptionName::KeepaliveProbes, "TCP_KEEPCNT", 127.0),
        7 => (OptionName::SynRetries, "TCP_SYNCNT", 255.0),
        18 => (OptionName::TcpUserTimeout, "TCP_USER_TIMEOUT", f64::from(i32::MAX)),
        _ => return,
    };
    let place = Place { line, key: format!("{}[{name}]", entry.place.key), ..entry.place.clone() };
    // net/ipv4/tcp.c, `do_tcp_setsockopt`: 1 to MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL, MAX_TCP_KEEPCNT, MAX_TCP_SYNCNT.
    let least = if number == 18 { 0.0 } else { 1.0 };
    if let Some(value) = item.value.number().filter(|v| *v < least || *v > max) {
        let unit = if matches!(number, 4 | 5) { "; it is in seconds" } else { "" };
        let text = format!(
            "{name} = {value} is outside the kernel's {least} to {max}: setsockopt fails with EINVAL when the client connects"
        );
        let mend = format!("write a number from {least} to {max}{unit}");
        return work.lint("socket-option-range", Severity::Error, text, &place, mend);
    }
    work.written(option, &item.value, &place, (3, entry.rank, Style::New), None);
}
