//! The embedded peer: the far end of bare TCP subjects.
//!
//! A client says `R <trial> <interval µs>` (it reads; 0 for silence), `W <trial>` (it writes) or `Z <trial>` (it writes,
//! and the peer shall not read, so that its window closes) and hears `ok`. Numbers
//! of one trial go on over reconnects, and only the newest connection of a trial is served: what an older one, cut off
//! and not yet noticed, was sent is lost, as with a real broker. The peer's own sockets have no keepalive and no
//! timeouts: what ends them is data that nobody acknowledges, or the client.

use super::child::{self, Role};
use super::protocol::Command;
use super::report::Reporter;
use super::schedule::Schedule;
use super::stop::Stop;
use super::tcp_reader::Lines;
use super::{causes, socket};
use crate::events::{Cause, How, Kind, Source, Tuple};
use crate::units::{Offset, TrialId};
use socket2::SockRef;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;

const PORT: u16 = 7000;
/// Connections waiting to be accepted; the kernel takes the smaller of this and `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Longest greeting: `R`, two numbers, a newline.
const GREETING_BYTES: usize = 64;

pub(super) fn main(args: &[String]) -> i32 {
    let listen = child::flag(args, "--listen").map_or(Ok(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT)), str::parse);
    child::run(args, Source::Peer, &[], |reporter| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(async { bind(listen.map_err(io::Error::other)?) })?;
        reporter.note(format!("listening on {}", listener.local_addr()?));
        let peer = Arc::new(Peer { reporter: reporter.clone(), trials: Mutex::default() });
        runtime.spawn(accept(listener, peer.clone()));
        Ok(Process { peer, runtime: Some(runtime) })
    })
}

fn bind(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::V4(address))?;
    socket.listen(BACKLOG)
}

struct Process {
    peer: Arc<Peer>,
    runtime: Option<Runtime>,
}

impl Role for Process {
    fn command(&mut self, command: Command) {
        match command {
            Command::Close { trial } => self.peer.close(trial),
            Command::Quit => {}
            Command::Open { trial, .. }
            | Command::Publish { trial, .. }
            | Command::Republish { trial, .. }
            | Command::Reissue { trial, .. }
            | Command::Await { trial, .. }
            | Command::Inspect { trial, .. }
            | Command::Fill { trial }
            | Command::HaltAt { trial, .. }
            | Command::GoOn { trial }
            | Command::Call { trial } => {
                self.peer.reporter.note(format!("the peer takes no orders for trial {trial}: clients call on it"));
            }
            Command::Reap { .. } | Command::Attend { .. } => {
                self.peer.reporter.note("the peer neither reaps nor waits".to_string());
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Peer {
    reporter: Reporter,
    trials: Mutex<HashMap<TrialId, Served>>,
}

/// What the peer remembers of a trial.
#[derive(Default)]
struct Served {
    /// The next number for its reader.
    next: u64,
    /// How many connections it has had: the newest is the one that is served.
    generation: u64,
    /// One for each connection that still lives.
    stops: Vec<(u64, Arc<Stop>)>,
}

impl Peer {
    fn trials(&self) -> MutexGuard<'_, HashMap<TrialId, Served>> {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, trial: TrialId) {
        let served = self.trials().remove(&trial);
        served.into_iter().flat_map(|served| served.stops).for_each(|(_, stop)| stop.stop());
    }

    fn enter(&self, trial: TrialId) -> (u64, Arc<Stop>) {
        let mut trials = self.trials();
        let served = trials.entry(trial).or_default();
        served.generation += 1;
        let stop = Arc::new(Stop::default());
        served.stops.push((served.generation, stop.clone()));
        (served.generation, stop)
    }

    fn leave(&self, trial: TrialId, generation: u64) {
        if let Some(served) = self.trials().get_mut(&trial) {
            served.stops.retain(|(other, _)| *other != generation);
        }
    }

    /// The next number for this connection's reader, unless a newer connection has taken over.
    fn next_number(&self, trial: TrialId, generation: u64) -> Option<u64> {
        let mut trials = self.trials();
        let served = trials.get_mut(&trial).filter(|served| served.generation == generation)?;
        served.next += 1;
        Some(served.next - 1)
    }
}

async fn accept(listener: TcpListener, peer: Arc<Peer>) {
    let mut told = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, peer.clone()))),
            Err(error) => {
                // Once: the same lack would be told ten times a second.
                if !std::mem::replace(&mut told, true) {
                    peer.reporter.note(format!("accept: {error}; connections are refused while this lasts"));
                }
                // Out of descriptors: the next call would fail at once again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: Arc<Peer>) {
    if let Err(error) = greet_and_serve(stream, &peer).await {
        peer.reporter.note(format!("a connection ended before its greeting: {error}"));
    }
}

async fn greet_and_serve(mut stream: TcpStream, peer: &Peer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let tuple = socket::tuple_of(SockRef::from(&stream))?.reversed();
    let greeting = read_greeting(&mut stream).await?;
    let Some((trial, interval, reads)) = parse_greeting(&greeting) else {
        return Err(io::Error::other(format!("greeting {greeting:?} from {}", tuple.local)));
    };
    let (generation, stop) = peer.enter(trial);
    stream.write_all(b"ok\n").await?;
    let (mut read, mut write) = stream.into_split();
    let (at, cause) = tokio::select! {
        () = stop.stopped() => return Ok(()),
        end = listen_to(peer, trial, &mut read), if reads => end,
        end = speak(peer, trial, generation, interval, &mut write) => end,
    };
    peer.leave(trial, generation);
    ended(peer, trial, at, tuple, cause);
    Ok(())
}

fn ended(peer: &Peer, trial: TrialId, at: Offset, tuple: Tuple, cause: Cause) {
    peer.reporter.event(at, trial, Kind::PeerEnded { tuple, cause });
}

async fn read_greeting(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    // Byte by byte: a writer's first message may follow in the same segment and belongs to the reader behind.
    while line.len() < GREETING_BYTES {
        match stream.read_u8().await? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    String::from_utf8(line).map_err(io::Error::other)
}

/// The trial, the interval of the messages that a reader asks for, and whether the peer shall read.
fn parse_greeting(line: &str) -> Option<(TrialId, Option<Duration>, bool)> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["R", trial, interval_us] => {
            let interval_us = interval_us.parse().ok()?;
            Some((trial.parse().ok()?, (interval_us > 0).then(|| Duration::from_micros(interval_us)), true))
        }
        ["W", trial] => Some((trial.parse().ok()?, None, true)),
        ["Z", trial] => Some((trial.parse().ok()?, None, false)),
        _ => None,
    }
}

