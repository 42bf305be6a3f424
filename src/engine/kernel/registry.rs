//! Which connection belongs to which trial: written by the dispatcher, read by the observers.

use crate::events::Tuple;
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
pub struct Registry(Arc<Mutex<HashMap<Tuple, Known>>>);

impl Registry {
    /// A poisoned lock still holds a whole map: no writer leaves it half-done.
    fn map(&self) -> MutexGuard<'_, HashMap<Tuple, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was made.
    pub fn add(&self, tuple: Tuple, trial: TrialId) {
        self.map().insert(tuple, Known { trial });
    }

    /// What is known of a connection.
    pub fn get(&self, tuple: &Tuple) -> Option<Known> {
        self.map().get(tuple).copied()
    }
}
