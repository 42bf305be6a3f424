//! What RabbitMQ's own tables say of a connection: heartbeat, client, prefetch, deliveries, `consumer_timeout`.
//!
//! Three ways to them: the management API over plain HTTP, `rabbitmqctl` on the broker's machine, or what either of them
//! printed, saved in files. Both formats are read; a table tells itself by its columns. What is left out: TLS to the
//! management API, for which a saved file stands in.

use super::facts::BrokerSide;
use crate::host::process::output;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

const ANSWER: Duration = Duration::from_secs(60);

/// Why a broker's tables could not be read.
#[derive(Debug, Error)]
#[error("{from}: {what}")]
pub struct TablesError {
    /// The source, without a password.
    pub from: String,
    /// What is wrong, with the mend.
    pub what: String,
}

/// One connection by the broker's word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerConnection {
    /// The negotiated heartbeat in seconds; 0 is off.
    pub heartbeat_s: Option<u32>,
    /// `client_properties.product`.
    pub product: Option<String>,
    /// Channels and consumers.
    pub side: BrokerSide,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// By client address and broker address, as the broker sees them.
    connections: HashMap<(SocketAddr, SocketAddr), BrokerConnection>,
    /// Channels by the connection's name or process number.
    channels: BTreeMap<String, (bool, Option<u32>)>,
    names: HashMap<String, (SocketAddr, SocketAddr)>,
    consumer_timeout_ms: Option<u64>,
}

impl Tables {
    /// What the broker says of a client's connection; `None`: it has none from there.
    #[must_use]
    pub fn get(&self, local: SocketAddr, peer: SocketAddr) -> Option<BrokerConnection> {
        let mut found = self.connections.get(&(local, peer))?.clone();
        found.side.consumer_timeout_ms = self.consumer_timeout_ms.filter(|ms| *ms > 0);
        for (name, of) in &self.names {
            if *of == (local, peer)
                && let Some((unacked, prefetch)) = self.channels.get(name)
            {
                found.side.unacked |= unacked;
                found.side.prefetch = found.side.prefetch.max(*prefetch);
            }
        }
        Some(found)
    }

