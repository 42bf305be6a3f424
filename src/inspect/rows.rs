//! One row a connection: what was found, what it means, and how bad that is. Pure.

use super::advice::Advice;
use super::client::{Protocol, Protocols, by_command};
use super::facts::{BrokerSide, Facts, Heartbeat, ReadDeadline, facts};
use super::judge::{Answer, Class, Judge, Knowledge};
use super::look::{Connection, Ended, Look, Owner, Wait, state_name};
use super::options::Options;
use super::suspect::{Before, Looks, Suspicion, looks, suspicions};
use crate::timers::Subject;
use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// How bad a silent cut would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Noticed within a minute, whatever is cut.
    Covered,
    /// Noticed, and later.
    Slow,
    /// What decides it could not be read.
    Unknown,
    /// Some cut is never noticed, as far as can be seen.
    Open,
}

impl Risk {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Slow => "slow",
            Self::Unknown => "unknown",
            Self::Open => "open",
        }
    }
}

/// Noticed within this is covered.
const COVERED_S: f64 = 60.0;

/// One connection.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The kernel's own number for the socket, in hexadecimal: the same in every look.
    pub id: String,
    /// Who has it open.
    pub owner: Option<Owner>,
    /// The namespace's number.
    pub namespace: u64,
    /// Its own end.
    pub local: String,
    /// The other end.
    pub peer: String,
    /// TCP state.
    pub state: &'static str,
    /// What is spoken.
    pub protocol: Protocol,
    /// Its owner is the server.
    pub server_side: bool,
    /// The client by the model's name, where that is certain.
    pub client: Option<&'static str>,
    /// The negotiated AMQP heartbeat, where it is known; 0 is off.
    pub heartbeat_s: Option<u32>,
    /// Effective options.
    pub options: Option<Options>,
    /// Why they are missing.
    pub options_missing: Option<String>,
    /// What its owner's threads do with it.
    pub wait: Wait,
    /// The kernel function in which they sleep.
    pub wait_channel: Option<String>,
    /// The kernel's running timer, and when it expires.
    pub timer: &'static str,
    /// Seconds until then.
    pub timer_expires_s: Option<f64>,
    /// Bytes that nobody has read.
    pub unread: u32,
    /// Bytes that are not acknowledged.
    pub unacknowledged: u32,
    /// Seconds since data arrived; what never did counts from the start of the connection.
    pub last_data_received_s: f64,
    /// Seconds since data was sent.
    pub last_data_sent_s: f64,
    /// Who would notice, by class.
    pub answers: Vec<Answer>,
    /// Bytes sent so far, retransmissions included.
    pub sent_bytes: u64,
    /// Bytes received so far.
    pub received_bytes: u64,
    /// How bad a silent cut would be.
    pub risk: Risk,
    /// How it looks now.
    pub looks: Looks,
    /// Seconds since the peer's kernel was last heard.
    pub heard_s: f64,
    /// What makes it look half-open, the surest first.
    pub suspicions: Vec<Suspicion>,
    /// The settings that would close its gaps.
    pub advice: Vec<Advice>,
    /// Evidence that is missing, and what would give it.
    pub missing: Vec<String>,
}

/// Everything that one look says.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The shape of this JSON; grows when something is renamed or removed.
    pub format: u32,
    /// What was looked at.
    pub target: String,
    /// The kernel, by its own word.
    pub kernel: String,
    /// `CONFIG_HZ`; none: not known, and 250 is assumed.
    pub hz: Option<u32>,
    /// The rows, the worst first.
    pub rows: Vec<Row>,
    /// Processes that ended while they were looked at.
    pub ended: Vec<Ended>,
    /// What could not be seen.
    pub notes: Vec<String>,
}

/// Of `--fail-over`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Verdict {
    /// Rows that would stay undetected for longer, certainly.
    pub over: Vec<usize>,
    /// Rows of which that can't be told.
    pub unsure: Vec<usize>,
}

impl Inspection {
    /// Which connections would stay undetected for longer than `limit` under one of these classes.
    #[must_use]
    pub fn judge(&self, limit: Duration, classes: &[Class]) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, row) in self.rows.iter().enumerate() {
            let asked = || row.answers.iter().filter(|a| classes.contains(&a.class));
            let over = |a: &&Answer| a.hi_s.is_none_or(|hi| hi > limit.as_secs_f64());
            if asked().any(|a| a.knowledge == Knowledge::Exact && over(&a)) {
                verdict.over.push(index);
            } else if asked().any(|a| over(&a)) {
                verdict.unsure.push(index);
            }
        }
        verdict
    }
}

/// What is known of a connection beside the look: who says what.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// The client, by the user or by the broker's table.
    pub client: Option<Subject>,
    /// The heartbeat in seconds, by the broker's table.
    pub heartbeat_s: Option<u32>,
    /// The broker's side.
    pub broker: BrokerSide,
    /// Whether the broker's table has the connection; `None`: no table was given.
    pub at_broker: Option<bool>,
}

