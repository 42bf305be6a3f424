//! What an adapter says, and the program that it becomes for one trial. Pure.

use crate::scenario::{Ack, Settings, SubjectKind};
use crate::units::Setting;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml_edit::{DocumentMut, Item};

/// One adapter: the data of `clients/<name>/adapter.toml` with the files beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Its name, that of the subject.
    pub name: String,
    /// Program and arguments with braces to fill in.
    pub command: Vec<String>,
    /// The text of the log line that says "consuming".
    pub ready: String,
    /// The text of the log line that says that a connection was given up.
    pub lost: String,
    /// What the words of such a line mean: `read_timeout`, `amqp_heartbeat`.
    pub words: BTreeMap<String, String>,
    /// The task that the worker runs.
    pub task: String,
    /// The packages whose versions `run.json` shows.
    pub versions: Vec<String>,
    /// The program's environment with braces to fill in.
    pub env: BTreeMap<String, String>,
    /// An arm's options by the client's own names.
    pub options: BTreeMap<String, String>,
    /// What the client's own options claim to do to the socket: by name, the column of the effective options.
    pub claims: BTreeMap<String, String>,
    /// The lock file's text.
    pub lock: &'static str,
    /// The scripts, by name.
    pub scripts: &'static [(&'static str, &'static str)],
}

/// A program to start for one trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment beside the inherited one.
    pub env: Vec<(String, String)>,
    /// A line with this text says that it consumes.
    pub ready: String,
    /// A line with this text says that it gave a connection up.
    pub lost: String,
    /// What its words mean.
    pub words: BTreeMap<String, String>,
    /// The socket on which the task proves that it ran.
    pub effects: PathBuf,
    /// Where its output goes, line by line with the run's clock.
    pub log: PathBuf,
}

/// What the braces of an adapter stand for in one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// The environment's directory.
    pub environment: PathBuf,
    /// The trial's number.
    pub trial: u32,
    /// The broker as this client knows it.
    pub broker_host: String,
    /// Its port.
    pub broker_port: u16,
    /// The virtual host, escaped for a URL.
    pub vhost: String,
    /// The queue.
    pub queue: String,
    /// Login.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The socket of the task's proof.
    pub effects: PathBuf,
    /// The log.
    pub log: PathBuf,
}

const CELERY: &str = include_str!("../../clients/celery/adapter.toml");

/// The adapter of a subject; `None` where it is part of this harness.
#[must_use]
pub fn adapter(kind: SubjectKind) -> Option<Adapter> {
    match kind {
        // A test reads it, so that it always can be read.
        SubjectKind::Celery => parse(
            CELERY,
            include_str!("../../clients/celery/requirements.lock"),
            &[("app.py", include_str!("../../clients/celery/app.py"))],
        ),
        SubjectKind::TcpReader
        | SubjectKind::TcpWriter
        | SubjectKind::Lapin
        | SubjectKind::RedisBlocking
        | SubjectKind::AmqpBlocking => None,
    }
}

fn parse(text: &str, lock: &'static str, scripts: &'static [(&'static str, &'static str)]) -> Option<Adapter> {
    let document: DocumentMut = text.parse().ok()?;
    let word = |key: &str| document.get(key).and_then(Item::as_str).map(str::to_string);
    let words = |key: &str| -> Option<Vec<String>> {
        document.get(key)?.as_array()?.iter().map(|value| value.as_str().map(str::to_string)).collect()
    };
    let table = |key: &str| -> BTreeMap<String, String> {
        let Some(table) = document.get(key).and_then(Item::as_table_like) else { return BTreeMap::new() };
        table.iter().filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_string()))).collect()
    };
    Some(Adapter {
        name: word("name")?,
        command: words("command")?,
        ready: word("ready")?,
        lost: word("lost")?,
        words: table("words"),
        task: word("task")?,
        versions: words("versions")?,
        env: table("env"),
        options: table("options"),
        claims: table("claims"),
        lock,
        scripts,
    })
}

