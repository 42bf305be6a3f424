//! Somebody's own table of tasks in PostgreSQL: what is active in it, and the conditional change of a row.
//!
//! Every statement stands alone, unprepared: behind a pooler in transaction mode the next one may run in another session.
//! So there are no session locks either; a row is changed only where it still is the version that was judged (`xmin`), so of
//! two reapers one acts, and a task that was finished or touched meanwhile stays as it is. Ages are computed by the
//! database from its own clock.

use super::config::{Address, Liveness, TaskTable};
use super::tls::{Connector, split};
use crate::reaper::rule::liveness::Stage;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config};

/// How long the database may take to accept a connection, and to answer one statement.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request to cancel a statement may take.
const CANCEL_WITHIN: Duration = Duration::from_secs(2);

/// What went wrong with a store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The address or a name in the configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// The store can't be reached.
    #[error("can't reach {what}: {text}")]
    Unreachable {
        /// Which store, without a password.
        what: String,
        /// Why.
        text: String,
    },
    /// It refused or broke off.
    #[error("{what}: {text}")]
    Failed {
        /// What was asked of it.
        what: &'static str,
        /// Its words.
        text: String,
    },
}

/// A row that may have to be failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveRow {
    /// Its name, as text.
    pub id: String,
    /// Its state in the table's own word.
    pub status: String,
    /// What that means.
    pub stage: Stage,
    /// Its worker, where one is written down.
    pub worker_id: Option<String>,
    /// Since its last change, by the database's clock; zero for one in its future.
    pub age: Duration,
    /// The row's version.
    version: String,
}

/// A connection to the table.
pub struct Database {
    client: Client,
    /// How a connection is encrypted: a request to cancel comes over one of its own.
    connector: Connector,
    tasks: TaskTable,
    /// The type of the column `id`, by which its index is found.
    id_type: String,
    /// The expression for "now" in the type of the column `updated_at`.
    now: &'static str,
    liveness: Option<(Liveness, &'static str)>,
}

impl Address {
    /// The address itself.
    ///
    /// # Errors
    /// When its environment variable is not set.
    pub fn resolve(&self) -> Result<String, StoreError> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Environment(name) => std::env::var(name)
                .map_err(|_| StoreError::Config(format!("address_env names ${name}, which is not set; set it"))),
        }
    }
}

