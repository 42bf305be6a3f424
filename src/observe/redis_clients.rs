//! Redis's own table of clients, polled: when a connection is gone from it, and what a client is for.
//!
//! Redis logs no end of a connection, so the table is all there is. Each end carries the bracket of its two polls: it
//! happened between the request that still saw the client and the answer that did not. Reading the table is pure
//! ([`ClientTable`]). What is left out: why. Redis does not say.

use crate::events::{Event, Kind, Source, Tuple};
use crate::host::clock::Clock;
use crate::host::mailbox::{Nothing, Sender, mailbox};
use crate::host::netns::NetNs;
use crate::units::{Offset, Pace};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whose word a role is that comes from here.
const FROM: &str = "client_list";

/// The clients that were there at the last poll.
#[derive(Debug, Default)]
pub struct ClientTable {
    clients: HashMap<u64, (Tuple, String)>,
    /// What each of them is for, as far as it has shown.
    roles: HashMap<u64, &'static str>,
    asked: Option<Offset>,
    changed: Offset,
}

impl ClientTable {
    /// Takes the next answer of `CLIENT LIST`, asked at `asked` and read at `answered`; returns the ends, and what clients are
    /// for that was not known.
    pub fn update(&mut self, list: &str, asked: Offset, answered: Offset) -> Vec<Event> {
        let now: HashMap<u64, (Tuple, String)> = list.lines().filter_map(client_of).collect();
        if now.len() != self.clients.len() || now.keys().any(|id| !self.clients.contains_key(id)) {
            self.changed = answered;
        }
        let mut gone: Vec<(u64, Tuple, String)> = std::mem::replace(&mut self.clients, now)
            .into_iter()
            .filter(|(id, _)| !self.clients.contains_key(id))
            .map(|(id, (tuple, line))| (id, tuple, line))
            .collect();
        gone.sort_by_key(|(id, ..)| *id);
        let not_before = self.asked.replace(asked).unwrap_or(asked);
        self.roles.retain(|id, _| self.clients.contains_key(id));
        let ends = gone.into_iter().map(|(_, tuple, line)| {
            let text = format!("not before {not_before} s; last seen as: {line}");
            Event::of_run(answered, Source::Broker, Kind::BrokerEnd { tuple, reason: "gone".into(), text })
        });
        ends.chain(self.news(answered)).collect()
    }

    fn news(&mut self, at: Offset) -> Vec<Event> {
        let mut ids: Vec<u64> = self.clients.keys().copied().collect();
        ids.sort_unstable();
        let mut events = Vec::new();
        for id in ids {
            let (tuple, line) = &self.clients[&id];
            let Some(role) = role_of(line) else { continue };
            let rank = |role: &str| ROLES.iter().position(|known| *known == role);
            if rank(role) > self.roles.get(&id).and_then(|known| rank(known)) {
                self.roles.insert(id, role);
                let kind = Kind::Role { tuple: *tuple, role: role.into(), from: FROM.into() };
                events.push(Event::of_run(at, Source::Broker, kind));
            }
        }
        events
    }

    /// When a client last came or went, as far as the polls saw.
    #[must_use]
    pub fn changed(&self) -> Offset {
        self.changed
    }

    /// How many clients there were at the last poll, the poller's own among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

/// The least telling first: one that does several things has the last of them.
const ROLES: [&str; 3] = ["publisher", "subscriber", "consumer"];

/// What a client is for, by its flags, its subscriptions and its last command. Redis does not say of what: neither the list that
/// is popped from nor the channel.
fn role_of(line: &str) -> Option<&'static str> {
    let field = |name: &str| line.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
    let some = |name: &str| field(name).is_some_and(|n| n != "0");
    // `b`: it waits in a blocking command.
    if field("flags").is_some_and(|flags| flags.contains('b')) {
        return Some("consumer");
    }
    if some("sub") || some("psub") || some("ssub") {
        return Some("subscriber");
    }
    match field("cmd")? {
        "brpop" | "blpop" | "brpoplpush" | "blmove" | "blmpop" | "rpop" | "lpop" | "xreadgroup" => Some("consumer"),
        "lpush" | "rpush" | "publish" | "spublish" | "xadd" => Some("publisher"),
        _ => None,
    }
}

/// `id=3 addr=10.64.128.1:40000 laddr=10.128.128.1:6379 fd=8 …`.
fn client_of(line: &str) -> Option<(u64, (Tuple, String))> {
    let field = |name: &str| line.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
    let tuple = Tuple { local: field("addr")?.parse().ok()?, peer: field("laddr")?.parse().ok()? };
    Some((field("id")?.parse().ok()?, (tuple, line.to_string())))
}

