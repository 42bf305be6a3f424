//! The observers' threads: the clients' sockets through `sock_diag`, and their ends through tracepoints.
//!
//! `sock_diag` is asked when something can have changed ([`super::looks`]) and what changed is reported: state, running
//! timer, back-off. Tracepoints give the instant at which a socket left ESTABLISHED and the error that the kernel
//! stored. The run says which of the two its `kernel_end_s` comes from.

use super::Message;
use super::looks::{Left, Looks, Paces, Told};
use super::outside::SocketChange;
use super::owned::Owned;
use super::registry::Registry;
use crate::events::{Event, Kind, SocketSnapshot, Source, Tuple};
use crate::host::clock::Clock;
use crate::host::mailbox::{Nothing, Receiver, Sender};
use crate::observe::tcp_state::ESTABLISHED;
use crate::observe::{KernelEnds, PolledEnds, SockDiag, States, TraceWhat, Traces};
use crate::units::{Offset, Pace, TrialId};
use std::collections::BTreeMap;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::Duration;

/// Where tracepoints tell of the ends: looks only say which timer runs, so they may come late and together.
const BESIDE_TRACES: Paces = Paces {
    age: Pace::new(Duration::from_millis(100), 50),
    candid: Pace::new(Duration::from_secs(1), 2),
    overdue: Pace::new(Duration::from_millis(100), 1),
    leisurely: true,
};
/// Where looks are all there is: an end is bracketed by two of them.
const ALONE: Paces = {
    let all = Pace::new(Duration::from_millis(20), 50);
    Paces { age: all, candid: all, overdue: all, leisurely: false }
};
/// Up to this many sockets are looked at one by one: a list of them all makes the kernel walk through the buckets of every
/// connection of the machine (0.4 ms).
const FEW: usize = 8;
/// States of a socket that is none any more, as [`States::LIVE`] leaves them out: TIME-WAIT and CLOSE.
const GONE: [u8; 2] = [6, 7];
/// Two looks at a namespace for reasons of their own are at least so far apart, and nine times as long as they take.
const LEAST: Duration = Duration::from_millis(10);
/// A bit more than the time that an end waits for its error.
const ERROR_WAIT: Duration = Duration::from_millis(12);

/// What every observer thread needs.
#[derive(Clone)]
pub struct Watch {
    /// The run's clock.
    pub clock: Clock,
    /// Who is who.
    pub registry: Registry,
    /// Where events go.
    pub events: Sender<Message>,
}

/// A client namespace, its sockets, and its looks.
struct Client {
    diag: SockDiag,
    looks: Looks,
    polled: PolledEnds,
    /// No look before.
    not_before: Offset,
}

impl Watch {
    /// Reports an event of a trial.
    pub(super) fn say(&self, offset: Offset, source: Source, trial: TrialId, kind: Kind) {
        let _ = self.events.send(Message::Event(Event::of_trial(offset, source, trial, kind)));
    }

    pub(super) fn changed(&self, changes: Vec<SocketChange>) {
        for change in changes {
            let _ = self.events.send(Message::Socket(change));
        }
    }

    /// Looks at the sockets of all client namespaces until `told` is closed.
    ///
    /// `ends` is whether vanished sockets are reported as ended, which only makes sense without tracepoints.
    pub fn sockets(&self, namespaces: Vec<SockDiag>, ends: bool, told: &Receiver<Told>) {
        let pace = if ends { ALONE } else { BESIDE_TRACES };
        let client =
            |diag| Client { diag, looks: Looks::new(pace), polled: PolledEnds::default(), not_before: Offset::ZERO };
        let mut clients: Vec<Client> = namespaces.into_iter().map(client).collect();
        loop {
            let next = clients.iter().filter_map(Client::next).min();
            let first = match next {
                Some(at) => told.recv_until(self.clock, at),
                None => told.recv(),
            };
            if matches!(first, Err(Nothing::Disconnected)) {
                return;
            }
            let now = self.clock.now();
            for told in first.into_iter().chain(told.try_iter()) {
                match told {
                    Told::Watch { tuple, trial, client, cut, candid } if cut || ends => {
                        clients[client].looks.watch(tuple, trial, cut, candid, now);
                    }
                    Told::Watch { .. } => {}
                    Told::Look { trial, client, wrote } => clients[client].looks.look(trial, wrote, now),
                }
            }
            for client in clients.iter_mut().filter(|c| c.next().is_some_and(|at| at <= now)) {
                self.look(client, now, ends);
            }
        }
    }

