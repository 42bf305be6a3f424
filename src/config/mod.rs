//! Settings as people already have them, turned into neutral facts: what `predict --from-env`, `--env-file` and `FILE…` read.
//!
//! Text in, facts out: no files, no environment, no clock, and nothing is ever executed. A value that is not a literal is
//! reported with its line, never guessed. Passwords are dropped while reading: no `Debug`, message or JSON of this room
//! repeats a text that a user wrote, apart from option names.
//!
//! Two steps: [`read`] recognises a source and takes it apart; [`interpret`] puts all sources together, because what a key
//! means depends on the transport that another source names. Left out: the timers themselves (what follows from the facts
//! is the business of `timers`), Erlang's `advanced.config`, TOML and YAML, and the transports other than AMQP and Redis.

mod address;
mod airflow;
mod celery_names;
mod convert;
mod defaults;
mod entry;
mod environment;
mod interpret;
mod json;
mod lints;
mod literal;
mod model;
mod nearest;
mod python;
mod query;
mod report;
mod servers;
mod socket_options;
mod transport;

pub use entry::Reading;
pub use interpret::{Hints, interpret, lint_facts};
pub use lints::{MIDDLEBOXES, keepalive_total};
pub use model::{
    Fact, Findings, Ignored, Lint, NotUnderstood, OptionName, Origin, Overridden, Place, Severity, SourceKind, Value,
};
pub use transport::Transport;

use thiserror::Error;

/// Why a source was not read. Never repeats its text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Neither name nor content say what it is.
    #[error(
        "{label}: not recognised; known are .env files, Celery modules (*.py), `celery report` output, airflow.cfg, JSON, rabbitmq.conf, redis.conf, \
         `redis-cli CONFIG GET` output, broker addresses and sysctl lists"
    )]
    Unrecognised {
        /// The caller's label.
        label: String,
    },
    /// It was recognised, and is damaged.
    #[error("{label}, taken for {kind}: {why}")]
    Damaged {
        /// The caller's label.
        label: String,
        /// What it was taken for.
        kind: SourceKind,
        /// What is wrong, by position.
        why: String,
    },
}

/// Reads a file's text, or a bare address; recognises what it is by the label (a file's name) and the content.
///
/// # Errors
/// [`ReadError`] when it is nothing known or is damaged.
pub fn read(label: &str, text: &str) -> Result<Reading, ReadError> {
    let kind = recognise(label, text).ok_or_else(|| ReadError::Unrecognised { label: label.to_string() })?;
    read_as(kind, label, text)
}

/// Reads a text as a given kind, for callers that know better than [`recognise`].
///
/// # Errors
/// [`ReadError::Damaged`] when it is no such thing.
pub fn read_as(kind: SourceKind, label: &str, text: &str) -> Result<Reading, ReadError> {
    let damaged = |why: &str| ReadError::Damaged { label: label.to_string(), kind, why: why.to_string() };
    match kind {
        SourceKind::Environment | SourceKind::EnvFile => Ok(environment::read_file(label, text)),
        SourceKind::CeleryModule => Ok(python::read(label, text)),
        SourceKind::CeleryReport => Ok(report::read(label, text)),
        SourceKind::AirflowCfg => Ok(airflow::read(label, text)),
        SourceKind::Json => json::read(label, text).map_err(|why| damaged(&why)),
        SourceKind::RabbitmqConf => Ok(servers::rabbitmq(label, text)),
        SourceKind::RedisConf => Ok(servers::redis(label, text)),
        SourceKind::RedisConfigGet => Ok(servers::redis_config_get(label, text)),
        SourceKind::Sysctl => Ok(servers::sysctl(label, text)),
        SourceKind::Address => {
            let address = address::Address::parse(text).ok_or_else(|| damaged("not an address"))?;
            let mut reading = Reading::new(label, kind);
            let place = reading.place(None, "address");
            reading.addresses.push((address, place, 0));
            Ok(reading)
        }
    }
}