impl Adapter {
    /// Names and versions of what `run.json` shows, from the lock file.
    #[must_use]
    pub fn locked_versions(&self) -> BTreeMap<String, String> {
        let pins = self.lock.lines().filter_map(|line| line.split_whitespace().next()?.split_once("=="));
        let shown = pins.filter(|(name, _)| self.versions.iter().any(|shown| shown == name));
        shown.map(|(name, version)| (name.to_string(), version.to_string())).collect()
    }

    /// The client's configuration: the arm's options by their names there, and the arm's native options over them.
    #[must_use]
    pub fn configuration(&self, settings: &Settings) -> Map<String, Value> {
        let mut all = Map::new();
        for (option, value) in values(settings) {
            if let Some(path) = self.options.get(option) {
                put(&mut all, path, value);
            }
        }
        for (key, value) in &settings.client {
            merge(&mut all, key, value);
        }
        all
    }

    /// The program for one trial.
    #[must_use]
    pub fn program(&self, settings: &Settings, place: &Where) -> Program {
        let conf = Value::Object(self.configuration(settings)).to_string();
        let scripts = place.environment.join("scripts");
        let fill = |text: &String| -> String {
            let pairs = [
                ("{env}", place.environment.to_string_lossy().into_owned()),
                ("{scripts}", scripts.to_string_lossy().into_owned()),
                ("{trial}", place.trial.to_string()),
                ("{broker_host}", place.broker_host.clone()),
                ("{broker_port}", place.broker_port.to_string()),
                ("{vhost}", place.vhost.clone()),
                ("{queue}", place.queue.clone()),
                ("{user}", place.user.clone()),
                ("{password}", place.password.clone()),
                ("{effects}", place.effects.to_string_lossy().into_owned()),
                // Last: what it holds is not to be filled in.
                ("{conf}", conf.clone()),
            ];
            pairs.iter().fold(text.clone(), |text, (brace, value)| text.replace(brace, value))
        };
        Program {
            argv: self.command.iter().map(&fill).collect(),
            env: self.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
            ready: self.ready.clone(),
            lost: self.lost.clone(),
            words: self.words.clone(),
            effects: place.effects.clone(),
            log: place.log.clone(),
        }
    }
}

/// The options of an arm that a client may know, by our names, as JSON. What is not asked for is left out.
fn values(settings: &Settings) -> Vec<(&'static str, Value)> {
    let seconds = |time: std::time::Duration| -> Value {
        // Whole numbers stay whole: some clients insist.
        if time.subsec_nanos() == 0 { time.as_secs().into() } else { time.as_secs_f64().into() }
    };
    let mut values = Vec::new();
    match settings.heartbeat {
        Some(Setting::After(time)) => values.push(("heartbeat", seconds(time))),
        Some(Setting::None) => values.push(("heartbeat", 0.into())),
        None => {}
    }
    values.extend(settings.connect_timeout.get().map(|time| ("connect_timeout", seconds(time))));
    values.extend(settings.read_timeout.get().map(|time| ("read_timeout", seconds(time))));
    values.extend(settings.prefetch.map(|n| ("prefetch", n.into())));
    values.extend(settings.ack.map(|ack| ("ack", (ack == Ack::Late).into())));
    values
}

