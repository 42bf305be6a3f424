//! The observers' threads: the clients' sockets through `sock_diag`, and their ends through tracepoints.
//!
//! `sock_diag` looks at each socket every 100 ms (20 ms where it is the only source) and reports what changed: state,
//! running timer, back-off. Tracepoints give the instant at which a socket left ESTABLISHED and the error that the
//! kernel stored. The run says which of the two its `kernel_end_s` comes from.

use super::Message;
use super::registry::Registry;
use crate::events::{Event, Kind, SocketSnapshot, Source, Tuple};
use crate::host::clock::Clock;
use crate::observe::{SockDiag, Tracepoints};
use crate::units::Offset;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

const ESTABLISHED: u8 = 1;

/// What every observer thread needs.
#[derive(Clone)]
pub struct Watch {
    /// The run's clock.
    pub clock: Clock,
    /// Who is who.
    pub registry: Registry,
    /// Where events go.
    pub events: Sender<Message>,
    /// Set when the run ends.
    pub stop: Arc<AtomicBool>,
}

impl Watch {
    fn say(&self, offset: Offset, trial: u32, kind: Kind) {
        let _ = self.events.send(Message::Event(Event::of_trial(offset, Source::Kernel, trial, kind)));
    }

    /// Looks at the sockets of all client namespaces until told to stop.
    ///
    /// `ends` is whether vanished sockets are reported as ended, which only makes sense without tracepoints.
    pub fn sockets(&self, mut namespaces: Vec<SockDiag>, ends: bool) {
        let period = Duration::from_millis(if ends { 20 } else { 100 });
        let mut seen: HashMap<Tuple, (Offset, SocketSnapshot)> = HashMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            let started = self.clock.now();
            let known = self.registry.snapshot();
            let mut now_there = HashMap::new();
            for diag in &mut namespaces {
                // A look that fails is a look less; the bracket of what it would have seen grows by one period.
                now_there.extend(diag.dump().unwrap_or_default());
            }
            for (tuple, who) in &known {
                let Some(socket) = now_there.remove(tuple) else {
                    if let Some((last, _)) = seen.remove(tuple).filter(|_| ends) {
                        self.ended(started, who.trial, *tuple, last);
                    }
                    continue;
                };
                let before = seen.get(tuple).map(|(_, s)| s);
                if ends && socket.state != ESTABLISHED && before.is_some_and(|b| b.state == ESTABLISHED) {
                    let last = seen.get(tuple).map_or(started, |(at, _)| *at);
                    self.ended(started, who.trial, *tuple, last);
                }
                if who.cut && before.is_none_or(|b| changed(b, &socket)) {
                    self.say(started, who.trial, Kind::Snapshot { tuple: *tuple, socket: socket.clone() });
                }
                seen.insert(*tuple, (started, socket));
            }
            self.clock.sleep_until(started + period);
        }
    }

    fn ended(&self, now: Offset, trial: u32, tuple: Tuple, last: Offset) {
        self.say(now, trial, Kind::KernelEnd { tuple, errno: None, not_before: Some(last), by: "sock_diag".into() });
    }

    /// Reports each known socket that leaves ESTABLISHED, at the kernel's own instant.
    pub fn trace(&self, mut tracepoints: Tracepoints) {
        let mut errors: HashMap<Tuple, i32> = HashMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            for record in tracepoints.poll(Duration::from_millis(100)) {
                let Some(who) = self.registry.get(&record.tuple) else { continue };
                if let Some(errno) = record.errno {
                    errors.insert(record.tuple, errno);
                }
                if record.old_state == Some(ESTABLISHED) && record.new_state != Some(ESTABLISHED) {
                    let errno = errors.remove(&record.tuple).or(Some(0));
                    let at = self.clock.offset_of_monotonic(record.monotonic_ns);
                    let kind = Kind::KernelEnd { tuple: record.tuple, errno, not_before: None, by: "tracepoint".into() };
                    self.say(at, who.trial, kind);
                }
            }
        }
    }
}

/// Whether a look tells more than the last one: the clocks inside (`expires_ms`, ages) always move.
fn changed(before: &SocketSnapshot, now: &SocketSnapshot) -> bool {
    (before.state, before.timer, before.backoff, before.retrans, before.probes, before.unacked)
        != (now.state, now.timer, now.backoff, now.retrans, now.probes, now.unacked)
}
