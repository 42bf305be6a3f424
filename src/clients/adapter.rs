//! What an adapter says, and the program that it becomes for one trial. Pure.

use crate::scenario::{Ack, BrokerKind, CommandLine, ReadyWhen, Settings, SubjectKind};
use crate::units::Setting;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item};

/// What each message is, for whoever publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A call of this task in Celery's protocol, version 2; on Redis in kombu's envelope.
    Celery(String),
    /// A call of this actor, as dramatiq words it.
    Dramatiq(String),
    /// This text, with `{message}` for the number.
    Text(String),
}

/// One adapter: the data of `clients/<name>/*.toml` with the files beside it, or a command line of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Its name, that of the subject.
    pub name: String,
    /// The name of its environment; several adapters may share one.
    pub environment: &'static str,
    /// Program and arguments with braces to fill in.
    pub command: Vec<String>,
    /// Its working directory; `None` is the one of its proofs, where nothing lies.
    pub cwd: Option<PathBuf>,
    /// What says "consuming".
    pub ready: ReadyWhen,
    /// Texts of the log lines that say that a connection was given up.
    pub lost: Vec<String>,
    /// What the words of such a line mean: `read_timeout`, `amqp_heartbeat`.
    pub words: BTreeMap<String, String>,
    /// A log line like this one proves that a message is done.
    pub done: Option<String>,
    /// What the messages are.
    pub message: Message,
    /// The queue, where it is not the trial's own.
    pub queue: Option<String>,
    /// Whether the harness declares the queue.
    pub declare: bool,
    /// The packages whose versions `run.json` shows.
    pub versions: Vec<String>,
    /// The program's environment with braces to fill in.
    pub env: BTreeMap<String, String>,
    /// An arm's options by the client's own names.
    pub options: BTreeMap<String, String>,
    /// What the client has to be told where its connections are encrypted: its own options by their paths, with `{ca_file}` to
    /// fill in.
    pub tls: BTreeMap<String, Value>,
    /// What the client's own options claim to do to the socket: by name, the column of the effective options.
    pub claims: BTreeMap<String, String>,
    /// The lock file's text; empty where nothing is installed.
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
    /// Its working directory; `None` is that of its proofs.
    pub cwd: Option<PathBuf>,
    /// What says that it consumes.
    pub ready: ReadyWhen,
    /// A line with one of these texts says that it gave a connection up.
    pub lost: Vec<String>,
    /// What its words mean.
    pub words: BTreeMap<String, String>,
    /// A line like this one proves that a message is done; `{message}` is its number.
    pub done: Option<String>,
    /// The socket on which the task proves that it ran.
    pub effects: PathBuf,
    /// Where its output goes, line by line with the run's clock.
    pub log: PathBuf,
    /// Whom it runs as, in the words of its image: `USER[:GROUP]`, names or numbers; empty is whoever starts it.
    #[serde(default)]
    pub user: String,
    /// Its first process, where it runs already: then nothing is started and nothing ended.
    #[serde(default)]
    pub attached: Option<u32>,
}

/// What the braces of an adapter stand for in one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where {
    /// The environment's directory; `None` for a program that needs none.
    pub environment: Option<PathBuf>,
    /// Where the run was started.
    pub started_in: PathBuf,
    /// The trial's number.
    pub trial: u32,
    /// What it speaks to.
    pub broker: BrokerKind,
    /// The broker as this client knows it.
    pub broker_host: String,
    /// Its port.
    pub broker_port: u16,
    /// The virtual host, escaped for a URL.
    pub vhost: String,
    /// The number of the Redis database.
    pub db: u32,
    /// The queue.
    pub queue: String,
    /// Login.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The socket of the task's proof.
    pub effects: PathBuf,
    /// The authority's certificate, where the connection is encrypted.
    pub ca_file: Option<PathBuf>,
    /// The log.
    pub log: PathBuf,
}

