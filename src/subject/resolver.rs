//! A name server for the trials' brokers, which answers late or never where a fault says so.
//!
//! One process for all trials of a run; a name is one trial's. The first query for it starts its clock: what is asked before
//! the answer is due waits for that instant, what is asked later is answered at once. It tells of the first query and of the
//! first late answer as the proof of the fault. What is left out: everything of DNS (RFC 1035) but single questions over UDP;
//! other types than A have no records.

use super::child::{self, Role, flag};
use super::protocol::Command;
use super::report::Reporter;
use crate::events::{Kind, Source};
use crate::units::{Offset, TrialId, seconds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

/// The longest wait for a query while nothing is due.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// When a name is answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// As soon as it is asked.
    AtOnce,
    /// So long after it was first asked.
    After(Duration),
    /// Never.
    Never,
}

/// A name and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose broker it is.
    pub trial: TrialId,
    /// The name, in small letters.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// When it is told.
    pub answers: Answers,
}

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Peer, &[], |reporter| {
        let needed = |name: &str| flag(args, name).ok_or_else(|| io::Error::other(format!("{name} is needed")));
        let entries: Vec<Entry> = serde_json::from_slice(&std::fs::read(needed("--entries")?)?)?;
        // Before hello: whoever asks finds it.
        let socket = UdpSocket::bind(needed("--listen")?)?;
        let server = Server {
            entries: entries.into_iter().map(|entry| (entry.name.clone(), (entry, None))).collect(),
            waiting: Vec::new(),
            reporter: reporter.clone(),
        };
        let own = reporter.clone();
        thread::Builder::new().name("answer".into()).spawn(move || {
            if let Err(error) = server.serve(&socket) {
                own.note(format!("the name server ended: {error}"));
            }
        })?;
        Ok(Resolver { reporter: reporter.clone() })
    })
}

struct Resolver {
    reporter: Reporter,
}

impl Role for Resolver {
    fn command(&mut self, _: Command) {
        self.reporter.note("a name server takes no orders: clients ask it".to_string());
    }
}

/// An answer that is not due yet.
struct Waiting {
    due: Offset,
    to: SocketAddr,
    reply: Vec<u8>,
    name: String,
}

struct Server {
    /// By name, with the instant of the first query.
    entries: BTreeMap<String, (Entry, Option<Offset>)>,
    waiting: Vec<Waiting>,
    reporter: Reporter,
}

impl Server {
    fn serve(mut self, socket: &UdpSocket) -> io::Result<()> {
        let mut buffer = [0; 1500];
        loop {
            let now = self.reporter.now();
            let next = self.waiting.iter().map(|one| one.due).min();
            let patience = next.map_or(PATIENCE, |due| due.since(now)).max(Duration::from_micros(1));
            socket.set_read_timeout(Some(patience))?;
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => self.asked(socket, &buffer[..length], from)?,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // Somebody who asked has gone: the kernel tells the next call.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
            self.answer_due(socket);
        }
    }

    fn asked(&mut self, socket: &UdpSocket, query: &[u8], from: SocketAddr) -> io::Result<()> {
        let now = self.reporter.now();
        let Some(question) = Question::read(query) else { return Ok(()) };
        let Some((entry, first)) = self.entries.get_mut(&question.name) else {
            let _ = socket.send_to(&question.reply(None, 3), from);
            return Ok(());
        };
        let since = *first.get_or_insert(now);
        if since == now {
            let what = match entry.answers {
                Answers::AtOnce => None,
                Answers::After(time) => {
                    Some(format!("a query for {} came, which is answered {} s later", entry.name, seconds(time)))
                }
                Answers::Never => Some(format!("a query for {} came, which is not answered", entry.name)),
            };
            if let Some(what) = what {
                self.reporter.event(now, entry.trial, Kind::Proof { what, holds: true });
            }
        }
        let reply = question.reply(Some(entry.address), 0);
        let due = match entry.answers {
            Answers::Never => return Ok(()),
            Answers::AtOnce => now,
            Answers::After(time) => since + time,
        };
        self.waiting.push(Waiting { due, to: from, reply, name: question.name });
        Ok(())
    }

    fn answer_due(&mut self, socket: &UdpSocket) {
        let now = self.reporter.now();
        let (due, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|one| one.due <= now);
        self.waiting = waiting;
        let due: Vec<Waiting> = due;
        for one in due {
            // Whoever has gone meanwhile asks again if need be.
            let _ = socket.send_to(&one.reply, one.to);
            if let Some((entry, Some(first))) = self.entries.get_mut(&one.name)
                && let Answers::After(_) = entry.answers
            {
                let what = format!("it was answered {:.3} s after the first query", now.since(*first).as_secs_f64());
                self.reporter.event(now, entry.trial, Kind::Proof { what, holds: true });
                // Said once.
                entry.answers = Answers::AtOnce;
            }
        }
    }
}

/// The one question of a query.
struct Question {
    id: [u8; 2],
    /// In small letters, without the last dot.
    name: String,
    /// As it stands in the query: name, type and class.
    raw: Vec<u8>,
    /// Its type; 1 is A.
    kind: u16,
}

impl Question {
    /// Of a query with one question (RFC 1035, 4.1); `None` for anything else.
    fn read(query: &[u8]) -> Option<Self> {
        let (header, rest) = query.split_at_checked(12)?;
        if header[2] & 0x80 != 0 || header[4..6] != [0, 1] {
            return None;
        }
        let (mut at, mut labels) = (0, Vec::new());
        loop {
            let length = usize::from(*rest.get(at)?);
            at += 1;
            match length {
                0 => break,
                1..=63 => labels.push(String::from_utf8_lossy(rest.get(at..at + length)?).to_lowercase()),
                _ => return None,
            }
            at += length;
        }
        let kind = u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]);
        let raw = rest.get(..at + 4)?.to_vec();
        Some(Self { id: [header[0], header[1]], name: labels.join("."), raw, kind })
    }

    /// The answer with this code; one record where it is asked for an address.
    fn reply(&self, address: Option<Ipv4Addr>, code: u8) -> Vec<u8> {
        let address = address.filter(|_| self.kind == 1);
        let mut reply = Vec::from(self.id);
        // An answer, recursion desired and available; one question, at most one record.
        reply.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
        reply.extend(&self.raw);
        if let Some(address) = address {
            // The name of the question, type A, class IN, not to be kept, four bytes.
            reply.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            reply.extend(address.octets());
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u8) -> Vec<u8> {
        let mut query = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).unwrap());
            query.extend(label.as_bytes());
        }
        query.extend([0, 0, kind, 0, 1]);
        query
    }

    #[test]
    fn a_question_is_read_and_answered_as_the_standard_has_it() {
        let question = Question::read(&query("Broker-7.halfopen.test", 1)).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("broker-7.halfopen.test", 1));
        let reply = question.reply(Some(Ipv4Addr::new(10, 128, 128, 8)), 0);
        assert_eq!(reply[..12], [0xAB, 0xCD, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(reply[reply.len() - 4..], [10, 128, 128, 8]);
        let six = Question::read(&query("broker-7.halfopen.test", 28)).unwrap().reply(Some(Ipv4Addr::LOCALHOST), 0);
        assert_eq!(six[6..8], [0, 0], "no record of another type");
        assert_eq!(question.reply(None, 3)[3], 0x83);
    }

    #[test]
    fn what_is_no_question_is_nothing() {
        for broken in [
            &[][..],
            &[0; 12],
            &query("a.b", 1)[..14],
            &[0xAB, 0xCD, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1],
        ] {
            assert!(Question::read(broken).is_none(), "{broken:?}");
        }
    }
}
