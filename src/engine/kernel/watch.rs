//! The observers' threads: the clients' sockets through `sock_diag`, and their ends through tracepoints.
//!
//! `sock_diag` looks at each socket every 100 ms (20 ms where it is the only source) and reports what changed: state,
//! running timer, back-off. Tracepoints give the instant at which a socket left ESTABLISHED and the error that the
//! kernel stored. The run says which of the two its `kernel_end_s` comes from.

use super::Message;
use super::registry::Registry;
use crate::events::{Event, Kind, SocketSnapshot, Source, Tuple};
use crate::host::clock::Clock;
use crate::observe::{KernelEnds, PolledEnds, SockDiag, States, Tracepoints};
use crate::units::{Offset, TrialId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

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
    /// Reports an event of a trial.
    pub fn say(&self, offset: Offset, source: Source, trial: TrialId, kind: Kind) {
        let _ = self.events.send(Message::Event(Event::of_trial(offset, source, trial, kind)));
    }

    /// Whether the run has ended.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks at the sockets of all client namespaces until told to stop.
    ///
    /// `ends` is whether vanished sockets are reported as ended, which only makes sense without tracepoints.
    pub fn sockets(&self, mut namespaces: Vec<SockDiag>, ends: bool) {
        let period = Duration::from_millis(if ends { 20 } else { 100 });
        let mut polled = PolledEnds::default();
        let mut seen: HashMap<Tuple, SocketSnapshot> = HashMap::new();
        while !self.stopped() {
            let started = self.clock.now();
            let known = self.registry.snapshot();
            let mut there: HashMap<Tuple, SocketSnapshot> = HashMap::new();
            let mut whole = true;
            for diag in &mut namespaces {
                match diag.dump(States::LIVE) {
                    Ok(sockets) => there.extend(sockets.into_iter().filter(|(tuple, _)| known.contains_key(tuple))),
                    Err(_) => whole = false,
                }
            }
            // A look that failed saw nothing, which is not the same as seeing that nothing is there.
            if ends && whole {
                for end in polled.look(started, there.iter().map(|(tuple, s)| (*tuple, s.state))) {
                    let Some(who) = known.get(&end.tuple) else { continue };
                    let (tuple, not_before) = (end.tuple, Some(end.not_before));
                    let kind = Kind::KernelEnd { tuple, errno: None, not_before, by: "sock_diag".into() };
                    self.say(end.at, Source::Kernel, who.trial, kind);
                }
            }
            for (tuple, socket) in there {
                let Some(who) = known.get(&tuple).filter(|who| who.cut) else { continue };
                if seen.get(&tuple).is_none_or(|before| changed(before, &socket)) {
                    let kind = Kind::Snapshot { tuple, socket: socket.clone() };
                    self.say(started, Source::Kernel, who.trial, kind);
                    seen.insert(tuple, socket);
                }
            }
            self.clock.sleep_until(started + period);
        }
    }

    /// Reports each known socket that leaves ESTABLISHED, at the kernel's own instant.
    pub fn trace(&self, mut tracepoints: Tracepoints) {
        let mut ends = KernelEnds::default();
        while !self.stopped() {
            let before = self.clock.now();
            for record in tracepoints.drain() {
                ends.push(record);
            }
            for end in ends.take(before) {
                if let Some(who) = self.registry.get(&end.tuple) {
                    self.say(end.at, Source::Kernel, who.trial, end.into_kind());
                }
            }
            if tracepoints.wait(Duration::from_millis(20)).is_err() {
                break;
            }
        }
        if tracepoints.lost() > 0 {
            let text = format!("{} trace records were lost: some `kernel_end_s` are missing", tracepoints.lost());
            let event = Event::of_run(self.clock.now(), Source::Kernel, Kind::Note { text });
            let _ = self.events.send(Message::Event(event));
        }
    }
}

/// Whether a look tells more than the last one: the clocks inside (`expires_ms`, ages) always move.
fn changed(before: &SocketSnapshot, now: &SocketSnapshot) -> bool {
    (before.state, before.timer, before.backoff, before.retrans, before.probes, before.unacked)
        != (now.state, now.timer, now.backoff, now.retrans, now.probes, now.unacked)
}