async fn listen_to(peer: &Peer, trial: TrialId, read: &mut OwnedReadHalf) -> (Offset, Cause) {
    let mut buffer = [0; 4096];
    let mut lines = Lines::default();
    loop {
        let result = read.read(&mut buffer).await;
        let at = peer.reporter.now();
        match result {
            Ok(0) => return (at, causes::eof()),
            Ok(length) => lines.feed(&buffer[..length], |message| {
                peer.reporter.event(at, trial, Kind::PeerReceived { message });
            }),
            Err(error) => return (at, causes::of_io(&error, How::Other)),
        }
    }
}

async fn speak(
    peer: &Peer,
    trial: TrialId,
    generation: u64,
    interval: Option<Duration>,
    write: &mut OwnedWriteHalf,
) -> (Offset, Cause) {
    if let Some(interval) = interval {
        let mut schedule = Schedule::staggered(peer.reporter.now(), interval, trial);
        loop {
            tokio::time::sleep(schedule.wait(peer.reporter.now())).await;
            schedule.advance();
            let Some(message) = peer.next_number(trial, generation) else { break };
            // Before the call: the segment leaves during it.
            let at = peer.reporter.now();
            peer.reporter.event(at, trial, Kind::Published { message });
            if let Err(error) = write.write_all(format!("{message}\n").as_bytes()).await {
                return (peer.reporter.now(), causes::of_io(&error, How::Other));
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings() {
        assert_eq!(parse_greeting("R 12 1000000"), Some((12, Some(Duration::from_secs(1)), true)));
        assert_eq!(parse_greeting("R 12 0"), Some((12, None, true)));
        assert_eq!(parse_greeting("W 7"), Some((7, None, true)));
        assert_eq!(parse_greeting("Z 7"), Some((7, None, false)));
        for wrong in ["", "W", "R 1", "X 1", "W -1", "GET / HTTP/1.1"] {
            assert_eq!(parse_greeting(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_the_newest_connection_of_a_trial_is_served_and_numbers_go_on() {
        let (reporter, _) = Reporter::start(crate::host::clock::Clock::from_zero(0), Source::Peer, io::sink());
        let peer = Peer { reporter, trials: Mutex::default() };
        let (first, _) = peer.enter(1);
        assert_eq!((peer.next_number(1, first), peer.next_number(1, first)), (Some(0), Some(1)));
        let (second, stop) = peer.enter(1);
        assert_eq!((peer.next_number(1, first), peer.next_number(1, second)), (None, Some(2)));
        peer.close(1);
        assert!(stop.is_stopped());
        assert_eq!(peer.next_number(1, second), None);
    }
}
