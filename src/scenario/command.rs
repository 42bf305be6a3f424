//! A command line as the subject: `subject = { command = […] }`.

use super::keys::{Key, Kind};
use super::model::SubjectKind;
use super::table::{optional, required};
use super::target::ComposeTarget;
use super::value::Val;
use super::walk::Fields;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What says that the program consumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyWhen {
    /// It is heard to subscribe: `basic.consume`, or a blocking pop, on the trial's queue.
    #[default]
    Consumes,
    /// A line of its output has this text.
    Log(String),
    /// It has this many connections to the broker; the first of them is the one under test.
    Connections(u32),
    /// It has done its first message.
    Message,
}

impl ReadyWhen {
    /// Reads `consumes`, `message`, `connections: N` and `log: TEXT`.
    ///
    /// # Errors
    /// What is wrong, with the mend.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest.trim())));
        match (word.trim(), rest) {
            ("consumes", None) => Ok(Self::Consumes),
            ("message", None) => Ok(Self::Message),
            ("log", Some(line)) if !line.is_empty() => Ok(Self::Log(line.to_string())),
            ("connections", Some(count)) => match count.parse() {
                Ok(count @ 1..=64) => Ok(Self::Connections(count)),
                _ => Err(format!("`{count}` is no number of connections; write `connections: 1` to `connections: 64`")),
            },
            _ => Err(format!(
                "`{text}` says nothing about readiness; write `consumes`, `message`, `log: TEXT` or `connections: N`"
            )),
        }
    }
}

impl fmt::Display for ReadyWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumes => f.write_str("it is heard to subscribe"),
            Self::Log(text) => write!(f, "its output says `{text}`"),
            Self::Connections(1) => f.write_str("it has a connection to the broker"),
            Self::Connections(count) => write!(f, "it has {count} connections to the broker"),
            Self::Message => f.write_str("its first message is done"),
        }
    }
}

/// A program of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine {
    /// Program and arguments, with braces to fill in.
    pub argv: Vec<String>,
    /// Its environment, with braces to fill in.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory; none is the one in which the run was started.
    #[serde(default)]
    pub cwd: Option<String>,
    /// What says that it consumes.
    #[serde(default)]
    pub ready: ReadyWhen,
    /// A line with this text says that it gave a connection up.
    #[serde(default)]
    pub lost: Option<String>,
    /// A line like this one says that a message is done; `{message}` stands for its number.
    #[serde(default)]
    pub done: Option<String>,
    /// The body of a message, with `{message}` for its number.
    pub body: String,
    /// The name of a Celery task that each message is; instead of `body`.
    #[serde(default)]
    pub task: Option<String>,
    /// The queue or list; none is one of the trial's own.
    #[serde(default)]
    pub queue: Option<String>,
    /// Whether the harness declares the queue; if not, the program does.
    pub declare: bool,
    /// The image that it is in, with the docker lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The service that it is of, where it is one that runs already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ComposeTarget>,
}

/// The keys of the table.
pub(super) const COMMAND: &[Key] = &[
    required(
        "command",
        Kind::Texts,
        "command = [\"python3\", \"worker.py\", \"{broker_url}\"]",
        "Program and arguments. Filled in for each trial: `{broker_url}`, `{host}`, `{port}`, `{vhost}`, `{db}`, `{queue}`, \
         `{user}`, `{password}`, `{trial}`, `{effects}`, `{ca_file}` (with `tls = true`), `{conf}` (the arm's `client` as JSON) \
         and `{client.NAME}` (one of its options).",
    ),
    optional(
        "broker",
        Kind::Choice(&["rabbitmq", "redis"]),
        "`rabbitmq`",
        "broker = \"redis\"",
        "What it speaks to.",
        &["kind"],
    ),
    optional(
        "image",
        Kind::Image,
        "the lab's own",
        "image = \"registry.example/worker:1.4\"",
        "With `--lab docker`: the container image that the program is in. Its environment, user and working directory are the \
         image's, and `command` follows its entry point, as with `docker run IMAGE COMMAND…`.",
        &["container"],
    ),
    optional(
        "env",
        Kind::Native,
        "none",
        "env = { BROKER_URL = \"{broker_url}\" }",
        "Its environment, all of it but `PATH`, `HOME`, `LANG`, `TZ` and what the harness adds (`HALFOPEN_BROKER_URL`, \
         `HALFOPEN_QUEUE`, `HALFOPEN_EFFECTS`, `HALFOPEN_CLIENT_CONF`). Texts only; braces as in `command`.",
        &["environment"],
    ),
    optional(
        "cwd",
        Kind::Text,
        "where `halfopen` was started",
        "cwd = \"/srv/app\"",
        "Its working directory.",
        &["working_directory", "workdir", "dir"],
    ),
    optional(
        "ready",
        Kind::Ready,
        "`consumes`",
        "ready = \"log: worker started\"",
        "What says that it consumes: `consumes` (it is heard at the broker's door to subscribe to the trial's queue: \
         `basic.consume`, or a blocking pop), `log: TEXT` (a line of its output), `connections: N`, `message` (its first \
         message is done; needs `[load]` and `done` or the socket of `{effects}`).",
        &["health", "ready_when"],
    ),
    optional(
        "lost",
        Kind::Text,
        "none",
        "lost = \"connection lost\"",
        "A line of its output with this text says that it gave a connection up; it goes into the report in its own words.",
        &[],
    ),
    optional(
        "done",
        Kind::Text,
        "a datagram to `{effects}`",
        "done = \"done {message}\"",
        "A line of its output like this one proves that a message is done. Without it the program sends `NUMBER \
         MONOTONIC_NS` to the datagram socket of `{effects}`.",
        &["effect", "proof"],
    ),
    optional(
        "body",
        Kind::Text,
        "`{message}`",
        "body = '{\"id\": {message}}'",
        "The body of each message; `{message}` is its number.",
        &["payload", "message"],
    ),
    optional(
        "task",
        Kind::Text,
        "none",
        "task = \"app.tasks.charge\"",
        "Each message is a call of this Celery task, with its number as the only argument, instead of `body`.",
        &[],
    ),
    optional(
        "queue",
        Kind::Text,
        "one of the trial's own",
        "queue = \"celery\"",
        "The queue or list. Each trial has a virtual host or a Redis database of its own, so that a fixed name is no \
         trouble.",
        &[],
    ),
    optional(
        "declare",
        Kind::Flag,
        "`false`: the program does",
        "declare = true",
        "Whether the harness declares the queue (durable) before the program starts to consume.",
        &[],
    ),
];

