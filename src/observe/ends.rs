//! Ends of connections from trace records: the change of state joined with the error that came with it. Pure.

use super::tcp_state::ESTABLISHED;
use super::{TraceRecord, TraceWhat};
use crate::events::{Kind, Tuple};
use crate::units::Offset;
use std::collections::HashMap;

/// State and error are reported one after the other by one CPU, within microseconds; which comes first depends on the
/// kernel (the state since 6.10, `tcp_done_with_error`).
const TOGETHER_NS: i64 = 10_000_000;

/// A connection that left ESTABLISHED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEnd {
    /// The connection, as the owner of the socket sees it: the broker's end has it reversed.
    pub tuple: Tuple,
    /// When.
    pub at: Offset,
    /// Its new state (7 = CLOSE, 8 = CLOSE-WAIT, 4 = FIN-WAIT-1).
    pub state: i32,
    /// The error that the kernel reported with it; 0 is none.
    pub errno: i32,
}

impl KernelEnd {
    /// The event for it.
    #[must_use]
    pub fn into_kind(self) -> Kind {
        Kind::KernelEnd { tuple: self.tuple, errno: Some(self.errno), not_before: None, by: "tracepoint".to_string() }
    }
}

/// Joins records into ends.
#[derive(Debug, Default)]
pub struct KernelEnds {
    ended: Vec<KernelEnd>,
    errors: HashMap<Tuple, (Offset, i32)>,
}

impl KernelEnds {
    /// Takes a record.
    pub fn push(&mut self, record: &TraceRecord) {
        match record.what {
            TraceWhat::State { old: ESTABLISHED, new } if new != ESTABLISHED => {
                let errno = self.errors.remove(&record.tuple).filter(|(at, _)| together(*at, record.at));
                let errno = errno.map_or(0, |(_, errno)| errno);
                self.ended.push(KernelEnd { tuple: record.tuple, at: record.at, state: new, errno });
            }
            TraceWhat::Error { errno } => {
                let ended = self.ended.iter_mut().rev().find(|end| end.tuple == record.tuple);
                match ended.filter(|end| together(end.at, record.at)) {
                    Some(end) => end.errno = errno,
                    None => {
                        self.errors.insert(record.tuple, (record.at, errno));
                    }
                }
            }
            TraceWhat::State { .. } | TraceWhat::ResetReceived => {}
        }
    }

    /// Whether an end waits for its error.
    #[must_use]
    pub fn pending(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The ends whose error, if there is one, is known by `now`: everything up to 10 ms before, in order of time.
    /// `now` is a clock reading from before the records were fetched.
    pub fn take(&mut self, now: Offset) -> Vec<KernelEnd> {
        let settled = |at: Offset| now.0 - at.0 > TOGETHER_NS;
        self.errors.retain(|_, (at, _)| !settled(*at));
        let mut ends: Vec<_> = self.ended.extract_if(.., |end| settled(end.at)).collect();
        ends.sort_by_key(|end| end.at);
        ends
    }
}

fn together(one: Offset, other: Offset) -> bool {
    (one.0 - other.0).abs() <= TOGETHER_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV4};

    const MS: i64 = 1_000_000;

    fn record(port: u16, at: i64, what: TraceWhat) -> TraceRecord {
        let socket = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        TraceRecord { at: Offset(at), tuple: Tuple { local: socket(port), peer: socket(7000) }, what }
    }

    fn ends(records: &[TraceRecord], now: i64) -> Vec<(u16, i64, i32, i32)> {
        let mut ends = KernelEnds::default();
        records.iter().for_each(|r| ends.push(r));
        let taken = ends.take(Offset(now));
        taken.into_iter().map(|e| (e.tuple.local.port(), e.at.0, e.state, e.errno)).collect()
    }

    #[test]
    fn the_error_is_joined_in_either_order() {
        let state = TraceWhat::State { old: 1, new: 7 };
        let error = TraceWhat::Error { errno: 110 };
        let records = [record(1, 0, state), record(1, 5, error), record(2, 6, error), record(2, 9, state)];
        assert_eq!(ends(&records, 20 * MS), [(1, 0, 7, 110), (2, 9, 7, 110)]);
    }

    #[test]
    fn an_end_waits_until_its_error_would_have_come() {
        let records = [record(1, 5 * MS, TraceWhat::State { old: 1, new: 8 })];
        assert_eq!(ends(&records, 15 * MS), []);
        assert_eq!(ends(&records, 16 * MS), [(1, 5 * MS, 8, 0)]);
    }

    #[test]
    fn an_old_error_of_a_connection_that_lived_on_is_not_its_end() {
        let records = [
            record(1, 0, TraceWhat::Error { errno: 113 }),
            record(1, 50 * MS, TraceWhat::State { old: 1, new: 8 }),
            record(2, 51 * MS, TraceWhat::State { old: 2, new: 1 }),
            record(3, 52 * MS, TraceWhat::ResetReceived),
        ];
        assert_eq!(ends(&records, 90 * MS), [(1, 50 * MS, 8, 0)]);
    }
}
