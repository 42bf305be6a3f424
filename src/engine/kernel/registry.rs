//! Which connection belongs to which trial: written by the dispatcher, read by the observers.

use crate::events::Tuple;
use crate::fault::Layout;
use crate::units::TrialId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the observers know of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its trial.
    pub trial: TrialId,
}

/// Shared by all threads of the engine.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Mutex<HashMap<Tuple, Known>>>, Arc<Mutex<HashMap<Tuple, Tuple>>>, Layout);

impl Registry {
    /// A registry for connections through this middlebox, where there is one.
    pub fn behind(layout: Layout) -> Self {
        Self(Arc::default(), Arc::default(), layout)
    }

    /// A connection as its client names it, from the name that the broker's side has for it.
    pub fn inside(&self, tuple: Tuple) -> Tuple {
        Tuple { local: self.2.inside(tuple.local), ..tuple }
    }

    /// A poisoned lock still holds a whole map: no writer leaves it half-done.
    fn map(&self) -> MutexGuard<'_, HashMap<Tuple, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was made.
    pub fn add(&self, tuple: Tuple, trial: TrialId) {
        self.map().insert(tuple, Known { trial });
    }

    /// A proxy stands in a connection: its own one to the broker is this one.
    pub fn relayed(&self, tuple: Tuple, upstream: Tuple) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).insert(upstream, tuple);
    }

    /// The connection of a client that the broker knows by this name.
    pub fn client_of(&self, broker: Tuple) -> Tuple {
        self.1
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&broker)
            .copied()
            .unwrap_or_else(|| self.inside(broker))
    }

    /// What is known of a connection.
    pub fn get(&self, tuple: &Tuple) -> Option<Known> {
        self.map().get(tuple).copied()
    }
}
