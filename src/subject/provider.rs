//! The external provider at which the tasks' effects are made: a process of its own with a store of its own, behind a socket
//! file, so that neither a fault of the path nor a worker's death touches it. What it says of an effect is the truth.
//!
//! It honours an idempotency key: the second request with a key gets the first one's effect. Without a key each request is
//! an effect. It can be asked what it has done for a task, and it takes back what it has done. One request a connection.

use super::child::{self, Role, flag};
use super::protocol::Command;
use super::report::Reporter;
use crate::events::{Kind, Source};
use crate::units::{Offset, TrialId};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The flag of a child that names the provider's socket.
pub(super) const PROVIDER: &str = "--provider";

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

const SCHEMA: &str = "\
CREATE TABLE effect (
    id            INTEGER PRIMARY KEY,
    trial         INTEGER NOT NULL,
    message       INTEGER NOT NULL,
    key           TEXT UNIQUE,
    made_at       BIGINT NOT NULL,
    taken_back_at BIGINT
);
CREATE INDEX effect_of_task ON effect (trial, message);";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    /// Make an effect; with a key that is known nothing is made.
    Make { trial: TrialId, message: u64, key: Option<String> },
    /// How many stand for this task?
    Find { trial: TrialId, message: u64 },
    /// Take back what stands for this task.
    TakeBack { trial: TrialId, message: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    /// Made, found or taken back.
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A worker's way to the provider.
#[derive(Debug, Clone)]
pub(super) struct Provider(PathBuf);

impl Provider {
    /// The one that `--provider SOCKET` names; `None` without it.
    pub fn of_args(args: &[String]) -> Option<Self> {
        flag(args, PROVIDER).map(|path| Self(path.into()))
    }

    /// Makes an effect; false where it had been made with this key before.
    ///
    /// # Errors
    /// When the provider does not answer. The effect may have been made.
    pub fn make(&self, trial: TrialId, message: u64, key: Option<String>) -> io::Result<bool> {
        self.ask(&Request::Make { trial, message, key }).map(|made| made > 0)
    }

    /// Whether an effect stands for a task.
    ///
    /// # Errors
    /// When the provider does not answer.
    pub fn find(&self, trial: TrialId, message: u64) -> io::Result<bool> {
        self.ask(&Request::Find { trial, message }).map(|found| found > 0)
    }

    /// Takes back what stands for a task.
    ///
    /// # Errors
    /// When the provider does not answer.
    pub fn take_back(&self, trial: TrialId, message: u64) -> io::Result<()> {
        self.ask(&Request::TakeBack { trial, message }).map(drop)
    }

    fn ask(&self, request: &Request) -> io::Result<u64> {
        let mut stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        let reply: Reply = serde_json::from_str(&answer)?;
        reply.error.map_or(Ok(reply.count), |error| Err(io::Error::other(error)))
    }
}

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Provider, &[], |reporter| {
        let socket = flag(args, PROVIDER).ok_or_else(|| io::Error::other("--provider SOCKET is needed"))?;
        let store = Path::new(socket).with_extension("sqlite");
        let server = Arc::new(Server { reporter: reporter.clone(), db: Mutex::new(make_store(&store)?) });
        let listener = UnixListener::bind(socket)?;
        thread::Builder::new().name("provider".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || server.serve(stream));
            }
        })?;
        Ok(Idle(reporter.clone()))
    })
}

