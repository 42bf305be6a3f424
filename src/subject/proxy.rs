//! The proxy before a broker: an acceptor for each trial, and a process for each connection that only hands bytes on.
//!
//! A process each, so that a connection can be frozen as a side-car is: stopped by a signal, while its kernel goes on
//! acknowledging. A connection that is made meanwhile gets a process of its own, which runs. What is left out: stopping
//! them, which is the engine's.

use super::child::{self, Role, flag};
use super::protocol::Command;
use super::proxy_manners::{Manners, Way};
use super::report::Reporter;
use super::socket;
use crate::clients::RoleReader;
use crate::events::{Kind, Source};
use crate::host::clock::Clock;
use crate::host::process::{Launch, Process, Stream};
use crate::host::procfs;
use crate::scenario::BrokerKind;
use crate::units::TrialId;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Bytes handed on at a time.
const CHUNK: usize = 64 * 1024;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Peer, &[], |reporter| {
        let needed = |name: &str| flag(args, name).ok_or_else(|| io::Error::other(format!("{name} is needed")));
        let wrong = |_| io::Error::other("not an address");
        if args.iter().any(|arg| arg == "--silent") {
            // Whoever looks from outside sees it by the name.
            procfs::rename(SILENT)?;
        }
        // Before hello: the first client that looks for it finds it.
        let listener = TcpListener::bind(needed("--listen")?.parse::<SocketAddrV4>().map_err(wrong)?)?;
        let acceptor = Acceptor {
            trial: needed("--trial")?.parse().map_err(|_| io::Error::other("not a number"))?,
            upstream: needed("--upstream")?.parse().map_err(wrong)?,
            queue: needed("--queue")?.to_string(),
            zero_ns: needed("--zero-ns")?.to_string(),
            silent: args.iter().any(|arg| arg == "--silent"),
            reporter: reporter.clone(),
        };
        thread::Builder::new().name("accept".into()).spawn(move || acceptor.serve(&listener))?;
        Ok(Proxy { reporter: reporter.clone() })
    })
}

struct Proxy {
    reporter: Reporter,
}

impl Role for Proxy {
    fn command(&mut self, _: Command) {
        self.reporter.note("a proxy takes no orders: clients call on it".to_string());
    }
}

struct Acceptor {
    trial: TrialId,
    upstream: SocketAddrV4,
    queue: String,
    zero_ns: String,
    silent: bool,
    reporter: Reporter,
}

/// The name of a process that accepts connections and never says a word.
pub const SILENT: &str = "silent";

impl Acceptor {
    fn serve(&self, listener: &TcpListener) {
        if self.silent {
            return self.stay_silent(listener);
        }
        let mut relays: Vec<Process> = Vec::new();
        for client in listener.incoming() {
            relays.retain_mut(|relay| matches!(relay.try_wait(), Ok(None)));
            match client.and_then(|client| self.relay(client.into())) {
                Ok(relay) => relays.push(relay),
                Err(error) => self.reporter.note(format!("proxy of trial {}: {error}", self.trial)),
            }
        }
    }

    /// Accepts, tells of it, reads what comes and says nothing, until the client gives the connection up.
    fn stay_silent(&self, listener: &TcpListener) {
        for (attempt, client) in (0..).zip(listener.incoming()) {
            let begun = client.and_then(|client| {
                let tuple = socket::tuple_of(SockRef::from(&client))?.reversed();
                self.reporter.event(self.reporter.now(), self.trial, Kind::Connected { attempt, tuple });
                let (trial, reporter) = (self.trial, self.reporter.clone());
                thread::Builder::new().spawn(move || hear_out(client, trial, &reporter))
            });
            if let Err(error) = begun {
                self.reporter.note(format!("silence of trial {}: {error}", self.trial));
            }
        }
    }

    fn relay(&self, client: OwnedFd) -> io::Result<Process> {
        let (trial, upstream) = (self.trial.to_string(), self.upstream.to_string());
        let args =
            ["__relay", "--zero-ns", &self.zero_ns, "--trial", &trial, "--upstream", &upstream, "--queue", &self.queue];
        let mut launch = Launch::new("/proc/self/exe").args(args);
        launch.stdin = Stream::Fd(Arc::new(client));
        // Its few short lines go where the acceptor's go, each in one write.
        (launch.stdout, launch.stderr) = (Stream::Inherit, Stream::Inherit);
        launch.spawn()
    }
}