impl Database {
    /// Connects and looks whether the table and its columns are there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(tasks: &TaskTable, liveness: &Liveness) -> Result<Self, StoreError> {
        let wrong = |text: String| StoreError::Config(format!("tasks.address {}: {text}", tasks.address));
        let (address, wanted) = split(&tasks.address.resolve()?).map_err(wrong)?;
        let mut config: Config = address.parse().map_err(|e: tokio_postgres::Error| wrong(words(&e)))?;
        let connector = Connector::new(wanted).map_err(wrong)?;
        // As in libpq, a socket file is never encrypted.
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if local { SslMode::Disable } else { connector.mode() });
        // The reaper's own connection may be half-open one day: its kernel shall say so, not a sweep that hangs.
        config.connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE).keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("halfopen reap");
        }
        let unreachable =
            |text: String| StoreError::Unreachable { what: format!("PostgreSQL at {}", tasks.address), text };
        let refused = |e: tokio_postgres::Error| {
            let text = connector.refusal(&e).map(|why| format!("the server is refused: {why}"));
            unreachable(text.unwrap_or_else(|| words(&e)))
        };
        let connecting = tokio::time::timeout(PATIENCE, config.connect(connector.clone())).await;
        let (client, connection) = connecting.map_err(|_| unreachable("no answer".to_string()))?.map_err(refused)?;
        tokio::spawn(connection);
        let mut database =
            Self { client, connector, tasks: tasks.clone(), id_type: String::new(), now: "now()", liveness: None };
        database.look(liveness).await?;
        Ok(database)
    }

    async fn look(&mut self, liveness: &Liveness) -> Result<(), StoreError> {
        let types = self.columns(&self.tasks.table, "tasks.table").await?;
        let tasks = &self.tasks;
        let wanted = [
            ("tasks.id", Some(&tasks.id)),
            ("tasks.status", Some(&tasks.status)),
            ("tasks.worker_id", tasks.worker_id.as_ref()),
            ("tasks.error_code", tasks.error_code.as_ref()),
            ("tasks.updated_at", Some(&tasks.updated_at)),
        ];
        for (key, name) in wanted {
            if let Some(name) = name {
                column(&types, &tasks.table, key, name)?;
            }
        }
        self.id_type = column(&types, &tasks.table, "tasks.id", &tasks.id)?.clone();
        self.now = now_as(column(&types, &tasks.table, "tasks.updated_at", &tasks.updated_at)?, "tasks.updated_at")?;
        if let Liveness::Postgres { table, worker_id, last_heartbeat_at, .. } = liveness {
            let types = self.columns(table, "liveness.table").await?;
            column(&types, table, "liveness.worker_id", worker_id)?;
            let key = "liveness.last_heartbeat_at";
            self.liveness = Some((liveness.clone(), now_as(column(&types, table, key, last_heartbeat_at)?, key)?));
        }
        Ok(())
    }

    /// The columns of a table with their types.
    async fn columns(&self, table: &str, key: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let sql = "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a \
                   WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
        let rows = self.ask("look at the table", self.client.query_typed(sql, &[(&quoted(table), Type::TEXT)])).await?;
        if rows.is_empty() {
            return Err(StoreError::Config(format!(
                "{key}: there is no table `{table}` in this database; name it with its schema"
            )));
        }
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    async fn ask<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StoreError> {
        let failed = |text: String| StoreError::Failed { what, text };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|e| failed(words(&e))),
            Err(_) => {
                let told =
                    if self.cancel().await { "it was asked to cancel it" } else { "it can't be asked to cancel it" };
                Err(failed(format!("no answer within {PATIENCE:?}; {told}")))
            }
        }
    }

    /// Asks the server to give up what nobody waits for any more: a statement that waits for another's lock would else be carried out
    /// whenever that goes. Whether the request was taken; it may come too late all the same.
    async fn cancel(&self) -> bool {
        let token = self.client.cancel_token();
        let asked = token.cancel_query(self.connector.clone());
        matches!(tokio::time::timeout(CANCEL_WITHIN, asked).await, Ok(Ok(())))
    }

    /// Every active row, the oldest first, and the database's own time in seconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn active(&self) -> Result<(Vec<ActiveRow>, f64), StoreError> {
        let t = &self.tasks;
        let (id, status, updated) = (quoted(&t.id), quoted(&t.status), quoted(&t.updated_at));
        let worker = t.worker_id.as_ref().map_or("NULL".to_string(), |name| format!("{}::text", quoted(name)));
        let sql = format!(
            "SELECT {id}::text, {status}::text, {worker}, \
             CASE WHEN isfinite({updated}) THEN extract(epoch FROM {now} - {updated})::float8 END, xmin::text \
             FROM {table} WHERE {status}::text = ANY($1) ORDER BY {updated}, {id}",
            now = self.now,
            table = quoted(&t.table),
        );
        let states: Vec<&String> = t.pending.iter().chain(&t.processing).collect();
        let rows =
            self.ask("read the active tasks", self.client.query_typed(&sql, &[(&states, Type::TEXT_ARRAY)])).await?;
        let clock = self.client.query_typed("SELECT extract(epoch FROM now())::float8", &[]);
        let clock = self.ask("read the clock", clock).await?.first().map_or(0.0, |row| row.get(0));
        let active = rows.iter().map(|row| {
            let status: String = row.get(1);
            let stage = if t.pending.contains(&status) { Stage::Pending } else { Stage::Processing };
            // A row without a time of its last change, or with one that never was or never comes, has no age: it is never too
            // old by itself.
            let age: Option<f64> = row.get(3);
            let age = Duration::try_from_secs_f64(age.unwrap_or_default()).unwrap_or_default();
            ActiveRow { id: row.get(0), status, stage, worker_id: row.get(2), age, version: row.get(4) }
        });
        Ok((active.collect(), clock))
    }

    /// Fails a row if it still is as it was read. Whether it was.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn fail(&self, row: &ActiveRow) -> Result<bool, StoreError> {
        let t = &self.tasks;
        // Literals take the column's type by themselves, be it a text or an enumeration; a parameter would have to know it.
        let code = t.error_code.as_ref().map(|name| format!(", {} = {}", quoted(name), literal(&t.code)));
        let sql = format!(
            "UPDATE {table} SET {status} = {failed}, {updated} = {now}{code} \
             WHERE {id} = CAST($1 AS {id_type}) AND {status}::text = $2 AND xmin::text = $3",
            table = quoted(&t.table),
            status = quoted(&t.status),
            failed = literal(&t.failed),
            updated = quoted(&t.updated_at),
            now = self.now,
            code = code.unwrap_or_default(),
            id = quoted(&t.id),
            id_type = self.id_type,
        );
        let with: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&row.id, Type::TEXT), (&row.status, Type::TEXT), (&row.version, Type::TEXT)];
        Ok(self.ask("fail a task", self.client.execute_typed(&sql, with)).await? > 0)
    }

    /// Whether each of these workers wrote a heartbeat within its time to live, by the database's clock.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn alive(&self, workers: &[&str]) -> Result<BTreeMap<String, bool>, StoreError> {
        let Some((Liveness::Postgres { table, worker_id, last_heartbeat_at, ttl }, now)) = &self.liveness else {
            return Ok(BTreeMap::new());
        };
        let sql = format!(
            "SELECT {worker}::text, min(CASE WHEN isfinite({beat}) THEN extract(epoch FROM {now} - {beat}) END)::float8 \
             FROM {table} \
             WHERE {worker}::text = ANY($1) GROUP BY 1",
            worker = quoted(worker_id),
            beat = quoted(last_heartbeat_at),
            table = quoted(table),
        );
        let rows =
            self.ask("read the heartbeats", self.client.query_typed(&sql, &[(&workers, Type::TEXT_ARRAY)])).await?;
        let mut alive: BTreeMap<String, bool> = workers.iter().map(|w| ((*w).to_string(), false)).collect();
        for row in rows {
            let age: Option<f64> = row.get(1);
            alive.insert(row.get(0), age.is_some_and(|age| age <= ttl.as_secs_f64()));
        }
        Ok(alive)
    }
}

