//! The query of a broker address, by who parses it.
//!
//! kombu (`kombu/connection.py` 5.7.0, `__init__` and `_init_params`) turns query keys into keyword arguments of the
//! connection: a closed list, everything else raises `TypeError`. Checked by running it. redis-py
//! (`redis/connection.py` 8.1.0, `URL_QUERY_ARGUMENT_PARSERS`) converts the keys that it knows.

use super::address::Address;
use super::celery_names::Style;
use super::interpret::Work;
use super::literal::Literal;
use super::model::{OptionName, Place, Severity};
use super::nearest::nearest;
use super::transport::Transport;

/// Parameters of kombu's `_init_params`.
const KOMBU: [&str; 12] = [
    "connect_timeout",
    "credential_provider",
    "heartbeat",
    "hostname",
    "insist",
    "login_method",
    "password",
    "port",
    "ssl",
    "transport",
    "userid",
    "virtual_host",
];

const STANDING: (u8, u8, Style) = (2, 0, Style::New);

pub(crate) fn apply(work: &mut Work, address: &Address, place: &Place) {
    for (key, raw) in &address.query {
        let place = Place { key: format!("{} ?{key}=", place.key), ..place.clone() };
        match (work.kombu, work.transport) {
            (true, _) => kombu(work, key, raw, &place),
            (false, Some(Transport::Redis)) => redis_py(work, key, raw, &place),
            (false, _) => amqp(work, key, raw, &place),
        }
    }
}

fn kombu(work: &mut Work, key: &str, raw: &Literal, place: &Place) {
    match key {
        "heartbeat" if work.transport == Some(Transport::Redis) => {
            let why = "AMQP has heartbeats, the Redis transport has none and ignores it".to_string();
            work.ignored(key, raw, place, why, Some("broker_transport_options[\"health_check_interval\"]".to_string()));
        }
        "heartbeat" => {
            work.written(OptionName::Heartbeat, raw, place, STANDING, Some("from the address, which outranks broker_heartbeat"));
        }
        // The text reaches `settimeout` unconverted.
        "connect_timeout" if work.transport == Some(Transport::Pyamqp) => work.lint(
            "address-connect-timeout",
            Severity::Error,
            "kombu hands `connect_timeout` of an address to the socket as text, which raises TypeError at every connect".to_string(),
            place,
            "set broker_connection_timeout (a number) instead".to_string(),
        ),
        key if KOMBU.contains(&key) || key.starts_with("ssl_") => {}
        key => {
            let meant = work.transport.filter(|t| t.rule(key) != super::transport::Rule::Ignored);
            let mend = match meant {
                Some(_) => format!("move `{key}` to broker_transport_options"),
                None => match nearest(key, KOMBU.iter().map(|k| (*k).to_string()), 0.7) {
                    Some(near) => format!("write `{near}`"),
                    None => "remove it from the address".to_string(),
                },
            };
            let text = format!("kombu refuses `{key}` in an address: TypeError, the client does not start");
            work.lint("address-option", Severity::Error, text, place, mend);
        }
    }
}

fn redis_py(work: &mut Work, key: &str, raw: &Literal, place: &Place) {
    let option = match key {
        "socket_timeout" => OptionName::ReadTimeout,
        "socket_connect_timeout" => OptionName::ConnectTimeout,
        "socket_keepalive" => OptionName::Keepalive,
        "health_check_interval" => OptionName::HealthCheckInterval,
        "db" | "socket_read_size" | "retry_on_timeout" | "retry_on_error" | "max_connections" | "timeout"
        | "protocol" | "legacy_responses" | "client_name" | "username" | "password" | "decode_responses"
        | "encoding" | "encoding_errors" | "lib_name" | "lib_version" => return,
        key if key.starts_with("ssl_") => return,
        key => {
            let names = ["socket_timeout", "socket_connect_timeout", "socket_keepalive", "health_check_interval"]
                .map(String::from);
            let mend =
                nearest(key, names, 0.7).map_or_else(|| "remove it".to_string(), |near| format!("write `{near}`"));
            let text = format!("redis-py has no option `{key}`; its connection is refused with TypeError");
            work.lint("address-option", Severity::Error, text, place, mend);
            return;
        }
    };
    let note =
        (option == OptionName::ReadTimeout).then_some("applied with settimeout, which polls: no SO_RCVTIMEO is set");
    work.written(option, raw, place, STANDING, note);
}

/// `amqp://` without a known client: `heartbeat` (seconds) means the same to all of them.
fn amqp(work: &mut Work, key: &str, raw: &Literal, place: &Place) {
    if key == "heartbeat" {
        return work.written(OptionName::Heartbeat, raw, place, STANDING, Some("what the client asks for"));
    }
    let why = "what this key of an amqp:// address means depends on the client, which no source names";
    work.out.not_understood.push(super::model::NotUnderstood { place: place.clone(), why: why.to_string() });
}
