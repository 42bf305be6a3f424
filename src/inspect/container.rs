//! A container's processes, by its name or id.
//!
//! An id is found in the control groups of `/proc`, whatever engine made it; a name only Docker's engine knows, which is
//! asked over its own socket on this machine. What is left out: remote engines.

use crate::host::procfs;
use serde_json::Value;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thiserror::Error;

const SOCKET: &str = "/var/run/docker.sock";
const ANSWER: Duration = Duration::from_secs(10);
/// As short as an id that engines print.
const SHORTEST_ID: usize = 12;

/// Why a container was not found.
#[derive(Debug, Error)]
pub enum ContainerError {
    /// Nothing by that id, and no engine to ask for the name.
    #[error(
        "no process is in a container `{name}`, and {SOCKET} could not be asked for the name ({source}); give the id, or \
         `--pid` of its first process"
    )]
    NoEngine {
        /// As given.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The engine knows no such container, or it does not run.
    #[error("container `{name}`: {what}; `docker ps` lists those that run")]
    Unknown {
        /// As given.
        name: String,
        /// The engine's words.
        what: String,
    },
}

/// The processes of a container.
///
/// # Errors
/// [`ContainerError`], with the mend.
pub fn processes(name: &str) -> Result<Vec<u32>, ContainerError> {
    let by_id = in_group(name);
    if !by_id.is_empty() {
        return Ok(by_id);
    }
    let answer = ask(name).map_err(|source| ContainerError::NoEngine { name: name.to_string(), source })?;
    let first = first_process(&answer).map_err(|what| ContainerError::Unknown { name: name.to_string(), what })?;
    let id = answer.get("Id").and_then(Value::as_str).unwrap_or_default();
    let mut all = in_group(id);
    // Where the control groups are not to be seen, the tree below the first process is what there is.
    if all.is_empty() {
        all = procfs::tree(first).into_iter().map(|process| process.pid).collect();
    }
    Ok(all)
}

/// Processes in a control group that is named after a container.
fn in_group(id: &str) -> Vec<u32> {
    if id.len() < SHORTEST_ID || !id.chars().all(|c| c.is_ascii_hexdigit()) {
        return Vec::new();
    }
    let inside = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(id));
    procfs::pids().into_iter().filter(inside).collect()
}

fn first_process(answer: &Value) -> Result<u32, String> {
    if let Some(message) = answer.get("message").and_then(Value::as_str) {
        return Err(message.to_string());
    }
    let pid = answer.pointer("/State/Pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    pid.filter(|pid| *pid != 0).ok_or_else(|| "it does not run".to_string())
}

/// `GET /containers/NAME/json`; HTTP 1.0, so that the answer ends with the connection.
fn ask(name: &str) -> io::Result<Value> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is no container's name"));
    }
    let mut stream = UnixStream::connect(SOCKET)?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(stream, "GET /containers/{name}/json HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    body(&String::from_utf8_lossy(&bytes))
}

fn body(answer: &str) -> io::Result<Value> {
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no HTTP answer"))?;
    serde_json::from_str(body.trim()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_answer_becomes_a_process_or_its_own_words() {
        let runs = body("HTTP/1.0 200 OK\r\nX: y\r\n\r\n{\"Id\":\"abc\",\"State\":{\"Pid\":4242}}\n").unwrap();
        assert_eq!(first_process(&runs), Ok(4242));
        let stopped = body("HTTP/1.0 200 OK\r\n\r\n{\"State\":{\"Pid\":0}}").unwrap();
        assert_eq!(first_process(&stopped), Err("it does not run".into()));
        let unknown = body("HTTP/1.0 404 Not Found\r\n\r\n{\"message\":\"No such container: x\"}").unwrap();
        assert_eq!(first_process(&unknown), Err("No such container: x".into()));
        assert!(body("garbage").is_err());
    }

    #[test]
    fn a_name_is_never_taken_for_an_id_or_a_path() {
        assert!(in_group("worker").is_empty());
        assert!(in_group("").is_empty());
        assert_eq!(ask("../x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
