//! The file that tells where somebody's own tasks and workers are written down. Pure: text in, settings or errors out.

use crate::reaper::rule::guard::Brake;
use crate::reaper::rule::liveness::Limits;
use crate::units::{parse_duration, print_duration};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use toml_edit::{Document, Item, TableLike};

/// Everything that a reaper on somebody's own stores has to know.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnConfig {
    /// Where the tasks are.
    pub tasks: TaskTable,
    /// Where the workers' signs of life are.
    pub liveness: Liveness,
    /// What is too old.
    pub limits: Limits,
    /// From the start of one sweep to the next.
    pub sweep: Duration,
    /// How much one sweep may fail.
    pub brake: Brake,
}

/// An address: as it stands in the file, or the environment variable that has it, so that no file needs a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// As it stands.
    Plain(String),
    /// The variable's name.
    Environment(String),
}

/// A table of tasks in PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTable {
    /// The database.
    pub address: Address,
    /// The table, with its schema before a dot where that is not on the search path.
    pub table: String,
    /// The column that names a task.
    pub id: String,
    /// The column with its state.
    pub status: String,
    /// The column with the worker that began it, where there is one.
    pub worker_id: Option<String>,
    /// The column for the reason, where there is one.
    pub error_code: Option<String>,
    /// The column with the time of its last change.
    pub updated_at: String,
    /// The states in which nobody has begun.
    pub pending: Vec<String>,
    /// The states in which somebody works.
    pub processing: Vec<String>,
    /// The state to put it in.
    pub failed: String,
    /// What to write as the reason.
    pub code: String,
}

/// Where a worker's sign of life is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// Nowhere: age alone decides.
    None,
    /// A Redis key with a time to live.
    Redis {
        /// The server, as `redis://…`, or encrypted as `rediss://…`.
        address: Address,
        /// The file with its authority's certificate; `None`: the system's authorities.
        ca: Option<PathBuf>,
        /// The key; `{id}` stands for the worker's name.
        key: String,
    },
    /// A table in the same PostgreSQL.
    Postgres {
        /// The table.
        table: String,
        /// The column with the worker's name.
        worker_id: String,
        /// The column with the time of its last heartbeat.
        last_heartbeat_at: String,
        /// A heartbeat that is older is none.
        ttl: Duration,
    },
}

/// What is wrong with a file: line, key, and the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {}{problem}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct ConfigError {
    /// The line, from 1.
    pub line: usize,
    /// The key, with its section.
    pub key: String,
    /// What is wrong and what to write.
    pub problem: String,
}

/// A section's keys: name, and whether it has to be there.
const TASKS: &[&str] = &[
    "address",
    "address_env",
    "table",
    "id",
    "status",
    "worker_id",
    "error_code",
    "updated_at",
    "pending",
    "processing",
    "failed",
    "code",
];
const LIVENESS: &[&str] =
    &["store", "address", "address_env", "ca", "key", "table", "worker_id", "last_heartbeat_at", "ttl"];
const LIMITS: &[&str] = &["pending", "processing", "sweep", "max_fail", "max_share"];
const SECTIONS: &[&str] = &["tasks", "liveness", "limits"];

/// Reads a configuration file.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(text: &str) -> Result<OwnConfig, ConfigError> {
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        let problem = format!("not TOML: {}", error.message().lines().collect::<Vec<_>>().join("; "));
        ConfigError { line: line_of(text, at), key: String::new(), problem }
    })?;
    let root = Section { text, name: "", table: Some(document.as_table()), at: 0 };
    root.know(SECTIONS)?;
    let section = |name: &'static str, keys: &[&str]| -> Result<Section<'_>, ConfigError> {
        let item = document.as_table().get(name);
        let at = root.at(name);
        let table = match item {
            None => None,
            Some(item) => Some(item.as_table_like().ok_or_else(|| root.error(name, "is a section; write `[tasks]`"))?),
        };
        let section = Section { text, name, table, at };
        section.know(keys)?;
        Ok(section)
    };
    let (tasks, liveness, limits) =
        (section("tasks", TASKS)?, section("liveness", LIVENESS)?, section("limits", LIMITS)?);
    let or = |section: &Section<'_>, key: &str, default: &str| -> Result<String, ConfigError> {
        Ok(section.text(key)?.unwrap_or_else(|| default.to_string()))
    };
    let duration = |key: &str, default: Duration| limits.duration(key).map(|d| d.unwrap_or(default));
    let ages = Limits::default();
    let config = OwnConfig {
        tasks: TaskTable {
            address: tasks.address("host=/run/postgresql dbname=app")?,
            table: or(&tasks, "table", "task")?,
            id: or(&tasks, "id", "id")?,
            status: or(&tasks, "status", "status")?,
            worker_id: tasks.column("worker_id")?,
            error_code: tasks.column("error_code")?,
            updated_at: or(&tasks, "updated_at", "updated_at")?,
            pending: tasks.words("pending", "PENDING")?,
            processing: tasks.words("processing", "PROCESSING")?,
            failed: or(&tasks, "failed", "FAILED")?,
            code: or(&tasks, "code", "TIMEOUT")?,
        },
        liveness: liveness_of(&liveness)?,
        limits: Limits {
            pending: duration("pending", ages.pending)?,
            processing: duration("processing", ages.processing)?,
        },
        sweep: duration("sweep", Duration::from_secs(300))?,
        brake: Brake {
            max_fail: limits.count("max_fail")?.unwrap_or(Brake::default().max_fail),
            max_share: limits.share("max_share")?.unwrap_or(Brake::default().max_share),
        },
    };
    agrees_with_itself(&config, &tasks)?;
    Ok(config)
}