/// Makes the rows of a look. `before`: an earlier look at the same target; `told`: what the broker's own table says of a
/// connection.
pub fn inspection(
    target: String,
    kernel: (String, Option<u32>),
    look: &Look,
    before: Option<&Look>,
    judge: &mut Judge,
    protocols: &Protocols,
    told: impl Fn(&Connection) -> Told,
) -> Inspection {
    let ago_s = before.map_or(0.0, |before| look.at_s - before.at_s);
    let key = |look: &Look, c: &Connection| (look.namespaces.get(c.namespace).map_or(0, |ns| ns.id), c.socket.cookie);
    let earlier: HashMap<_, &Connection> =
        before.iter().flat_map(|before| before.connections.iter().map(|c| (key(before, c), c))).collect();
    let mut rows: Vec<Row> = look
        .connections
        .iter()
        .map(|connection| {
            let before = earlier.get(&key(look, connection)).map(|connection| Before { connection, ago_s });
            row(look, connection, before, judge, protocols, told(connection))
        })
        .collect();
    sort(&mut rows, Order::Risk);
    Inspection {
        format: 1,
        target,
        kernel: kernel.0,
        hz: kernel.1,
        rows,
        ended: look.ended.clone(),
        notes: look.notes.clone(),
    }
}

fn pid(row: &Row) -> u32 {
    row.owner.as_ref().map_or(u32::MAX, |owner| owner.pid)
}

/// In which order rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The worst first.
    Risk,
    /// The most suspicious first.
    Looks,
    /// The longest quiet first.
    Quiet,
    /// The longest undetected first.
    Window,
    /// By process.
    Process,
}

impl Order {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Risk => "risk",
            Self::Looks => "looks",
            Self::Quiet => "age",
            Self::Window => "window",
            Self::Process => "process",
        }
    }
}

/// Sorts rows; equal ones by process and address, so that they stay where they are.
pub fn sort(rows: &mut [Row], order: Order) {
    let window = |row: &Row| {
        let cuts = row.answers.iter().filter(|a| Class::CUTS.contains(&a.class));
        cuts.map(|a| a.hi_s.unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
    };
    rows.sort_by(|a, b| {
        let first = match order {
            Order::Risk => b.risk.cmp(&a.risk).then_with(|| b.looks.cmp(&a.looks)),
            Order::Looks => b.looks.cmp(&a.looks).then_with(|| b.risk.cmp(&a.risk)),
            Order::Quiet => b.last_data_received_s.total_cmp(&a.last_data_received_s),
            Order::Window => window(b).total_cmp(&window(a)),
            Order::Process => std::cmp::Ordering::Equal,
        };
        first.then_with(|| pid(a).cmp(&pid(b))).then_with(|| a.local.cmp(&b.local)).then_with(|| a.peer.cmp(&b.peer))
    });
}

fn row(
    look: &Look,
    connection: &Connection,
    before: Option<Before<'_>>,
    judge: &mut Judge,
    protocols: &Protocols,
    told: Told,
) -> Row {
    let (protocol, server_side) = spoken(protocols.of(connection), told.at_broker);
    let by_command = connection.owner.as_ref().and_then(|owner| by_command(&owner.command));
    // A library's rules are those of clients: a server's own end has none of them.
    let client = told.client.or(by_command).filter(|_| !server_side && protocol != Protocol::Postgres);
    let heartbeat = match (protocol, told.heartbeat_s) {
        (Protocol::Amqp, Some(seconds)) => Heartbeat::Known(seconds),
        (Protocol::Amqp, None) => Heartbeat::Unknown,
        _ => Heartbeat::NotSpoken,
    };
    let client = client.filter(|_| matches!(protocol, Protocol::Amqp | Protocol::Redis));
    let facts = facts(connection, protocol, client, heartbeat, told.broker);
    let snapshot = &connection.socket.snapshot;
    // Before and after its life as a connection other timers run, and nothing of it is at stake.
    let judged = matches!(snapshot.state, 1 | 8);
    let answers = if judged { judge.answers(&facts) } else { Rc::default() };
    let seconds = |ms: u32| f64::from(ms) / 1000.0;
    let suspicions =
        suspicions(connection, before, heartbeat, told.at_broker.filter(|_| is_client_of(protocol, server_side)));
    // Of a server's own end its clients' settings say nothing.
    let advice = if judged && !server_side { judge.advice(&facts, &answers) } else { Vec::new() };
    Row {
        id: format!("{:x}", connection.socket.cookie),
        sent_bytes: connection.socket.bytes_sent,
        received_bytes: connection.socket.bytes_received,
        looks: looks(connection, &suspicions),
        heard_s: super::suspect::heard_s(connection),
        advice,
        suspicions,
        owner: connection.owner.clone(),
        namespace: look.namespaces.get(connection.namespace).map_or(0, |ns| ns.id),
        local: connection.socket.local.to_string(),
        peer: connection.socket.peer.to_string(),
        state: state_name(snapshot.state),
        protocol,
        server_side,
        client: client.map(Subject::name),
        heartbeat_s: told.heartbeat_s,
        options: connection.options.as_ref().ok().copied(),
        options_missing: connection.options.as_ref().err().cloned(),
        wait: connection.wait.clone(),
        wait_channel: connection.wait_channel.clone(),
        timer: timer_name(snapshot.timer),
        timer_expires_s: (snapshot.timer != 0).then(|| seconds(snapshot.expires_ms)),
        unread: snapshot.rqueue,
        unacknowledged: snapshot.wqueue,
        last_data_received_s: seconds(snapshot.last_data_recv_ms),
        last_data_sent_s: seconds(connection.socket.last_data_sent_ms),
        risk: risk(&answers, judged),
        missing: missing(connection, &facts, told.at_broker),
        answers: answers.to_vec(),
    }
}

fn timer_name(timer: u8) -> &'static str {
    match timer {
        0 => "none",
        1 => "retransmission",
        2 => "keepalive",
        3 => "time-wait",
        4 => "window probe",
        _ => "unknown",
    }
}

