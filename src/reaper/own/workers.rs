//! Who lives, by Redis: a worker's key is there, or it is not. What it says is not read: its times are another machine's.

use super::config::Address;
use super::database::StoreError;
use redis::{Client, Connection, RedisResult};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the server may take to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many keys are asked for at a time.
const BATCH: usize = 500;

/// Whether the key of each of these workers is there. Blocks.
///
/// # Errors
/// [`StoreError`]; of a worker whose key was not answered for nothing is known.
pub(in crate::reaper) fn alive(
    address: &Address,
    key: &str,
    workers: &[String],
) -> Result<BTreeMap<String, bool>, StoreError> {
    let failed = |error: redis::RedisError| StoreError::Unreachable {
        what: format!("Redis at {address}"),
        text: error.to_string(),
    };
    let client = Client::open(address.resolve()?)
        .map_err(|error| StoreError::Config(format!("liveness.address {address}: {error}")))?;
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

fn connect(client: &Client) -> RedisResult<Connection> {
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}
