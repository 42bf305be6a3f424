//! The brake: when a sweep would fail so much at once that the likelier fault is the reaper's own, or its store's.

use super::liveness::Worker;
use std::collections::BTreeMap;
use std::fmt;

/// How much one sweep may fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Brake {
    /// At most so many rows.
    pub max_fail: usize,
    /// At most this share of the active ones, 0 to 1.
    pub max_share: f64,
}

impl Default for Brake {
    fn default() -> Self {
        Self { max_fail: 50, max_share: 0.2 }
    }
}

/// Why a sweep must not act.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    /// Too many rows.
    TooMany {
        /// Rows that would fail.
        fail: usize,
        /// The limit.
        max: usize,
    },
    /// Too large a share.
    TooLargeAShare {
        /// Rows that would fail.
        fail: usize,
        /// Active rows.
        active: usize,
        /// The limit, 0 to 1.
        max: f64,
    },
    /// Of several workers that have tasks not one is alive: the store has lost its keys, or the wrong one was asked.
    EveryWorkerGone {
        /// The workers.
        workers: usize,
    },
}

impl Stop {
    /// A word for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooMany { .. } => "max_fail",
            Self::TooLargeAShare { .. } => "max_share",
            Self::EveryWorkerGone { .. } => "every_worker_gone",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { fail, max } => {
                write!(f, "{fail} rows would fail, more than max_fail = {max}; look at them, then raise it")
            }
            Self::TooLargeAShare { fail, active, max } => write!(
                f,
                "{fail} of {active} active rows would fail, more than max_share = {:.0} %; look at them, then raise it",
                max * 100.0
            ),
            Self::EveryWorkerGone { workers } => write!(
                f,
                "all {workers} workers with tasks are without a sign of life at once: that is the liveness store, not the \
                 workers; look whether it is the right one and still has their keys"
            ),
        }
    }
}

/// Whether a sweep may fail `fail` of `active` rows. `workers` is what is known of each worker that has a PROCESSING row.
#[must_use]
pub fn guard(fail: usize, active: usize, workers: &BTreeMap<&str, Worker>, brake: &Brake) -> Option<Stop> {
    let asked = workers.values().filter(|w| matches!(w, Worker::Alive | Worker::Gone)).count();
    let alive = workers.values().any(|w| *w == Worker::Alive);
    if asked >= 2 && !alive {
        return Some(Stop::EveryWorkerGone { workers: asked });
    }
    if fail > brake.max_fail {
        return Some(Stop::TooMany { fail, max: brake.max_fail });
    }
    // A share that is just reached is not above it; the guard absorbs 0.2 · 5 = 1.000…01.
    let share = fail as f64 > brake.max_share * active as f64 + 1e-9;
    (fail > 0 && share).then_some(Stop::TooLargeAShare { fail, active, max: brake.max_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BRAKE: Brake = Brake { max_fail: 10, max_share: 0.2 };

    fn workers(all: &[(&'static str, Worker)]) -> BTreeMap<&'static str, Worker> {
        all.iter().copied().collect()
    }

    #[test]
    fn a_fifth_is_allowed_and_more_is_not() {
        let none = BTreeMap::new();
        assert_eq!(guard(1, 5, &none, &BRAKE), None);
        assert_eq!(guard(2, 5, &none, &BRAKE), Some(Stop::TooLargeAShare { fail: 2, active: 5, max: 0.2 }));
        assert_eq!(guard(10, 100, &none, &BRAKE), None);
        assert_eq!(guard(11, 100, &none, &BRAKE), Some(Stop::TooMany { fail: 11, max: 10 }));
        assert_eq!(guard(0, 0, &none, &BRAKE), None);
    }

    #[test]
    fn when_all_workers_vanish_at_once_it_is_the_store() {
        let gone = [("a", Worker::Gone), ("b", Worker::Gone)];
        assert_eq!(guard(0, 100, &workers(&gone), &BRAKE), Some(Stop::EveryWorkerGone { workers: 2 }));
        assert_eq!(guard(1, 100, &workers(&[gone[0], ("b", Worker::Alive)]), &BRAKE), None);
        // One worker alone may well be dead; a store that can't be asked has said nothing.
        assert_eq!(guard(1, 100, &workers(&gone[..1]), &BRAKE), None);
        assert_eq!(guard(0, 100, &workers(&[("a", Worker::Unknown), ("b", Worker::Unknown)]), &BRAKE), None);
    }

    proptest! {
        #[test]
        fn what_passes_is_within_both_limits(fail in 0usize..200, more in 0usize..200) {
            let active = fail + more;
            if guard(fail, active, &BTreeMap::new(), &BRAKE).is_none() {
                prop_assert!(fail <= BRAKE.max_fail && fail * 5 <= active);
            } else {
                prop_assert!(fail > BRAKE.max_fail || fail * 5 > active);
            }
        }
    }
}