/// Puts a value at a dotted path.
fn put(all: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(all.insert(path.to_string(), value)),
        Some((head, rest)) => {
            let inner = all.entry(head).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Tables are joined, everything else is replaced.
fn merge(all: &mut Map<String, Value>, key: &str, value: &Value) {
    match (all.get_mut(key), value) {
        (Some(Value::Object(into)), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| merge(into, key, value))
        }
        _ => drop(all.insert(key.to_string(), value.clone())),
    }
}

/// How an arm's options reach its client, one line each: `read_timeout → broker_transport_options.read_timeout = 60`.
#[must_use]
pub fn mapping(settings: &Settings) -> Vec<String> {
    let Some(adapter) = adapter(settings.subject) else { return Vec::new() };
    let mut lines: Vec<String> = values(settings)
        .into_iter()
        .filter_map(|(option, value)| Some(format!("{option} → {} = {value}", adapter.options.get(option)?)))
        .collect();
    lines.extend(flat("", &settings.client).into_iter().map(|(path, value)| format!("client → {path} = {value}")));
    lines
}

/// What an arm asks of its client's sockets: the client's own name, the value, and the effective option that it claims.
#[must_use]
pub fn asked(settings: &Settings) -> Vec<(String, Value, String)> {
    let Some(adapter) = adapter(settings.subject) else { return Vec::new() };
    let asked = flat("", &adapter.configuration(settings));
    asked
        .into_iter()
        .filter_map(|(path, value)| Some((path.clone(), value, adapter.claims.get(&path)?.clone())))
        .collect()
}

fn flat(prefix: &str, table: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(inner) => all.extend(flat(&path, inner)),
            other => all.push((path, other.clone())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sets: &[(&str, &str)]) -> Settings {
        let sets: Vec<(String, String)> = sets.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        crate::scenario::from_sets(&sets).unwrap()
    }

    #[test]
    fn every_adapter_can_be_read_and_knows_only_real_claims() {
        for kind in SubjectKind::ALL.into_iter().filter(|kind| kind.is_command()) {
            let adapter = adapter(kind).unwrap();
            assert_eq!(adapter.name, kind.name());
            assert_eq!(adapter.locked_versions().len(), adapter.versions.len());
            assert!(adapter.words.values().all(|how| ["read_timeout", "amqp_heartbeat"].contains(&how.as_str())));
            assert!(
                adapter.lock.lines().filter(|line| !line.starts_with('#')).all(|line| line.contains("--hash=sha256:"))
            );
            let known = ["so_rcvtimeo", "so_sndtimeo", "keepalive"];
            assert!(adapter.claims.values().all(|claim| known.contains(&claim.as_str())), "{:?}", adapter.claims);
        }
    }

    #[test]
    fn options_get_their_native_names_and_native_options_stand_over_them() {
        let adapter = adapter(SubjectKind::Celery).unwrap();
        let conf = |sets: &[(&str, &str)]| Value::Object(adapter.configuration(&settings(sets))).to_string();
        assert_eq!(
            conf(&[("subject", "celery")]),
            r#"{"broker_heartbeat":120,"broker_connection_timeout":4,"worker_prefetch_multiplier":4,"task_acks_late":false}"#
        );
        let both = conf(&[
            ("subject", "celery"),
            ("heartbeat", "none"),
            ("read_timeout", "60s"),
            ("client.broker_transport_options.socket_timeout", "60"),
        ]);
        assert!(both.contains(r#""broker_heartbeat":0"#), "{both}");
        assert!(both.contains(r#""broker_transport_options":{"read_timeout":60,"socket_timeout":60}"#), "{both}");
    }

    #[test]
    fn the_mapping_and_the_claims_name_the_clients_own_options() {
        let asks = settings(&[("subject", "celery"), ("client.broker_transport_options.socket_timeout", "60")]);
        let claims = asked(&asks);
        let expected = ("broker_transport_options.socket_timeout".to_string(), 60.into(), "so_rcvtimeo".to_string());
        assert_eq!(claims, [expected]);
        assert!(mapping(&asks).contains(&"client → broker_transport_options.socket_timeout = 60".to_string()));
        assert!(mapping(&asks).contains(&"heartbeat → broker_heartbeat = 120".to_string()));
    }

    #[test]
    fn braces_are_filled_in_but_never_inside_of_the_configuration() {
        let place = Where {
            environment: "/cache/e".into(),
            trial: 7,
            broker_host: "10.128.128.1".into(),
            broker_port: 5672,
            vhost: "%2F".into(),
            queue: "halfopen.7".into(),
            user: "u".into(),
            password: "p".into(),
            effects: "/tmp/e".into(),
            log: "/run/l".into(),
        };
        let asks = settings(&[("subject", "celery"), ("client.note", "{password}")]);
        let program = adapter(SubjectKind::Celery).unwrap().program(&asks, &place);
        assert_eq!(program.argv[0], "/cache/e/bin/python");
        let env = |name: &str| program.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_default();
        assert_eq!(env("HALFOPEN_BROKER_URL"), "amqp://u:p@10.128.128.1:5672/%2F");
        assert!(env("HALFOPEN_CLIENT_CONF").contains("\"{password}\""));
    }
}
