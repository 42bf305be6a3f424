//! Ends of connections from repeated looks, where tracepoints can't be had. Pure.

use super::tcp_state::ESTABLISHED;
use crate::events::Tuple;
use crate::units::Offset;
use std::collections::HashMap;

/// A connection that is no longer established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolledEnd {
    /// The connection, as the polled side sees it.
    pub tuple: Tuple,
    /// The last look that still saw it established.
    pub not_before: Offset,
    /// The look that did not.
    pub at: Offset,
    /// Its new state; `None` when it was gone.
    pub state: Option<u8>,
}

/// Compares each look with the one before.
#[derive(Debug, Default)]
pub struct PolledEnds {
    established: HashMap<Tuple, Offset>,
}

impl PolledEnds {
    /// Takes a look: when it began, and every socket that it saw with its state. Returns what ended since the one
    /// before, in order of the tuples.
    ///
    /// A connection counts as ended only after it was once seen established.
    pub fn look(&mut self, at: Offset, seen: impl IntoIterator<Item = (Tuple, u8)>) -> Vec<PolledEnd> {
        let seen: HashMap<_, _> = seen.into_iter().collect();
        let state_of = |tuple: &Tuple| seen.get(tuple).copied();
        let mut ends: Vec<_> = (self.established.iter())
            .filter(|(tuple, _)| state_of(tuple).map(i32::from) != Some(ESTABLISHED))
            .map(|(tuple, before)| PolledEnd { tuple: *tuple, not_before: *before, at, state: state_of(tuple) })
            .collect();
        ends.sort_by_key(|end| end.tuple);
        self.established =
            seen.into_iter().filter(|(_, s)| i32::from(*s) == ESTABLISHED).map(|(tuple, _)| (tuple, at)).collect();
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn tuple(port: u16) -> Tuple {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Tuple { local: at(port), peer: at(7000) }
    }

    #[test]
    fn an_end_lies_between_two_looks_and_is_told_once() {
        let mut ends = PolledEnds::default();
        assert!(ends.look(Offset(10), [(tuple(1), 1), (tuple(2), 1), (tuple(3), 2)]).is_empty());
        assert!(ends.look(Offset(20), [(tuple(1), 1), (tuple(2), 1)]).is_empty(), "3 was never established");
        let found = ends.look(Offset(30), [(tuple(2), 8)]);
        assert_eq!(
            found,
            [
                PolledEnd { tuple: tuple(1), not_before: Offset(20), at: Offset(30), state: None },
                PolledEnd { tuple: tuple(2), not_before: Offset(20), at: Offset(30), state: Some(8) },
            ]
        );
        assert!(ends.look(Offset(40), []).is_empty());
    }
}