macro_rules! scripts {
    ($dir:literal: $($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../clients/", $dir, "/", $name)))),*]
    };
}

/// The adapter of an arm's subject; `None` where it is part of this harness.
#[must_use]
pub fn adapter(settings: &Settings) -> Option<Adapter> {
    match &settings.command {
        Some(line) => Some(own(line, settings.subject)),
        None => adapter_of(settings.subject),
    }
}

/// The adapter of a named client; `None` where it is part of this harness or a command line of the user's own.
#[must_use]
pub fn adapter_of(kind: SubjectKind) -> Option<Adapter> {
    let name = kind.name();
    // A test reads them all, so that they always can be read.
    match kind {
        SubjectKind::Celery => parse(name, "celery", CELERY, CELERY_LOCK, CELERY_SCRIPTS),
        SubjectKind::Celery5 => parse(name, "celery-5", CELERY, CELERY_5_LOCK, CELERY_SCRIPTS),
        SubjectKind::CeleryRedis => parse(name, "celery", CELERY_REDIS, CELERY_LOCK, CELERY_SCRIPTS),
        SubjectKind::Celery5Redis => parse(name, "celery-5", CELERY_REDIS, CELERY_5_LOCK, CELERY_SCRIPTS),
        SubjectKind::Pika => parse(
            name,
            "pika",
            include_str!("../../clients/pika/adapter.toml"),
            include_str!("../../clients/pika/requirements.lock"),
            scripts!("pika": "consumer.py"),
        ),
        SubjectKind::AioPika => parse(
            name,
            "aio-pika",
            include_str!("../../clients/aio-pika/adapter.toml"),
            include_str!("../../clients/aio-pika/requirements.lock"),
            scripts!("aio-pika": "consumer.py"),
        ),
        SubjectKind::RedisPy => parse(
            name,
            "redis-py",
            REDIS_PY,
            include_str!("../../clients/redis-py/requirements.lock"),
            scripts!("redis-py": "consumer.py"),
        ),
        SubjectKind::RedisPy5 => parse(
            name,
            "redis-py-5",
            REDIS_PY,
            include_str!("../../clients/redis-py/requirements-5.lock"),
            scripts!("redis-py": "consumer.py"),
        ),
        SubjectKind::Dramatiq => parse(
            name,
            "dramatiq",
            include_str!("../../clients/dramatiq/adapter.toml"),
            include_str!("../../clients/dramatiq/requirements.lock"),
            scripts!("dramatiq": "tasks.py"),
        ),
        SubjectKind::TcpReader
        | SubjectKind::TcpWriter
        | SubjectKind::Lapin
        | SubjectKind::RedisBlocking
        | SubjectKind::AmqpBlocking
        | SubjectKind::Command
        | SubjectKind::CommandRedis => None,
    }
}

const CELERY: &str = include_str!("../../clients/celery/adapter.toml");
const CELERY_REDIS: &str = include_str!("../../clients/celery/redis.toml");
const CELERY_LOCK: &str = include_str!("../../clients/celery/requirements.lock");
const CELERY_5_LOCK: &str = include_str!("../../clients/celery/requirements-5.lock");
const CELERY_SCRIPTS: &[(&str, &str)] = scripts!("celery": "app.py");
const REDIS_PY: &str = include_str!("../../clients/redis-py/adapter.toml");

/// What the user wrote, as an adapter.
fn own(line: &CommandLine, kind: SubjectKind) -> Adapter {
    Adapter {
        name: kind.name().to_string(),
        environment: "",
        command: line.argv.clone(),
        cwd: Some(line.cwd.clone().unwrap_or_default().into()),
        ready: line.ready.clone(),
        lost: line.lost.iter().cloned().collect(),
        words: BTreeMap::new(),
        done: line.done.clone(),
        message: match &line.task {
            Some(task) => Message::Celery(task.clone()),
            None => Message::Text(line.body.clone()),
        },
        queue: line.queue.clone(),
        declare: line.declare,
        versions: Vec::new(),
        env: line.env.clone(),
        options: BTreeMap::new(),
        tls: BTreeMap::new(),
        claims: BTreeMap::new(),
        lock: "",
        scripts: &[],
    }
}

fn parse(
    name: &str,
    environment: &'static str,
    text: &str,
    lock: &'static str,
    scripts: &'static [(&'static str, &'static str)],
) -> Option<Adapter> {
    let document: DocumentMut = text.parse().ok()?;
    let word = |key: &str| document.get(key).and_then(Item::as_str).map(str::to_string);
    let words = |key: &str| -> Option<Vec<String>> {
        document.get(key)?.as_array()?.iter().map(|value| value.as_str().map(str::to_string)).collect()
    };
    let table = |key: &str| -> BTreeMap<String, String> {
        let Some(table) = document.get(key).and_then(Item::as_table_like) else { return BTreeMap::new() };
        table.iter().filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_string()))).collect()
    };
    let message = match (word("task"), word("actor"), word("body")) {
        (Some(task), None, None) => Message::Celery(task),
        (None, Some(actor), None) => Message::Dramatiq(actor),
        (None, None, Some(body)) => Message::Text(body),
        _ => return None,
    };
    Some(Adapter {
        name: name.to_string(),
        environment,
        command: words("command")?,
        cwd: None,
        ready: word("ready").map_or(ReadyWhen::Consumes, ReadyWhen::Log),
        lost: words("lost")?,
        words: table("words"),
        done: None,
        message,
        queue: None,
        declare: document.get("declare").and_then(Item::as_bool)?,
        versions: words("versions")?,
        env: table("env"),
        options: table("options"),
        tls: mixed(document.get("tls")),
        claims: table("claims"),
        lock,
        scripts,
    })
}

/// What a trial's queue is declared with, in RabbitMQ's words; the publisher declares the same.
fn queue_arguments(settings: &Settings, queue: &str) -> Map<String, Value> {
    let mut all = Map::new();
    if let Some(priority) = settings.delivery.max_priority {
        all.insert("x-max-priority".into(), priority.into());
    }
    if settings.delivery.quorum {
        all.insert("x-queue-type".into(), "quorum".into());
    }
    if settings.delivery.dead_letters {
        all.insert("x-dead-letter-exchange".into(), "".into());
        all.insert("x-dead-letter-routing-key".into(), format!("{queue}.dead").into());
    }
    all
}

