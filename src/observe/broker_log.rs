//! RabbitMQ's log as events: when the broker itself gave a connection up, and why.
//!
//! The log has the 4-tuple and microseconds, which polling `rabbitmqctl` (1.6 s a call) has not. Reading lines is pure
//! ([`LogReader`]); following the file is a thread ([`LogWatch`]). The times are the broker's own, so the polling of
//! the file adds nothing to them. What is left out: lines that name no IPv4 connection.

use super::Tail;
use crate::events::{Event, Kind, Source, Tuple};
use crate::host::clock::Clock;
use crate::host::mailbox::{Nothing, Sender, mailbox};
use crate::units::Pace;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a line says of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The broker accepted the TCP connection.
    Accepted,
    /// The client logged in.
    Authenticated,
    /// The broker gave the connection (`consumer_timeout`: its channel) up.
    Ended {
        /// `missed_heartbeats`, `closed`, `closed_abruptly`, `handshake_timeout`, `consumer_timeout`, `timeout`, `error`.
        reason: &'static str,
    },
}

/// One statement of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When, in nanoseconds since 1970.
    pub unix_ns: i64,
    /// The connection, as its client names it.
    pub tuple: Tuple,
    /// What.
    pub said: Said,
    /// The words of the log.
    pub text: String,
}

/// Puts lines together: the reason of an end stands on the line after its header, under the same process id.
#[derive(Debug, Default)]
pub struct LogReader {
    headers: HashMap<String, Header>,
}

#[derive(Debug)]
struct Header {
    tuple: Tuple,
    text: String,
    of_channel: bool,
}

impl LogReader {
    /// Takes the next line.
    pub fn line(&mut self, line: &str) -> Option<Entry> {
        let (unix_ns, process, text) = split(line)?;
        let entry = |tuple, said, text: &str| Some(Entry { unix_ns, tuple, said, text: text.to_string() });
        if text.starts_with("accepting AMQP connection") {
            return entry(tuple_in(text)?, Said::Accepted, text);
        }
        if text.starts_with("connection <") && text.contains("authenticated and granted access") {
            return entry(tuple_in(text)?, Said::Authenticated, text);
        }
        let closing = text.starts_with("closing AMQP connection");
        if closing || text.starts_with("Channel error on connection") {
            let tuple = tuple_in(text)?;
            if text.ends_with(':') {
                let header = Header { tuple, text: text.to_string(), of_channel: !closing };
                self.headers.insert(process.to_string(), header);
                return None;
            }
            return closing.then(|| entry(tuple, Said::Ended { reason: "closed" }, text))?;
        }
        let header = self.headers.remove(process)?;
        let reason = reason_of(text);
        // A channel's other errors leave its connection alone.
        if header.of_channel && reason != "consumer_timeout" {
            return None;
        }
        entry(header.tuple, Said::Ended { reason }, &format!("{} {text}", header.text))
    }
}

/// The words of RabbitMQ 3.10's `rabbit_reader:log_connection_exception` and `rabbit_channel`.
fn reason_of(text: &str) -> &'static str {
    if text.starts_with("missed heartbeats from client") {
        "missed_heartbeats"
    } else if text.starts_with("client unexpectedly closed TCP connection") {
        "closed_abruptly"
    } else if text.contains("handshake_timeout") {
        "handshake_timeout"
    } else if text.contains("delivery acknowledgement on channel") && text.contains("timed out") {
        "consumer_timeout"
    } else if text.contains("timeout") || text.contains("timedout") {
        "timeout"
    } else {
        "error"
    }
}

/// `DATE TIME [level] <process> text`.
fn split(line: &str) -> Option<(i64, &str, &str)> {
    let (date, rest) = line.split_once([' ', 'T'])?;
    let (time, rest) = rest.split_once(' ')?;
    let rest = rest.strip_prefix('[')?.split_once("] ")?.1;
    let (process, text) = rest.strip_prefix('<')?.split_once("> ")?;
    Some((unix_ns(date, time)?, process, text.trim_end()))
}

/// `2026-11-30`, `12:53:14.378793+00:00`: the lab's brokers run in UTC, another zone is not read.
fn unix_ns(date: &str, time: &str) -> Option<i64> {
    let time = time.strip_suffix("+00:00").or_else(|| time.strip_suffix('Z'))?;
    let mut numbers = date.split('-').map(|n| n.parse::<i64>().ok());
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut numbers = clock.split(':').map(|n| n.parse::<i64>().ok());
    let (h, m, s) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if !(1..=12).contains(&month) || fraction.is_empty() || fraction.len() > 9 || !(1970..10_000).contains(&year) {
        return None;
    }
    let nanos = fraction.parse::<i64>().ok()? * 10i64.pow(9 - u32::try_from(fraction.len()).ok()?);
    // Days since 1970 of a proleptic Gregorian date; the year begins in March so that the leap day is its last.
    let y = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    Some((((days * 24 + h) * 60 + m) * 60 + s) * 1_000_000_000 + nanos)
}

/// The first `(A:P -> B:Q` of a line.
fn tuple_in(text: &str) -> Option<Tuple> {
    let (before, after) = text.split_once(" -> ")?;
    let local = before.rsplit_once('(')?.1.parse().ok()?;
    let peer = after.split([',', ')', ' ']).next()?.parse().ok()?;
    Some(Tuple { local, peer })
}

/// Time between two looks at the file, by the time since it last grew. The times in it are the broker's own.
const PACE: Pace = Pace::new(Duration::from_millis(50), 50);

/// Follows a log on a thread of its own and sends a [`Kind::BrokerEnd`] for each end.
#[derive(Debug)]
pub struct LogWatch {
    stop: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl LogWatch {
    /// Starts at the beginning of the file.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(path: &Path, clock: Clock, events: Sender<Event>) -> io::Result<Self> {
        let (stop, stopped) = mailbox();
        let (mut tail, mut reader) = (Tail::new(path), LogReader::default());
        let thread = std::thread::Builder::new().name("broker-log".into()).spawn(move || {
            let mut grew = clock.now();
            loop {
                let now = clock.now();
                let next = now + PACE.after(now.since(grew));
                let last = !matches!(stopped.recv_until(clock, next), Err(Nothing::Timeout));
                let lines = tail.lines()?;
                if !lines.is_empty() {
                    grew = clock.now();
                }
                for entry in lines.iter().filter_map(|line| reader.line(line)) {
                    if let Some(event) = event_of(entry, clock) {
                        // Nobody listens any more: the run is over.
                        if events.send(event).is_err() {
                            return Ok(());
                        }
                    }
                }
                if last {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Reads what there is and ends.
    ///
    /// # Errors
    /// When the file could not be read.
    pub fn stop(self) -> io::Result<()> {
        // The thread may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads the broker's log panicked")))
    }
}

fn event_of(entry: Entry, clock: Clock) -> Option<Event> {
    let Said::Ended { reason } = entry.said else { return None };
    let kind = Kind::BrokerEnd { tuple: entry.tuple, reason: reason.into(), text: entry.text };
    Some(Event::of_run(clock.offset_of_wall(entry.unix_ns), Source::Broker, kind))
}

#[cfg(test)]
#[path = "broker_log_tests.rs"]
mod tests;