/// Reads to the end. The first bytes are the proof that somebody waits for an answer.
fn hear_out(mut client: TcpStream, trial: TrialId, reporter: &Reporter) {
    let mut buffer = [0; 4096];
    let mut heard = 0;
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        if heard == 0 {
            // The first byte of a record that carries a handshake (RFC 8446, 5.1).
            let holds = buffer[0] == 22;
            let what = format!("{length} bytes of a handshake of TLS were read, and nothing is said");
            reporter.event(reporter.now(), trial, Kind::Proof { what, holds });
        }
        heard += length;
    }
    // An end of its own would tell the client something: it stays as it is until the process ends.
    loop {
        thread::park();
    }
}

/// One connection: standard input is the client's end. Returns the exit status.
pub(super) fn relay_main(args: &[String]) -> i32 {
    match relay(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("relay: {error}");
            5
        }
    }
}

fn relay(args: &[String]) -> io::Result<()> {
    let needed = |name: &str| flag(args, name).ok_or_else(|| io::Error::other(format!("{name} is needed")));
    let wrong = |_| io::Error::other("not a number or an address");
    let zero_ns: i64 = needed("--zero-ns")?.parse().map_err(|_| io::Error::other("not a number"))?;
    let trial: TrialId = needed("--trial")?.parse().map_err(|_| io::Error::other("not a number"))?;
    let upstream: SocketAddrV4 = needed("--upstream")?.parse().map_err(wrong)?;
    let queue = needed("--queue")?.to_string();
    let manners = Manners::good();
    manners.follow_signals()?;
    let client = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Only the duplicate is left: standard input would keep the connection open.
    let null: OwnedFd = std::fs::File::open("/dev/null")?.into();
    nix::unistd::dup2_stdin(&null)?;
    let (reporter, _writer) = Reporter::start(Clock::from_zero(zero_ns), Source::Peer, io::stdout());
    let near = socket::tuple_of(SockRef::from(&client))?.reversed();
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let far = socket::tuple_of(SockRef::from(&server))?;
    reporter.event(reporter.now(), trial, Kind::Relayed { tuple: near, upstream: far });
    let (back, into) = (server.try_clone()?, client.try_clone()?);
    let own = manners.clone();
    let backward = thread::spawn(move || hand_on(back, into, &own, Way::ToClient, |_| {}));
    let redis = upstream.port() == BrokerKind::Redis.port();
    let mut reader = RoleReader::of(if redis { BrokerKind::Redis } else { BrokerKind::Rabbitmq }, &queue);
    hand_on(client, server, &manners, Way::ToBroker, |bytes| {
        if let Some(role) = reader.read(bytes) {
            reporter.event(reporter.now(), trial, Kind::Role { tuple: near, role: role.into(), from: String::new() });
        }
    });
    let _ = backward.join();
    Ok(())
}

/// Until one side ends: an orderly end is handed on as one, an error ends both. An end that is not to be told keeps both
/// open until the process ends.
fn hand_on(mut from: TcpStream, mut to: TcpStream, manners: &Manners, way: Way, mut seen: impl FnMut(&[u8])) {
    let mut buffer = vec![0; CHUNK];
    let orderly = loop {
        match from.read(&mut buffer) {
            Ok(0) => break true,
            Ok(length) => {
                seen(&buffer[..length]);
                if manners.share(way, length, |n| to.write_all(&buffer[..n])).is_err() {
                    break false;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break false,
        }
    };
    while !manners.tells_the_end(way) {
        thread::park();
    }
    // What is shut down already needs no second time.
    if orderly {
        let _ = to.shutdown(Shutdown::Write);
    } else {
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_the_orderly_end_are_handed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let ((mut writer, from), (to, mut reader)) = (connect(), connect());
        let tuple = socket::tuple_of(SockRef::from(&from)).unwrap();
        assert_eq!(tuple.reversed(), socket::tuple_of(SockRef::from(&writer)).unwrap());
        let mut count = 0;
        let relay = thread::spawn(move || {
            hand_on(from, to, &Manners::good(), Way::ToBroker, |bytes| count += bytes.len());
            count
        });
        writer.write_all(b"hello").unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), relay.join().unwrap()), ("hello", 5));
    }
}