fn column<'t>(
    types: &'t BTreeMap<String, String>,
    table: &str,
    key: &str,
    name: &str,
) -> Result<&'t String, StoreError> {
    types.get(name).ok_or_else(|| {
        let all: Vec<&str> = types.keys().map(String::as_str).collect();
        let none = if ["tasks.worker_id", "tasks.error_code"].contains(&key) { ", or \"none\"" } else { "" };
        StoreError::Config(format!(
            "{key}: the table `{table}` has no column `{name}`; it has {}{none}",
            all.join(", ")
        ))
    })
}

/// "Now" as a value of the column's type; a time without zone is UTC.
fn now_as(kind: &str, key: &str) -> Result<&'static str, StoreError> {
    match kind {
        k if k.starts_with("timestamp") && k.ends_with("with time zone") && !k.contains("without") => Ok("now()"),
        k if k.starts_with("timestamp") => Ok("(now() AT TIME ZONE 'UTC')"),
        other => {
            Err(StoreError::Config(format!("{key}: a column of type `{other}` is no point in time; name a timestamp")))
        }
    }
}

/// A name with its parts between dots, each in quotes.
fn quoted(name: &str) -> String {
    name.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
}

fn literal(text: &str) -> String {
    // `E''` would be needed for backslashes only where the server does not conform to the standard; none does since 9.1.
    format!("'{}'", text.replace('\'', "''"))
}

/// An error with the server's own words, which the library's first line leaves out.
fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        // In the library's own words, with the mend: it has no kind of its own.
        (None, Some(source)) if source.to_string() == "server does not support TLS" => {
            "the server does not offer TLS; have it do so (`ssl = on`), or write sslmode=disable".to_string()
        }
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_can_not_break_out() {
        assert_eq!(quoted("app.job"), "\"app\".\"job\"");
        assert_eq!(quoted("a\"; DROP TABLE x"), "\"a\"\"; DROP TABLE x\"");
        assert_eq!(literal("it's"), "'it''s'");
    }

    #[test]
    fn now_has_the_columns_type() {
        assert_eq!(now_as("timestamp with time zone", "k").unwrap(), "now()");
        assert_eq!(now_as("timestamp(3) with time zone", "k").unwrap(), "now()");
        assert_eq!(now_as("timestamp without time zone", "k").unwrap(), "(now() AT TIME ZONE 'UTC')");
        assert!(now_as("bigint", "k").is_err());
    }
}