    /// How many connections the broker has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a table: connections, channels or consumers, as `rabbitmqctl --formatter json` or the management API prints
    /// them, or the answer to `consumer_timeout`.
    ///
    /// # Errors
    /// Where it is none of these.
    pub fn add(&mut self, from: &str, text: &str) -> Result<(), TablesError> {
        let fail = |what: String| TablesError { from: from.to_string(), what };
        if let Some(timeout) = consumer_timeout(text) {
            self.consumer_timeout_ms = Some(timeout);
            return Ok(());
        }
        let value: Value = serde_json::from_str(text.trim()).map_err(|e| {
            fail(format!("not JSON ({e}); save it with `rabbitmqctl -q list_connections … --formatter json`"))
        })?;
        let rows =
            value.as_array().ok_or_else(|| fail("not a list of connections, channels or consumers".to_string()))?;
        for row in rows {
            self.row(row).map_err(fail)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Value) -> Result<(), String> {
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        let number = |key: &str| row.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        // A channel or consumer names its connection; a connection has a heartbeat or its client's properties.
        let owner = text("connection")
            .or_else(|| row.pointer("/connection_details/name").and_then(Value::as_str))
            .or_else(|| row.pointer("/channel_details/connection_name").and_then(Value::as_str));
        if let Some(owner) = owner {
            let channel = self.channels.entry(owner.to_string()).or_default();
            channel.0 |= number("messages_unacknowledged").is_some_and(|n| n > 0);
            let prefetch = number("prefetch_count").max(number("global_prefetch_count")).filter(|n| *n > 0);
            channel.1 = channel.1.max(prefetch);
            return Ok(());
        }
        let Some(name) =
            text("name").filter(|_| row.get("timeout").is_some() || row.get("client_properties").is_some())
        else {
            return Err("a row has neither a connection's name with its timeout nor a channel's connection; \
                        list_connections needs the columns pid name timeout client_properties"
                .to_string());
        };
        // A name that is not a pair of addresses is another node's or a shovel's own: nothing to match.
        let Some(ends) = ends(name) else { return Ok(()) };
        let known = self.connections.entry(ends).or_default();
        known.heartbeat_s = number("timeout").or(known.heartbeat_s);
        known.product = product(row.get("client_properties")).or_else(|| known.product.take());
        self.names.insert(name.to_string(), ends);
        self.names.extend(text("pid").map(|pid| (pid.to_string(), ends)));
        Ok(())
    }
}

/// `10.0.0.1:40000 -> 10.0.0.2:5672`.
fn ends(name: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (client, broker) = name.split_once(" -> ")?;
    Some((client.trim().parse().ok()?, broker.trim().parse().ok()?))
}

/// The product among a client's properties: an object, or `rabbitmqctl`'s list of name, type and value.
fn product(properties: Option<&Value>) -> Option<String> {
    let properties = properties?;
    if let Some(product) = properties.get("product").and_then(Value::as_str) {
        return Some(product.to_string());
    }
    let entry = properties.as_array()?.iter().find(|entry| entry.get(0).and_then(Value::as_str) == Some("product"))?;
    entry.as_array()?.last()?.as_str().map(str::to_string)
}

/// `{ok,1800000}`, as `rabbitmqctl eval` prints it; `{ok,undefined}` and `undefined` are none.
fn consumer_timeout(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "undefined" || text == "{ok,undefined}" {
        return Some(0);
    }
    text.strip_prefix("{ok,")?.strip_suffix('}')?.trim().parse().ok()
}

/// Asks `rabbitmqctl`, which must be allowed to talk to the broker (its cookie, its node's name in the environment).
///
/// # Errors
/// Where it can't be started or refuses.
pub fn by_rabbitmqctl(program: &Path) -> Result<Tables, TablesError> {
    let from = program.display().to_string();
    let ask = |arguments: &[&str]| -> Result<String, TablesError> {
        let fail = |what: String| TablesError { from: format!("{from} {}", arguments.join(" ")), what };
        let (status, text) = output(program, arguments, ANSWER).map_err(|e| fail(e.to_string()))?;
        match status.success() {
            true => Ok(text),
            false => Err(fail(text.lines().find(|l| !l.trim().is_empty()).unwrap_or("no word why").to_string())),
        }
    };
    let mut tables = Tables::default();
    let json = |rest: &[&'static str]| [&["-q"], rest, &["--formatter", "json"]].concat();
    let lists = [
        json(&["list_connections", "pid", "name", "timeout", "client_properties"]),
        json(&["list_channels", "connection", "prefetch_count", "global_prefetch_count", "messages_unacknowledged"]),
        vec!["-q", "eval", "application:get_env(rabbit, consumer_timeout)."],
    ];
    for list in lists {
        tables.add(&from, &ask(&list)?)?;
    }
    Ok(tables)
}

/// Asks the management API at `http://user:password@host:15672`.
///
/// # Errors
/// Where it can't be reached, refuses, or the address is not one.
pub fn by_management(address: &str) -> Result<Tables, TablesError> {
    let fail = |what: String| TablesError { from: "the management API".to_string(), what };
    let rest = address.strip_prefix("http://").ok_or_else(|| {
        fail("the address begins with http://; for TLS save the tables in a file (--rabbitmq-tables)".to_string())
    })?;
    let rest = rest.trim_end_matches('/');
    let (login, host) = rest.rsplit_once('@').unwrap_or(("guest:guest", rest));
    let host = if host.contains(':') { host.to_string() } else { format!("{host}:15672") };
    let mut tables = Tables::default();
    for path in ["/api/connections", "/api/channels"] {
        let text = get(&host, path, login).map_err(|e| fail(format!("{host}{path}: {e}")))?;
        tables.add(&format!("{host}{path}"), &text)?;
    }
    Ok(tables)
}

fn get(host: &str, path: &str, login: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let login = base64(login.as_bytes());
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Basic {login}\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let answer = String::from_utf8_lossy(&bytes);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no HTTP answer"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_string()),
        Some("401" | "403") => Err(io::Error::other("the login is refused; the user needs the tag monitoring")),
        _ => Err(io::Error::other(format!("it answers `{status}`"))),
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = u32::from(three[0]) << 16
            | u32::from(*three.get(1).unwrap_or(&0)) << 8
            | u32::from(*three.get(2).unwrap_or(&0));
        for place in 0..4 {
            let digit = char::from(ALPHABET[(word >> (18 - 6 * place) & 63) as usize]);
            out.push(if place <= three.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "10.0.0.1:40000";
    const BROKER: &str = "10.0.0.2:5672";

    fn get(tables: &Tables) -> Option<BrokerConnection> {
        tables.get(CLIENT.parse().unwrap(), BROKER.parse().unwrap())
    }

    #[test]
    fn rabbitmqctls_tables_are_joined_by_the_connections_process() {
        let mut tables = Tables::default();
        let connections = format!(
            r#"[{{"pid":"<r@h.1.2.0>","name":"{CLIENT} -> {BROKER}","timeout":60,
               "client_properties":[["product","longstr","py-amqp"],["version","longstr","5.4"]]}}]"#
        );
        tables.add("c", &connections).unwrap();
        let channels = r#"[{"connection":"<r@h.1.2.0>","prefetch_count":0,"global_prefetch_count":4,"messages_unacknowledged":2}]"#;
        tables.add("h", channels).unwrap();
        tables.add("t", "{ok,1800000}\n").unwrap();
        let found = get(&tables).unwrap();
        assert_eq!((found.heartbeat_s, found.product.as_deref()), (Some(60), Some("py-amqp")));
        assert_eq!(found.side, BrokerSide { unacked: true, consumer_timeout_ms: Some(1_800_000), prefetch: Some(4) });
        assert!(tables.get(BROKER.parse().unwrap(), CLIENT.parse().unwrap()).is_none());
    }

    #[test]
    fn the_management_apis_tables_are_joined_by_name() {
        let mut tables = Tables::default();
        let name = format!("{CLIENT} -> {BROKER}");
        let connections = format!(
            r#"[{{"name":"{name}","timeout":0,"client_properties":{{"product":"lapin"}}}},{{"name":"shovel","timeout":1}}]"#
        );
        tables.add("c", &connections).unwrap();
        let channels =
            format!(r#"[{{"connection_details":{{"name":"{name}"}},"prefetch_count":7,"messages_unacknowledged":0}}]"#);
        tables.add("h", &channels).unwrap();
        let found = get(&tables).unwrap();
        assert_eq!((found.heartbeat_s, found.side.prefetch, found.side.unacked), (Some(0), Some(7), false));
        assert_eq!(found.side.consumer_timeout_ms, None);
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_mend() {
        let mut tables = Tables::default();
        for (text, words) in
            [("{}", "not a list"), ("[{\"x\":1}]", "list_connections"), ("garbage", "--formatter json")]
        {
            let error = tables.add("file.json", text).unwrap_err().to_string();
            assert!(error.starts_with("file.json: ") && error.contains(words), "{error}");
        }
        tables.add("t", "{ok,undefined}").unwrap();
        assert_eq!(tables.consumer_timeout_ms, Some(0));
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(base64(b"guest:guest"), "Z3Vlc3Q6Z3Vlc3Q=");
        assert_eq!([base64(b"a"), base64(b"ab"), base64(b"abc"), base64(b"")], ["YQ==", "YWI=", "YWJj", ""]);
    }
}
