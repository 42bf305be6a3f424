//! The sockets of clients from outside by repeated looks, where the kernel's tracepoints can't be had.
//!
//! What happened between two looks is put together from the two states: a socket that went from "not there" to closing had
//! been established in between. What cannot be known so: the error that the kernel stored, and which of two things that
//! happened between the same two looks came first.

use super::outside::SocketChange;
use super::owned::Owned;
use super::watch::{Watch, closed};
use crate::events::{SocketSnapshot, Tuple};
use crate::observe::States;
use crate::observe::tcp_state::{CLOSE, CLOSE_WAIT, ESTABLISHED, FIN_WAIT1, LAST_ACK, SYN_SENT};
use crate::units::{Offset, Pace};
use std::collections::HashMap;
use std::io::PipeReader;
use std::time::Duration;

/// Between two looks, by the time since anything changed.
const PACE: Pace = Pace::new(Duration::from_millis(20), 100).at_most(Duration::from_millis(250));

/// What the last look saw.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Offset,
    state: i32,
    /// Whether something that was sent had not been answered in time.
    unanswered: bool,
}

/// Compares each look with the one before. Pure.
#[derive(Debug, Default)]
struct Looks {
    seen: HashMap<Tuple, Seen>,
}

impl Looks {
    /// Takes a look in: what changed, in an order in which it can have happened.
    fn look(&mut self, at: Offset, there: impl IntoIterator<Item = (Tuple, SocketSnapshot)>) -> Vec<SocketChange> {
        let mut changes = Vec::new();
        let mut now = HashMap::new();
        for (tuple, socket) in there {
            let before = self.seen.remove(&tuple);
            let state = i32::from(socket.state);
            let unanswered = socket.backoff > 0 || socket.probes > 0 || socket.retrans > 0;
            let steps = steps(before.map_or(CLOSE, |seen| seen.state), state);
            let not_before = Some(before.map_or(at, |seen| seen.at));
            changes.extend(steps.into_iter().map(|(old, new)| SocketChange {
                at,
                tuple,
                old,
                new,
                errno: Some(0),
                not_before,
            }));
            now.insert(tuple, Seen { at, state, unanswered });
        }
        for (tuple, seen) in self.seen.drain() {
            // Gone although nobody had closed it: a timer's doing where one was running.
            let errno = (!seen.unanswered || seen.state != ESTABLISHED).then_some(0).filter(|_| seen.state != SYN_SENT);
            let (old, not_before) = (seen.state, Some(seen.at));
            changes.push(SocketChange { at, tuple, old, new: CLOSE, errno, not_before });
        }
        self.seen = now;
        changes
    }
}

/// The way from one state to another, as far as it matters here.
fn steps(from: i32, to: i32) -> Vec<(i32, i32)> {
    let mut steps = Vec::new();
    let mut state = from;
    let mut step = |state: &mut i32, next: i32| {
        steps.push((*state, next));
        *state = next;
    };
    if state == to {
        return Vec::new();
    }
    if state == CLOSE {
        step(&mut state, SYN_SENT);
    }
    if state == SYN_SENT && to != SYN_SENT {
        step(&mut state, ESTABLISHED);
    }
    if state == ESTABLISHED && to != ESTABLISHED {
        step(&mut state, if matches!(to, CLOSE_WAIT | LAST_ACK) { CLOSE_WAIT } else { FIN_WAIT1 });
    }
    if state == CLOSE_WAIT && to != CLOSE_WAIT {
        step(&mut state, to);
    }
    steps
}

impl Watch {
    /// Looks at the clients' sockets until `end` is closed.
    pub fn poll_outside(&self, owned: Owned, end: &PipeReader) {
        let (pairs, mut diags, known) = owned.into_parts();
        let before = Seen { at: self.clock.now(), state: ESTABLISHED, unanswered: false };
        let mut looks = Looks { seen: known.into_iter().map(|tuple| (tuple, before)).collect() };
        let mut changed = self.clock.now();
        loop {
            let last = closed(end);
            let at = self.clock.now();
            let mut there = Vec::new();
            let mut blind = false;
            for diag in &mut diags {
                // A look that failed saw nothing, which is not the same as seeing that nothing is there.
                match diag.dump(States::CONNECTIONS) {
                    Ok(sockets) => there.extend(sockets),
                    Err(_) => blind = true,
                }
            }
            there.retain(|(tuple, _)| pairs.contains_key(&(*tuple.local.ip(), *tuple.peer.ip())));
            if !blind {
                let changes = looks.look(at, there);
                if !changes.is_empty() {
                    changed = at;
                }
                self.changed(changes);
            }
            if last {
                return;
            }
            std::thread::sleep(PACE.after(at.since(changed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn tuple() -> Tuple {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Tuple { local: at(1), peer: at(5672) }
    }

    fn told(looks: &mut Looks, at: i64, socket: Option<(u8, u8)>) -> Vec<(i32, i32, Option<i32>)> {
        let there =
            socket.map(|(state, backoff)| (tuple(), SocketSnapshot { state, backoff, ..SocketSnapshot::default() }));
        looks.look(Offset(at), there).iter().map(|c| (c.old, c.new, c.errno)).collect()
    }

    #[test]
    fn what_lies_between_two_looks_is_filled_in() {
        let mut looks = Looks::default();
        assert_eq!(told(&mut looks, 1, Some((2, 0))), [(CLOSE, SYN_SENT, Some(0))]);
        assert_eq!(told(&mut looks, 2, Some((2, 1))), []);
        assert_eq!(told(&mut looks, 3, Some((1, 0))), [(SYN_SENT, ESTABLISHED, Some(0))]);
        assert_eq!(
            told(&mut looks, 4, Some((9, 0))),
            [(ESTABLISHED, CLOSE_WAIT, Some(0)), (CLOSE_WAIT, LAST_ACK, Some(0))]
        );
        assert_eq!(told(&mut looks, 5, None), [(LAST_ACK, CLOSE, Some(0))]);
        // TIME-WAIT at the first look: opened and closed in between.
        let all = [(CLOSE, SYN_SENT, Some(0)), (SYN_SENT, ESTABLISHED, Some(0)), (ESTABLISHED, FIN_WAIT1, Some(0))];
        assert_eq!(told(&mut looks, 6, Some((6, 0))), all);
    }

    #[test]
    fn one_that_vanishes_was_closed_unless_a_timer_was_running() {
        let mut looks = Looks::default();
        told(&mut looks, 1, Some((1, 0)));
        assert_eq!(told(&mut looks, 2, None), [(ESTABLISHED, CLOSE, Some(0))]);
        told(&mut looks, 3, Some((1, 3)));
        assert_eq!(told(&mut looks, 4, None), [(ESTABLISHED, CLOSE, None)]);
        told(&mut looks, 5, Some((2, 1)));
        assert_eq!(told(&mut looks, 6, None), [(SYN_SENT, CLOSE, None)], "refused or given up");
    }
}
