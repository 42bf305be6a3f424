//! Airflow's rule for rows that were *queued* for too long.
//!
//! The rule is Airflow's `_fail_tasks_stuck_in_queued` (up to 2.10.3) and `_handle_tasks_stuck_in_queued` (from 2.10.4)
//! in `scheduler_job_runner.py`: only rows in state *queued*, only those with `queued_dttm < now − timeout` (so the limit
//! itself does not count), and from 2.10.4 a row goes back to the queue twice before it is failed.

use super::super::{Status, Task, TaskId};
use crate::scenario::{ReaperGeneration, ReaperSettings};
use crate::units::Offset;

/// The rule's name: the watcher that fires.
pub const QUEUED_TIMEOUT: &str = "queued_timeout";

/// What stands in `error_code` of a row that was failed.
pub const TIMEOUT: &str = "TIMEOUT";

/// How often a row is queued again before it is failed: `num_stuck_in_queued_retries`.
const QUEUED_AGAIN: u32 = 2;

/// What is to be done with a row, if it still stands as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Fail it.
    Fail {
        /// The task.
        id: TaskId,
        /// When its own retries have it queued again; `None`: its failing is final.
        retry_at: Option<Offset>,
    },
    /// Hand it to the broker again.
    Requeue(TaskId),
}

/// A row that was queued before this is too old at `now`.
#[must_use]
pub fn cutoff(settings: &ReaperSettings, now: Offset) -> Offset {
    let timeout = i64::try_from(settings.timeout.as_nanos()).unwrap_or(i64::MAX);
    Offset(now.0.saturating_sub(timeout))
}

/// When a row that is failed at `now` is queued again by its own retries: `None` once they are used up.
#[must_use]
pub fn retry_at(row: &Task, now: Offset, settings: &ReaperSettings) -> Option<Offset> {
    settings.retry.filter(|retry| row.tries <= retry.times).map(|retry| now + retry.delay)
}

/// One action for each row that is too old, in the order of the rows.
#[must_use]
pub fn decide(rows: &[Task], now: Offset, settings: &ReaperSettings) -> Vec<Action> {
    let cutoff = cutoff(settings, now);
    let old = rows.iter().filter(|row| row.status == Status::Pending && row.queued_at < cutoff);
    let action = |row: &Task| match settings.generation {
        ReaperGeneration::RequeuesTwice if row.attempts <= QUEUED_AGAIN => Action::Requeue(row.id),
        ReaperGeneration::RequeuesTwice | ReaperGeneration::FailsAtOnce => {
            Action::Fail { id: row.id, retry_at: retry_at(row, now, settings) }
        }
    };
    old.map(action).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Retry;
    use proptest::prelude::*;
    use std::time::Duration;

    fn settings(generation: ReaperGeneration) -> ReaperSettings {
        let settings = ReaperSettings::queued(Duration::from_secs(10), Duration::from_secs(2));
        ReaperSettings { generation, ..settings }
    }

    fn fail(id: TaskId) -> Action {
        Action::Fail { id, retry_at: None }
    }

    #[test]
    fn a_task_is_tried_again_as_often_as_it_says() {
        let delay = Duration::from_secs(300);
        let settings =
            ReaperSettings { retry: Some(Retry { times: 1, delay }), ..settings(ReaperGeneration::FailsAtOnce) };
        let first = row(0, Status::Pending, 0.0, 1);
        let second = Task { tries: 2, ..row(1, Status::Pending, 0.0, 1) };
        let now = Offset::from_secs(60.0);
        let retried = Action::Fail { id: first.id, retry_at: Some(Offset::from_secs(360.0)) };
        assert_eq!(decide(&[first, second.clone()], now, &settings), [retried, fail(second.id)]);
    }

    fn row(message: u64, status: Status, queued_s: f64, attempts: u32) -> Task {
        let queued_at = Offset::from_secs(queued_s);
        let id = TaskId { trial: 1, message };
        Task {
            id,
            status,
            worker_id: None,
            error_code: None,
            queued_at,
            updated_at: queued_at,
            attempts,
            heartbeat_at: None,
            tries: 1,
            retry_at: None,
        }
    }

    #[test]
    fn only_what_is_queued_and_older_than_the_limit() {
        let rows = [
            row(0, Status::Pending, 4.9, 1),
            row(1, Status::Pending, 5.0, 1),
            row(2, Status::Processing, 0.0, 1),
            row(3, Status::Done, 0.0, 1),
            row(4, Status::Failed, 0.0, 1),
            row(5, Status::Pending, 14.0, 1),
        ];
        let of = |now| decide(&rows, Offset::from_secs(now), &settings(ReaperGeneration::FailsAtOnce));
        let id = |message| TaskId { trial: 1, message };
        assert_eq!(of(15.0), [fail(id(0))], "exactly the limit is not older");
        assert_eq!(of(15.001), [fail(id(0)), fail(id(1))]);
        assert_eq!(of(0.0), []);
    }

    #[test]
    fn later_airflows_queue_it_again_twice() {
        let of = |attempts| {
            let rows = [row(0, Status::Pending, 0.0, attempts)];
            decide(&rows, Offset::from_secs(60.0), &settings(ReaperGeneration::RequeuesTwice))
        };
        let id = TaskId { trial: 1, message: 0 };
        assert_eq!(of(1), [Action::Requeue(id)]);
        assert_eq!(of(2), [Action::Requeue(id)]);
        assert_eq!(of(3), [fail(id)]);
    }

    fn rows() -> impl Strategy<Value = Vec<Task>> {
        let one = (0u64..50, 0usize..4, 0f64..40.0, 1u32..5);
        prop::collection::vec(one.prop_map(|(m, s, q, a)| row(m, Status::ALL[s], q, a)), 0..40)
    }

    proptest! {
        #[test]
        fn what_is_too_old_once_stays_too_old(rows in rows(), now in 0f64..60.0, later in 0f64..60.0) {
            let settings = settings(ReaperGeneration::FailsAtOnce);
            let at = |s| decide(&rows, Offset::from_secs(s), &settings);
            let after = at(now + later);
            prop_assert!(at(now).iter().all(|action| after.contains(action)));
        }

        #[test]
        fn the_cutoff_selects_exactly_the_rows_that_are_acted_on(rows in rows(), now in 0f64..60.0) {
            let (settings, now) = (settings(ReaperGeneration::RequeuesTwice), Offset::from_secs(now));
            let selected = rows.iter().filter(|r| r.status == Status::Pending && r.queued_at < cutoff(&settings, now));
            prop_assert_eq!(selected.count(), decide(&rows, now, &settings).len());
        }
    }
}
