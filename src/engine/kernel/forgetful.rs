//! The memory of a middlebox: whether it still knows a connection, since when it does not, and how to make it forget.

use super::*;

/// Time between two looks at an entry that is about to go: how exactly its end is known.
const LOOK: Duration = Duration::from_millis(4);
/// From so long before the earliest end of an entry on it is looked at so often.
const NEAR: Duration = Duration::from_millis(500);

/// What is said of an entry that was seen alive.
const GONE: &str = "the middlebox had an entry of the connection, and it is gone";

/// What a look at an entry showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It lives until then at least.
    Again(Offset),
    /// It is gone: alive at the earlier instant, and not any more at the later.
    Forgotten(Applied),
}

/// What was seen, and whether it is as the fault says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// In words.
    pub what: String,
    /// Whether it is so.
    pub holds: bool,
}

/// The router's connection tracking.
#[derive(Debug)]
pub struct Forgetful {
    tracked: Conntrack,
    /// When the entry of each trial was last seen alive.
    alive: HashMap<TrialId, Offset>,
}

impl Forgetful {
    /// Over this namespace's entries.
    pub fn new(tracked: Conntrack) -> Self {
        Self { tracked, alive: HashMap::new() }
    }

    /// Looks whether a connection was forgotten by itself.
    ///
    /// # Errors
    /// When there never was an entry, or none can be looked for.
    pub fn look(&mut self, clock: Clock, trial: TrialId, tuple: Tuple) -> Result<Look, String> {
        let before = clock.now();
        match self.tracked.lives(tuple.local, tuple.peer).map_err(|e| format!("connection tracking: {e}"))? {
            Some(left) => {
                self.alive.insert(trial, before);
                Ok(Look::Again(before + left.saturating_sub(NEAR).max(LOOK)))
            }
            None => match self.alive.get(&trial) {
                Some(seen) => Ok(Look::Forgotten(Applied { before: *seen, after: clock.now() })),
                None => Err("the middlebox has no entry of the connection".to_string()),
            },
        }
    }

    /// Takes the entry of a connection away.
    ///
    /// # Errors
    /// When there is none, or it does not go.
    pub fn forget(&mut self, clock: Clock, tuple: Tuple) -> Result<Applied, String> {
        let before = clock.now();
        let gone = self.tracked.forget(tuple.local, tuple.peer).map_err(|e| format!("connection tracking: {e}"))?;
        let after = clock.now();
        if gone {
            Ok(Applied { before, after })
        } else {
            Err("the middlebox has no entry of the connection".to_string())
        }
    }

    /// Whether the entry of a connection is, or is not, there.
    pub fn proof(&mut self, tuple: Tuple, known: bool) -> Proof {
        match self.tracked.lives(tuple.local, tuple.peer) {
            Ok(entry) => {
                let words = if entry.is_some() { "knows" } else { "does not know" };
                Proof { what: format!("the middlebox {words} the connection"), holds: entry.is_some() == known }
            }
            Err(e) => Proof { what: format!("connection tracking can't be looked at: {e}"), holds: false },
        }
    }
}

impl Cutter {
    /// Looks whether the middlebox has forgotten the connection by itself; `None`: not yet, and it will be looked at again.
    pub(super) fn watch(&mut self, index: usize) -> Option<Result<Applied, String>> {
        let Planned { trial, tuple, .. } = self.planned[index];
        let middlebox = self.middlebox.as_mut()?;
        match middlebox.look(self.clock, trial, tuple) {
            Ok(Look::Again(at)) => {
                self.due.push(Reverse((at, Due::Cut(index))));
                None
            }
            Ok(Look::Forgotten(applied)) => Some(Ok(applied)),
            Err(reason) => Some(Err(reason)),
        }
    }