/// Polls on a thread of its own, over a connection of its own.
#[derive(Debug)]
pub struct ClientsWatch {
    stop: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl ClientsWatch {
    /// Connects from the namespace, logs in and takes the first table before it returns. `pace` is by the time since a
    /// client last came or went.
    ///
    /// # Errors
    /// When Redis can't be reached or refuses.
    pub fn start(
        ns: &NetNs,
        server: SocketAddrV4,
        password: &str,
        pace: Pace,
        clock: Clock,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let stream = ns.run(|| TcpStream::connect(server))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut redis = BufReader::new(stream);
        command(&mut redis, &format!("AUTH {password}"))?;
        let mut table = ClientTable::default();
        poll(&mut redis, &mut table, clock)?;
        let (stop, stopped) = mailbox();
        let thread = std::thread::Builder::new().name("redis-clients".into()).spawn(move || {
            loop {
                let now = clock.now();
                let next = now + pace.after(now.since(table.changed()));
                let last = !matches!(stopped.recv_until(clock, next), Err(Nothing::Timeout));
                for event in poll(&mut redis, &mut table, clock)? {
                    // Nobody listens any more: the run is over.
                    if events.send(event).is_err() {
                        return Ok(());
                    }
                }
                if last {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Looks once more and ends.
    ///
    /// # Errors
    /// When a poll failed: from then on ends were not seen.
    pub fn stop(self) -> io::Result<()> {
        // The thread may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that polls Redis panicked")))
    }
}

fn poll(redis: &mut BufReader<TcpStream>, table: &mut ClientTable, clock: Clock) -> io::Result<Vec<Event>> {
    let asked = clock.now();
    let list = command(redis, "CLIENT LIST")?;
    Ok(table.update(&list, asked, clock.now()))
}

/// Sends an inline command and reads a simple or a bulk answer.
fn command<S: Read + Write>(redis: &mut BufReader<S>, text: &str) -> io::Result<String> {
    let wrong = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("Redis said `{}`", line.trim_end()));
    write!(redis.get_mut(), "{text}\r\n")?;
    let mut line = String::new();
    redis.read_line(&mut line)?;
    if let Some(simple) = line.strip_prefix('+') {
        return Ok(simple.trim_end().to_string());
    }
    let length: usize = line.strip_prefix('$').and_then(|n| n.trim_end().parse().ok()).ok_or_else(|| wrong(&line))?;
    let mut bytes = vec![0; length + 2];
    redis.read_exact(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| wrong("bytes that are not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from Redis 7.0.15, with a trial's addresses in place of the loopback.
    const ONE: &str = "id=3 addr=10.64.128.1:40000 laddr=10.128.128.1:6379 fd=8 name= age=0 idle=0 flags=b db=0 sub=0 \
                       psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=20474 argv-mem=7 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 \
                       omem=0 tot-mem=22303 events=r cmd=brpop user=default redir=-1 resp=2";

    #[test]
    fn what_a_client_is_for_shows_and_is_told_once() {
        let publishes = ONE.replace("flags=b", "flags=N").replace("cmd=brpop", "cmd=publish");
        let subscribes = publishes.replace(" psub=0", " psub=1").replace("flags=N", "flags=P");
        let mut table = ClientTable::default();
        let mut told = |line: &str| -> Vec<String> {
            let events = table.update(line, Offset(1), Offset(2));
            let role = |event: Event| match event.kind {
                Kind::Role { role, from, .. } => format!("{role} by {from}"),
                other => format!("{other:?}"),
            };
            events.into_iter().map(role).collect()
        };
        assert_eq!(told(&publishes), ["publisher by client_list"]);
        assert_eq!(told(&subscribes), ["subscriber by client_list"]);
        assert!(told(&publishes).is_empty(), "it was a subscriber");
        assert_eq!(told(ONE), ["consumer by client_list"]);
        assert!(told(&ONE.replace("flags=b", "flags=N").replace("cmd=brpop", "cmd=ping")).is_empty());
    }

    #[test]
    fn a_client_that_disappears_is_an_end_with_its_bracket() {
        let two = ONE.replace("id=3", "id=4").replace(":40000", ":40001");
        let mut table = ClientTable::default();
        assert_eq!(
            table.update(&format!("{ONE}\n{two}\n"), Offset(1_000_000), Offset(2_000_000)).len(),
            2,
            "their roles"
        );
        assert_eq!(table.len(), 2);
        let events = table.update(&format!("{two}\n"), Offset(5_000_000_000), Offset(5_001_000_000));
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].offset, Offset(5_001_000_000));
        let Kind::BrokerEnd { tuple, reason, text } = &events[0].kind else { panic!("{events:?}") };
        assert_eq!(tuple.to_string(), "10.64.128.1:40000-10.128.128.1:6379");
        assert_eq!(reason, "gone");
        assert!(text.starts_with("not before 0.001000 s") && text.contains("cmd=brpop"), "{text}");
    }

    #[test]
    fn a_client_number_is_never_used_twice_even_if_the_address_is() {
        let mut table = ClientTable::default();
        table.update(ONE, Offset(0), Offset(1));
        let again = ONE.replace("id=3", "id=9");
        assert_eq!(table.update(&again, Offset(2), Offset(3)).len(), 2, "an end and a role");
        assert_eq!(table.update(&again, Offset(4), Offset(5)).len(), 0);
    }

    #[test]
    fn lines_without_a_connection_are_passed_over() {
        for line in ["", "id=x", "id=1 addr=/tmp/sock:0 laddr=/tmp/sock:0", "id=1 addr=[::1]:5 laddr=[::1]:6379"] {
            assert!(client_of(line).is_none(), "{line}");
        }
    }
}