    fn look(&self, client: &mut Client, started: Offset, ends: bool) {
        let due = client.looks.due(started);
        if !ends && due.len() <= FEW {
            for tuple in &due {
                let Ok(socket) = client.diag.get(*tuple) else { return client.looks.failed(started) };
                let socket = socket.filter(|s| !GONE.contains(&s.state));
                if let Some(socket) = &socket {
                    self.tell_change(client, started, *tuple, socket);
                }
                self.tell_end(client, started, *tuple, socket.as_ref());
                client.looks.looked_at(started, *tuple, socket.as_ref());
            }
            client.not_before = started + LEAST.max(self.clock.now().since(started) * 9);
            return;
        }
        let there: BTreeMap<Tuple, SocketSnapshot> = match client.diag.dump(States::LIVE) {
            Ok(sockets) => sockets.into_iter().filter(|(t, _)| client.looks.get_mut(t).is_some()).collect(),
            // A look that failed saw nothing, which is not the same as seeing that nothing is there.
            Err(_) => return client.looks.failed(started),
        };
        client.not_before = started + LEAST.max(self.clock.now().since(started) * 9);
        if ends {
            for end in client.polled.look(started, there.iter().map(|(tuple, s)| (*tuple, s.state))) {
                let Some(who) = self.registry.get(&end.tuple) else { continue };
                let (tuple, not_before) = (end.tuple, Some(end.not_before));
                let kind = Kind::KernelEnd { tuple, errno: None, not_before, by: "sock_diag".into() };
                self.say(end.at, Source::Kernel, who.trial, kind);
            }
        }
        for (tuple, socket) in &there {
            self.tell_change(client, started, *tuple, socket);
        }
        if !ends {
            for tuple in client.looks.all() {
                self.tell_end(client, started, tuple, there.get(&tuple));
            }
        }
        client.looks.looked(started, &there);
    }

    /// Reports an end that two looks have seen, for where the kernel's record of it is missing. Whoever has it takes no notice.
    fn tell_end(&self, client: &mut Client, now: Offset, tuple: Tuple, socket: Option<&SocketSnapshot>) {
        if let Some(Left { at, not_before, state }) = client.looks.left(now, &tuple, socket) {
            let (old, new, errno, not_before) = (ESTABLISHED, state, None, Some(not_before));
            self.changed(vec![SocketChange { at, tuple, old, new, errno, not_before }]);
        }
    }

    /// Reports what a look saw where it tells more than the last one.
    fn tell_change(&self, client: &mut Client, at: Offset, tuple: Tuple, socket: &SocketSnapshot) {
        let Some(watched) = client.looks.get_mut(&tuple).filter(|w| w.cut) else { return };
        if watched.seen.as_ref().is_none_or(|before| changed(before, socket)) {
            watched.seen = Some(socket.clone());
            self.say(at, Source::Kernel, watched.trial, Kind::Snapshot { tuple, socket: socket.clone() });
        }
    }

    /// Reports each known socket that leaves ESTABLISHED, at the kernel's own instant, until `end` is closed.
    ///
    /// Of clients that are watched from outside every change is handed on, as far as the socket is theirs.
    pub fn trace(&self, mut traces: Traces, end: &PipeReader, mut outside: Owned) {
        let mut ends = KernelEnds::default();
        let mut last = false;
        loop {
            let before = self.clock.now();
            for record in traces.drain() {
                ends.push(record);
                // The end of an established connection waits for its error, below.
                if let TraceWhat::State { old, new } = record.what
                    && old != ESTABLISHED
                {
                    self.changed(outside.changes(SocketChange {
                        at: record.at,
                        tuple: record.tuple,
                        old,
                        new,
                        errno: Some(0),
                        not_before: None,
                    }));
                }
            }
            // At the end of the run nothing more is waited for.
            let settled = if last { before + ERROR_WAIT * 2 } else { before };
            for end in ends.take(settled) {
                if outside.is_about(end.tuple) {
                    let (at, tuple, new, errno) = (end.at, end.tuple, end.state, Some(end.errno));
                    let change = SocketChange { at, tuple, old: ESTABLISHED, new, errno, not_before: None };
                    self.changed(outside.changes(change));
                    continue;
                }
                if let Some(who) = self.registry.get(&end.tuple) {
                    self.say(end.at, Source::Kernel, who.trial, end.into_kind());
                }
            }
            if last {
                break;
            }
            let wait = ends.pending().then_some(ERROR_WAIT);
            last = traces.wait(wait, end.as_fd()).is_err() || closed(end);
        }
        if traces.lost() > 0 {
            let text = format!(
                "{} trace records are missing: some `kernel_end_s` come from sock_diag alone, or not at all",
                traces.lost()
            );
            let event = Event::of_run(self.clock.now(), Source::Kernel, Kind::Note { text });
            let _ = self.events.send(Message::Event(event));
        }
    }
}

impl Client {
    fn next(&self) -> Option<Offset> {
        self.looks.next().map(|at| at.max(self.not_before))
    }
}

/// Whether the writing end of a pipe on which nothing is ever written is gone.
pub(super) fn closed(pipe: &PipeReader) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Whether a look tells more than the last one: the clocks inside (`expires_ms`, ages) always move.
fn changed(before: &SocketSnapshot, now: &SocketSnapshot) -> bool {
    (before.state, before.timer, before.backoff, before.retrans, before.probes, before.unacked)
        != (now.state, now.timer, now.backoff, now.retrans, now.probes, now.unacked)
}