/// Which kind of subject the table is.
pub(super) fn kind(fields: &Fields) -> SubjectKind {
    match fields.text("broker") {
        Some("redis") => SubjectKind::CommandRedis,
        _ => SubjectKind::Command,
    }
}

/// The command line that the table says.
pub(super) fn read(fields: &Fields) -> CommandLine {
    let text = |key: &str| fields.text(key).map(str::to_string);
    let native = |key: &str| match fields.get(key).map(|found| &found.val) {
        Some(Val::Native(table)) => table.clone(),
        _ => serde_json::Map::new(),
    };
    let argv = match fields.get("command").map(|found| &found.val) {
        Some(Val::Words(words)) => words.iter().map(|(_, word)| word.clone()).collect(),
        _ => Vec::new(),
    };
    CommandLine {
        argv,
        env: native("env").into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_string()))).collect(),
        cwd: text("cwd"),
        ready: fields.text("ready").and_then(|text| ReadyWhen::parse(text).ok()).unwrap_or_default(),
        lost: text("lost"),
        done: text("done"),
        body: text("body").unwrap_or_else(|| "{message}".to_string()),
        task: text("task"),
        queue: text("queue"),
        declare: fields.flag("declare").unwrap_or(false),
        image: text("image"),
        target: None,
    }
}

/// What is wrong with the table as a whole: where, which key, and the mend.
pub(super) fn problems(fields: &Fields, load: bool, brace: &[String]) -> Vec<(usize, &'static str, String)> {
    let mut found = Vec::new();
    let at = |key: &str| fields.at(key);
    let mut say = |key: &'static str, problem: String| found.push((at(key), key, problem));
    if let Some(Val::Native(env)) = fields.get("env").map(|found| &found.val) {
        for (name, _) in env.iter().filter(|(_, value)| !value.is_string()) {
            say("env", format!("`{name}` is no text; write `{name} = \"…\"`"));
        }
    }
    if let Some(done) = fields.text("done").filter(|done| !done.contains("{message}")) {
        say("done", format!("`{done}` does not say which message; write `{{message}}` where its number stands"));
    }
    if fields.has("task") && fields.has("body") {
        say("body", "a Celery task has a body of its own; remove `body` or `task`".to_string());
    }
    if let Some(body) = fields.text("body").filter(|body| !body.contains("{message}")) {
        say("body", format!("`{body}` has no number; write `{{message}}` where it stands"));
    }
    if fields.text("ready") == Some("message") && !load {
        say("ready", "no message is ever published; write `[load]` with `rate = \"1/s\"`".to_string());
    }
    if kind(fields) == SubjectKind::CommandRedis && fields.has("declare") {
        say("declare", "a Redis list is there as soon as something is in it; remove it".to_string());
    }
    let known = |name: &str| {
        BRACES.contains(&name) || name.strip_prefix("client.").is_some_and(|name| brace.iter().any(|own| own == name))
    };
    let mut texts: Vec<(&'static str, String)> = Vec::new();
    let line = read(fields);
    texts.extend(line.argv.iter().map(|text| ("command", text.clone())));
    texts.extend(line.env.values().map(|text| ("env", text.clone())));
    for (key, text) in texts {
        for name in braces(&text).filter(|name| !known(name)) {
            let mend = match name.strip_prefix("client.") {
                Some(option) => format!("write `client = {{ {option} = … }}` in every arm or in [defaults]"),
                None => format!("braces are {}", BRACES.map(|name| format!("`{{{name}}}`")).join(", ")),
            };
            say(key, format!("`{{{name}}}` stands for nothing; {mend}"));
        }
    }
    found
}

/// What braces may stand for beside `{client.NAME}`.
const BRACES: [&str; 12] =
    ["broker_url", "host", "port", "vhost", "db", "queue", "user", "password", "trial", "effects", "ca_file", "conf"];

/// The words in braces that look like one of ours: lower case letters, `_` and `.`; everything else is left as it is.
fn braces(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name)).filter(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_one_of_four_things() {
        assert_eq!(ReadyWhen::parse("consumes"), Ok(ReadyWhen::Consumes));
        assert_eq!(ReadyWhen::parse("log:  it: runs "), Ok(ReadyWhen::Log("it: runs".into())));
        assert_eq!(ReadyWhen::parse("connections: 2"), Ok(ReadyWhen::Connections(2)));
        assert_eq!(ReadyWhen::parse("message"), Ok(ReadyWhen::Message));
        for wrong in ["connections: 0", "connections", "log:", "started"] {
            assert!(ReadyWhen::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_words_in_braces_are_ours() {
        let all: Vec<&str> = braces(r#"{host}:{port} {"id": 1} {} {client.read-timeout}"#).collect();
        assert_eq!(all, ["host", "port", "client.read-timeout"]);
    }
}
