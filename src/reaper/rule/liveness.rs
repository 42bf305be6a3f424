//! The rule of a reaper that knows which workers live.
//!
//! - PENDING for `pending` or longer: failed.
//! - PROCESSING by a worker that is gone: failed at once.
//! - PROCESSING for `processing` or longer: failed, alive or not: it hangs.
//! - PROCESSING by nobody that was written down: age alone decides.
//!
//! Age is the time since the row was last changed; the limit itself counts. Where the liveness store can't be asked, a worker
//! is neither alive nor gone, and age alone decides: a store that is down must not kill every task.

use std::time::Duration;

/// The limits on age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// PENDING at least this long is too long (5 min).
    pub pending: Duration,
    /// PROCESSING at least this long is a hang (20 min).
    pub processing: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pending: Duration::from_secs(300), processing: Duration::from_secs(1200) }
    }
}

/// Where a task stands, as far as this rule cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Nobody has begun.
    Pending,
    /// Somebody has, or says so.
    Processing,
}

/// What is known of the worker that a row names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Worker {
    /// The row names none.
    Unnamed,
    /// Its key is there.
    Alive,
    /// Its key is not.
    Gone,
    /// The liveness store could not be asked, or there is none.
    Unknown,
}

/// Why a row is failed. The names are those of the watchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// PENDING for too long.
    PendingTimeout,
    /// PROCESSING for too long.
    ProcessingTimeout,
    /// Its worker is gone.
    LivenessTtl,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PendingTimeout, Self::ProcessingTimeout, Self::LivenessTtl];

    /// The watcher's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PendingTimeout => "pending_timeout",
            Self::ProcessingTimeout => "processing_timeout",
            Self::LivenessTtl => "liveness_ttl",
        }
    }
}

/// Whether a row is failed, and why. `age` is the time since its last change, by the clock of the store that keeps it; one
/// that was changed in that clock's future has age zero.
#[must_use]
pub fn judge(stage: Stage, worker: Worker, age: Duration, limits: &Limits) -> Option<Why> {
    match (stage, worker) {
        (Stage::Pending, _) => (age >= limits.pending).then_some(Why::PendingTimeout),
        (Stage::Processing, Worker::Gone) => Some(Why::LivenessTtl),
        (Stage::Processing, Worker::Alive | Worker::Unknown | Worker::Unnamed) => {
            (age >= limits.processing).then_some(Why::ProcessingTimeout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const WORKERS: [Worker; 4] = [Worker::Unnamed, Worker::Alive, Worker::Gone, Worker::Unknown];

    fn judged(stage: Stage, worker: Worker, minutes: u32) -> Option<Why> {
        judge(stage, worker, MINUTE * minutes, &Limits::default())
    }

    #[test]
    fn the_limit_itself_counts() {
        for worker in WORKERS {
            assert_eq!(judged(Stage::Pending, worker, 4), None);
            assert_eq!(judged(Stage::Pending, worker, 5), Some(Why::PendingTimeout));
            let just_under = MINUTE * 5 - Duration::from_nanos(1);
            assert_eq!(judge(Stage::Pending, worker, just_under, &Limits::default()), None);
        }
        for worker in [Worker::Unnamed, Worker::Alive, Worker::Unknown] {
            assert_eq!(judged(Stage::Processing, worker, 19), None);
            assert_eq!(judged(Stage::Processing, worker, 20), Some(Why::ProcessingTimeout));
        }
    }

    #[test]
    fn without_its_worker_a_task_is_failed_at_once_and_a_healthy_long_one_is_not() {
        assert_eq!(judged(Stage::Processing, Worker::Gone, 0), Some(Why::LivenessTtl));
        // Three tries of five to six minutes: fifteen to eighteen minutes are healthy, and ten would kill them.
        for minutes in 15..=18 {
            assert_eq!(judged(Stage::Processing, Worker::Alive, minutes), None);
            let short = Limits { processing: MINUTE * 10, ..Limits::default() };
            let killed = judge(Stage::Processing, Worker::Alive, MINUTE * minutes, &short);
            assert_eq!(killed, Some(Why::ProcessingTimeout));
        }
    }

    fn any_row() -> impl Strategy<Value = (Stage, Worker, Duration)> {
        let stage = prop_oneof![Just(Stage::Pending), Just(Stage::Processing)];
        (stage, prop::sample::select(WORKERS.to_vec()), (0u64..4_000_000).prop_map(Duration::from_millis))
    }

    proptest! {
        #[test]
        fn what_is_failed_once_is_failed_ever_after((stage, worker, age) in any_row(), more in 0u64..10_000) {
            let limits = Limits::default();
            let now = judge(stage, worker, age, &limits);
            let later = judge(stage, worker, age + Duration::from_secs(more), &limits);
            prop_assert!(now.is_none() || now == later);
        }

        #[test]
        fn a_worker_that_can_not_be_asked_about_is_treated_as_one_that_was_never_named((stage, _, age) in any_row()) {
            let limits = Limits::default();
            prop_assert_eq!(judge(stage, Worker::Unknown, age, &limits), judge(stage, Worker::Unnamed, age, &limits));
        }

        #[test]
        fn a_living_worker_only_ever_loses_a_task_to_age((_, _, age) in any_row()) {
            let killed = judge(Stage::Processing, Worker::Alive, age, &Limits::default());
            prop_assert_eq!(killed, (age >= MINUTE * 20).then_some(Why::ProcessingTimeout));
        }
    }
}
