//! Who lives, by Redis: a worker's key is there, or it is not. What it says is not read: its times are another machine's.

use super::config::Address;
use super::database::StoreError;
use super::tls::{refused, roots};
use redis::{Client, Connection, RedisError, RedisResult, TlsCertificates};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the server may take to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many keys are asked for at a time.
const BATCH: usize = 500;

/// Whether the key of each of these workers is there; `ca` is the file of the server's authority, where that is not one of
/// the system's. Blocks.
///
/// # Errors
/// [`StoreError`]; of a worker whose key was not answered for nothing is known.
pub(in crate::reaper) fn alive(
    address: &Address,
    ca: Option<&Path>,
    key: &str,
    workers: &[String],
) -> Result<BTreeMap<String, bool>, StoreError> {
    let failed = |error: RedisError| StoreError::Unreachable {
        what: format!("Redis at {address}"),
        text: refusal(&error, ca).unwrap_or_else(|| error.to_string()),
    };
    let wrong = |text: String| StoreError::Config(format!("liveness.address {address}: {text}"));
    let url = address.resolve()?;
    let client = match ca {
        None => Client::open(url),
        Some(_) if !url.starts_with("rediss://") => {
            return Err(wrong("`ca` is for a server behind TLS; write `rediss://…`".to_string()));
        }
        Some(file) => {
            roots(file).map_err(|text| StoreError::Config(format!("liveness.ca: {text}")))?;
            let read = std::fs::read(file);
            let root_cert =
                read.map_err(|error| StoreError::Config(format!("liveness.ca: {}: {error}", file.display())))?;
            Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
        }
    };
    let client = client.map_err(|error| wrong(error.to_string()))?;
    let mut connection = connect(&client).map_err(failed)?;
    let mut alive = BTreeMap::new();
    for batch in workers.chunks(BATCH) {
        let mut pipe = redis::pipe();
        for worker in batch {
            pipe.cmd("EXISTS").arg(key.replace("{id}", worker));
        }
        let found: Vec<bool> = pipe.query(&mut connection).map_err(failed)?;
        alive.extend(batch.iter().cloned().zip(found));
    }
    Ok(alive)
}

/// Why the server was refused, with the mend; `None` where TLS is not the reason.
fn refusal(error: &RedisError, ca: Option<&Path>) -> Option<String> {
    // The library shares the system's error, which holds that of rustls.
    let shared = std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    let tls = shared.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>()?;
    let file = ca.map_or("the system's list of authorities".to_string(), |file| file.display().to_string());
    Some(format!("the server is refused: {}", refused(tls, &file)))
}

fn connect(client: &Client) -> RedisResult<Connection> {
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}
