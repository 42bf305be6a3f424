//! The brokers' alarms as an act: done once for all connections, and looked at for each.

use super::actor::Proof;
use crate::fault::Applied;
use crate::host::clock::Clock;
use crate::lab::{Alarm, Resource};

/// The alarms of a run's brokers.
#[derive(Debug, Default)]
pub struct Alarms {
    resource: Resource,
    all: Vec<Alarm>,
    raised: Option<Applied>,
    cleared: Option<Applied>,
}

impl Alarms {
    /// Of these brokers, all over one resource.
    #[must_use]
    pub fn new(resource: Resource, all: Vec<Alarm>) -> Self {
        Self { resource, all, ..Self::default() }
    }

    /// Lets them go off, once: later calls tell the same instants, until they have ended.
    ///
    /// # Errors
    /// In words, when there is none, or it does not go off.
    pub fn raise(&mut self, clock: Clock) -> Result<Applied, String> {
        if let (Some(raised), None) = (self.raised, self.cleared) {
            return Ok(raised);
        }
        (self.raised, self.cleared) = (None, None);
        if self.all.is_empty() {
            return Err(format!("no broker here has a {} alarm", self.resource.name()));
        }
        let before = clock.now();
        self.all.iter().try_for_each(|alarm| alarm.raise(clock)).map_err(|error| error.to_string())?;
        Ok(*self.raised.insert(Applied { before, after: clock.now() }))
    }

    /// Ends them, once.
    ///
    /// # Errors
    /// In words, when one does not end.
    pub fn clear(&mut self, clock: Clock) -> Result<Applied, String> {
        if let Some(cleared) = self.cleared {
            return Ok(cleared);
        }
        let before = clock.now();
        self.all.iter().try_for_each(|alarm| alarm.clear(clock)).map_err(|error| error.to_string())?;
        Ok(*self.cleared.insert(Applied { before, after: clock.now() }))
    }

    /// What the brokers' logs show.
    #[must_use]
    pub fn proof(&self) -> Proof {
        let name = self.resource.name();
        let (mut holds, mut what) = (!self.all.is_empty(), format!("the broker's log has its {name} alarm set"));
        for alarm in &self.all {
            match alarm.in_force() {
                Ok(true) => {}
                Ok(false) => (holds, what) = (false, format!("the broker's log has no {name} alarm set")),
                Err(error) => (holds, what) = (false, format!("the broker's log: {error}")),
            }
        }
        Proof { what, holds }
    }
}