/// A table of texts, numbers and switches.
fn mixed(table: Option<&Item>) -> BTreeMap<String, Value> {
    let Some(table) = table.and_then(Item::as_table_like) else { return BTreeMap::new() };
    let value = |item: &Item| -> Option<Value> {
        let text = item.as_str().map(Value::from);
        text.or_else(|| item.as_bool().map(Value::from)).or_else(|| item.as_integer().map(Value::from))
    };
    table.iter().filter_map(|(key, item)| Some((key.to_string(), value(item)?))).collect()
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

    /// The client's configuration in one trial: with what it has to know of TLS where the connection is encrypted.
    fn configured(&self, settings: &Settings, place: &Where) -> Map<String, Value> {
        let mut all = self.configuration(settings);
        let Some(ca) = &place.ca_file else { return all };
        let ca = BTreeMap::from([("ca_file".to_string(), ca.to_string_lossy().into_owned())]);
        for (path, value) in &self.tls {
            let value = match value {
                Value::String(text) => fill(text, &ca).into(),
                other => other.clone(),
            };
            put(&mut all, path, value);
        }
        all
    }

    /// The program for one trial.
    #[must_use]
    pub fn program(&self, settings: &Settings, place: &Where) -> Program {
        let braces = self.braces(settings, place);
        let fill = |text: &str| fill(text, &braces);
        let given = [
            ("HALFOPEN_BROKER_URL", "{broker_url}"),
            ("HALFOPEN_QUEUE", "{queue}"),
            ("HALFOPEN_EFFECTS", "{effects}"),
            ("HALFOPEN_CLIENT_CONF", "{conf}"),
        ];
        let mut env: BTreeMap<String, String> =
            given.iter().map(|(name, text)| ((*name).to_string(), fill(text))).collect();
        let arguments = queue_arguments(settings, &place.queue);
        if !arguments.is_empty() {
            env.insert("HALFOPEN_QUEUE_ARGUMENTS".to_string(), Value::Object(arguments).to_string());
        }
        env.extend(self.env.iter().map(|(name, value)| (name.clone(), fill(value))));
        Program {
            argv: self.command.iter().map(|text| fill(text)).collect(),
            env: env.into_iter().collect(),
            cwd: self.cwd.as_ref().map(|cwd| place.started_in.join(cwd)),
            ready: self.ready.clone(),
            lost: self.lost.clone(),
            words: self.words.clone(),
            done: self.done.clone(),
            effects: place.effects.clone(),
            log: place.log.clone(),
            user: String::new(),
            attached: None,
        }
    }

    fn braces(&self, settings: &Settings, place: &Where) -> BTreeMap<String, String> {
        let Where { broker_host: host, broker_port: port, user, password, .. } = place;
        let s = if place.ca_file.is_some() { "s" } else { "" };
        let url = match place.broker {
            BrokerKind::Redis => format!("redis{s}://:{password}@{host}:{port}/{}", place.db),
            _ => format!("amqp{s}://{user}:{password}@{host}:{port}/{}", place.vhost),
        };
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut all: BTreeMap<String, String> = [
            ("broker_url", url),
            ("host", host.clone()),
            ("port", port.to_string()),
            ("vhost", place.vhost.clone()),
            ("db", place.db.to_string()),
            ("queue", place.queue.clone()),
            ("user", user.clone()),
            ("password", password.clone()),
            ("trial", place.trial.to_string()),
            ("effects", path(&place.effects)),
            ("ca_file", place.ca_file.as_deref().map(path).unwrap_or_default()),
            ("conf", Value::Object(self.configured(settings, place)).to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect();
        if let Some(environment) = &place.environment {
            all.insert("env".into(), path(environment));
            all.insert("scripts".into(), path(&environment.join("scripts")));
        }
        all.extend(settings.client.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            (format!("client.{name}"), text)
        }));
        all
    }
}

/// Fills braces in, once: what a value holds is not filled in again, and other braces stay as they are.
fn fill(text: &str, braces: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        filled.push_str(before);
        let known = from.find('}').and_then(|close| Some((braces.get(&from[1..close])?, close)));
        match known {
            Some((value, close)) => {
                filled.push_str(value);
                rest = &from[close + 1..];
            }
            None => {
                filled.push('{');
                rest = &from[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
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
    if let Some(keepalive) = settings.keepalive {
        values.push(("keepalive", true.into()));
        values.push(("keepalive_idle", seconds(keepalive.idle)));
        values.push(("keepalive_interval", seconds(keepalive.interval)));
        values.push(("keepalive_probes", keepalive.probes.into()));
    }
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
    let Some(adapter) = adapter(settings) else { return Vec::new() };
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
    let Some(adapter) = adapter(settings) else { return Vec::new() };
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
#[path = "adapter_tests.rs"]
mod tests;