fn make_store(path: &Path) -> io::Result<Connection> {
    let made = || -> rusqlite::Result<Connection> {
        let db = Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        // It outlives whoever asks it, and nothing has to survive a loss of power.
        db.pragma_update(None, "synchronous", "off")?;
        db.execute_batch(SCHEMA)?;
        Ok(db)
    };
    made().map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// It takes no commands but the end.
struct Idle(Reporter);

impl Role for Idle {
    fn command(&mut self, command: Command) {
        if !matches!(command, Command::Close { .. } | Command::Quit) {
            self.0.note("the provider takes orders over its socket alone".to_string());
        }
    }
}

struct Server {
    reporter: Reporter,
    db: Mutex<Connection>,
}

impl Server {
    fn serve(&self, stream: UnixStream) {
        let mut line = String::new();
        let Ok(copy) = stream.try_clone() else { return };
        if BufReader::new(copy).read_line(&mut line).is_err() || line.is_empty() {
            return;
        }
        let reply = match serde_json::from_str(&line).map_err(|e| e.to_string()).and_then(|r| self.answer(&r)) {
            Ok(count) => Reply { count, error: None },
            Err(error) => Reply { count: 0, error: Some(error) },
        };
        // Whoever asked may be dead by now: what was made was made.
        let _ = serde_json::to_vec(&reply).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            (&stream).write_all(&bytes)
        });
    }

    fn answer(&self, request: &Request) -> Result<u64, String> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.reporter.now();
        let (count, told) = carry_out(&db, request, at).map_err(|e| e.to_string())?;
        if let Some((trial, kind)) = told {
            // Told at the commit, before anybody can know of it; no two at one instant, or they would count as one.
            let each = (at.0..).map(Offset).take(usize::try_from(count).unwrap_or_default());
            each.for_each(|at| self.reporter.event(at, trial, kind.clone()));
        }
        Ok(count)
    }
}

/// Does what is asked: how many effects it concerned, and what of it is worth a report.
fn carry_out(db: &Connection, request: &Request, at: Offset) -> rusqlite::Result<(u64, Option<(TrialId, Kind)>)> {
    match request {
        Request::Make { trial, message, key } => {
            let number = i64::try_from(*message).unwrap_or(i64::MAX);
            let known = match key {
                Some(key) => {
                    let sql = "SELECT 1 FROM effect WHERE key = ?1";
                    db.query_row(sql, [key], |_| Ok(())).optional()?.is_some()
                }
                None => false,
            };
            if known {
                return Ok((0, None));
            }
            let sql = "INSERT INTO effect (trial, message, key, made_at) VALUES (?1, ?2, ?3, ?4)";
            db.execute(sql, params![trial, number, key, at.0])?;
            Ok((1, Some((*trial, Kind::Effect { message: *message }))))
        }
        Request::Find { trial, message } => {
            let number = i64::try_from(*message).unwrap_or(i64::MAX);
            let sql = "SELECT count(*) FROM effect WHERE trial = ?1 AND message = ?2 AND taken_back_at IS NULL";
            let found: i64 = db.query_row(sql, params![trial, number], |row| row.get(0))?;
            Ok((u64::try_from(found).unwrap_or_default(), None))
        }
        Request::TakeBack { trial, message } => {
            let number = i64::try_from(*message).unwrap_or(i64::MAX);
            let sql =
                "UPDATE effect SET taken_back_at = ?3 WHERE trial = ?1 AND message = ?2 AND taken_back_at IS NULL";
            let changed = db.execute(sql, params![trial, number, at.0])?;
            Ok((changed as u64, Some((*trial, Kind::Compensated { message: *message }))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_makes_one_effect_and_what_is_taken_back_stands_no_more() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let ask = |request: Request| carry_out(&db, &request, Offset(5)).unwrap().0;
        let make = |message, key: Option<&str>| ask(Request::Make { trial: 7, message, key: key.map(String::from) });
        let find = |message| ask(Request::Find { trial: 7, message });
        assert_eq!((make(1, Some("7.1")), make(1, Some("7.1")), find(1)), (1, 0, 1));
        assert_eq!((make(2, None), make(2, None), find(2)), (1, 1, 2));
        assert_eq!((ask(Request::TakeBack { trial: 7, message: 2 }), find(2), find(1), find(3)), (2, 0, 1, 0));
        assert_eq!(ask(Request::TakeBack { trial: 7, message: 3 }), 0);
    }
}
