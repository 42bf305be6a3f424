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
    /// Whether it is the connection under test and its fault is in force.
    pub cut: bool,
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
        self.map().insert(tuple, Known { trial, cut: false });
    }

    /// The fault of this connection is in force.
    pub fn mark_cut(&self, tuple: Tuple) {
        if let Some(known) = self.map().get_mut(&tuple) {
            known.cut = true;
        }
    }

    /// What is known of a connection.
    pub fn get(&self, tuple: &Tuple) -> Option<Known> {
        self.map().get(tuple).copied()
    }

    /// All connections that are known.
    pub fn snapshot(&self) -> HashMap<Tuple, Known> {
        self.map().clone()
    }
}