/// Reads environment variables as (name, value) pairs. Only names of Airflow's, Celery's and well-known broker variables
/// are looked at.
#[must_use]
pub fn read_environment<'a>(label: &str, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Reading {
    environment::read(label, variables)
}

/// What a text is, by the name of its file and its content; `None` if nothing known.
#[must_use]
pub fn recognise(label: &str, text: &str) -> Option<SourceKind> {
    let name = label.rsplit('/').next().unwrap_or(label).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}');
    let trimmed = text.trim();
    let lines = || trimmed.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';']));
    let share = |test: &dyn Fn(&str) -> bool| lines().filter(|l| test(l)).count() * 2 > lines().count();
    if !trimmed.contains('\n') && address::Address::parse(trimmed).is_some() {
        return Some(SourceKind::Address);
    }
    if trimmed.contains("software -> celery:") {
        return Some(SourceKind::CeleryReport);
    }
    let by_name = match name.as_str() {
        "airflow.cfg" => Some(SourceKind::AirflowCfg),
        "rabbitmq.conf" => Some(SourceKind::RabbitmqConf),
        "redis.conf" | "valkey.conf" => Some(SourceKind::RedisConf),
        "sysctl.conf" => Some(SourceKind::Sysctl),
        n if n.ends_with(".py") => Some(SourceKind::CeleryModule),
        n if n.ends_with(".json") => Some(SourceKind::Json),
        n if n == ".env" || n.starts_with(".env.") || n.ends_with(".env") => Some(SourceKind::EnvFile),
        _ => None,
    };
    if by_name.is_some() {
        return by_name;
    }
    let first = lines().next()?;
    if trimmed.starts_with('{') {
        return Some(SourceKind::Json);
    }
    if share(&|l| {
        let l = l.trim_start_matches('-');
        l.contains('=')
            && ["net.", "net/", "kernel.", "vm.", "fs.", "dev.", "user.", "debug.", "abi."]
                .iter()
                .any(|p| l.starts_with(p))
    }) {
        return Some(SourceKind::Sysctl);
    }
    if lines().any(|l| {
        l.starts_with('[')
            && l.ends_with(']')
            && l[1..l.len() - 1].chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    }) {
        return Some(SourceKind::AirflowCfg);
    }
    let is_item = |l: &str| {
        let rest = l.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < l.len() && (rest.starts_with(") \"") || rest.starts_with("# \""))
    };
    if first.to_ascii_lowercase().contains("config get") || share(&is_item) {
        return Some(SourceKind::RedisConfigGet);
    }
    if share(&|l| servers::RABBITMQ.iter().any(|k| l.starts_with(k)) && l.contains('='))
        || lines().any(|l| {
            l.starts_with("listeners.tcp") || l.starts_with("tcp_listen_options.") || l.starts_with("consumer_timeout")
        })
    {
        return Some(SourceKind::RabbitmqConf);
    }
    let env_like = |l: &str| {
        let l = l.strip_prefix("export ").unwrap_or(l);
        l.split_once('=').is_some_and(|(k, _)| {
            !k.is_empty() && k.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        })
    };
    let python_like = |l: &str| {
        ["import ", "from ", "class ", "def "].iter().any(|p| l.starts_with(p))
            || l.contains(".conf.")
            || l.contains(" = {")
            || l.contains("= [")
    };
    if lines().any(python_like) {
        return Some(SourceKind::CeleryModule);
    }
    if share(&env_like) {
        return Some(SourceKind::EnvFile);
    }
    let is_redis_key = |l: &str| servers::REDIS.contains(&l.split_whitespace().next().unwrap_or(l));
    if lines().any(|l| is_redis_key(l) && l.split_whitespace().count() == 1) {
        return Some(SourceKind::RedisConfigGet);
    }
    if lines().any(is_redis_key) {
        return Some(SourceKind::RedisConf);
    }
    let is_setting = |l: &str| {
        l.split_once('=')
            .is_some_and(|(k, _)| matches!(celery_names::look_up(k.trim()), celery_names::Name::Setting(..)))
    };
    lines().any(is_setting).then_some(SourceKind::CeleryModule)
}

#[cfg(test)]
mod tests;