    /// Looks whether the middlebox has forgotten a connection by itself, and others in the same moment. Those are counted from
    /// then on, in one go: putting rules in takes a moment, with iptables tens of milliseconds, and nobody's end is to be seen
    /// later because of another's.
    pub(super) fn expire(&mut self, index: usize) {
        if self.in_force.contains_key(&self.planned[index].trial) {
            return;
        }
        let Some(first) = self.watch(index) else { return };
        let mut gone = vec![(index, first)];
        gone.extend(self.gone_beside(index));
        let of = |(index, _): &(usize, Result<Applied, String>)| {
            let Planned { trial, tuple, what, .. } = self.planned[*index];
            cut_of(trial, tuple, what)
        };
        let cuts: Vec<Cut> = gone.iter().filter(|(_, seen)| seen.is_ok()).map(of).collect();
        let counted = self.table.cut_all(&cuts).map_err(|error| error.to_string());
        for (index, seen) in gone {
            let Planned { trial, tuple, client, .. } = self.planned[index];
            let socket = self.sock_diag.get_mut(client).and_then(|d| d.get(tuple).ok().flatten());
            let kind = match seen.and_then(|applied| counted.clone().map(|()| applied)) {
                Ok(Applied { before, after }) => {
                    self.say(trial, Kind::Proof { what: GONE.to_string(), holds: true });
                    self.undropped.insert(trial, after);
                    self.in_force.insert(trial, true);
                    Kind::FaultApplied { tuple, before, after, age_at_fault_s: socket.map(|s| quiet_s(&s)) }
                }
                Err(reason) => Kind::FaultFailed { reason },
            };
            self.say(trial, kind);
            self.prove(trial);
        }
    }

    /// The other connections whose entries are looked at about now and are gone, too.
    fn gone_beside(&mut self, index: usize) -> Vec<(usize, Result<Applied, String>)> {
        let soon = self.clock.now() + LOOK * 2;
        let near = self.due.iter().filter_map(|Reverse((at, due))| match due {
            Due::Cut(other) if *at <= soon && *other != index && self.planned[*other].what.idle => Some(*other),
            _ => None,
        });
        let mut gone = Vec::new();
        for other in near {
            let Planned { trial, tuple, .. } = self.planned[other];
            let seen = self.middlebox.as_mut().map(|middlebox| middlebox.look(self.clock, trial, tuple));
            if let Some(Ok(Look::Forgotten(applied))) = seen
                && !self.finished.contains(&trial)
                && !self.in_force.contains_key(&trial)
            {
                gone.push((other, Ok(applied)));
            }
        }
        gone
    }

    /// Lets the middlebox forget the connection; from then on the trial's packets are counted.
    pub(super) fn forget(&mut self, trial: TrialId, tuple: Tuple, what: What) -> Result<Applied, String> {
        let middlebox = self.middlebox.as_mut().ok_or("the router tracks no connections")?;
        let applied = middlebox.forget(self.clock, tuple)?;
        self.install(trial, tuple, what)?;
        self.say(trial, Kind::Proof { what: GONE.to_string(), holds: true });
        Ok(applied)
    }

    /// Says of a connection that never fell silent for long enough that the middlebox still knows it.
    pub(super) fn prove_alive(&mut self, trial: TrialId) {
        let waits = |p: &&Planned| p.trial == trial && p.what.idle;
        let Some(tuple) = self.planned.iter().find(waits).map(|p| p.tuple) else { return };
        if self.finished.contains(&trial) || self.in_force.contains_key(&trial) {
            return;
        }
        if let Some(middlebox) = &mut self.middlebox {
            let Proof { what, holds } = middlebox.proof(tuple, true);
            self.say(trial, Kind::Proof { what, holds });
        }
    }

    /// Says whether what was forgotten still is. One that tracks loosely may have taken it up again.
    pub(super) fn prove_forgotten(&mut self, trial: TrialId) {
        let planned = self.planned.iter().find(|p| p.trial == trial && p.what.strict).map(|p| p.tuple);
        if let Some((tuple, middlebox)) = planned.zip(self.middlebox.as_mut()) {
            let Proof { what, holds } = middlebox.proof(tuple, false);
            self.say(trial, Kind::Proof { what, holds });
        }
    }
}
