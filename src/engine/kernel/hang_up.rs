//! The end of a first connection, so that its client reconnects into the fault.
//!
//! The broker's end is destroyed with the path open, and its kernel tells the client with a RST. In a scope that cuts
//! reconnects too, the way to the broker is cut before: no SYN can get through between the RST and the cut. What was counted
//! until then is read as the cut comes wholly into force; the certificate counts from there.

use super::*;

/// Between two looks whether the RST has passed.
const LOOK: Duration = Duration::from_micros(200);

impl Cutter {
    pub(super) fn hang_up(&mut self, index: usize) {
        let Planned { trial, tuple, what, .. } = self.planned[index];
        if self.finished.contains(&trial) {
            return;
        }
        let done = match what.scope.lets_reconnect() {
            true => self.end(tuple).map(|ended| self.say_ended(trial, tuple, ended, Counters::default())),
            false => self.end_into(trial, tuple, what),
        };
        if let Err(reason) = done {
            self.say(trial, Kind::FaultFailed { reason });
        }
    }

    fn say_ended(&self, trial: TrialId, tuple: Tuple, ended: Applied, counted: Counters) {
        let Applied { before, after } = ended;
        self.say(trial, Kind::HungUp { tuple, before, after, counted });
    }

    /// Ends the connection at the broker's end.
    fn end(&mut self, tuple: Tuple) -> Result<Applied, String> {
        let before = self.clock.now();
        let destroyed = self.far_ends.destroy(Tuple { local: tuple.peer, peer: tuple.local });
        let after = self.clock.now();
        if !destroyed.map_err(|error| error.to_string())? {
            return Err("the broker's host knew no such connection".to_string());
        }
        Ok(Applied { before, after })
    }

    /// Ends it while nothing gets to the broker any more, and cuts the other way once the RST has passed.
    fn end_into(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<(), String> {
        let one_way = Directions { to_broker: true, to_client: false };
        let cut = self.install(trial, tuple, What { drop: one_way, ..what })?;
        let ended = self.end(tuple)?;
        let told = |read: &Result<TrialReading, _>| read.as_ref().is_ok_and(|r| r.counters.rst_to_client > 0);
        let mut counted = self.table.counters_of(trial);
        while !told(&counted) && self.clock.now().since(cut.before) < LAST_WORDS {
            std::thread::sleep(LOOK);
            counted = self.table.counters_of(trial);
        }
        let applied = self.table.widen(trial, what.drop).map_err(|error| error.to_string())?;
        self.undropped.insert(trial, applied.after);
        self.in_force.insert(trial, true);
        let counted = self.table.counters_of(trial).map_err(|error| error.to_string())?.counters;
        if counted.rst_to_client == 0 {
            return Err("the RST that ends the first connection did not pass".to_string());
        }
        self.say_ended(trial, tuple, ended, counted);
        let (before, after) = (cut.before, applied.after);
        self.say(trial, Kind::FaultApplied { tuple, before, after, age_at_fault_s: None });
        Ok(())
    }
}
