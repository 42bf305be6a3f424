//! What speaks over a connection: the protocol by its port, the client by its command line or by the broker's word.

use super::look::Connection;
use crate::timers::Subject;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// AMQP 0-9-1.
    Amqp,
    /// Redis.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// Something else.
    Other,
}

impl Protocol {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Other => "tcp",
        }
    }
}

/// Protocols by port: the usual ones, and what the user says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocols(BTreeMap<u16, Protocol>);

impl Default for Protocols {
    fn default() -> Self {
        let usual = [
            (5672, Protocol::Amqp),
            (5671, Protocol::Amqp),
            (6379, Protocol::Redis),
            (6380, Protocol::Redis),
            (5432, Protocol::Postgres),
            (6432, Protocol::Postgres),
        ];
        Self(usual.into())
    }
}

impl Protocols {
    /// Adds `5673=amqp`.
    ///
    /// # Errors
    /// A sentence, for anything else.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let mend =
            || format!("`{text}` is not PORT=PROTOCOL; write for example 5673=amqp (amqp, redis, postgres, tcp)");
        let (port, name) = text.split_once('=').ok_or_else(mend)?;
        let all = [Protocol::Amqp, Protocol::Redis, Protocol::Postgres, Protocol::Other];
        let protocol = all.into_iter().find(|p| p.name() == name.trim()).ok_or_else(mend)?;
        self.0.insert(port.trim().parse().map_err(|_| mend())?, protocol);
        Ok(())
    }

    /// What is spoken on a connection, and whether its owner is the server.
    #[must_use]
    pub fn of(&self, connection: &Connection) -> (Protocol, bool) {
        let (local, peer) = (connection.socket.local.port(), connection.socket.peer.port());
        match (self.0.get(&peer), self.0.get(&local)) {
            (Some(protocol), _) => (*protocol, false),
            (None, Some(protocol)) => (*protocol, true),
            (None, None) => (Protocol::Other, false),
        }
    }
}

/// The client that a command line starts, where that is certain.
#[must_use]
pub fn by_command(command: &[String]) -> Option<Subject> {
    let base =
        |word: &String| Path::new(word).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    // Celery's workers rename themselves: `[celeryd: worker@host:MainProcess] -active- (worker …)`.
    if command.first().is_some_and(|first| first.starts_with("[celeryd")) {
        return Some(Subject::Celery);
    }
    let program = command.first().map(base).unwrap_or_default();
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let as_module = words.windows(2).any(|pair| pair == ["-m", "celery"]);
    // A script has its interpreter before it.
    let script = program.starts_with("python").then(|| command.get(1).map(base)).flatten().unwrap_or_default();
    let named = |name: &str| program == name || script == name;
    let worker = words.contains(&"worker");
    (worker && (as_module || named("celery") || named("airflow"))).then_some(Subject::Celery)
}

/// The client library that introduced itself to RabbitMQ, by `client_properties.product`. Celery is py-amqp with a hub, which
/// only the command line tells.
#[must_use]
pub fn by_product(product: &str, command: Option<Subject>) -> Option<Subject> {
    let product = product.to_ascii_lowercase();
    match product.as_str() {
        "py-amqp" => Some(command.filter(|c| *c == Subject::Celery).unwrap_or(Subject::PyAmqp)),
        "pika python client library" => Some(Subject::Pika),
        "aiormq" => Some(Subject::AioPika),
        "lapin" => Some(Subject::Lapin),
        "amqp 0.9.1 client" | "https://github.com/rabbitmq/amqp091-go" => Some(Subject::Amqp091Go),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Option<Subject> {
        by_command(&text.split(' ').map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_celery_worker_is_known_by_its_command_line_and_nothing_else_is_guessed() {
        for line in [
            "/venv/bin/python -m celery -A app worker --loglevel INFO",
            "/usr/bin/python3 /usr/local/bin/celery -A app worker",
            "celery worker -A app",
            "/usr/bin/python3.11 /home/airflow/.local/bin/airflow celery worker",
        ] {
            assert_eq!(command(line), Some(Subject::Celery), "{line}");
        }
        let renamed = ["[celeryd: w@h:MainProcess] -active- (worker)".to_string()];
        assert_eq!(by_command(&renamed), Some(Subject::Celery));
        for line in ["/venv/bin/python -m celery -A app beat", "python consumer.py worker", "vim celery"] {
            assert_eq!(command(line), None, "{line}");
        }
    }

    #[test]
    fn a_product_tells_the_library_and_the_command_line_tells_the_hub() {
        assert_eq!(by_product("py-amqp", Some(Subject::Celery)), Some(Subject::Celery));
        assert_eq!(by_product("py-amqp", None), Some(Subject::PyAmqp));
        assert_eq!(by_product("Pika Python Client Library", None), Some(Subject::Pika));
        assert_eq!(by_product("something", Some(Subject::Celery)), None);
    }

    #[test]
    fn ports_of_ones_own_are_taken() {
        let mut protocols = Protocols::default();
        protocols.add("5673=amqp").unwrap();
        assert_eq!(protocols.0.get(&5673), Some(&Protocol::Amqp));
        assert!(protocols.add("x=amqp").unwrap_err().contains("5673=amqp"));
        assert!(protocols.add("1=kafka").is_err());
    }
}