/// By the silent cuts alone: a peer that stands still is hardly ever noticed.
fn risk(answers: &[Answer], judged: bool) -> Risk {
    let of = |a: &Answer| match (a.knowledge, a.hi_s) {
        (Knowledge::Unknown, _) => Risk::Unknown,
        (_, None) => Risk::Open,
        (_, Some(hi)) if hi > COVERED_S => Risk::Slow,
        _ => Risk::Covered,
    };
    let worst = answers.iter().filter(|a| Class::CUTS.contains(&a.class)).map(of).max();
    worst.unwrap_or(if judged { Risk::Unknown } else { Risk::Covered })
}

/// Whether a connection should stand in the broker's table.
/// Whatever the port: a connection that RabbitMQ's own table has speaks AMQP, and this is the end that it calls its peer.
fn spoken(by_port: (Protocol, bool), at_broker: Option<bool>) -> (Protocol, bool) {
    match (by_port, at_broker) {
        ((Protocol::Other, _), Some(true)) => (Protocol::Amqp, false),
        _ => by_port,
    }
}

fn is_client_of(protocol: Protocol, server_side: bool) -> bool {
    protocol == Protocol::Amqp && !server_side
}

fn missing(connection: &Connection, facts: &Facts, at_broker: Option<bool>) -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(why) = &connection.options {
        missing.push(format!("options: {why}"));
    }
    if let Wait::Unknown { why } = &connection.wait {
        missing.push(format!("what its threads wait for: {why}"));
    }
    if facts.heartbeat == Heartbeat::Unknown {
        missing.push(match at_broker {
            Some(false) => {
                "the negotiated heartbeat: the broker's table has no connection from this address, so a proxy or NAT \
                            is between, or the broker has given it up; whether anybody above TCP is alive can't be seen"
                    .to_string()
            }
            _ => "the negotiated heartbeat: only the broker knows it; give --rabbitmq or --rabbitmq-tables".to_string(),
        });
    }
    if matches!(facts.heartbeat, Heartbeat::Known(1..)) && facts.client.is_none() {
        missing.push("which client library checks the heartbeat: give --client".to_string());
    }
    match (facts.client, facts.protocol) {
        (Some(Subject::Celery), Protocol::Redis) => {
            missing.push(
                "kombu's own ping (health_check_interval, from kombu 5.7): a timer inside of the worker".to_string(),
            );
        }
        (None, _)
            if matches!(connection.wait, Wait::Poll { alone: true, .. }) && facts.read == ReadDeadline::Unseen =>
        {
            missing.push(
                "whether its client gives up when its poll ends, as redis-py does (--client redis-py), or only looks for other \
                 work"
                    .to_string(),
            );
        }
        (None, _) if facts.options.is_some() && facts.read == ReadDeadline::Unseen => {
            missing.push(
                "deadlines inside of the application: no thread waits in a read or a poll of its own".to_string(),
            );
        }
        _ => {}
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_brokers_table_has_speaks_amqp_on_any_port() {
        let other = (Protocol::Other, false);
        assert_eq!(spoken(other, Some(true)), (Protocol::Amqp, false));
        assert_eq!((spoken(other, Some(false)), spoken(other, None)), (other, other));
        // A port that somebody named stays what it was named.
        let named = (Protocol::Amqp, true);
        assert_eq!(spoken(named, Some(true)), named);
    }
}