/// A state is one of the three, and whoever goes by signs of life knows whose they are.
fn agrees_with_itself(config: &OwnConfig, section: &Section<'_>) -> Result<(), ConfigError> {
    let t = &config.tasks;
    // Of two that contradict each other the one that was written is the one to mend.
    let written = |keys: [&'static str; 2]| keys.into_iter().find(|key| section.has(key)).unwrap_or(keys[0]);
    if let Some(word) = t.pending.iter().find(|word| t.processing.contains(word)) {
        let problem = format!("`{word}` is among `pending` and `processing`; a row is in one of the two");
        return Err(section.error(written(["pending", "processing"]), &problem));
    }
    for (key, words) in [("pending", &t.pending), ("processing", &t.processing)] {
        if words.contains(&t.failed) {
            let problem =
                format!("`{}` is the state of a failed row and one of `{key}`: it would be failed for ever", t.failed);
            return Err(section.error(written(["failed", key]), &problem));
        }
    }
    if t.worker_id.is_none() && config.liveness != Liveness::None {
        let problem =
            "is \"none\", so nobody's sign of life would be looked for; name the column, or write `store = \"none\"`";
        return Err(section.error("worker_id", problem));
    }
    Ok(())
}

fn liveness_of(section: &Section<'_>) -> Result<Liveness, ConfigError> {
    let store = section.text("store")?.unwrap_or_else(|| "none".to_string());
    let only = |wanted: &[&str]| -> Result<(), ConfigError> {
        let extra = LIVENESS.iter().find(|key| **key != "store" && !wanted.contains(key) && section.has(key));
        extra
            .map_or(Ok(()), |key| Err(section.error(key, &format!("says nothing with store = \"{store}\"; remove it"))))
    };
    match store.as_str() {
        "none" => only(&[]).map(|()| Liveness::None),
        "redis" => {
            only(&["address", "address_env", "ca", "key"])?;
            let key = section.text("key")?.unwrap_or_else(|| "worker:{id}".to_string());
            if !key.contains("{id}") {
                return Err(
                    section.error("key", "has no `{id}` for the worker's name; write for example \"worker:{id}\"")
                );
            }
            let address = section.address("redis://127.0.0.1:6379/0")?;
            let ca = section.text("ca")?.map(PathBuf::from);
            if let (Some(_), Address::Plain(plain)) = (&ca, &address)
                && !plain.starts_with("rediss://")
            {
                return Err(section.error("ca", "is for a server behind TLS; write `address = \"rediss://…\"`"));
            }
            Ok(Liveness::Redis { address, ca, key })
        }
        "postgres" => {
            only(&["table", "worker_id", "last_heartbeat_at", "ttl"])?;
            let or = |key: &str, default: &str| section.text(key).map(|t| t.unwrap_or_else(|| default.to_string()));
            Ok(Liveness::Postgres {
                table: or("table", "worker_status")?,
                worker_id: or("worker_id", "worker_id")?,
                last_heartbeat_at: or("last_heartbeat_at", "last_heartbeat_at")?,
                ttl: section.duration("ttl")?.unwrap_or(Duration::from_secs(90)),
            })
        }
        other => Err(section.error("store", &format!("is never `{other}`; write \"redis\", \"postgres\" or \"none\""))),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

struct Section<'t> {
    text: &'t str,
    name: &'t str,
    table: Option<&'t dyn TableLike>,
    at: usize,
}

impl Section<'_> {
    fn get(&self, key: &str) -> Option<&Item> {
        self.table?.get(key).filter(|item| !item.is_none())
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Where a key stands; the section's head where it does not.
    fn at(&self, key: &str) -> usize {
        let span = self.table.and_then(|table| table.key(key)).and_then(toml_edit::Key::span);
        span.map_or(self.at, |span| span.start)
    }

    fn error(&self, key: &str, problem: &str) -> ConfigError {
        let dot = if self.name.is_empty() || key.is_empty() { "" } else { "." };
        ConfigError {
            line: line_of(self.text, self.at(key)),
            key: format!("{}{dot}{key}", self.name),
            problem: problem.into(),
        }
    }

    /// Refuses keys that are not known, with the nearest one that is.
    fn know(&self, keys: &[&str]) -> Result<(), ConfigError> {
        let Some(table) = self.table else { return Ok(()) };
        let Some((unknown, _)) = table.iter().find(|(key, _)| !keys.contains(key)) else { return Ok(()) };
        let nearest =
            keys.iter().min_by_key(|known| strsim::damerau_levenshtein(known, unknown)).copied().unwrap_or("");
        Err(self.error(unknown, &format!("is not known; did you mean `{nearest}`?")))
    }

    fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        let Some(item) = self.get(key) else { return Ok(None) };
        match item.as_str().map(str::trim) {
            Some("") => Err(self.error(key, "is empty; write a name, or leave the key out")),
            Some(text) => Ok(Some(text.to_string())),
            None => Err(self.error(key, "is a text; write it in quotes")),
        }
    }

    /// A column that may be missing: `"none"`, or by default the one of the same name.
    fn column(&self, key: &str) -> Result<Option<String>, ConfigError> {
        let name = self.text(key)?.unwrap_or_else(|| key.to_string());
        Ok((name != "none").then_some(name))
    }

    fn words(&self, key: &str, default: &str) -> Result<Vec<String>, ConfigError> {
        let Some(item) = self.get(key) else { return Ok(vec![default.to_string()]) };
        if let Some(word) = item.as_str() {
            return Ok(vec![word.to_string()]);
        }
        let words: Option<Vec<String>> =
            item.as_array().map(|list| list.iter().filter_map(|v| v.as_str().map(str::to_string)).collect());
        match words {
            Some(words) if !words.is_empty() && Some(words.len()) == item.as_array().map(toml_edit::Array::len) => {
                Ok(words)
            }
            _ => Err(self.error(key, &format!("is a list of states; write for example [\"{default}\"]"))),
        }
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let time = parse_duration(&text).map_err(|error| self.error(key, &error.to_string()))?;
        if time < Duration::from_millis(100) {
            let problem =
                format!("{} is too short for a sweep of a database; write for example \"5m\"", print_duration(time));
            return Err(self.error(key, &problem));
        }
        Ok(Some(time))
    }

    fn count(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        let Some(item) = self.get(key) else { return Ok(None) };
        let number = item.as_integer().and_then(|n| usize::try_from(n).ok());
        number.map(Some).ok_or_else(|| self.error(key, "is a whole number of rows; write for example 50"))
    }

    fn share(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(item) = self.get(key) else { return Ok(None) };
        let percent = |text: &str| text.trim().strip_suffix('%')?.trim().parse::<f64>().ok().map(|p| p / 100.0);
        let share =
            item.as_float().or_else(|| item.as_integer().map(|n| n as f64)).or_else(|| item.as_str().and_then(percent));
        let share = share.filter(|s| (0.0..=1.0).contains(s));
        share.map(Some).ok_or_else(|| self.error(key, "is a share; write for example \"20%\" or 0.2"))
    }

    fn address(&self, example: &str) -> Result<Address, ConfigError> {
        match (self.text("address")?, self.text("address_env")?) {
            (Some(plain), None) => Ok(Address::Plain(plain)),
            (None, Some(name)) => Ok(Address::Environment(name)),
            (Some(_), Some(_)) => Err(self.error("address_env", "stands beside `address`; write one of them")),
            (None, None) => {
                let problem = format!(
                    "is missing; write `address = \"{example}\"`, or `address_env` with the variable that has it"
                );
                Err(self.error("address", &problem))
            }
        }
    }
}

/// The words of an address that say nothing secret.
const OPEN: [&str; 7] = ["host", "hostaddr", "port", "user", "dbname", "sslmode", "sslrootcert"];

impl fmt::Display for Address {
    /// Without a password: the variable's name, a URL's part after its `@` and before its `?`, or of words those that are
    /// known to be no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "${name}"),
            Self::Plain(text) if text.contains("://") => {
                let address = text.split('?').next().unwrap_or_default();
                match address.rsplit_once('@') {
                    Some((_, rest)) => write!(f, "***@{rest}"),
                    None => f.write_str(address),
                }
            }
            Self::Plain(text) => {
                let shown = text.split_whitespace().filter(|word| {
                    word.split_once('=').is_some_and(|(key, value)| OPEN.contains(&key) && !value.starts_with('\''))
                });
                f.write_str(&shown.collect::<Vec<_>>().join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[tasks]\naddress = \"host=/run/postgresql dbname=app\"\n";

    #[test]
    fn the_missions_numbers_are_the_defaults() {
        let config = parse(LEAST).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!((config.sweep, config.brake.max_share), (Duration::from_secs(300), 0.2));
        assert_eq!(config.liveness, Liveness::None);
        assert_eq!(config.tasks.worker_id.as_deref(), Some("worker_id"));
        let none = parse(&format!("{LEAST}worker_id = \"none\"\n")).unwrap();
        assert_eq!(none.tasks.worker_id, None);
    }

    #[test]
    fn a_whole_file() {
        let text = "[tasks]\naddress_env = \"DB\"\ntable = \"app.job\"\npending = [\"NEW\", \"QUEUED\"]\n\
            [liveness]\nstore = \"redis\"\naddress = \"redis://u:secret@h/1\"\nkey = \"w:{id}\"\n\
            [limits]\npending = \"1m\"\nmax_fail = 7\nmax_share = \"5%\"\n";
        let config = parse(text).unwrap();
        assert_eq!(config.tasks.pending, ["NEW", "QUEUED"]);
        assert_eq!((config.brake.max_fail, config.brake.max_share), (7, 0.05));
        let Liveness::Redis { address, .. } = &config.liveness else { panic!() };
        assert_eq!(address.to_string(), "***@h/1");
        assert_eq!(config.tasks.address.to_string(), "$DB");
    }

    #[test]
    fn no_secret_is_shown_however_it_is_written() {
        for (address, shown) in [
            ("host=h pasword=s3cret dbname=app", "host=h dbname=app"),
            ("host=h password = s3cret", "host=h"),
            ("password='a s3cret b' host=h", "host=h"),
            ("password=s3cret@tail host=h", "host=h"),
            ("postgres://u:s3cret@h/app", "***@h/app"),
            ("postgres://h/app?user=u&password=s3cret", "postgres://h/app"),
        ] {
            assert_eq!(Address::Plain(address.to_string()).to_string(), shown);
        }
    }

    #[test]
    fn a_state_is_one_of_the_three() {
        let of = |more: &str| parse(&format!("{LEAST}{more}")).unwrap_err().to_string();
        assert!(of("failed = \"PENDING\"\n").starts_with("3: `tasks.failed`: `PENDING`"));
        assert!(of("failed = \"PROCESSING\"\n").starts_with("3: `tasks.failed`: `PROCESSING`"));
        assert!(of("processing = [\"FAILED\"]\n").starts_with("3: `tasks.processing`: `FAILED`"));
        assert!(of("pending = [\"A\"]\nprocessing = [\"A\"]\n").starts_with("3: `tasks.pending`: `A`"));
        let nobody = of("worker_id = \"none\"\n[liveness]\nstore = \"redis\"\naddress = \"redis://h\"\n");
        assert!(nobody.starts_with("3: `tasks.worker_id`"), "{nobody}");
    }

    #[test]
    fn errors_name_line_key_and_mend() {
        let of = |more: &str| parse(&format!("{LEAST}{more}")).unwrap_err().to_string();
        assert_eq!(of("tabel = \"x\"\n"), "3: `tasks.tabel`: is not known; did you mean `table`?");
        assert!(of("\n[limits]\npending = \"5\"\n").starts_with("5: `limits.pending`: `5` has no unit"));
        assert!(of("[limits]\nmax_share = 20\n").contains("\"20%\""));
        assert!(of("[liveness]\nstore = \"etcd\"\n").contains("\"redis\", \"postgres\" or \"none\""));
        assert!(of("[liveness]\nstore = \"redis\"\naddress = \"redis://h\"\nkey = \"w\"\n").contains("{id}"));
        let plain = of("[liveness]\nstore = \"redis\"\naddress = \"redis://h\"\nca = \"/ca.pem\"\n");
        assert!(plain.starts_with("6: `liveness.ca`") && plain.contains("rediss://"), "{plain}");
        assert!(of("[liveness]\nstore = \"none\"\nttl = \"90s\"\n").contains("says nothing"));
        assert!(of("[worker]\n").starts_with("3: `worker`: is not known"));
        assert!(parse("[tasks]\n").unwrap_err().to_string().starts_with("1: `tasks.address`: is missing"));
        assert!(parse("[tasks\n").unwrap_err().to_string().contains("not TOML"));
        assert!(parse("").unwrap_err().to_string().contains("`tasks.address`"));
    }
}
