//! Connections that are reset again and again: the cutter's part of `reset-thrice`.
//!
//! The broker's ends are ended from outside (`SOCK_DESTROY`): its kernel sends each client a RST, and its programs see
//! `ECONNABORTED`. Whatever the client has opened meanwhile is hit the next time, all of it, for no client has one connection
//! only. A time at which there is nothing to hit is said too: it is no proof against the fault, for the client was not there.

use super::*;
use crate::observe::States;

/// How often altogether, the first time at the cut.
const TIMES: u32 = 3;
/// Between two of them.
const APART: Duration = Duration::from_millis(1500);

impl Cutter {
    /// Resets all connections of a trial for the first time, and plans the others.
    pub(super) fn reset(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<Applied, String> {
        // What passes is counted from here.
        self.install(trial, tuple, What { scope: Scope::Host, ..what })?;
        let before = self.clock.now();
        let hit = self.abort_all(tuple)?;
        let after = self.clock.now();
        if !hit.contains(&tuple) {
            return Err("the broker's host knew no such connection".to_string());
        }
        for time in 2..=TIMES {
            self.due.push(Reverse((after + APART * (time - 1), Due::Reset(trial, time))));
        }
        self.say_reset(trial, 1, &Ok(hit));
        Ok(Applied { before, after })
    }

    /// Resets what the client has opened since.
    pub(super) fn reset_again(&mut self, trial: TrialId, time: u32) {
        if self.finished.contains(&trial) || !self.in_force.contains_key(&trial) {
            return;
        }
        let Some(tuple) = self.planned.iter().find(|p| p.trial == trial).map(|p| p.tuple) else { return };
        let hit = self.abort_all(tuple);
        self.say_reset(trial, time, &hit);
    }

    /// Ends every connection between the two hosts at the broker's; those that it was, as the client names them.
    fn abort_all(&mut self, tuple: Tuple) -> Result<Vec<Tuple>, String> {
        let words = |error: crate::observe::SockDiagError| error.to_string();
        let all = self.far_ends.dump(States::ESTABLISHED).map_err(words)?;
        let mut hit = Vec::new();
        for (own, _) in all {
            if own.local.ip() == tuple.peer.ip() && own.peer.ip() == tuple.local.ip() {
                // One that has ended meanwhile needs no RST.
                if self.far_ends.destroy(own).map_err(words)? {
                    hit.push(Tuple { local: own.peer, peer: own.local });
                }
            }
        }
        Ok(hit)
    }

    fn say_reset(&self, trial: TrialId, time: u32, hit: &Result<Vec<Tuple>, String>) {
        let (what, holds) = match hit {
            Ok(hit) => (format!("{} connections were reset, time {time} of {TIMES}", hit.len()), true),
            Err(error) => (format!("nothing could be reset, time {time} of {TIMES}: {error}"), false),
        };
        self.say(trial, Kind::Proof { what, holds });
    }
}
