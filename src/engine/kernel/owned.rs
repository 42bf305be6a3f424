//! Which of the machine's sockets are those of this run's clients.
//!
//! Trace records are of the whole machine and carry no namespace, and another run on it uses the same addresses. A
//! socket is ours when `sock_diag` has seen it in the namespace of its client. What is left out: an attempt that is over
//! before anybody could look (refused at once) is nobody's.

use super::outside::SocketChange;
use crate::events::Tuple;
use crate::observe::tcp_state::{CLOSE, ESTABLISHED, SYN_SENT};
use crate::observe::{SockDiag, States};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

/// Client and server address, with the client's namespace.
type Pairs = HashMap<(Ipv4Addr, Ipv4Addr), usize>;

/// The sockets of clients that are watched from outside.
#[derive(Debug, Default)]
pub struct Owned {
    /// Client and server address, with the client's namespace.
    pairs: Pairs,
    /// One a namespace; none where every socket of the machine is of this run.
    diags: Vec<SockDiag>,
    seen: HashSet<Tuple>,
}

impl Owned {
    /// Of these address pairs, each with the index of its namespace among `diags`. Without any every socket counts.
    pub fn new(pairs: Vec<((Ipv4Addr, Ipv4Addr), usize)>, diags: Vec<SockDiag>) -> Self {
        Self { pairs: pairs.into_iter().collect(), diags, seen: HashSet::new() }
    }

    /// Those that were there before anybody watched.
    pub fn knowing(mut self, there: impl IntoIterator<Item = Tuple>) -> Self {
        self.seen.extend(there);
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs, the namespaces' sockets and those that were there before, for whoever looks at them instead.
    pub fn into_parts(self) -> (Pairs, Vec<SockDiag>, HashSet<Tuple>) {
        (self.pairs, self.diags, self.seen)
    }

    /// Whether it may be one of them, by its addresses.
    pub fn is_about(&self, tuple: Tuple) -> bool {
        self.pairs.contains_key(&(*tuple.local.ip(), *tuple.peer.ip()))
    }

    /// What is to be told of a change: nothing of somebody else's socket; the beginnings of those that are seen for the
    /// first time.
    pub fn changes(&mut self, change: SocketChange) -> Vec<SocketChange> {
        let pair = (*change.tuple.local.ip(), *change.tuple.peer.ip());
        let Some(namespace) = self.pairs.get(&pair).copied() else { return Vec::new() };
        let Some(diag) = self.diags.get_mut(namespace) else { return vec![change] };
        let begins = change.new == SYN_SENT;
        let mut changes = Vec::new();
        if begins || (change.old == SYN_SENT && !self.seen.contains(&change.tuple)) {
            // A look that fails saw nothing; the next one makes up for it while the socket is there.
            let there = diag.dump(States::LIVE).unwrap_or_default();
            // Others are on their way out, and known already or of no interest.
            let live = |state: u8| i32::from(state) == ESTABLISHED || i32::from(state) == SYN_SENT;
            let ours = there
                .into_iter()
                .filter(|(tuple, socket)| live(socket.state) && (*tuple.local.ip(), *tuple.peer.ip()) == pair);
            for (tuple, _) in ours.filter(|(tuple, _)| self.seen.insert(*tuple)) {
                changes.push(SocketChange { tuple, old: CLOSE, new: SYN_SENT, errno: Some(0), ..change });
            }
        }
        if !begins && self.seen.contains(&change.tuple) {
            changes.push(change);
        }
        // A port can be used again.
        if change.new == CLOSE {
            self.seen.remove(&change.tuple);
        }
        changes
    }
}
